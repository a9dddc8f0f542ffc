"""GloVe word vectors, 100 numbers a word, for a vocabulary."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from sostenuto.checks import FileFormatError
from sostenuto.data.places import Places
from sostenuto.data.sources.arrays import load_arrays

SIZE = 100
FORMS = (("glove100_imdb/glove100_imdb.npz",), ("glove/glove.6B.100d.txt",))
"""An ``.npz`` with ``words`` (one string, one word per line) and ``vectors``, or Stanford's own text file."""


def find_vectors(places: Places, words: tuple[str, ...]) -> Float32[np.ndarray, "word 100"] | None:
    """Return the vectors of ``words`` from the first file found, or None; a word without a vector gets zeros."""
    path = places.find(FORMS)
    if path is None:
        return None
    table = _from_npz(path[0]) if path[0].suffix == ".npz" else _from_text(path[0], frozenset(words))
    vectors = np.zeros((len(words), SIZE), dtype=np.float32)
    for row, word in zip(vectors, words, strict=True):
        if word in table:
            row[:] = table[word]
    return vectors


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    arrays = load_arrays(path, {"words": 0, "vectors": 2})
    words, vectors = str(arrays["words"]).split("\n"), arrays["vectors"]
    if vectors.shape != (len(words), SIZE):
        raise FileFormatError(path, f"expected vectors of shape {(len(words), SIZE)}", f"got {vectors.shape}")
    return dict(zip(words, vectors, strict=True))


def _from_text(path: Path, wanted: frozenset[str]) -> dict[str, np.ndarray]:
    table = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            word, _, numbers = line.rstrip("\n").partition(" ")
            if word in wanted:
                try:
                    table[word] = np.array(numbers.split(" "), dtype=np.float32)
                except ValueError as error:
                    raise FileFormatError(path, "expected numbers", f"got {numbers[:40]!r}", line=number) from error
                if table[word].shape != (SIZE,):
                    raise FileFormatError(path, f"expected {SIZE} numbers", f"got {len(table[word])}", line=number)
    return table
