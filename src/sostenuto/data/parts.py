"""The parts a run needs, drawn where they are not given: training, validation and test sequences."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from sostenuto.checks import FileFormatError, require, shown
from sostenuto.choices import DataPart
from sostenuto.data.config import DataConfig
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import check_learnable
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.splits import split, split_indices
from sostenuto.data.targets import class_rows, has_classes
from sostenuto.types import PathLike

Rows = dict[str, list[int]]
"""The sequences of each part, by their position in the training part of the data set."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a data set; ``whole`` keeps its name and extras. Where there is no test part, ``test`` is None."""

    whole: Dataset
    train: SequenceSet
    validation: SequenceSet | None
    test: SequenceSet | None
    rows: Rows | None = None

    def held_out(self) -> tuple[DataPart, SequenceSet]:
        """Return the part that a model is scored on, and its name: the test part, or what there is instead."""
        if self.test is not None:
            return "test", self.test
        return ("train", self.train) if self.validation is None else ("validation", self.validation)

    def seen(self) -> SequenceSet:
        """Return all that a model sees before it is scored: the validation part too, where a test part scores."""
        if self.test is None or self.validation is None:
            return self.train
        parts = (self.train, self.validation)
        targets: list[Any] = [part.targets for part in parts]
        stepwise = isinstance(targets[0], list)
        spans = None
        if self.train.timespans is not None:
            spans = [span for part in parts for span in cast(Any, part.timespans)]
        return SequenceSet(
            [sequence for part in parts for sequence in part.sequences],
            [*targets[0], *targets[1]] if stepwise else np.concatenate(targets),
            self.train.task,
            timespans=spans,
            channel_names=self.train.channel_names,
            target_name=self.train.target_name,
        )


def training_count(dataset: Dataset, config: DataConfig) -> int:
    """Count, up to rounding, the sequences that `divide` leaves to train on."""
    kept = 1.0 if dataset.test is not None else 1 - config.test_fraction
    kept *= 1.0 if dataset.validation is not None else 1 - config.validation
    return round(kept * len(dataset.train))


def divide(dataset: Dataset, config: DataConfig, *, seed: int = 0, rows: Rows | None = None) -> Parts:
    """Draw what is not given: a test part, then a validation part, both from the training part.

    ``rows`` are those of an earlier division of the same data, which is then repeated and not drawn.
    """
    whole = dataset.train.numbered()
    check_learnable(whole)
    if rows is None:
        rows = _drawn(dataset, whole, config, seed)
    parts = {name: whole.take(np.asarray(chosen, dtype=int)) for name, chosen in rows.items()}
    train, test = parts["train"], dataset.test or parts.get("test")
    hint = "bring more data, or a test file of its own"
    require(len(train) >= 2, "expected at least 2 training sequences beside the test part", f"got {len(train)}", hint)
    _check_classes(dataset.train, train, config.split)
    return Parts(dataset, train, dataset.validation or parts.get("validation"), test, rows)


def _drawn(dataset: Dataset, whole: SequenceSet, config: DataConfig, seed: int) -> Rows:
    kept, rows = np.arange(len(whole)), {}
    if dataset.test is None and config.test_fraction > 0:
        kept, rows["test"] = split_indices(whole, config.test_fraction, method=config.split, seed=seed)
    if dataset.validation is None and config.validation > 0 and len(kept) > 2:
        inner = split_indices(whole.take(kept), config.validation, method=config.split, seed=seed + 1)
        kept, rows["validation"] = (kept[part] for part in inner)
    return {name: chosen.tolist() for name, chosen in {**rows, "train": kept}.items() if len(chosen)}


def write_rows(path: PathLike, parts: Parts) -> None:
    """Write which sequences of the data are in which part, by position and name."""
    assert parts.rows is not None
    names = parts.whole.train.numbered().ids
    assert names is not None
    ids = {part: [str(names[row]) for row in rows] for part, rows in parts.rows.items()}
    write_atomically(path, json.dumps({"rows": parts.rows, "ids": ids}))


def read_rows(path: PathLike, dataset: Dataset) -> Rows | None:
    """Read what `write_rows` wrote, None where nothing was; what does not fit the data is refused."""
    if not Path(path).exists():
        return None
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))["rows"]
        every = [row for chosen in rows.values() for row in chosen]
        fits = sorted(every) == list(range(len(dataset.train))) and rows.keys() <= set(get_args(DataPart))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(path, "expected the parts of a run", f"got a damaged file ({error})") from error
    if not fits or "train" not in rows:
        raise FileFormatError(path, f"expected parts of {len(dataset.train)} sequences", "got others")
    return rows


def hold_out(train: SequenceSet, config: DataConfig, *, seed: int = 0) -> tuple[SequenceSet, SequenceSet | None]:
    """Draw a validation part from the training part: None where none is wanted, or two sequences are all there are."""
    if config.validation == 0 or len(train) <= 2:
        return train, None
    train, validation = split(train, config.validation, method=config.split, seed=seed + 1)
    return train, validation if len(validation) else None


def _check_classes(whole: SequenceSet, train: SequenceSet, method: str) -> None:
    """Refuse a split that leaves no sequence of a class to train on."""
    if not has_classes(whole):
        return
    kept = class_rows(train)[0]
    lost = [repr(name) for name in class_rows(whole)[0] if name not in kept]
    require(
        not lost,
        f"expected every class in the training part of split={method!r}",
        f"got none of {shown(lost)}",
        "pass split='stratified', or bring a test file of its own",
    )
