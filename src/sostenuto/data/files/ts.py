"""The ``.ts`` format of the UEA, UCR and TSER archives."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError, shown
from sostenuto.choices import Task
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.cells import CellError, parse_numbers, quoted
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.targets import is_missing, read_targets
from sostenuto.data.files.text import read_lines

_MISSING = frozenset({"?", "nan"})
_ALIASES = {"dimension": "dimensions"}
_BOOLEANS = ("timestamps", "missing", "univariate", "equallength")
_COUNTS = ("dimensions", "serieslength")
_LABELS = ("classlabel", "targetlabel")
_TAGS = ("problemname", *_BOOLEANS, *_COUNTS, *_LABELS, "data")


@dataclass(frozen=True)
class Header:
    """What the ``@`` lines declare, and the index of the first line after ``@data``."""

    flags: dict[str, bool] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    end: int = 0

    @property
    def task(self) -> Task | None:
        """The task the label line names, None where the file has no labels."""
        if self.flags.get("classlabel"):
            return "classification"
        return "regression" if self.flags.get("targetlabel") else None

    @property
    def channels(self) -> int | None:
        """The number of channels, None where the header is silent."""
        return 1 if self.flags.get("univariate") else self.counts.get("dimensions")

    @property
    def steps(self) -> int | None:
        """The length of every sequence, None where they may differ or the header is silent."""
        return self.counts.get("serieslength") if self.flags.get("equallength") else None


@dataclass
class Cases:
    """The cases read so far, their labels (None where left out) and their lines."""

    sequences: list[np.ndarray] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def read(path: Path, options: Options) -> SequenceSet:
    """Read a ``.ts`` file: ``(time, channel)`` float arrays of any length, and their labels."""
    options.refuse_columns(path)
    lines = read_lines(path)
    header = _read_header(path, lines)
    _check_task(path, header, options)
    cases = _read_cases(path, lines, header, options.labeled)
    task = options.task or header.task
    cells = _label_cells(path, header, cases)
    targets, task = read_targets(cells, task, labeled=options.labeled, place=Place(path, cases.lines))
    return SequenceSet(cases.sequences, targets, task)


def _read_header(path: Path, lines: list[str]) -> Header:
    flags: dict[str, bool] = {}
    counts: dict[str, int] = {}
    classes: tuple[str, ...] = ()
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        tag = words[0].lower().removeprefix("@")
        tag = _ALIASES.get(tag, tag)
        if not words[0].startswith("@"):
            raise FileFormatError(
                path, "expected a header line starting with @ before @data", f"got {quoted(words[0])}", line=number
            )
        if tag not in _TAGS:
            known = ", ".join(f"@{name}" for name in _TAGS)
            raise FileFormatError(
                path, f"expected one of {known} (any case)", f"got {quoted(words[0])}", "remove the line", line=number
            )
        if tag in seen:
            raise FileFormatError(path, f"expected @{tag} once", "got it a second time", line=number)
        seen.add(tag)
        if tag == "data":
            header = Header(flags, counts, classes, end=number)
            _check_header(path, header)
            return header
        if tag in _COUNTS:
            counts[tag] = _count(path, number, words)
        elif tag != "problemname":
            flags[tag] = _flag(path, number, words)
        if tag == "classlabel" and flags[tag]:
            classes = _classes(path, number, words)
        if tag == "timestamps" and flags[tag]:
            raise FileFormatError(
                path,
                "expected @timeStamps false",
                "got true",
                "write the series as a long .csv with the columns series, time and target",
                line=number,
            )
    raise FileFormatError(path, "expected a line @data after the header", "got none before the end of the file")


def _flag(path: Path, line: int, words: list[str]) -> bool:
    value = words[1].lower() if len(words) > 1 else ""
    if value not in ("true", "false"):
        raise FileFormatError(path, f"expected true or false after {words[0]}", f"got {quoted(value)}", line=line)
    return value == "true"


def _count(path: Path, line: int, words: list[str]) -> int:
    value = words[1] if len(words) > 1 else ""
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        raise FileFormatError(
            path, f"expected a whole number of at least 1 after {words[0]}", f"got {quoted(value)}", line=line
        )
    return int(value)


def _classes(path: Path, line: int, words: list[str]) -> tuple[str, ...]:
    names = tuple(words[2:])
    if not names:
        raise FileFormatError(path, f"expected the class names after {words[0]} true", "got none", line=line)
    if len(set(names)) < len(names):
        raise FileFormatError(path, "expected each class name once", f"got {shown(names)}", line=line)
    return names


def _check_header(path: Path, header: Header) -> None:
    if header.flags.get("classlabel") and header.flags.get("targetlabel"):
        raise FileFormatError(path, "expected @classLabel true or @targetLabel true", "got both", line=header.end)
    dimensions = header.counts.get("dimensions", 1)
    if header.flags.get("univariate") and dimensions != 1:
        raise FileFormatError(
            path, "expected @dimensions 1 with @univariate true", f"got @dimensions {dimensions}", line=header.end
        )


def _check_task(path: Path, header: Header, options: Options) -> None:
    """Refuse a file without labels where they are needed, and a task that the header denies."""
    if options.task == "forecast":
        return
    if header.task is None and options.labeled:
        raise FileFormatError(
            path,
            "expected @classLabel true with the class names, or @targetLabel true, in the header",
            "got a file without labels",
            line=header.end,
        )
    if header.task is not None and options.task not in (None, header.task):
        raise FileFormatError(
            path, f"expected task={header.task!r} as the header says", f"got task={options.task!r}", line=header.end
        )


def _read_cases(path: Path, lines: list[str], header: Header, labeled: bool) -> Cases:
    cases = Cases()
    channels, steps = header.channels, header.steps
    for number in range(header.end + 1, len(lines) + 1):
        line = lines[number - 1].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("@"):
            raise FileFormatError(path, "expected values after @data", f"got {quoted(line)}", line=number)
        parts = line.split(":")
        channels = channels or len(parts) - (header.task is not None)
        # A case for prediction may come without the label that the header promises.
        bare = header.task is None or (not labeled and len(parts) == channels)
        if len(parts) != channels + (not bare) or channels == 0:
            wanted = f"{max(channels, 1)} {'channel' if channels <= 1 else 'channels'}" + (
                "" if bare else " and a label"
            )
            raise FileFormatError(path, f"expected {wanted} separated by ':'", f"got {_parts(len(parts))}", line=number)
        sequence = _read_case(path, number, parts[:channels])
        if header.flags.get("equallength"):
            steps = steps or len(sequence)
            if len(sequence) != steps:
                raise FileFormatError(
                    path, f"expected {steps} values in each channel", f"got {len(sequence)}", line=number
                )
        cases.sequences.append(sequence)
        cases.labels.append(None if bare else parts[-1].strip())
        cases.lines.append(number)
    if not cases.sequences:
        raise FileFormatError(path, "expected at least one case after @data", "got none", line=header.end)
    return cases


def _parts(count: int) -> str:
    return f"{count} {'part' if count == 1 else 'parts'}"


def _read_case(path: Path, line: int, parts: list[str]) -> np.ndarray:
    channels = []
    for index, part in enumerate(parts):
        if not part.strip():
            raise FileFormatError(
                path, f"expected at least one value in channel {index}", "got a sequence of length zero", line=line
            )
        cells = part.split(",")
        try:
            channels.append(parse_numbers(cells, _MISSING))
        except CellError as error:
            where = f"in channel {index}, step {error.index}"
            raise FileFormatError(path, f"{error.expected} {where}", error.got, line=line) from error
        if len(channels[index]) != len(channels[0]):
            raise FileFormatError(
                path,
                f"expected {len(channels[0])} values in every channel of a case as in channel 0",
                f"got {len(channels[index])} in channel {index}",
                line=line,
            )
    return np.stack(channels, axis=1)


def _label_cells(path: Path, header: Header, cases: Cases) -> list[str] | None:
    """Check the labels against the declared classes; those left out become empty cells."""
    if header.task is None:
        return None
    cells = [cell or "" for cell in cases.labels]
    for cell, line in zip(cells, cases.lines, strict=True):
        if header.classes and not is_missing(cell) and cell not in header.classes:
            raise FileFormatError(
                path,
                f"expected a label among the declared classes {shown(header.classes)}",
                f"got {quoted(cell)}",
                line=line,
            )
    return cells
