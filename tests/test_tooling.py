"""The house rules that no linter knows, read from the files themselves."""

import ast
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

import sostenuto
from sostenuto.nn import RecurrentLayer

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "sostenuto").rglob("*.py"))
DOCS = [page for pattern in ("*.md", "tutorials/*.md", "how-to/*.md") for page in (ROOT / "docs").glob(pattern)]
PAGES = sorted([*ROOT.glob("*.md"), *DOCS, *(ROOT / "src").rglob("*.md")])

# Distributions whose import name differs from their own.
IMPORT_NAMES = {
    "scikit-learn": "sklearn",
}
# Brought by a declared package: triton by torch, dask by distributed, PIL by matplotlib, markupsafe by jinja2.
COME_ALONG = {"llvmlite", "triton", "dask", "PIL", "markupsafe"}
# What a reader who knows PyTorch and numerics would have to learn first, with the field's word for it.
PRIVATE_WORDS = {
    r"papers? 00[0-4]": "the citation key",
    r"(?<![\w.])00[0-4]\.[1-9](?!\d)": "the citation key and the number of the erratum",
    r"call_into_cache|ask_ahead|call(s|ed)? into the cache|ask(s|ed|ing)? (for )?ahead": "prefetch",
    r"hand_over|hand(s|ed|ing)? (it |them )?over|hand each other": "publish",
    r"on the way back|forth and back": "in the backward pass",
    r"looks on|somebody (looks|listens)": "plain eager mode, hooks",
    r"_?is_heard|is heard": "_has_hooks",
    r"(dropout|that) (never )?sleeps?|must sleep": "eval mode",
    r"_?overheard|watched_?oscillators|_?watch_oscillators": "capture, trace",
    r"lasting_objects": "gc_frozen",
    r"cures?": "hint",
    r"by the hour": "from hour to hour",
    r"for it asks": "because it allocates",
    r"go(es)? before it": "overrides it",
    r"asked (once|twice|\w+ times)": "evaluated",
}
EXPERIMENT = re.compile(r"experiments/[a-z]+\d{4}/[^/]+/run\.py$")
UNSAFE_NAMES = {"eval", "exec", "compile", "__import__"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
UNSAFE_ATTRIBUTES = {("torch", "load"), ("yaml", "load"), ("os", "system")}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_roots(tree: ast.Module) -> set[str]:
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.partition(".")[0])
    return roots


