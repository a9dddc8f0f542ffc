"""What the UCR, UEA and TSER archives share: one folder a data set, a training file and a test file in it."""

from collections.abc import Sequence
from pathlib import Path

from sostenuto.checks import FileFormatError
from sostenuto.choices import Task
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.download import extract, fetch_recorded
from sostenuto.data.places import Form, Places

URL = "https://timeseriesclassification.com/aeon-toolkit/"
PAGE = "https://timeseriesclassification.com"


def part_forms(name: str, folders: Sequence[str], suffixes: Sequence[str]) -> tuple[Form, ...]:
    """List how the two parts of ``name`` may lie in a data folder, plain or gzipped.

    >>> part_forms("Coffee", ["ucr"], [".tsv"])[0]
    ('ucr/Coffee/Coffee_TRAIN.tsv', 'ucr/Coffee/Coffee_TEST.tsv')
    """
    endings = [suffix + packed for suffix in suffixes for packed in ("", ".gz")]
    return tuple(
        (f"{folder}/{name}/{name}_TRAIN{ending}", f"{folder}/{name}/{name}_TEST{ending}")
        for folder in folders
        for ending in endings
    )


def local_names(places: Places, folders: Sequence[str], suffixes: Sequence[str]) -> set[str]:
    """Name the data sets that lie whole in any data folder."""
    names = {path.name for folder in folders for path in places.matching(f"{folder}/*") if path.is_dir()}
    return {name for name in names if places.find(part_forms(name, folders, suffixes))}


def read_dataset(name: str, paths: tuple[Path, ...], task: Task, origin: str) -> Dataset:
    """Read a training and a test file, or one ``.npz`` file that holds both."""
    from sostenuto.data.files import read, read_parts

    if len(paths) == 2:
        train, test = (read(path, task=task) for path in paths)
    else:
        parts = read_parts(paths[0], task=task)
        if "test" not in parts:
            raise FileFormatError(paths[0], "expected the arrays X_train and X_test", "got no X_test")
        train, test = parts["train"], parts["test"]
    _check_channels(paths, train, test)
    return Dataset(name=name, train=train, test=test, origin=origin, description=f"{name.split('/')[1]}, archive split")


def _check_channels(paths: tuple[Path, ...], train: SequenceSet, test: SequenceSet) -> None:
    if train.num_channels != test.num_channels:
        raise FileFormatError(
            paths[-1], f"expected {train.num_channels} channels as in training", f"got {test.num_channels}"
        )


def download_zip(name: str, folder: Path) -> None:
    """Fetch the archive's zip of ``name`` and take its two ``.ts`` files into ``folder``."""
    packed, names = folder / f"{name}.zip", (f"{name}_TRAIN.ts", f"{name}_TEST.ts")
    try:
        book = folder.parent / "checksums.json"
        fetch_recorded(f"{URL}{name}.zip", packed, book, lambda path: extract(path, folder, names))
    finally:
        packed.unlink(missing_ok=True)
