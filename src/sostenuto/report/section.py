"""What a page is made of: sections of prose, verdicts, tables and figures. Every text is escaped when rendered."""

import re
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup
from matplotlib.figure import Figure

from sostenuto.checks import require
from sostenuto.results import Outcome

_NARROW = 450
"""Pixels: figures up to this width can shrink to a phone's screen and still be read."""
_ANCHOR = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Prose:
    """A paragraph; ``note`` sets it smaller, as a remark."""

    kind: ClassVar[str] = "prose"
    text: str
    note: bool = False


@dataclass(frozen=True)
class Verdict:
    """One finding in plain words, marked by its outcome; ``label`` is the word beside the mark."""

    kind: ClassVar[str] = "verdict"
    outcome: Outcome
    label: str
    text: str


@dataclass(frozen=True)
class Card:
    """One key number, what it is, and what to make of it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Cards:
    """Key numbers side by side."""

    kind: ClassVar[str] = "cards"
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Column:
    """The head of a table's column."""

    name: str
    note: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """A table's cell: a text, a second line below it, and the full text where the first was shortened.

    ``link`` leads to another cell of the page, the one whose ``anchor`` it is.
    """

    text: str
    note: str = ""
    full: str = ""
    link: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a head; the first cell of each row names the row. ``marked`` rows stand out."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marked: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            require(len(row) == len(self.columns), f"expected {len(self.columns)} cells in a row", f"got {len(row)}")


@dataclass(frozen=True)
class Facts:
    """Names and values, one pair per line."""

    kind: ClassVar[str] = "facts"
    caption: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Picture:
    """A drawn figure, the words a reader who cannot see it needs, and a heading above it."""

    figure: Figure
    description: str
    heading: str = ""
    full_heading: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether a narrow screen has to scroll to see all of it."""
        return bool(self.figure.get_figwidth() * 72 > _NARROW)


@dataclass(frozen=True)
class LegendItem:
    """A name and the color role (a name in `sostenuto.report.palette.COLORS`) it is drawn in."""

    name: str
    role: str
    dashed: bool = False
    full: str = ""


@dataclass(frozen=True)
class Figures:
    """One or several pictures under one caption; ``small`` lays many of them out in a grid."""

    kind: ClassVar[str] = "figures"
    pictures: tuple[Picture, ...]
    caption: str
    legend: tuple[LegendItem, ...] = ()
    small: bool = False


@dataclass(frozen=True)
class Html:
    """Markup the caller vouches for: it is not escaped."""

    kind: ClassVar[str] = "html"
    markup: Markup


@dataclass(frozen=True)
class Columns:
    """Two stacks of parts side by side where the page is wide enough, one above the other where it is not."""

    kind: ClassVar[str] = "columns"
    left: "tuple[Part, ...]"
    right: "tuple[Part, ...]"


Part = Prose | Verdict | Cards | Table | Facts | Figures | Html | Columns


@dataclass(frozen=True)
class Section:
    """A headed stretch of the page; ``anchor`` is its address on the page and must be unique.

    >>> Section("Memory", "memory", (Verdict("good", "Sustained", "Half of a pulse is left after 900 steps."),)).anchor
    'memory'
    """

    title: str
    anchor: str
    parts: tuple[Part, ...]
    short_title: str = ""

    def __post_init__(self) -> None:
        require(
            _ANCHOR.fullmatch(self.anchor) is not None,
            "expected an anchor of small letters, digits and hyphens that begins with a letter",
            f"got {self.anchor!r}",
        )
