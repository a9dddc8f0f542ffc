"""``sostenuto fit`` without ``--model``, and with ``--model oscillators``: a choice, a run, a page, predictions."""

import json

import numpy as np
import pytest

from sostenuto.estimators.runs import named_models
from sostenuto.estimators.runs.at_once import ESTIMATORS
from sostenuto.nn import LAYERS
from tests.cli.small import call, said, write_waves
from tests.report.html_check import Page


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    write_waves(folder / "train.npz")
    write_waves(folder / "test.npz", 20)
    options = ("--test", folder / "test.npz", "--out", folder / "run", "--budget", "0.05s", "--quiet")
    result = call("fit", folder / "train.npz", *options)
    assert result.exit_code == 0, result.stderr
    return folder


def test_without_a_model_one_is_chosen_and_the_page_says_why(chosen):
    candidates = json.loads((chosen / "run" / "choice.json").read_text())
    assert [one["name"] for one in candidates] == ["oscillators", "rntk", "stack"]
    assert candidates[0]["score"] > 0.8
    assert "not tried" in candidates[2]["note"]
    page = (chosen / "run" / "report.html").read_text()
    assert Page(page).faults == []
    for words in (
        "Why this model?",
        "of 3 parts held out",
        "standard errors of the paired difference",
        "Which oscillators decide?",
        "period in steps",
        "not tried",
    ):
        assert words in page
    assert 'layer = "oscillators"' in (chosen / "run" / "config.toml").read_text()


