"""A matplotlib figure becomes an inline SVG that belongs to its page: its font, its colors, ids that never collide."""

import io
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from sostenuto.report.palette import COLORS
from sostenuto.report.text import clean

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sostenuto",
    "text.parse_math": False,
    "text.usetex": False,
    "font.family": ["sans-serif"],
    "font.size": 12,
    "figure.dpi": 72,
    "savefig.dpi": 72,
    "path.simplify": True,
}
_SETTINGS_LOCK = threading.RLock()
_TIP = "tip:"
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_NO_TURN = re.compile(r"rotate\(-?0 [^)]*\)\s*")
_SHORT_FONT = re.compile(r"(?:(\d{3}) )?([\d.]+px)")
_DROPPED = {"metadata", "style"}
_ROUNDED = ("d", "x", "y", "width", "height", "transform")


@contextmanager
def house_style() -> Iterator[None]:
    """Draw inside this: matplotlib's own defaults, not the user's, with formulas off and text kept as text.

    Matplotlib's settings are shared by the whole process; they are held under a lock and put back afterwards.
    Use it as a decorator of a function that draws.
    """
    with _SETTINGS_LOCK, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def set_tip(artist: Artist, text: str) -> None:
    """Give a drawn thing a text to show when the pointer rests on it."""
    artist.set_gid(_TIP + clean(text))


@house_style()
def inline_svg(figure: Figure, *, prefix: str, description: str) -> Markup:
    """Return ``figure`` as an ``<svg>`` element; ids begin with ``prefix``, which must be unique on the page.

    >>> drawing = inline_svg(Figure(figsize=(2, 1)), prefix="loss", description="Loss by epoch")
    >>> drawing.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 144 72"'), "<metadata" in drawing
    (True, False)
    """
    root = ElementTree.fromstring(_written(figure))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    _drop(root)
    _rename_ids(root, prefix)
    for element in root.iter():
        _restyle(element)
    view = root.get("viewBox", "")
    width, height = figure.get_size_inches() * 72
    root.attrib.clear()
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": view,
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "role": "img",
            "aria-label": clean(description),
            "stroke-linejoin": "round",
            "style": f"--width: {width:.0f}px",
        }
    )
    # ElementTree escapes every text and attribute, so what it writes is safe to include.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _written(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.patch.set_visible(False)
    with warnings.catch_warnings():
        # The reader's browser draws the letters, with fonts that matplotlib does not know.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        FigureCanvasSVG(figure).print_svg(
            buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    return buffer.getvalue()


def _drop(root: ElementTree.Element) -> None:
    """Remove metadata, and matplotlib's style sheet, which would reach beyond the drawing."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in _DROPPED or (child.tag == "defs" and all(item.tag in _DROPPED for item in child)):
                parent.remove(child)


def _rename_ids(root: ElementTree.Element, prefix: str) -> None:
    """Keep only the ids that something refers to, under short names, and turn tips into titles."""
    used = {name for element in root.iter() for name in _references(element)}
    names = {name: f"{prefix}-{number}" for number, name in enumerate(sorted(used), start=1)}
    for element in root.iter():
        identity = element.attrib.pop("id", "")
        if identity in names:
            element.set("id", names[identity])
        elif identity.startswith(_TIP):
            title = ElementTree.Element("title")
            title.text = identity.removeprefix(_TIP)
            element.insert(0, title)
        for key, value in list(element.attrib.items()):
            if key.endswith("href"):
                del element.attrib[key]
                element.set("href", f"#{names[value.removeprefix('#')]}")
            elif "url(#" in value:
                element.set(key, _REFERENCE.sub(lambda match: f"url(#{names[match[1]]})", value))


def _references(element: ElementTree.Element) -> Iterator[str]:
    for key, value in element.attrib.items():
        if key.endswith("href"):
            yield value.removeprefix("#")
        yield from _REFERENCE.findall(value)


def _restyle(element: ElementTree.Element) -> None:
    """Shorten numbers, name colors by their role, and leave the font to the page."""
    for key in _ROUNDED:
        if key in element.attrib:
            element.set(key, _NUMBER.sub(_rounded, " ".join(element.attrib[key].split())))
    turn = _NO_TURN.sub("", element.attrib.pop("transform", ""))
    if turn:
        element.set("transform", turn)
    if "style" in element.attrib:
        element.set("style", "; ".join(_declarations(element.attrib["style"])))


def _declarations(style: str) -> Iterator[str]:
    for declaration in style.split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":  # written by matplotlib before 3.10: weight, size and family in one
            match = _SHORT_FONT.search(value)
            yield from (f"font-weight: {match[1]}",) if match and match[1] else ()
            yield f"font-size: {match[2] if match else '12px'}"
        elif name and name != "font-family":
            for color in COLORS.values():
                value = value.replace(color.placeholder, f"var(--{color.role})")
            yield f"{name}: {value}"


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
