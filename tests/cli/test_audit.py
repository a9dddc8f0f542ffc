import json

import numpy as np
import pytest
from typer.testing import CliRunner

from sostenuto.cli import app
from tests.cli.small import TINY, call, said, write_waves

SMALL = ["-o", "hidden_size=8", "-o", "num_layers=1", "--epochs", "1", "--quiet", "--device", "cpu"]
CHECKS = ["--check", "memory", "--check", "noise", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    done = CliRunner().invoke(app, ["fit", *SMALL, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def test_a_run_is_audited_on_its_own_test_part(run):
    done = CliRunner().invoke(app, ["audit", str(run), *CHECKS])
    assert done.exit_code == 0, done.output
    assert "memory: " in done.output
    assert f"The page is {run / 'audit.html'}" in done.output
    assert "audit of a model" in (run / "audit.html").read_text()
    assert json.loads((run / "audit.json").read_text())["results"]["noise"]["count"] == 128


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run what ``make demo`` runs, with a smaller layer and one epoch."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = CliRunner().invoke(app, ["fit", *SMALL, "-o", "hidden_size=4", "--audit", "quick", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def test_a_fit_puts_its_audit_on_its_page(demo):
    page = (demo / "report.html").read_text()
    assert "How long does it remember?" in page
    assert "Does the model earn its keep?" in page
    assert json.loads((demo / "audit.json").read_text())["budget"] == "quick"


def test_the_demos_audit_refuses_nothing_that_applies_to_its_model(demo):
    found = json.loads((demo / "audit.json").read_text())
    assert {name: why for name, why in found["refused"].items() if not why.startswith("not applicable")} == {}
    assert found["results"]["gradients"]["verdict"] in ("healthy", "vanishing", "exploding")
    assert "Not measured" not in (demo / "report.html").read_text()


def test_an_unknown_budget_of_an_audit_is_refused(tmp_path):
    refused = CliRunner().invoke(app, ["fit", *SMALL, "--audit", "huge", "--out", str(tmp_path / "other")])
    assert refused.exit_code == 2
    assert "expected audit to be one of 'quick', 'full', got 'huge'" in refused.output


def test_two_runs_side_by_side_and_json(run, tmp_path):
    page = tmp_path / "both.html"
    done = CliRunner().invoke(
        app, ["audit", str(run), "digits", "--against", str(run), *CHECKS, "--out", str(page), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["results"]["memory"]["horizon"] == 63
    assert "Side by side" in page.read_text()


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """Runs on waves: one of classes, one of numbers, one of classes with another number of channels."""
    folder = tmp_path_factory.mktemp("waves")
    kinds = {"classes": {}, "numbers": {"targets": "numbers"}, "wide": {"channels": 3}}
    for name, options in kinds.items():
        data = write_waves(folder / f"{name}.npz", **options)
        assert call("fit", data, *TINY, "--out", folder / f"run-{name}").exit_code == 0
    return folder


def test_a_run_of_a_regression_is_audited_in_the_targets_unit(waves):
    done = call("audit", waves / "run-numbers", "--target-unit", "kPa", "--quiet")
    assert done.exit_code == 0, done.output
    found = json.loads((waves / "run-numbers" / "audit.json").read_text())
    assert found["task"] == "regression"
    assert set(found["refused"]) == {"calibration", "certified"}
    result = json.loads((waves / "run-numbers" / "result.json").read_text())
    assert found["results"]["noise"]["clean_score"] == pytest.approx(result["regression"]["rmse"], rel=1e-4)
    assert found["data"].endswith(f"numbers.npz, {result['evaluated_on']} part")
    page = (waves / "run-numbers" / "audit.html").read_text()
    assert "root mean square error, kPa" in page
    assert "accuracy" not in page.lower()


def test_other_checks_other_data_and_other_tasks_are_told_side_by_side(waves):
    page = waves / "both.html"
    asked = ("--check", "noise", "--quiet", "--out", page)
    done = call("audit", waves / "run-classes", "--against", waves / "run-numbers", *asked)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "The two were audited on different data" in text
    assert "The first answers with classes, the second answers with numbers" in text
    assert call("audit", waves / "run-classes", "--against", waves / "run-classes", *asked).exit_code == 0
    assert "different data" not in page.read_text()
    assert "The first answers" not in page.read_text()


def test_a_second_run_that_cannot_read_the_data_is_named(waves):
    asked = ("audit", waves / "run-classes", waves / "classes.npz", "--check", "memory", "--quiet")
    sentence = said(call(*asked, "--against", waves / "run-wide", "--out", waves / "none.html"))
    assert sentence.startswith(f"{waves / 'run-wide'}: expected 3 channels, as in training, got 2")
    assert not (waves / "none.html").exists()


def test_a_module_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\n\nclass Mine(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(1, 10)\n\n"
        "    def forward(self, x):\n        return self.head(x.mean(1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    page = tmp_path / "audit.html"
    done = CliRunner().invoke(app, ["audit", "mine:Mine", "digits", *CHECKS, "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "Mine" in page.read_text()


def test_a_module_of_ones_own_answers_in_the_units_of_the_data(waves, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\n\nclass Large(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(2, 1)\n"
        "        nn.init.zeros_(self.head.weight)\n        nn.init.constant_(self.head.bias, 1000.0)\n\n"
        "    def forward(self, x):\n        return self.head(x.mean(1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    page = tmp_path / "own.html"
    done = call("audit", "own:Large", waves / "numbers.npz", "--check", "noise", "--quiet", "--out", page)
    assert done.exit_code == 0, done.output
    found = json.loads(page.with_suffix(".json").read_text())
    truth = np.load(waves / "numbers.npz")["y"]
    assert found["results"]["noise"]["clean_score"] == pytest.approx(np.sqrt(np.mean((truth - 1000) ** 2)), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "expected a run folder with a config.toml"),
        (["mine:Nothing", "digits"], "expected package.module:name of a torch module"),
        (["torch.nn:Identity"], "expected DATA beside a module, got none"),
    ],
)
def test_refusals(arguments, message):
    done = CliRunner().invoke(app, ["audit", *arguments, "--quiet"])
    assert done.exit_code == 2
    assert message in done.output
