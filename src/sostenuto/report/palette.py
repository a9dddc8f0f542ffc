"""The page's colors, one per role, for light and dark.

Figures are drawn in placeholder colors that `sostenuto.report.svg` replaces with ``var(--role)``, so that one drawing
follows the reader's color scheme. Text reaches a contrast of 4.5 on its ground and lines reach 3, in both schemes;
the five series stay apart for the common kinds of color blindness.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Color:
    """One role: the placeholder it is drawn in, and its value in each scheme."""

    role: str
    placeholder: str
    light: str
    dark: str


_VALUES = (
    ("paper", "#fcfbf8", "#14171c"),
    ("card", "#f4f2ec", "#1d2128"),
    ("ink", "#1c2129", "#eceae5"),
    ("muted", "#5a6270", "#a3aab5"),
    ("line", "#dcd9d1", "#333943"),
    ("series-1", "#2563a8", "#79b1f2"),
    ("series-2", "#c8640f", "#f2a15f"),
    ("series-3", "#2f9679", "#5cc9b0"),
    ("series-4", "#6d1b52", "#c2559a"),
    ("series-5", "#8c8a3a", "#f2ead8"),
    ("right", "#5f95d3", "#33689f"),
    ("wrong", "#d6782b", "#9a5018"),
    ("good", "#12695c", "#6fd0be"),
    ("caution", "#8a5a00", "#e5b95c"),
    ("bad", "#a8322a", "#f2948c"),
)
COLORS = {row[0]: Color(row[0], f"#{0xFE0101 + place:06x}", *row[1:]) for place, row in enumerate(_VALUES)}

INK = COLORS["ink"].placeholder
MUTED = COLORS["muted"].placeholder
LINE = COLORS["line"].placeholder
PAPER = COLORS["paper"].placeholder
RIGHT = COLORS["right"].placeholder
WRONG = COLORS["wrong"].placeholder
SERIES = tuple(COLORS[f"series-{number}"].placeholder for number in range(1, 6))


def variables(scheme: str) -> str:
    """Return the CSS declarations of every role in one scheme, ``"light"`` or ``"dark"``.

    >>> variables("light").startswith("--paper: #fcfbf8;")
    True
    """
    return " ".join(f"--{color.role}: {getattr(color, scheme)};" for color in COLORS.values())
