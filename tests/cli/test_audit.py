import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from sostenuto import audits
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
    assert json.loads((run / "audit.json").read_text())["results"]["noise"]["count"] == 359


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
    assert json.loads(done.output)["results"]["memory"]["num_steps"] == 64
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
    done = CliRunner().invoke(app, ["audit", "mine:Mine", "digits", "--untrained", *CHECKS, "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "Mine" in page.read_text()


MINE = (
    "from torch import nn\n\n\nclass Mine(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(1, 10)\n\n"
    "    def forward(self, x):\n        return self.head(x.mean(1))\n"
)


def test_weights_thresholds_conditions_and_a_card_of_a_module_beside_the_command(tmp_path, monkeypatch):
    """The folder of the command is importable, and no class is audited with random weights by mistake."""
    (tmp_path / "beside.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    asked = ("audit", "beside:Mine", "digits", "--check", "noise", "--quiet")
    refused = call(*asked)
    assert refused.exit_code == 2
    assert "expected trained weights for beside:Mine, which is a class, got none; pass --weights FILE" in said(refused)
    torch.manual_seed(0)
    weights = torch.nn.Linear(1, 10)
    save_file({f"head.{name}": value.detach() for name, value in weights.named_parameters()}, "w.safetensors")
    Path("limits.toml").write_text("[noise]\nlevel = 0.4\n")
    options = ("--weights", "w.safetensors", "--thresholds", "limits.toml", "--card", "card.md")
    done = call(*asked, *options, "--fail-if", "skill<0.9,memory<5")
    assert done.exit_code == 3, done.output
    assert "the audit fails: skill is 0." in done.stderr
    assert "memory has no number: it was not run" in done.stderr
    found = json.loads(Path("audit.json").read_text())
    assert found["results"]["noise"]["levels"][-1] == 0.4
    assert found["verdicts"]["noise"]["thresholds"]["level"] == 0.4
    assert found["verdicts"]["noise"]["label"] == "Undecided"
    assert re.fullmatch("[0-9a-f]{64}", found["weights"])
    card = Path("card.md").read_text()
    assert found["weights"] in card
    assert "| Is it better than guessing? |" in card
    assert call(*asked, *options, "--fail-if", "noise>0.99").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fail-if", "memory=5"), "expected conditions like memory<500,attack>0.2, got 'memory=5'"),
        (("--fail-if", "mood<5"), "expected check of a condition to be one of"),
        (("--weights", "no.safetensors"), "expected --weights and --untrained with a module"),
        (("--thresholds", "no.toml"), "no.toml: expected a TOML file of thresholds, got No such file"),
        (("--out", "no/a.html"), "no/a.html: expected a folder to write into, got none; create it first"),
        (("--card", "no/a.md"), "no/a.md: expected a folder to write into, got none; create it first"),
        (("--against-weights", "w.safetensors"), "expected --against-weights with a module, got none"),
        (("--against", "torch.nn:Identity"), "expected DATA beside a module, got none"),
    ],
)
def test_bad_options_of_a_review_are_refused_before_the_audit(run, options, message, monkeypatch):
    monkeypatch.setattr(audits.sources, "audit_run", None)
    assert message in said(call("audit", run, "--quiet", *options))


def test_a_module_of_ones_own_answers_in_the_units_of_the_data(waves, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\n\nclass Large(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(2, 1)\n"
        "        nn.init.zeros_(self.head.weight)\n        nn.init.constant_(self.head.bias, 1000.0)\n\n"
        "    def forward(self, x):\n        return self.head(x.mean(1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    page = tmp_path / "own.html"
    done = call(
        "audit", "own:Large", waves / "numbers.npz", "--untrained", "--check", "noise", "--quiet", "--out", page
    )
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
