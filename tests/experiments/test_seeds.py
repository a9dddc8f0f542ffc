"""``--seed`` drives every draw of every item: two seeds differ, one seed repeats."""

import ast
from functools import partial

import numpy as np
import pytest
import torch

from sostenuto.experiments.catalog import ROOT, find, names
from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.workbench import Workbench

DRAWS_NOTHING = {"wang2024/appendix-c", "rusch2021/figure-2", "alemohammad2021/task-reach"}
"""Weights that move in the worst direction; layers that are timed; every point of a grid."""
DRAWS_FROM_TORCH = {"alemohammad2021/figure-2"}
"""Seeded by the bench before each cell (test_runner.py)."""
WITHOUT_DRAWS = {"wang2024/figure-11": ("step/",)}
"""Cells before the first that draws."""
SMALLER = {"wang2024/figure-3": {"num_train": 8, "num_steps": 10}}
SOURCES = sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


TINY = {"seeds": 1, "all.epochs": 1, "all.hidden_size": 4, "all.batch_size": 200}


class FirstCellError(Exception):
    """Raised instead of computing an item's first cell; carries what the cell would draw from."""


def plain(value):
    """Write an argument of a cell so that two of them compare by what they hold."""
    if isinstance(value, partial):
        return [plain(value.func), *map(plain, value.args), *map(plain, value.keywords.items())]
    if isinstance(value, torch.Tensor | np.ndarray):
        return np.asarray(value).tolist()
    if isinstance(value, torch.nn.Module):
        return [tensor.tolist() for tensor in value.state_dict().values()]
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return getattr(value, "__qualname__", None) or (
        value if isinstance(value, int | float | str) else repr(type(value))
    )


def first_cell(monkeypatch, tmp_path, name: str, seed: int) -> str:
    """Return what an item's first cell depends on under a seed, the bench's own seed left out."""

    def stop(self, key, function, *, depends=None, here=False, code="", tests=False):
        if key.startswith(WITHOUT_DRAWS.get(name, ("none",))):
            return function()
        basis = {} if depends is None else dict(depends)
        raise FirstCellError(repr((key, basis, plain(function))))

    monkeypatch.setattr(Workbench, "cell", stop)
    experiment = find(name)
    settings = experiment.settings("quick", SMALLER.get(name))
    bench = Workbench(experiment, settings, protocol="quick", folder=tmp_path, seed=seed, device="cpu", progress=False)
    with pytest.raises(FirstCellError) as found:
        experiment.load()(settings, bench)
    return str(found.value)


@pytest.mark.parametrize("name", [name for name in names() if name not in DRAWS_NOTHING | DRAWS_FROM_TORCH])
def test_two_seeds_differ_and_one_repeats(name, monkeypatch, tmp_path):
    one, again, other = (first_cell(monkeypatch, tmp_path, name, seed) for seed in (3, 3, 8))
    assert one == again
    assert one != other


def test_repetitions_of_two_seeds_share_none(tmp_path):
    """Else a rerun with the next seed would repeat all but one of the stored runs, and land beside them for that."""
    experiment = find("alemohammad2021/figure-4c")
    settings = experiment.settings("quick")
    benches = [Workbench(experiment, settings, protocol="quick", folder=tmp_path, seed=seed) for seed in range(4)]
    drawn = [seed for bench in benches for seed in bench.seeds(5)]
    assert drawn[:5] == [0, 1, 2, 3, 4]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_draw_has_a_seed_of_its_own(path):
    """A constant seed is one that ``--seed`` does not reach; only the parts of the data are the same for all."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.BinOp):
            assert ast.unparse(node.left) != "bench.seed", f"{path.name}:{node.lineno}: bench.seeds(count) gives more"
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        seeds = [word.value for word in node.keywords if word.arg == "seed" and called != "divide"]
        seeds += node.args[:1] if called in ("manual_seed", "default_rng") else []
        constants = [seed for seed in seeds if isinstance(seed, ast.Constant)]
        assert not constants, f"{path.name}:{node.lineno}"
        assert called != "default_rng" or node.args, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("erichson2021/figure-6", {"draws": 3}),
        ("fermanian2021/figure-1a", {"models": 5}),
        ("erichson2021/table-4", TINY),
    ],
)
def test_runs_with_two_seeds_differ_and_with_one_repeat(name, changes, tmp_path):
    options = {"protocol": "quick", "device": "cpu", "progress": False, "changes": changes}
    runs = [reproduce(name, out=tmp_path / str(run), seed=seed, **options) for run, seed in enumerate((0, 0, 1))]
    one, again, other = ([(one.name, one.value, one.evidence) for one in run.numbers] for run in runs)
    timed = {name for name, *_ in one if "second" in name}
    one, again, other = ([row for row in rows if row[0] not in timed] for rows in (one, again, other))
    assert one == again
    assert one != other
