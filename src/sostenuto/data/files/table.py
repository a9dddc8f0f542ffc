"""`Table`: a file of named columns, and which column plays which part."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from sostenuto.checks import FileFormatError, shown
from sostenuto.data.files.cells import MISSING, quoted
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.times import is_date
from sostenuto.data.targets import sort_classes

Refusal = Callable[..., FileFormatError]
ROLES = ("target", "series", "time", "group")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by name: the special ones, None where there is none, and the values.

    The target of a forecast is one of the values. ``categorical`` columns hold values too, as text.
    """

    target: str | None
    series: str | None
    time: str | None
    group: str | None
    values: tuple[str, ...]
    is_long: bool
    categorical: tuple[str, ...] = ()

    @property
    def special(self) -> tuple[str, ...]:
        """The names of the columns that are read as text: those that hold no values, and the categorical ones."""
        roles = (getattr(self, role) for role in ROLES)
        return (*(name for name in roles if name is not None and name not in self.values), *self.categorical)


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

    def channels(self) -> tuple[tuple[str, ...], Float[np.ndarray, "row channel"]]:
        """Return the names and values of all channels; a categorical column is one of 0 and 1 for each of its values.

        They stand after the others, named ``column=value``; where the cell is missing, all of them are NaN.
        """
        names, columns = list(self.columns.values), [self.values]
        for name in self.columns.categorical:
            cells = np.array([cell.strip() for cell in self.special[name]])
            missing = np.array([cell.lower() in MISSING for cell in cells])
            kinds = sort_classes(cells[~missing].tolist())
            names.extend(f"{name}={kind}" for kind in kinds)
            chosen = (cells[:, None] == np.array(kinds, dtype=str)).astype(float)
            columns.append(np.where(missing[:, None], np.nan, chosen))
        return tuple(names), np.concatenate(columns, axis=1)

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
    is_long = chosen["series"] is not None or bool(options.time)
    if not is_long and chosen["time"] is not None:
        raise refuse(
            "expected a column 'series' beside the column 'time'",
            _got(names),
            "add it, or say time='time' to read the file as one sequence",
        )
    if not is_long:
        _refuse_long_options(options, refuse)
    if chosen["target"] is None and options.labeled and options.task != "forecast":
        raise refuse("expected a column named 'target'", _got(names), "say which one with target=NAME")
    special = [name for name in chosen.values() if name is not None]
    if options.task == "forecast" and is_long and chosen["target"] is not None:
        special.remove(chosen["target"])
    values = tuple(name for name in names if name not in (*special, *options.ignore, *options.categorical))
    if not values and not options.categorical:
        raise refuse(f"expected a column of values beside {shown(special)}", "got none")
    return Columns(**chosen, values=values, is_long=is_long, categorical=options.categorical)


def text_hint(name: str, columns: Columns, cell: str = "") -> str:
    """Say what to do with a column of values that holds text, such as the date ``cell``."""
    if columns.time is None and is_date(cell):
        return f"pass time={name!r} if it holds the times, or ignore={name!r}"
    more = f" or categorical={name!r}" if columns.is_long else ""
    names_series = f"; pass series={name!r} if it tells the series apart" if columns.series is None else ""
    return f"correct it, or pass ignore={name!r}{more}{names_series}"


def _roles(names: tuple[str, ...], options: Options, refuse: Refusal) -> dict[str, str | None]:
    named = {role: name for role in ROLES if (name := getattr(options, role))}
    listed = [(kind, name) for kind in ("ignore", "categorical") for name in getattr(options, kind)]
    taken = [*named.values(), *(name for _, name in listed)]
    if len(set(taken)) < len(taken):
        raise refuse("expected each column to play one part", f"got {named | dict(listed)}")
    # For prediction, ignored columns and the targets may be absent, but not the past of what is forecast.
    optional = () if options.labeled else ("ignore",) if options.task == "forecast" else ("ignore", "target")
    for role, name in (*named.items(), *listed):
        if name not in names and role not in optional:
            raise refuse(f"expected a column named {name!r} as {role}={name!r} says", _got(names))
    chosen = {role: named.get(role, None if role in taken else role) for role in ROLES}
    return {role: name if name in names else None for role, name in chosen.items()}


def _refuse_long_options(options: Options, refuse: Refusal) -> None:
    """Refuse what a table with one sequence per row has no place for."""
    hint = "name the column of the times with time=NAME, or that of the series with series=NAME, to read a long table"
    if options.task == "forecast" and options.target:
        raise refuse("expected a long table, where target=NAME is the column to forecast", "got a wide one", hint)
    if options.categorical:
        raise refuse("expected a long table for categorical columns", "got a wide one", hint)


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
