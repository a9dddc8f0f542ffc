"""The parts a run needs, drawn where they are not given: training, validation and test sequences."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sostenuto.checks import require, shown
from sostenuto.choices import DataPart
from sostenuto.data.config import DataConfig
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import check_learnable
from sostenuto.data.splits import split
from sostenuto.data.targets import class_rows, has_classes


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a data set; ``whole`` keeps its name and extras. Where there is no test part, ``test`` is None."""

    whole: Dataset
    train: SequenceSet
    validation: SequenceSet | None
    test: SequenceSet | None

    def held_out(self) -> tuple[DataPart, SequenceSet]:
        """Give the part that a model is scored on, and its name: the test part, or what there is instead."""
        if self.test is not None:
            return "test", self.test
        return ("train", self.train) if self.validation is None else ("validation", self.validation)

    def seen(self) -> SequenceSet:
        """Give all that a model sees before it is scored: the validation part too, where a test part scores."""
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


def divide(dataset: Dataset, config: DataConfig, *, seed: int = 0) -> Parts:
    """Draw what is not given: a test part, then a validation part, both from the training part."""
    train, validation, test = dataset.train.numbered(), dataset.validation, dataset.test
    check_learnable(train)
    if test is None and config.test_fraction > 0:
        train, test = split(train, config.test_fraction, method=config.split, seed=seed)
    if validation is None:
        train, validation = hold_out(train, config, seed=seed)
    cure = "bring more data, or a test file of its own"
    require(len(train) >= 2, "expected at least 2 training sequences beside the test part", f"got {len(train)}", cure)
    _check_classes(dataset.train, train, config.split)
    if test is not None and len(test) == 0:
        test = None
    return Parts(dataset, train, validation, test)


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
