"""Short tables for the terminal."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Align columns: the first to the left, numbers to the right.

    >>> print(table([("accuracy", 0.975), ("epochs", 60)], ("what", "value")))
    what      value
    --------  -----
    accuracy  0.975
    epochs       60
    """
    cells = [[_cell(value) for value in row] for row in rows]
    every = [list(header), *cells] if header else cells
    widths = [max(len(row[i]) for row in every) for i in range(len(every[0]))] if every else []
    right = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(widths))]

    def line(row: Sequence[str]) -> str:
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return "  ".join(parts).rstrip()

    top = [line(list(header)), "  ".join("-" * width for width in widths)] if header else []
    return "\n".join([*top, *(line(row) for row in cells)])


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
