"""What runs the pages of the documentation, draws their figures and writes their tables; `make docs` runs the pages."""

import json
from types import SimpleNamespace

import pytest

from tests.docs_code import ROOT, docs_module

executed = docs_module("executed")
PAGES = [page for pattern in ("*.md", "tutorials/*.md", "how-to/*.md") for page in (ROOT / "docs").glob(pattern)]

PAGE = """# A page

```python
import matplotlib.pyplot as plt
print("printed")
2 + 3
```

<!-- needs a_package_that_nobody_has -->
```python
raise ValueError
```

<!-- run -->
```console
$ echo from the shell
$ exit 3  # exit code 3
```

```console
$ not run
```

```python
fig, axes = plt.subplots()
axes.plot([1, 2])
```
"""


def read(tmp_path, text: str, name: str = "tutorials/one") -> str:
    source = [text]
    executed.run_page(SimpleNamespace(srcdir=str(tmp_path)), name, source)
    return source[0]


def test_outputs_and_figures_stand_below_their_blocks(tmp_path) -> None:
    page = read(tmp_path, PAGE)
    outputs = [part.split("```")[0].strip() for part in page.split(":class: output")[1:]]
    assert outputs == ["printed\n5", "from the shell"]
    assert page.count("![Figure drawn by the block above](../_executed/tutorials-one-4-0.svg)") == 1
    assert (tmp_path / "_executed" / "tutorials-one-4-0.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_a_tutorial_is_a_notebook(tmp_path) -> None:
    assert "tutorials-one.ipynb" in read(tmp_path, PAGE)
    notebook = json.loads((tmp_path / "_executed" / "tutorials-one.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["nbformat"] == 4
    assert [cell["source"].splitlines()[0] for cell in code] == [
        "import matplotlib.pyplot as plt",
        "raise ValueError",
        "!echo from the shell",
        "fig, axes = plt.subplots()",
    ]
    assert code[0]["outputs"][0]["text"] == "printed\n5\n"
    assert "image/svg+xml" in code[-1]["outputs"][0]["data"]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```python\nraise ValueError('too bad')\n```\n", "too bad"),
        ("```python\nimport warnings\nwarnings.warn('look out')\n```\n", "look out"),
        ("<!-- run -->\n```console\n$ exit 2\n```\n", "exit code 2"),
    ],
)
def test_a_block_that_fails_fails_the_build(tmp_path, block: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        read(tmp_path, block)


def test_a_page_without_blocks_stays_as_it_is(tmp_path) -> None:
    assert read(tmp_path, "# Nothing\n") == "# Nothing\n"
    assert not (tmp_path / "_executed").exists()


def test_no_block_hides_in_another_form() -> None:
    assert len(PAGES) > 30
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        seen = [block for block in executed.BLOCK.finditer(text) if block["language"] == "python"]
        assert len(seen) == text.count("```python"), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_python(page) -> None:
    for block in executed.BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] == "python":
            compile(block["code"], str(page), "exec")


def test_the_dashboard_follows_numbers_that_are_there(tmp_path) -> None:
    history = docs_module("benchmark_history")
    stored = {
        name: json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["record"]
        for name in history.NUMBERS
    }
    for name, numbers in history.NUMBERS.items():
        for label, place, _ in numbers:
            assert history.value_at(stored[name], place) is not None, (name, label)
    history.write_page(tmp_path / "benchmarks.md")
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert page.count("\n| ") > 40
    assert history.distinct([("1", 1.0), ("2", 1.0), ("3", 2.0)], 2.0) == [("2", 1.0)]


def test_every_public_name_has_a_page(tmp_path) -> None:
    places = docs_module("reference_pages").write_pages(tmp_path)
    assert places["UnICORNN"] == places["sostenuto.nn.unicornn.UnICORNN"] == "sostenuto.nn.UnICORNN"
    assert "list" not in places
    for name in ("sostenuto.nn.UnICORNN", "sostenuto.audit", "sostenuto.theory.signature"):
        assert (tmp_path / f"{name}.rst").exists()
        assert f"   {name}\n" in (tmp_path / f"{name.rpartition('.')[0]}.rst").read_text(encoding="utf-8")


def test_links_that_lead_nowhere_are_told(tmp_path) -> None:
    (tmp_path / "a.html").write_text(
        '<a id="top" href="b.html#here"></a><a href="https://b.org"></a>', encoding="utf-8"
    )
    (tmp_path / "b.html").write_text(
        '<p id="here"><a href="a.html#top"></a><a href="#gone"></a><img src="c.svg"></p>', encoding="utf-8"
    )
    links = docs_module("check_links")
    assert list(links.broken(tmp_path)) == ["b.html: #gone leads to no anchor", "b.html: c.svg leads to no file"]
