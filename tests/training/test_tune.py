import json
import math
from dataclasses import replace

import pytest

from sostenuto.checks import InputError, SostenutoError
from sostenuto.data.tasks import generate
from sostenuto.training import tune
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from sostenuto.training.tune import SPACES, apply_settings, search

SPACE = {
    "training.learning_rate": ("log", (1e-3, 1e-1)),
    "training.batch_size": ("choice", (8, 16)),
    "options.dropout": ("uniform", (0.0, 0.3)),
    "options.num_layers": ("choice", (1, 2)),
}


@pytest.fixture(autouse=True)
def _small_space(monkeypatch):
    monkeypatch.setitem(SPACES, "unicornn", SPACE)


@pytest.fixture
def dataset():
    return generate("spirals", num_train=24, num_test=6, num_steps=8)


def settings(**training) -> RunConfig:
    return RunConfig(
        DataConfig(), ModelConfig("unicornn", options={"hidden_size": 3}), TrainingConfig(epochs=1, **training)
    )


def go(dataset, config, folder, trials, **options):
    return search(dataset, config, folder, trials=trials, device="cpu", progress=False, **options)


def drawn(rows) -> list[dict]:
    return [row["settings"] for row in sorted(rows, key=lambda row: row["trial"])]


def test_a_search_ranks_its_trials_and_writes_the_best(tmp_path, dataset):
    rows = go(dataset, settings(), tmp_path / "new", 4)
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(row["score"] == row["accuracy"] for row in rows)
    best = RunConfig.load(tmp_path / "new" / "best.toml")
    assert best == apply_settings(settings(), rows[0]["settings"])
    logged = [json.loads(line) for line in (tmp_path / "new" / "trials.jsonl").read_text().splitlines()]
    assert [row["trial"] for row in logged] == [0, 1, 2, 3]
    for row in logged[1:]:
        assert 1e-3 <= row["settings"]["training.learning_rate"] <= 1e-1
        assert row["settings"]["training.batch_size"] in (8, 16)


def test_a_search_that_was_stopped_goes_on(tmp_path, dataset, monkeypatch):
    whole = go(dataset, settings(), tmp_path / "whole", 5)
    folder = tmp_path / "cut"
    go(dataset, settings(), folder, 2)
    with (folder / "trials.jsonl").open("a") as log:
        log.write('{"trial": 2, "dig')
    tried, fit_parts = [], tune.fit_parts
    monkeypatch.setattr(tune, "fit_parts", lambda *a, **k: tried.append(1) or fit_parts(*a, **k))
    rows = go(dataset, settings(), folder, 5)
    assert len(tried) == 3 * 3
    assert drawn(rows) == drawn(whole)
    assert [row["score"] for row in rows] == [row["score"] for row in whole]
    lines = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert [row["trial"] for row in lines] == list(range(5))


def test_trials_of_other_settings_are_not_taken_up(tmp_path, dataset):
    go(dataset, settings(), tmp_path, 1)
    with pytest.raises(InputError, match=r"trials\.jsonl: expected trials of the same settings, got others"):
        go(dataset, settings(weight_decay=0.1), tmp_path, 2)


def test_the_seed_draws_the_trials(tmp_path, dataset):
    one = go(dataset, settings(), tmp_path / "a", 3)
    other = go(dataset, settings(seed=1), tmp_path / "b", 3)
    assert drawn(one) != drawn(other)


def test_smaller_errors_are_better(tmp_path):
    dataset = generate("adding", num_train=24, num_validation=8, num_test=4, num_steps=6)
    rows = go(dataset, settings(), tmp_path, 3)
    assert [row["score"] for row in rows] == [-row["rmse"] for row in rows]
    assert rows[0]["rmse"] == min(row["rmse"] for row in rows)


