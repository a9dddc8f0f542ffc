"""From a `DataConfig` to the parts a run needs: training, validation and test sequences."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from sostenuto.checks import require, shown
from sostenuto.data import files, registry, tasks
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import check_learnable
from sostenuto.data.splits import split
from sostenuto.data.targets import as_step_targets, class_rows, has_classes
from sostenuto.results import DataPart
from sostenuto.training.batches import BatchTransform
from sostenuto.training.config import DataConfig
from sostenuto.types import PathLike

_STEP_KINDS: dict[str, Literal["classes", "numbers"]] = {
    "step-classification": "classes",
    "step-regression": "numbers",
}


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


def open_dataset(config: DataConfig, *, data_dir: PathLike | None = None, seed: int = 0) -> Dataset:
    """Open a named data set, a synthetic ``task/NAME`` drawn from ``seed``, or a file with an optional test file."""
    source = config.source
    if is_file_source(source):
        return _open_files(config)
    require(not config.test, "expected a file together with --test", f"got the data set {source!r}")
    if source.startswith("task/"):
        return tasks.generate(source.removeprefix("task/"), seed)
    return registry.load(source, data_dir)


def is_file_source(source: str) -> bool:
    """Tell a file (it is there, or has a suffix a reader knows) from a data set; its name goes before a folder."""
    path = Path(source)
    if {suffix.lower() for suffix in path.suffixes[-2:]} & set(files.READERS):
        return True
    if path.is_dir() and source.split("/")[0] in {known.prefix for known in registry.sources()}:
        return False
    return path.exists()


def absolute(config: DataConfig) -> DataConfig:
    """Write files with their whole path, so that a run can be resumed from any folder."""
    paths = {
        name: str(Path(path).resolve())
        for name, path in (("source", config.source), ("test", config.test))
        if path and is_file_source(path)
    }
    return replace(config, **paths)


def read_file(config: DataConfig, path: PathLike, *, labelled: bool = True) -> dict[str, SequenceSet]:
    """Read the parts of a file with the options of ``config``."""
    given: dict[str, Any] = {name: getattr(config, name) or None for name in ("target", "series", "time", "group")}
    given |= {name: getattr(config, name) for name in ("layout", "ignore", "categorical")}
    given["task"] = "sequence" if config.task in _STEP_KINDS else config.task or None
    parts = files.read_parts(path, labelled=labelled, **given)
    if config.task in _STEP_KINDS:
        parts = {name: as_step_targets(part, _STEP_KINDS[config.task]) for name, part in parts.items()}
    if config.timespans == "ignore":
        parts = {name: replace(part, timespans=None, time_unit=0.0) for name, part in parts.items()}
    return parts


def training_count(dataset: Dataset, config: DataConfig) -> int:
    """Count, up to rounding, the sequences that `divide` leaves to train on."""
    kept = 1.0 if dataset.test is not None else 1 - config.test_fraction
    kept *= 1.0 if dataset.validation is not None else 1 - config.validation
    return round(kept * len(dataset.train))


def divide(dataset: Dataset, config: DataConfig, *, seed: int = 0) -> Parts:
    """Draw what is not given: a test part, then a validation part, both from the training part."""
    train, validation, test = dataset.train.numbered(), dataset.validation, dataset.test
    check_learnable(train)
    method = cast(Any, config.split)
    if test is None and config.test_fraction > 0:
        train, test = split(train, config.test_fraction, method=method, seed=seed)
    if validation is None:
        train, validation = hold_out(train, config, seed=seed)
    cure = "bring more data, or a test file of its own"
    require(len(train) >= 2, "expected at least 2 training sequences beside the test part", f"got {len(train)}", cure)
    _check_classes(dataset.train, train, config.split)
    if test is not None and len(test) == 0:
        test = None
    return Parts(dataset, train, validation, test)


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


def hold_out(train: SequenceSet, config: DataConfig, *, seed: int = 0) -> tuple[SequenceSet, SequenceSet | None]:
    """Draw a validation part from the training part: None where none is wanted, or two sequences are all there are."""
    if config.validation == 0 or len(train) <= 2:
        return train, None
    train, validation = split(train, config.validation, method=cast(Any, config.split), seed=seed + 1)
    return train, validation if len(validation) else None


def _open_files(config: DataConfig) -> Dataset:
    parts = read_file(config, config.source)
    train, test = parts["train"], parts.get("test")
    if config.test:
        tested = replace(config, task=config.task or train.task or "")
        test = read_file(tested, config.test)["train"]
        channels, got = train.num_channels, test.num_channels
        cure = "both files must hold the same channels in the same layout"
        require(
            channels == got, f"{config.test}: expected {channels} channels as in {config.source}", f"got {got}", cure
        )
    name = Path(config.source).name
    if config.task == "forecast":
        return _forecast(name, train, test, config)
    return Dataset(name=name, train=train, test=test, origin=str(config.source))


def _forecast(name: str, train: SequenceSet, test: SequenceSet | None, config: DataConfig) -> Dataset:
    """Cut every series in time and then into windows; a given test file is cut into windows whole."""
    cut = tasks.forecast(
        _timed(train),
        config.window,
        horizon=config.horizon,
        test_fraction=config.test_fraction if test is None else 0.0,
        validation_fraction=config.validation,
        name=name,
    )
    windows = cut.test if test is None else tasks.windows(_timed(test), config.window, horizon=config.horizon)
    return replace(cut, test=windows, origin=name)


def _timed(series: SequenceSet) -> SequenceSet:
    """Name the series and their steps by their positions where the file does not."""
    times = series.times or [np.arange(len(sequence)).astype(str) for sequence in series.sequences]
    return replace(series.numbered(), times=times)


def open_for_prediction(
    config: DataConfig, source: str, *, data_dir: PathLike | None = None, seed: int = 0
) -> tuple[SequenceSet, BatchTransform | None]:
    """Open sequences to predict: a file read as the run's own data were, or the test part of a named data set."""
    if not is_file_source(source):
        dataset = open_dataset(replace(config, source=source, test=""), data_dir=data_dir, seed=seed)
        return dataset.test or dataset.train, dataset.batch_transform
    parts = read_file(config, source, labelled=False)
    sequences = parts.get("test", parts["train"])
    if config.task == "forecast":
        return tasks.last_windows(_timed(sequences), config.window), None
    return sequences, None
