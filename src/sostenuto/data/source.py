"""From a `DataConfig` to sequences: a named data set, a synthetic task, or files."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Literal

import numpy as np

from sostenuto.checks import require
from sostenuto.data import files, registry
from sostenuto.data.config import DataConfig, FileOptions
from sostenuto.data.dataset import BatchTransform, Dataset, SequenceSet
from sostenuto.data.files.text import unpacking_at_most
from sostenuto.data.targets import as_step_targets
from sostenuto.types import PathLike

_STEP_KINDS: dict[str, Literal["classes", "numbers"]] = {
    "step-classification": "classes",
    "step-regression": "numbers",
}


def open_dataset(config: DataConfig, *, data_dir: PathLike | None = None, seed: int = 0) -> Dataset:
    """Open a named data set, a synthetic ``task/NAME`` drawn from ``seed``, or a file with an optional test file."""
    source = config.source
    if is_file_source(source):
        return _open_files(config)
    require(not config.test, "expected a file together with --test", f"got the data set {source!r}")
    if source.startswith("task/"):
        from sostenuto.data.tasks import generate

        return generate(source.removeprefix("task/"), seed)
    with unpacking_at_most(config.most_unpacked):
        return registry.load(source, data_dir)


def with_checksum(config: DataConfig, train: SequenceSet) -> DataConfig:
    """Note the checksum of the training data; where one is noted already, other data are refused."""
    checksum = train.checksum()
    require(
        config.checksum in ("", checksum),
        f"{config.source}: expected the data the run was started with (checksum {config.checksum})",
        f"got others ({checksum})",
        "bring the old file back or start a new run",
    )
    return replace(config, checksum=checksum)


def is_file_source(source: str) -> bool:
    """Tell a file (it is there, or has a suffix a reader knows) from a data set; its name wins over a folder's."""
    path = Path(source)
    if {suffix.lower() for suffix in path.suffixes[-2:]} & set(files.READERS):
        return True
    if path.is_dir() and source.split("/")[0] in (known.prefix for known in registry.sources()):
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


def read_file(config: DataConfig, path: PathLike, *, labeled: bool = True) -> dict[str, SequenceSet]:
    """Read the parts of a file with the options of ``config``."""
    options = {option.name: getattr(config, option.name) for option in fields(FileOptions)}
    task = "sequence" if config.task in _STEP_KINDS else config.task or None
    with unpacking_at_most(config.most_unpacked):
        parts = files.read_parts(path, labeled=labeled, task=task, **options)
    if config.task in _STEP_KINDS:
        parts = {name: as_step_targets(part, _STEP_KINDS[config.task]) for name, part in parts.items()}
    if config.timespans == "ignore":
        parts = {name: replace(part, timespans=None, time_unit=0.0) for name, part in parts.items()}
    return parts


def open_for_prediction(
    config: DataConfig, source: str, *, data_dir: PathLike | None = None, seed: int = 0
) -> tuple[SequenceSet, BatchTransform | None]:
    """Open sequences to predict: a file read as the run's own data were, or the test part of a named data set."""
    if not is_file_source(source):
        dataset = open_dataset(replace(config, source=source, test=""), data_dir=data_dir, seed=seed)
        return dataset.test or dataset.train, dataset.batch_transform
    parts = read_file(config, source, labeled=False)
    sequences = parts.get("test", parts["train"])
    if config.task == "forecast":
        from sostenuto.data.tasks.forecast import last_windows

        return last_windows(_timed(sequences), config.window), None
    return sequences, None


def _open_files(config: DataConfig) -> Dataset:
    parts = read_file(config, config.source)
    train, test = parts["train"], parts.get("test")
    if config.test:
        tested = replace(config, task=config.task or train.task or "")
        test = read_file(tested, config.test)["train"]
        channels, got = train.num_channels, test.num_channels
        hint = "both files must hold the same channels in the same layout"
        require(
            channels == got, f"{config.test}: expected {channels} channels as in {config.source}", f"got {got}", hint
        )
    name = Path(config.source).name
    if config.task == "forecast":
        return _forecast(name, train, test, config)
    return Dataset(name=name, train=train, test=test, origin=str(config.source))


def _forecast(name: str, train: SequenceSet, test: SequenceSet | None, config: DataConfig) -> Dataset:
    """Cut every series in time and then into windows; a given test file is cut into windows whole."""
    from sostenuto.data.tasks.forecast import forecast, windows

    cut = forecast(
        _timed(train),
        config.window,
        horizon=config.horizon,
        test_fraction=config.test_fraction if test is None else 0.0,
        validation_fraction=config.validation,
        name=name,
    )
    windows = cut.test if test is None else windows(_timed(test), config.window, horizon=config.horizon)
    return replace(cut, test=windows, origin=name)


def _timed(series: SequenceSet) -> SequenceSet:
    """Name the series and their steps by their positions where the file does not."""
    times = series.times or [np.arange(len(sequence)).astype(str) for sequence in series.sequences]
    return replace(series.numbered(), times=times)