def test_optuna_learns_from_the_trials_before(tmp_path, dataset):
    pytest.importorskip("optuna")
    rows = go(dataset, settings(), tmp_path, 3, sampler="optuna")
    assert len(rows) == 3
    assert RunConfig.load(tmp_path / "best.toml").model.layer == "unicornn"
    again = go(dataset, settings(), tmp_path, 4, sampler="optuna")
    assert drawn(again)[:3] == drawn(rows)


@pytest.mark.parametrize("sampler", ["random", "optuna"])
def test_a_setting_that_fails_ranks_last_and_says_why(tmp_path, dataset, monkeypatch, sampler):
    if sampler == "optuna":
        pytest.importorskip("optuna")
    fit_parts, calls = tune.fit_parts, []

    def diverge_first(*arguments, **options):
        calls.append(1)
        if len(calls) == 1:
            raise SostenutoError("expected a finite loss, got nan.")
        return fit_parts(*arguments, **options)

    monkeypatch.setattr(tune, "fit_parts", diverge_first)
    rows = go(dataset, settings(), tmp_path / sampler, 3, sampler=sampler)
    assert rows[-1]["score"] is None
    assert rows[-1]["reason"] == "expected a finite loss, got nan."


def test_a_validation_score_that_is_never_finite_is_a_failure(tmp_path, dataset, monkeypatch):
    monkeypatch.setattr("sostenuto.training.trainer.Trainer._evaluate", lambda *_: (math.nan, 0.5))
    with pytest.raises(SostenutoError, match="expected at least one setting that trains, got none"):
        go(dataset, settings(), tmp_path, 2)


def test_bad_options_end_the_search(tmp_path, dataset):
    wrong = replace(settings(), model=ModelConfig(options={"hidden_size": 3, "colour": 1}))
    with pytest.raises(InputError, match="colour"):
        go(dataset, wrong, tmp_path, 2)
    with pytest.raises(InputError, match="sampler"):
        go(dataset, settings(), tmp_path, 2, sampler="grid")
    with pytest.raises(InputError, match="trials"):
        go(dataset, settings(), tmp_path, 0)
    with pytest.raises(InputError, match="folds"):
        go(dataset, settings(), tmp_path, 2, folds=1)
    bare = replace(settings(), data=DataConfig(validation=0.0, split="time"))
    with pytest.raises(InputError, match="expected a validation part to choose on, got none"):
        go(dataset, bare, tmp_path, 2)
    with pytest.raises(InputError, match="expected at least 26 sequences to choose on, got 24"):
        go(dataset, settings(), tmp_path, 2, folds=13)


def test_the_recipe_is_trial_0_and_no_search_ends_below_it(tmp_path, dataset):
    rows = go(dataset, settings(learning_rate=0.02), tmp_path, 3)
    recipe = next(row for row in rows if row["trial"] == 0)
    assert recipe["settings"] == {}
    assert rows[0]["score"] >= recipe["score"]
    best = RunConfig.load(tmp_path / "best.toml")
    assert (best == settings(learning_rate=0.02)) == (rows[0]["trial"] == 0)


def test_every_sequence_outside_the_test_part_is_held_out_once(tmp_path, dataset, monkeypatch):
    seen, fit_parts = [], tune.fit_parts

    def watched(parts, *arguments, **options):
        seen.append(parts)
        return fit_parts(parts, *arguments, **options)

    monkeypatch.setattr(tune, "fit_parts", watched)
    rows = go(dataset, settings(), tmp_path, 1)
    held_out = [sequence.tobytes() for parts in seen for sequence in parts.validation.sequences]
    assert sorted(held_out) == sorted(sequence.tobytes() for sequence in dataset.train.sequences)
    assert all(len(parts.train) + len(parts.validation) == 24 for parts in seen)
    assert rows[0]["score"] == pytest.approx(sum(rows[0]["folds"]) / 3)


def test_one_layer_takes_no_dropout():
    config = apply_settings(settings(), {"options.num_layers": 1, "options.dropout": 0.2, "training.batch_size": 8})
    assert config.model.options == {"hidden_size": 3, "num_layers": 1, "dropout": 0.0}
    assert config.training.batch_size == 8
