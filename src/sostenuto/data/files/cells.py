"""Cells of text to numbers: the fast way for clean rows, the careful way for the others."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

MISSING = frozenset({"", "?", "na", "nan", "-nan", "+nan"})
"""What stands for a missing value, in lower case."""

Row = Float[np.ndarray, " cell"]


class CellError(ValueError):
    """A cell that is not a finite number: its index and what was expected and came."""

    def __init__(self, index: int, cell: str, expected: str) -> None:
        super().__init__(f"{expected}, got {quoted(cell)}")
        self.index, self.expected, self.got = index, expected, f"got {quoted(cell)}"


def parse_numbers(cells: Sequence[str], missing: frozenset[str] = MISSING) -> Row:
    """Read finite numbers; cells that stand for a missing value become NaN.

    >>> parse_numbers(["1", " 2.5e-1", "NaN", ""]).tolist()
    [1.0, 0.25, nan, nan]
    """
    # Python's float also takes 1_000 and digits of other scripts, which no data format means.
    joined = "".join(cells)
    numbers = None
    if joined.isascii() and "_" not in joined:
        try:
            numbers = np.fromiter(map(float, cells), dtype=float, count=len(cells))
        except ValueError:
            numbers = None
    if numbers is None:
        numbers = np.array([_number(index, cell, missing) for index, cell in enumerate(cells)], dtype=float)
    infinite = np.isinf(numbers)
    if infinite.any():
        index = int(infinite.argmax())
        raise CellError(index, cells[index], "expected a finite number")
    return numbers


def with_points(cells: Sequence[str]) -> list[str]:
    """Write numbers with a decimal comma with a point; other text stays. A number with a point is refused.

    >>> with_points(["1,5", "-2", "up, down", ""])
    ['1.5', '-2', 'up, down', '']
    """
    return [_with_point(index, cell) for index, cell in enumerate(cells)]


def as_number(cell: str) -> float | None:
    """Read one number, or return None for what is not one (missing cells are not).

    >>> as_number("3"), as_number("1_0"), as_number("")
    (3.0, None, None)
    """
    if not cell.isascii() or "_" in cell:
        return None
    try:
        number = float(cell)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def trim_missing(row: Row) -> Float[np.ndarray, " kept"]:
    """Cut off the missing values at the end of a padded row.

    >>> trim_missing(np.array([1.0, np.nan, 2.0, np.nan])).tolist()
    [1.0, nan, 2.0]
    """
    seen = np.flatnonzero(~np.isnan(row))
    return row[: seen[-1] + 1] if len(seen) else row[:0]


def quoted(cell: str, most: int = 30) -> str:
    """Show a cell in a message, on one line and not longer than ``most`` characters."""
    return repr(cell if len(cell) <= most else cell[:most] + "…")


def plain_text(cell: object) -> object:
    """Keep a spreadsheet from running a text as a formula: a quote is put in front. All else stays as it is.

    >>> [plain_text(cell) for cell in ("=1+1", "-1.5", "up", 2)]
    ["'=1+1", '-1.5', 'up', 2]
    """
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) and as_number(cell) is None
    return f"'{cell}" if is_formula else cell


def _with_point(index: int, cell: str) -> str:
    if "." in cell and as_number(cell) is not None:
        raise CellError(index, cell, "expected a number with a decimal comma")
    written = cell.replace(",", ".")
    return cell if as_number(written) is None else written


def _number(index: int, cell: str, missing: frozenset[str]) -> float:
    if cell.strip().lower() in missing:
        return float("nan")
    number = as_number(cell)
    if number is None:
        raise CellError(index, cell, "expected a number")
    return number