def unsafe_calls(tree: ast.Module) -> list[str]:
    """List the calls that could run what a file says: by name, or through a module."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in UNSAFE_NAMES:
            found.append(f"line {node.lineno}: {called.id}(")
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            pair = (called.value.id, called.attr)
            safe = any(k.arg == "allow_pickle" and getattr(k.value, "value", None) is False for k in node.keywords)
            if pair in UNSAFE_ATTRIBUTES or (pair in {("np", "load"), ("numpy", "load")} and not safe):
                found.append(f"line {node.lineno}: {'.'.join(pair)}(")
    return found


@pytest.mark.parametrize(
    ("program", "count"),
    [
        ("eval('1')", 1),
        ("model.eval()", 0),
        ("torch.load(path)", 1),
        ("np.load(path)", 1),
        ("np.load(path, allow_pickle=True)", 1),
        ("np.load(path, allow_pickle=False)", 0),
    ],
)
def test_the_unsafe_check_sees_what_it_should(program: str, count: int) -> None:
    assert len(unsafe_calls(ast.parse(program))) == count


def test_nothing_read_from_a_file_can_run() -> None:
    calls = {relative(path): unsafe_calls(parsed(path)) for path in SOURCES}
    modules = {relative(path): imported_roots(parsed(path)) & UNSAFE_MODULES for path in SOURCES}
    assert {path: found for path, found in calls.items() if found} == {}
    assert {path: found for path, found in modules.items() if found} == {}


def test_the_sdist_holds_what_its_tests_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = set(project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    for name in included:
        assert (ROOT / name).exists(), name
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py")))
    read = set(re.findall(r"""(?:ROOT|parents\[[12]\]\)?) / "([^"/]+)\"""", text))
    assert {"docs", "results", "pyproject.toml"} <= read
    assert read - {"pyproject.toml", ".gitignore"} <= included


def test_every_dependency_has_its_license_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.match(r"[A-Za-z0-9_.-]+", one)[0].lower() for group in groups for one in group}
    listed = set(re.findall(r"^\| ([a-z0-9_.-]+) \|", (ROOT / "LICENSES.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert names - {"sostenuto"} <= listed


def test_every_module_says_what_it_is() -> None:
    assert [relative(path) for path in SOURCES if not ast.get_docstring(parsed(path))] == []


def test_every_folder_with_code_is_a_package() -> None:
    # Folders of experiments are namespace packages: four files that say what the item is, nothing to import but run.py.
    folders = {path.parent for path in SOURCES if not EXPERIMENT.search(relative(path))}
    assert [relative(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_no_module_is_a_grab_bag() -> None:
    assert [relative(path) for path in SOURCES if re.search("util|helper|common|misc", path.stem)] == []


def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(row for rows in project["optional-dependencies"].values() for row in rows)]
    distributions = {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in wanted}
    declared = {IMPORT_NAMES.get(name, name) for name in distributions} | COME_ALONG | {"sostenuto"}
    standard = sys.stdlib_module_names
    undeclared = {relative(path): imported_roots(parsed(path)) - declared - standard for path in SOURCES}
    assert {path: found for path, found in undeclared.items() if found} == {}


def test_the_package_says_that_it_is_typed() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    assert "Typing :: Typed" in classifiers
    assert (ROOT / "src" / "sostenuto" / "py.typed").is_file()


def test_one_version_everywhere() -> None:
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    changes = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert citation is not None
    assert changes is not None
    assert citation[1] == changes[1] == sostenuto.__version__


def test_ci_runs_the_readme_command() -> None:
    script = ROOT / ".ci" / "run"
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make ")]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert commands == ["make lint", "make docs", "make test"]
    assert "make demo" in readme
    assert "make test" in readme


def test_hosted_ci_runs_the_same_on_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = [row.rpartition(" ")[2] for row in project["classifiers"] if re.search(r"Python :: 3\.\d+$", row)]
    assert re.search(r"python: \[(.*)\]", workflow)[1] == ", ".join(f'"{version}"' for version in supported)
    assert "- run: .ci/run\n" in workflow
    assert "LOCKED: 1\n" in workflow


def private_words(text: str) -> list[str]:
    """List the phrases of `PRIVATE_WORDS` in a text, also across a line's end, each with the word to use."""
    flat = re.sub(r"\s+", " ", text)
    matches = ((re.search(rf"\b(?:{word})\b", flat, re.IGNORECASE), better) for word, better in PRIVATE_WORDS.items())
    return [f"{match[0]!r}: use {better}" for match, better in matches if match]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("See Paper 003, eq. 5", 1),
        ("drawn on the way\n    back", 1),
        ("self._is_heard()", 1),
        ("0.001.5", 0),
    ],
)
def test_the_check_of_words_sees_what_it_should(text: str, count: int) -> None:
    assert len(private_words(text)) == count


def test_no_file_uses_private_words() -> None:
    pages = [page for page in PAGES if page.parent != ROOT or page.name == "README.md"]
    words = {relative(path): private_words(path.read_text(encoding="utf-8")) for path in [*SOURCES, *pages]}
    assert {path: found for path, found in words.items() if found} == {}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    # Pages under reference/ and results/ are made by `make docs`, where Sphinx checks the links to them.
    inside = [link for link in links if not re.match(r"[a-z]+:|reference/|results/", link)]
    assert [link for link in inside if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/how-to/layer.md"])
def test_recipes_of_a_layer_name_what_a_layer_defines(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in RecurrentLayer.__abstractmethods__:
        assert re.search(rf"(`|def ){name}\b", text), name


def test_the_architecture_page_names_files_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+/[\w/]+\.(?:py|html))`", page))
    assert len(named) > 50
    places = (ROOT / "src" / "sostenuto", ROOT)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []
