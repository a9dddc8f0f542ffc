import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sostenuto.report.page import save
from sostenuto.report.palette import COLORS
from tests.report import samples
from tests.report.chromium import Chromium, program

SMALLEST_LETTERS = """
Math.min(...[...document.querySelectorAll("svg")].flatMap(svg => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return [...svg.querySelectorAll("text")].map(text => scale * parseFloat(getComputedStyle(text).fontSize));
}), 99)
"""
CLIPPED = """
[...document.querySelectorAll("svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 4 || box.right > frame.right + 4 || box.bottom > frame.bottom + 4;
  }).map(text => text.textContent);
})
"""


def found_program() -> str:
    path = program()
    if path is None:
        pytest.skip("needs Chromium: no chromium or google-chrome on this machine")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(found_program(), tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: save(make(), folder / f"{name}.html") for name, make in samples.EVERY.items()}


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("name", samples.EVERY)
def test_page_opens_quietly_asks_for_nothing_and_fits(
    browser: Chromium, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.open(pages[name], width=width)
    assert browser.messages() == []
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert browser.evaluate(SMALLEST_LETTERS) >= 7.5
    assert browser.evaluate(CLIPPED) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_and_figures_follow_the_color_scheme(browser: Chromium, pages: dict[str, Path], scheme: str) -> None:
    browser.open(pages["digits"], scheme=scheme)
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == rgb("paper", scheme)
    drawn = browser.evaluate("[...document.querySelectorAll('svg path')].map(path => getComputedStyle(path).stroke)")
    assert rgb("series-1", scheme) in drawn


def test_paper_is_always_light(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["digits"], scheme="dark", medium="print")
    assert browser.evaluate("getComputedStyle(document.body).color") == rgb("ink", "light")


def test_a_script_in_a_name_does_not_run(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.evaluate("document.scripts.length") == 0
    assert not [event for event in browser.events if event.get("method") == "Page.javascriptDialogOpening"]


def asked_by_a_page(log: Path) -> set[str]:
    """Return the addresses that pages asked for; what the browser wants for itself has no origin."""
    wanted = (event.get("params", {}) for event in json.loads(log.read_text())["events"])
    return {one["url"] for one in wanted if one.get("initiator", "not an origin") != "not an origin"}


def test_nothing_goes_over_the_network(pages: dict[str, Path], tmp_path: Path) -> None:
    curious = tmp_path / "curious.html"
    curious.write_text('<link rel="icon" href="http://outside.test/icon"><img src="http://outside.test/image">')
    logs = {}
    for name, page in (("ours", pages["digits"]), ("curious", curious)):
        logs[name] = tmp_path / f"{name}.json"
        with Chromium(found_program(), tmp_path / name, f"--log-net-log={logs[name]}") as one:
            one.open(page)
    assert asked_by_a_page(logs["ours"]) == set()
    assert "http://outside.test/image" in asked_by_a_page(logs["curious"]), "the log would have shown a request"


def rgb(role: str, scheme: str) -> str:
    color = getattr(COLORS[role], scheme)
    return "rgb({}, {}, {})".format(*(int(color[i : i + 2], 16) for i in (1, 3, 5)))
