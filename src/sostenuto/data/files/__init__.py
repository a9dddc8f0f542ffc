"""Read sequences from files: `read` for one set, `read_parts` for a file that may hold a training and a test part.

The format follows from the suffix (any case); ``.gz`` may come after each of them. Nothing is guessed.

``.ts``
    UEA, UCR and TSER. A header of ``@`` lines, then ``@data``, then one case per line: channels separated by ``:``,
    values by ``,``, the label last. ``?`` or ``NaN`` is a missing value, ``#`` opens a comment line. ``@classLabel
    true a b c`` makes a classification file, ``@targetLabel true`` a regression file. Time stamps are refused.

``.tsv``, ``.txt``
    The UCR archive: column 0 is the label, the other columns are the steps of one channel, separated by tabs, commas
    or blanks as in the first line. The archive pads short series with ``NaN``, so missing values at the end of a row
    are cut off and the row is a shorter sequence; those before stay missing. Labels are class names unless
    ``task="regression"``; ``1.0000e+00`` is the class ``1``.

``.csv``, ``.parquet``
    *Wide*: each row is a sequence of one channel; ``target`` and ``group`` are columns of these names, every other
    column is a step, in file order; missing values at the end of a row are cut off.
    *Long*: chosen by a column ``series``; each row is one step of the sequence named there. ``time`` (numbers or ISO
    dates) orders the steps, ``target`` and ``group`` are constant within a series, every other column is a channel.
    A target that varies within a series is a target for every step and needs ``task="sequence"``. Uneven sampling
    gives ``timespans``: the time since the step before over the file's median (``time_unit``), 1 for the first step.
    Columns in ``ignore`` are left out; those in ``categorical`` may hold text and become a channel of 0 and 1 for each
    of their values.
    Other column names are given with ``target=``, ``series=``, ``time=`` and ``group=``; ``time=`` without a series
    column reads the whole file as one sequence. A header line is required.

``.npz``
    Arrays without pickled objects: ``X`` of shape (n, time, channel), or (n, channel, time) with ``layout="bct"``, or
    (n, time); optional ``y`` (one row per sequence; (n, time, …) with ``task="sequence"``), ``lengths`` (the true
    length of each padded sequence), ``timespans`` (n, time) and ``groups`` (n,). With names ending in ``_train`` and
    ``_test`` the file holds two parts.

Where neither the format nor ``task`` says what the targets are (csv, parquet, npz), names and whole numbers are classes
and other numbers are a regression. For ``task="forecast"`` the series are all there is: in a long table ``target`` is
the column to forecast and the others are read beside it; elsewhere targets are left out.
Every sequence is a (time, channel) float array with NaN where a value is missing; infinities are refused.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.options import Options
from sostenuto.data.files.text import check_file
from sostenuto.types import PathLike

__all__ = ["READERS", "read", "read_parts"]

Reader = Callable[[Path, Options], SequenceSet]

READERS: dict[str, str | Reader] = {
    ".ts": "ts",
    ".tsv": "ucr",
    ".txt": "ucr",
    ".csv": "comma",
    ".npz": "npz",
    ".parquet": "parquet",
}
"""What reads each suffix: a function, or the module here whose function ``read`` does, imported when it is needed."""


def read(path: PathLike, **options: Any) -> SequenceSet:
    r"""Read the sequences of one file; the module's page says what each format holds.

    ``options`` are the fields of `Options`: ``layout`` is that of an ``.npz`` array; ``target``, ``series``, ``time``
    and ``group`` name the columns of a table, ``ignore`` those to leave out and ``categorical`` those of text;
    ``task`` says what the targets are. With ``labeled=False`` a file for prediction may lack its targets: they are
    None then, and kept where present.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "steps.csv"
    >>> _ = path.write_text("target,0,1,2\nup,1,2,3\ndown,3,2,\n")
    >>> data = read(path)
    >>> data.task, data.targets.tolist(), [len(sequence) for sequence in data.sequences]
    ('classification', ['up', 'down'], [3, 2])
    >>> folder.cleanup()
    """
    file = check_file(path)
    return _reader(_suffix(file))(file, Options.of(**options))


def read_parts(path: PathLike, **options: Any) -> dict[str, SequenceSet]:
    """Read the parts of one file: ``"train"``, and ``"test"`` where it holds one.

    Two parts are the arrays ``X_train`` and ``X_test`` of an ``.npz`` file; every other file is a training
    part. The options are those of `read`; the task is settled on the training part and holds for both.
    """
    file = check_file(path)
    if _suffix(file) != ".npz":
        return {"train": read(file, **options)}
    from sostenuto.data.files import npz

    return npz.read_parts(file, Options.of(**options))


def _reader(suffix: str) -> Reader:
    reader = READERS[suffix]
    return reader if callable(reader) else importlib.import_module(f"sostenuto.data.files.{reader}").read


def _suffix(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix not in READERS:
        known = ", ".join(READERS)
        raise FileFormatError(path, f"expected a file ending in {known}, or one of them and .gz", f"got {path.name!r}")
    return suffix
