"""`Table`: a file of named columns, and which column plays which part."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from sostenuto.checks import FileFormatError, shown
from sostenuto.data.files.cells import quoted
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place

Refusal = Callable[..., FileFormatError]
ROLES = ("target", "series", "time", "group")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by name: the special ones, None where there is none, and the values."""

    target: str | None
    series: str | None
    time: str | None
    group: str | None
    values: tuple[str, ...]
    is_long: bool

    @property
    def special(self) -> tuple[str, ...]:
        """The names of the columns that hold no values."""
        return tuple(name for role in ROLES if (name := getattr(self, role)) is not None)


@dataclass(frozen=True, eq=False)
class Table:
    """The content of a table: values as numbers (NaN where missing), the special columns as text.

    ``special`` holds the cells by column name. ``times`` are numbers where the file has them as such already.
    """

    place: Place
    columns: Columns
    values: Float[np.ndarray, "row column"]
    special: dict[str, list[str]]
    times: Float[np.ndarray, " row"] | None = None

    def cells(self, name: str | None) -> list[str] | None:
        """Return the cells of a special column, or None where there is no such column."""
        return None if name is None else self.special[name]


def choose_columns(path: Path, names: tuple[str, ...], options: Options, *, line: int | None = None) -> Columns:
    """Assign the columns: by the names given, otherwise by the names of the format; nothing is guessed.

    ``line`` is that of the header, for messages.
    """
    refuse = partial(FileFormatError, path, line=line)
    _check_names(names, refuse)
    chosen = _roles(names, options, refuse)
    is_long = chosen["series"] is not None or options.time is not None
    if not is_long and chosen["time"] is not None:
        raise refuse(
            "expected a column 'series' beside the column 'time'",
            _got(names),
            "add it, or say time='time' to read the file as one sequence",
        )
    if chosen["target"] is None and options.labelled and options.task != "forecast":
        raise refuse("expected a column named 'target'", _got(names), "say which one with target=NAME")
    special = [name for name in chosen.values() if name is not None]
    values = tuple(name for name in names if name not in special)
    if not values:
        raise refuse(f"expected a column of values beside {shown(special)}", "got none")
    return Columns(**chosen, values=values, is_long=is_long)


def _roles(names: tuple[str, ...], options: Options, refuse: Refusal) -> dict[str, str | None]:
    given = {role: name for role in ROLES if (name := getattr(options, role)) is not None}
    if len(set(given.values())) < len(given):
        raise refuse("expected each column to play one part", f"got {given}")
    for role, name in given.items():
        # For prediction, the targets may be absent.
        if name not in names and (role != "target" or options.labelled):
            raise refuse(f"expected a column named {name!r} as {role}={name!r} says", _got(names))
    chosen = {role: given.get(role, None if role in given.values() else role) for role in ROLES}
    return {role: name if name in names else None for role, name in chosen.items()}


def _check_names(names: tuple[str, ...], refuse: Refusal) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name:
            raise refuse(
                "expected a name for every column in the header",
                f"got none for column {index}",
                "name it, or leave out the row index when writing the file",
            )
        if name in seen:
            raise refuse("expected each column name once", f"got {quoted(name)} twice")
        seen.add(name)


def _got(names: tuple[str, ...]) -> str:
    return f"got the columns {shown([quoted(name) for name in names], most=12)}"
