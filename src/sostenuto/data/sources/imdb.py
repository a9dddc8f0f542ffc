"""IMDB reviews as token ids: is a review negative or positive? With GloVe vectors where they are available."""

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.download import DAMAGED, fetch, members
from sostenuto.data.files.atomic import atomic
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.glove import find_vectors
from sostenuto.data.sources.word_tokens import Vocabulary

URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
SHA256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"
VOCABULARY_SIZE = 25_000
SHUFFLE_SEED = 2011
CLASSES = ("negative", "positive")
REVIEWS_A_GROUP = 250
"""Reviews of a film are neighbors in the order of the ids, at most 30 of them: blocks keep films together."""

_PARTS = ("train", "test")
_FOLDERS = {f"{part}/{side}": (part, label) for part in _PARTS for label, side in enumerate(("neg", "pos"))}
_JSON = ("imdb/imdb_train.jsonl.xz", "imdb/imdb_test.jsonl.xz")
FORMS = (_JSON, ("imdb/aclImdb_v1.tar.gz",))
_ORIGIN = "Large Movie Review Dataset (Maas et al. 2011)"
_ADVICE = f"put {URL} as {FORMS[1][0]}, or {' and '.join(_JSON)} (a label of 0 or 1 and a text on each line)"


class Review(NamedTuple):
    """One review: 0 for negative or 1 for positive, and its text."""

    label: int
    text: str


def load(name: str, places: Places) -> Dataset:
    """Build ``imdb``: (time,) token ids, 0 = padding and 1 = unknown, then the 25,000 most frequent training words.

    The files are sorted by label, so both parts are shuffled with a fixed seed. ``extras`` holds ``vocabulary``, the
    words in order of their ids, and ``embedding``, their (25002, 100) GloVe vectors, where a file of them is found.
    ``groups`` numbers blocks of neighbors in the files: no film of the training part is in the test part, so a
    validation part drawn by group (``split="group"``), unlike one drawn at random, asks what the test part asks.
    """
    paths = places.obtain(name, FORMS, _download, _ADVICE)
    if len(paths) == 1:
        parts = read_archive(paths[0])
    else:
        parts = {part: read_lines(path) for part, path in zip(_PARTS, paths, strict=True)}
    vocabulary = Vocabulary.of((review.text for review in parts["train"]), VOCABULARY_SIZE)
    extras: dict[str, Any] = {"vocabulary": vocabulary.words}
    vectors = find_vectors(places, vocabulary.words)
    if vectors is not None:
        extras["embedding"] = vectors
    return Dataset(
        name=name,
        train=_encoded(parts["train"], vocabulary, paths[0]),
        test=_encoded(parts["test"], vocabulary, paths[-1]),
        description="film reviews as word tokens, negative or positive",
        origin=_ORIGIN,
        extras=extras,
    )


def _encoded(reviews: list[Review], vocabulary: Vocabulary, path: Path) -> SequenceSet:
    order = np.random.RandomState(SHUFFLE_SEED).permutation(len(reviews))
    sequences = vocabulary.encode(reviews[index].text for index in order)
    for index, sequence in zip(order, sequences, strict=True):
        if len(sequence) == 0:
            raise FileFormatError(path, "expected words in every review", f"got {reviews[index].text!r}")
    labels = np.array([review.label for review in reviews])
    targets = np.array(CLASSES)[labels[order]]
    groups = _blocks(labels)[order]
    return SequenceSet(sequences, targets=targets, task="classification", groups=groups, target_name="sentiment")


def _blocks(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Give neighbors of one label a common number, both labels alike: as many are negative as positive in a block."""
    place = np.empty(len(labels), dtype=np.int64)
    for label in range(len(CLASSES)):
        rows = np.flatnonzero(labels == label)
        place[rows] = np.arange(len(rows))
    return place // REVIEWS_A_GROUP


def read_lines(path: Path) -> list[Review]:
    """Read one JSON object a line, with ``label`` and ``text``, from a file packed with xz."""
    reviews = []
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                reviews.append(_review(path, number, line))
    except (*DAMAGED, UnicodeDecodeError) as error:
        raise FileFormatError(
            path, "expected lines of JSON packed with xz", f"could not read it ({error})", "replace the file"
        ) from error
    if not reviews:
        raise FileFormatError(path, "expected at least one review", "got none")
    return reviews


def _review(path: Path, number: int, line: str) -> Review:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise FileFormatError(path, "expected a JSON object", f"got {line[:40]!r} ({error})", line=number) from error
    if not isinstance(row, dict) or row.get("label") not in (0, 1) or not isinstance(row.get("text"), str):
        raise FileFormatError(path, "expected a label of 0 or 1 and a text", f"got {line[:40]!r}", line=number)
    return Review(int(row["label"]), row["text"])


def read_archive(path: Path) -> dict[str, list[Review]]:
    """Read ``aclImdb/{train,test}/{neg,pos}/ID_RATING.txt`` from the original archive, sorted by label and id."""
    texts: dict[str, list[tuple[int, int, str]]] = {part: [] for part in _PARTS}
    for name, content in members(path, _is_review):
        part, label = _FOLDERS["/".join(name.parts[-3:-1])]
        text = content.decode("utf-8", errors="replace")
        texts[part].append((label, int(name.stem.partition("_")[0]), text))
    for part, rows in texts.items():
        if not rows:
            raise FileFormatError(path, f"expected reviews in aclImdb/{part}", "got none")
    return {part: [Review(label, text) for label, _, text in sorted(rows)] for part, rows in texts.items()}


def _is_review(name: PurePosixPath) -> bool:
    named = name.suffix == ".txt" and name.stem.partition("_")[0].isdecimal()
    return named and "/".join(name.parts[-3:-1]) in _FOLDERS


def _written(reviews: Iterable[Review]) -> Iterator[str]:
    return (json.dumps(review._asdict(), ensure_ascii=False) + "\n" for review in reviews)


def _download(cache: Path) -> None:
    archive = fetch(URL, cache / FORMS[1][0], sha256=SHA256)
    parts = read_archive(archive)
    for part, name in zip(_PARTS, _JSON, strict=True):
        with atomic(cache / name) as temporary, lzma.open(temporary, "wt", encoding="utf-8", preset=1) as file:
            file.writelines(_written(parts[part]))
    archive.unlink()


SOURCE = Source(
    prefix="imdb",
    entries=(
        Entry(
            name="imdb",
            title="IMDB film reviews as word tokens, with GloVe vectors where available",
            task="classification",
            steps="about 10 to 2700",
            channels="tokens",
            classes="2",
            sizes="25000 / 25000",
            origin=_ORIGIN,
            license="research use; cite Maas et al. 2011",
        ),
    ),
    names=("imdb",),
    load=load,
    local=lambda places: ("imdb",) if places.find(FORMS) else (),
)
