"""One self-contained HTML page: no script, nothing loaded from outside, light, dark and on paper."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sostenuto.checks import require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.report.contents.classification import classification_section
from sostenuto.report.contents.comparison import comparison_section
from sostenuto.report.contents.data import data_section
from sostenuto.report.contents.learning import learning_section
from sostenuto.report.contents.regression import regression_section
from sostenuto.report.contents.settings import settings_section
from sostenuto.report.judgment import Judgment, headline, judge
from sostenuto.report.palette import variables
from sostenuto.report.section import Cards, Picture, Section
from sostenuto.report.svg import inline_svg
from sostenuto.report.text import clean, one_line, shorten
from sostenuto.results import FitResult
from sostenuto.version import __version__


def render(result: FitResult, *, sections: Sequence[Section] = ()) -> str:
    """Return the page of a fit as HTML; ``sections`` (an audit's, say) stand before the configuration.

    The same result gives the same page, byte for byte.
    """
    own = [comparison_section(result), data_section(result.data)]
    if result.curve.epochs or not sections:
        # A kernel machine has no epochs, and sections of its own that say how it was fitted.
        own.append(learning_section(result.curve))
    if result.classification is not None:
        own.append(classification_section(result.classification))
    if result.regression is not None:
        own.append(regression_section(result.regression))
    return compose(
        name=one_line(result.run) or "unnamed run",
        subject=f"{shorten(result.model, 60)} on {shorten(result.data.name, 60)}",
        judgment=judge(result),
        headline=headline(result),
        sections=[*own, *sections, settings_section(result)],
    )


def compose(
    *,
    name: str,
    subject: str,
    judgment: Judgment,
    headline: Cards,
    sections: Sequence[Section],
    kind: str = "report of a fit",
) -> str:
    """Return a page as HTML: its name, a judgment, key numbers, and sections, each with an anchor of its own."""
    _check_anchors(sections)
    return (
        _environment()
        .get_template("page.html")
        .render(
            name=shorten(one_line(name), 80),
            full_name=one_line(name),
            subject=one_line(subject),
            kind=kind,
            judgment=judgment,
            headline=headline,
            sections=sections,
            draw=_drawer(),
            light=Markup(variables("light")),
            dark=Markup(variables("dark")),
            version=__version__,
        )
    )


def save(result: FitResult, path: str | Path, *, sections: Sequence[Section] = ()) -> Path:
    """Write the page to ``path``, whole or not at all, and return the path."""
    target = Path(path)
    require(
        target.parent.is_dir(), "expected a folder to write the page into", f"got {target.parent}", "create it first"
    )
    return write_atomically(target, render(result, sections=sections))


def _check_anchors(sections: Sequence[Section]) -> None:
    anchors = [section.anchor for section in sections]
    twice = sorted({anchor for anchor in anchors if anchors.count(anchor) > 1})
    require(not twice, "expected every section to have an anchor of its own", f"got {', '.join(twice)} more than once")


def _drawer() -> Callable[[str, Picture], Markup]:
    """Return the function that draws a picture of a section, and numbers it there so that no id is used twice."""
    drawn: Counter[str] = Counter()

    def draw(anchor: str, picture: Picture) -> Markup:
        drawn[anchor] += 1
        # An anchor holds no underscore: ids of figures cannot meet those of sections.
        return inline_svg(picture.figure, prefix=f"{anchor}_{drawn[anchor]}", description=picture.description)

    return draw


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("sostenuto.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )


def _shown(value: object) -> object:
    """Pass markup on and clean every other text before it is escaped."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else clean(value)
