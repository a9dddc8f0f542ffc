"""A training as a cell: stopped, taken up, scored apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sostenuto import datasets
from sostenuto.checks import InputError
from sostenuto.experiments.catalog import Experiment
from sostenuto.experiments.tasks.training import fit_cell, fitted_model, score_cell
from sostenuto.experiments.workbench import StoppedError, Workbench
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig

CONFIG = RunConfig(
    data=DataConfig(validation=0.3),
    model=ModelConfig(options={"hidden_size": 4, "num_layers": 1}),
    training=TrainingConfig(epochs=3, batch_size=64),
)


@pytest.fixture
def make_bench(write_toy, tmp_path):
    experiment = Experiment.read(write_toy() / "009" / "toy")

    def make(name: str, **options) -> Workbench:
        settings = experiment.settings("quick")
        options = {"progress": False, "device": "cpu", **options}
        return Workbench(experiment, settings, protocol="quick", folder=tmp_path / name, **options)

    return make


@pytest.fixture(scope="module")
def digits():
    whole = datasets.load("digits")
    return replace(whole, train=whole.train.take(np.arange(200)), test=whole.test.take(np.arange(60)))


def test_stopped_and_taken_up_ends_with_the_same_weights(make_bench, digits, monkeypatch):
    whole = make_bench("whole")
    alone = fit_cell(whole, "fit", digits, CONFIG)
    sliced = make_bench("sliced")
    asked = iter(["before the cell", "after the first epoch"])

    def out_of_time() -> None:
        if next(asked, None) == "after the first epoch":
            raise StoppedError("stopped")

    monkeypatch.setattr(sliced, "check_time", out_of_time)
    with pytest.raises(StoppedError):
        fit_cell(sliced, "fit", digits, CONFIG)
    assert not sliced.remembers("fit")
    later = make_bench("sliced")
    found = fit_cell(later, "fit", digits, CONFIG)
    assert [row["epoch"] for row in found["history"]] == [1, 2, 3]
    assert [row["train_loss"] for row in found["history"]] == [row["train_loss"] for row in alone["history"]]
    ours, theirs = (fitted_model(bench, "fit", digits, CONFIG).model.state_dict() for bench in (later, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert 0.1 <= score_cell(later, "fit", digits, CONFIG) <= 1


def test_other_settings_are_another_cell(make_bench, digits):
    bench = make_bench("run")
    one = replace(CONFIG, training=replace(CONFIG.training, epochs=1))
    assert len(fit_cell(bench, "fit", digits, one)["history"]) == 1
    other = replace(one, training=replace(one.training, seed=1))
    assert fit_cell(bench, "fit", digits, other)["history"] != fit_cell(bench, "fit", digits, one)["history"]


def test_lost_weights_are_told_of(make_bench, digits):
    with pytest.raises(InputError, match="remove the cell fit to train it again"):
        fitted_model(make_bench("run"), "fit", digits, CONFIG)
