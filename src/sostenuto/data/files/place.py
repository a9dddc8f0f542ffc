"""`Place`: where in a file each row stands, for messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sostenuto.checks import FileFormatError


@dataclass(frozen=True)
class Place:
    """A file, and the line of each of its rows where it has lines.

    >>> str(Place(Path("a.csv"), [2, 5]).error(1, "expected a number", "got 'x'"))
    "a.csv, line 5: expected a number, got 'x'."
    >>> str(Place(Path("a.npz"), unit="sequence").error(1, "expected a number", "got 'x'"))
    "a.npz: in sequence 1, counted from 0, expected a number, got 'x'."
    """

    path: Path
    lines: Sequence[int] | None = None
    unit: str = "row"

    def error(self, row: int, expected: str, got: str, hint: str = "") -> FileFormatError:
        """Make the error for ``row``."""
        if self.lines is not None:
            return FileFormatError(self.path, expected, got, hint, line=int(self.lines[row]))
        return FileFormatError(self.path, f"in {self.unit} {row}, counted from 0, {expected}", got, hint)
