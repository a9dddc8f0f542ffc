import re
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import canvas
from sostenuto.report.palette import COLORS, INK, SERIES
from sostenuto.report.svg import house_style, inline_svg, set_tip
from sostenuto.report.text import one_line

SVG = "{http://www.w3.org/2000/svg}"


@house_style()
def drawn(text: str = "label") -> Figure:
    figure, axes = canvas(200, 100)
    axes.plot([0, 1, 2], [0, 5, 1], color=SERIES[0])
    axes.text(1, 1, text, color=INK, fontweight="bold")
    return figure


def test_is_one_plain_element_that_leaves_font_color_and_ground_to_the_page() -> None:
    svg = inline_svg(drawn(), prefix="one", description='A "line" & a <label>')
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'A "line" & a <label>'
    assert not re.search(r"<\?xml|<!DOCTYPE|<metadata|<style|font-family|\d{4}-\d\d-\d\d|xlink|matplotlib", svg)
    assert not re.search(r"#[0-9a-f]{6}", svg), "a color that does not follow the page"
    assert "stroke: var(--series-1)" in svg
    assert "fill: var(--ink)" in svg
    assert "font-size: 12px" in svg
    assert "font-weight: 700" in svg


def test_two_drawings_share_no_id_and_every_reference_is_found() -> None:
    one, other = (inline_svg(drawn(), prefix=prefix, description="") for prefix in ("one", "other"))
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for svg, own in zip((one, other), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= own


def test_the_same_figure_gives_the_same_bytes() -> None:
    assert inline_svg(drawn(), prefix="p", description="d") == inline_svg(drawn(), prefix="p", description="d")


def test_numbers_are_short() -> None:
    assert not re.search(r"\d\.\d{3}", inline_svg(drawn(), prefix="p", description=""))


@pytest.mark.parametrize("text", ["$x_1$", r"$\frac{1}{", "100 $ and 200 $", "</text><script>alert(1)</script>", "a&b"])
def test_text_is_shown_as_it_is(text: str) -> None:
    root = ElementTree.fromstring(inline_svg(drawn(text), prefix="p", description=""))
    assert [element.text for element in root.iter(f"{SVG}text")] == [text]


@given(st.text(min_size=1, max_size=30).map(one_line).filter(bool))
@hypothesis_settings(max_examples=40)
def test_any_text_survives(text: str) -> None:
    root = ElementTree.fromstring(inline_svg(drawn(text), prefix="p", description=text))
    shown = "".join(element.text or "" for element in root.iter(f"{SVG}text"))
    assert shown == text


def test_a_tip_becomes_a_title() -> None:
    figure = drawn("short…")
    set_tip(figure.axes[0].texts[0], "short <and> long")
    root = ElementTree.fromstring(inline_svg(figure, prefix="p", description=""))
    assert [title.text for title in root.iter(f"{SVG}title")] == ["short <and> long"]


def test_settings_of_the_user_neither_matter_nor_change() -> None:
    expected = inline_svg(drawn(), prefix="p", description="")
    with matplotlib.rc_context(
        {"svg.fonttype": "path", "font.size": 30, "lines.linewidth": 9, "text.parse_math": True}
    ):
        assert inline_svg(drawn(), prefix="p", description="") == expected
        assert matplotlib.rcParams["svg.fonttype"] == "path"
        assert matplotlib.rcParams["font.size"] == 30


def test_pyplot_keeps_no_figure() -> None:
    from matplotlib import _pylab_helpers

    inline_svg(drawn(), prefix="p", description="")
    assert not _pylab_helpers.Gcf.figs


def test_the_fonts_of_older_matplotlib_are_read_too() -> None:
    from sostenuto.report.svg import _declarations

    style = f"font: 700 9.5px 'DejaVu Sans', sans-serif; fill: {COLORS['muted'].placeholder}"
    assert list(_declarations(style)) == ["font-weight: 700", "font-size: 9.5px", "fill: var(--muted)"]
