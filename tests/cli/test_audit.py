import json

import pytest
from typer.testing import CliRunner

from sostenuto.cli import app

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
    assert json.loads((run / "audit.json").read_text())["noise"]["count"] == 128


def test_a_fit_puts_its_audit_on_its_page(tmp_path):
    folder = tmp_path / "run"
    done = CliRunner().invoke(app, ["fit", *SMALL, "-o", "hidden_size=4", "--audit", "quick", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    page = (folder / "report.html").read_text()
    assert "How long it remembers" in page
    assert "Does the model earn its keep?" in page
    assert json.loads((folder / "audit.json").read_text())["budget"] == "quick"
    refused = CliRunner().invoke(app, ["fit", *SMALL, "--audit", "huge", "--out", str(tmp_path / "other")])
    assert refused.exit_code == 2
    assert "expected audit to be one of 'quick', 'full', got 'huge'" in refused.output


def test_two_runs_side_by_side_and_json(run, tmp_path):
    page = tmp_path / "both.html"
    done = CliRunner().invoke(
        app, ["audit", str(run), "digits", "--against", str(run), *CHECKS, "--out", str(page), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["memory"]["horizon"] == 63
    assert "Side by side" in page.read_text()


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
