"""Every experiment folder is whole; the cheapest are run."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from sostenuto.data.registry import sources
from sostenuto.experiments.catalog import FILES, PROTOCOLS, ROOT, find, names
from sostenuto.experiments.runner import reproduce

ITEMS = names()
CHEAP = ("erichson2021/figure-6", "rusch2021/figure-7", "wang2024/figure-1")
"""Run here with --quick: at most three, of a few seconds each, all of whose laws hold."""
AMOUNTS = {
    *("seeds", "runs", "draws", "networks", "epochs", "step_epochs", "patience", "rounds", "devices", "sets", "every"),
    *("points", "pairs", "num_test", "widths", "layers", "network_sets", "widened_most", "thinned", "probes"),
    *("asked", "attacked", "curved", "learning_rate", "batch_size", "tf32", "precision", "loop_rounds"),
}
"""What a reduced protocol may have less of; learning_rate and batch_size where they are lists that a figure sweeps."""
HOMES = {"matplotlib", "sklearn", "numba", "triton", "accelerate", "dask", "distributed", "zarr", "cvxpy"}
KNOWN_DATA = {name for source in sources() for name in (*source.names, source.prefix)}


def test_folders_are_found():
    folders = [path.parent for path in ROOT.glob("*/*/item.toml")]
    assert {f"{path.parent.name}/{path.name}".replace("_", "-") for path in folders} == set(ITEMS)
    assert set(CHEAP) <= set(ITEMS)
    assert len(CHEAP) <= 3


@pytest.mark.parametrize("name", ITEMS)
class TestItem:
    def test_has_its_files(self, name):
        present = {path.name for path in find(name).folder.iterdir()} - {"__pycache__"}
        assert present == set(FILES)
        assert re.fullmatch(r"[a-z]+\d{4}/(table|figure|appendix|task)-[0-9a-z]+", name)

    def test_says_what_it_needs(self, name):
        experiment = find(name)
        assert experiment.paper == name.split("/")[0]
        assert set(experiment.needs_data) <= KNOWN_DATA
        for text in (experiment.title, experiment.what, experiment.time, experiment.about):
            assert text.strip()
        assert set(experiment.comparable) <= set(PROTOCOLS)
        for protocol in experiment.protocols:
            assert set(experiment.settings(protocol)) == set(experiment.protocols[experiment.first])

    def test_reduced_is_the_papers_recipe_with_less_of_it(self, name):
        changed = find(name).protocols.get("reduced", {})
        assert {key.rpartition(".")[2] for key in changed} <= AMOUNTS

    def test_expects_something(self, name):
        experiment = find(name)
        assert experiment.expected
        assert any(one.headline for one in experiment.expected.values())

    def test_reports_what_it_expects(self, name):
        """Names written out in run.py are entries; names that are composed are checked when it is run."""
        tree = ast.parse((find(name).folder / "run.py").read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        reports = [node for node in calls if node.func.attr in {"number", "law"} and node.args]
        written = {node.args[0].value for node in reports if isinstance(node.args[0], ast.Constant)}
        assert written <= set(find(name).expected)

    def test_runs_on_the_library_alone(self, name):
        path = find(name).folder / "run.py"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        assert not {module.split(".")[0] for module in modules} & HOMES
        assert not [module for module in modules if module.startswith(("sostenuto.cli", "sostenuto.benchmarks"))]
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 200

    def test_has_a_function_to_run(self, name):
        paper, item = name.replace("-", "_").split("/")
        module = importlib.import_module(f"sostenuto.experiments.{paper}.{item}.run")
        assert find(name).load() is module.run


@pytest.mark.parametrize("name", CHEAP)
def test_quick_run_measures_every_entry(name, tmp_path):
    result = reproduce(name, protocol="quick", out=tmp_path, device="cpu", progress=False)
    assert {one.name for one in result.numbers} == set(find(name).expected)
    stands_in = bool(find(name).needs_data)
    judged = {"stand-in data"} if stands_in else {"reproduced", "measured", "law holds"}
    assert {one.verdict for one in result.numbers} <= judged
    assert result.verdict in judged - {"measured"}
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_wheel_takes_whole_folders():
    """Hatchling takes every file of the package that git does not ignore; nothing may narrow that."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/sostenuto"]}


def test_papers_are_in_the_bibliography():
    page = (Path(__file__).parents[2] / "docs" / "bibliography.md").read_text(encoding="utf-8")
    assert {f"| {name.split('/')[0]} |" in page for name in ITEMS} == {True}