def test_predictions_are_those_of_the_run_and_resuming_repeats_it(chosen):
    result = call("predict", chosen / "run", chosen / "test.npz", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (chosen / "run" / "predictions.csv").read_text()
    before = (chosen / "run" / "model.safetensors").read_bytes()
    assert call("fit", "--resume", chosen / "run", "--quiet").exit_code == 0
    assert (chosen / "run" / "model.safetensors").read_bytes() == before


def test_an_audit_of_such_a_run_answers_what_applies_and_names_the_rest(chosen):
    options = ("--model", "oscillators", "-o", "n_units=16", "--audit", "quick", "--quiet")
    result = call("fit", chosen / "train.npz", "--test", chosen / "test.npz", *options, "--out", chosen / "audited")
    assert result.exit_code == 0, result.stderr
    report = json.loads((chosen / "audited" / "audit.json").read_text())
    answered = {"skill", "memory", "attribution", "calibration", "generalization", "noise", "attack"}
    assert set(report["results"]) == answered
    assert all(reason.startswith("not applicable") for reason in report["refused"].values()), report["refused"]
    assert report["results"]["memory"]["hidden"] == ""
    assert report["model"] == "OscillatorClassifier"
    assert Page((chosen / "audited" / "report.html").read_text()).faults == []


def test_the_audit_of_an_oscillator_run_takes_ragged_sequences_and_numbers(tmp_path):
    arrays = dict(np.load(write_waves(tmp_path / "train.npz", 32, targets="numbers")))
    np.savez(tmp_path / "train.npz", lengths=8 + np.arange(32) % 3, **arrays)
    options = ("--model", "oscillators", "-o", "n_units=16", "--out", tmp_path / "run", "--quiet")
    assert call("fit", tmp_path / "train.npz", *options).exit_code == 0
    result = call("audit", tmp_path / "run", "--check", "noise", "--json")
    assert result.exit_code == 0, result.stderr
    assert set(json.loads(result.stdout)["results"]) == {"skill", "noise"}


def test_options_of_a_network_choose_a_network(tmp_path):
    train = write_waves(tmp_path / "train.npz")
    result = call("fit", train, "--epochs", 1, "--hidden-size", 4, "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert 'layer = "stack"' in (tmp_path / "run" / "config.toml").read_text()
    assert not (tmp_path / "run" / "choice.json").exists()


def test_time_for_all_lets_all_be_tried(tmp_path):
    train = write_waves(tmp_path / "train.npz", 12)
    arrays = dict(np.load(train))
    np.savez(train, X=arrays["X"], y=np.random.default_rng(0).permutation(arrays["y"]))  # nothing is always right
    result = call("fit", train, "--budget", "1h", "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == 0, result.stderr
    candidates = json.loads((tmp_path / "run" / "choice.json").read_text())
    assert all(one["score"] is not None for one in candidates), candidates


def test_numbers_uneven_times_and_missing_values(tmp_path):
    train = write_waves(tmp_path / "train.npz", targets="numbers")
    result = call("fit", train, "--budget", "0.05s", "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["model"], found["metric"]) == ("oscillators", "rmse")
    assert "The default is oscillators" in found["rule"]
    generator = np.random.default_rng(0)
    lines = ["series,time,x,kind"]
    for series in range(24):
        times = np.cumsum(generator.uniform(0.5, 1.5, 30))
        values = np.sin((1 + series % 2) * times)
        lines += [f"{series},{t},{v},{'fast' if series % 2 else 'slow'}" for t, v in zip(times, values, strict=True)]
    table = tmp_path / "uneven.csv"
    table.write_text("\n".join(lines))
    columns = ("--series", "series", "--time", "time", "--target", "kind")
    result = call("fit", table, *columns, "--model", "oscillators", "--out", tmp_path / "uneven", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["score"] > 0.9


def test_a_target_for_every_step_is_answered_by_oscillators(tmp_path):
    steps = write_waves(tmp_path / "steps.npz", targets="steps")
    options = ("--task", "sequence", "--out", tmp_path / "run", "--budget", "0.05s", "--json")
    result = call("fit", steps, *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    ridge = next(one["score"] for one in found["baselines"] if one["name"].startswith("ridge"))
    assert (found["model"], found["metric"]) == ("oscillators", "rmse")
    assert found["score"] < 0.5 * ridge  # running sums: five recent values do not tell them
    candidates = json.loads((tmp_path / "run" / "choice.json").read_text())
    assert [one["name"] for one in candidates] == ["oscillators", "stack"]
    assert candidates[0]["note"].endswith("of 3 parts held out")
    assert candidates[1]["score"] is None
    page = (tmp_path / "run" / "report.html").read_text()
    assert Page(page).faults == []
    assert "recent values and sums are weighed at each step" in page
    result = call("predict", tmp_path / "run", steps, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1 + 24 * 10


def test_classes_of_steps_of_unequal_lengths(tmp_path):
    generator = np.random.default_rng(0)
    lines = ["series,time,x,kind"]
    for series, length in enumerate(generator.integers(8, 30, 40)):
        values = generator.normal(size=length)
        kinds = np.where(values + np.concatenate([[0], values[:-1]]) > 0, "up", "down")
        lines += [f"{series},{t},{v},{k}" for t, (v, k) in enumerate(zip(values, kinds, strict=True))]
    table = tmp_path / "kinds.csv"
    table.write_text("\n".join(lines))
    options = ("--target", "kind", "--task", "sequence", "--budget", "0.05s", "--out", tmp_path / "run", "--json")
    result = call("fit", table, *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["model"] == "oscillators"
    assert found["score"] > 0.9
    words = said(call("fit", table, *options[:4], "--model", "rntk", "--out", tmp_path / "other"))
    assert "expected one target per sequence for rntk, got sequence" in words


def test_what_nothing_can_beat_ends_the_choice(tmp_path):
    generator = np.random.default_rng(0)
    kinds = np.arange(20) % 2
    np.savez(tmp_path / "easy.npz", X=generator.normal(size=(20, 30)) + 10.0 * kinds[:, None], y=kinds)
    result = call("fit", tmp_path / "easy.npz", "--budget", "1h", "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == 0, result.stderr
    candidates = json.loads((tmp_path / "run" / "choice.json").read_text())
    assert [one["score"] for one in candidates] == [1.0, None, None]
    assert "no unseen answer was wrong" in candidates[1]["note"]
    assert "no other can lead" in (tmp_path / "run" / "report.html").read_text()


def test_a_budget_is_a_time_and_names_are_the_same_everywhere(tmp_path):
    train = write_waves(tmp_path / "train.npz")
    words = said(call("fit", train, "--budget", "soon", "--out", tmp_path / "run"))
    assert "expected a time such as 60s, 5m or 1h, got 'soon'" in words
    words = said(call("fit", train, "--half-life", "long", "--out", tmp_path / "run"))
    assert "expected steps or a time such as 60s, 5m or 1h, got 'long'" in words
    assert not (tmp_path / "run").exists()
    assert named_models() == ("auto", *ESTIMATORS, *LAYERS)


def test_other_networks_are_trained_beside_it_within_the_time(tmp_path):
    write_waves(tmp_path / "train.npz")
    options = ("--out", tmp_path / "run", "--budget", "1s", "--compare", "lstm", "--json")
    result = call("fit", tmp_path / "train.npz", *options)
    assert result.exit_code == 0, result.stderr
    compared = json.loads(result.stdout)["compared"]
    stored = json.loads((tmp_path / "run" / "lstm" / "result.json").read_text())
    assert compared == [{"name": "lstm", "score": stored["score"]}]
    assert 1 <= len(stored["curve"]["epochs"]) < 400  # the recipe's would take longer than a second
    page = (tmp_path / "run" / "report.html").read_text()
    assert "How do others do on it?" in page
    assert "lstm" in page
    refused = call("fit", tmp_path / "train.npz", "--out", tmp_path / "other", "--compare", "forest")
    assert refused.exit_code == 2
    assert "expected compare to be one of" in refused.stderr


def test_oscillators_are_tuned_and_never_below_their_default(tmp_path):
    train = write_waves(tmp_path / "train.npz", targets="numbers")
    options = ("--model", "oscillators", "-o", "n_units=32", "--seed", 1, "--out", tmp_path / "tuned")
    result = call("tune", train, *options, "--trials", 3, "--json")
    assert result.exit_code == 0, result.stderr
    trials = [json.loads(line) for line in (tmp_path / "tuned" / "trials.jsonl").read_text().splitlines()]
    assert trials[0]["settings"] == {}
    best = json.loads(result.stdout)["best"]
    assert best["score"] == max(trial["score"] for trial in trials)
    result = call("fit", "--config", tmp_path / "tuned" / "best.toml", "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == 0, result.stderr
    fitted = json.loads((tmp_path / "run" / "result.json").read_text())
    assert fitted["config"]["fitted"]["best_score"] == pytest.approx(best["score"])
    words = said(call("tune", train, *options, "--sampler", "optuna"))
    assert "expected the sampler 'random' for oscillators, got 'optuna'" in words
