"""A class or numbers at every step from oscillators: accuracy, causality, streams, ragged and uneven sequences."""

from typing import Any

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import InputError

SMALL: dict[str, Any] = {"n_units": 48, "n_random": 48, "random_state": 0}


def waves(count, seed=0):
    """Give waves of 30 to 60 steps with noise, whether each step belongs to a fast stretch, and a filtered square."""
    rng = np.random.default_rng(seed)
    x, classes, numbers = [], [], []
    for length in rng.integers(30, 60, count):
        fast = np.repeat(rng.integers(0, 2, 4), 15)[:length]
        values = np.sin(np.cumsum(0.2 + 0.9 * fast)) + 0.1 * rng.normal(size=length)
        x.append(values)
        classes.append(np.where(fast, "fast", "slow"))
        numbers.append(np.convolve(values, np.exp(-np.arange(30) / 8))[:length] ** 2)
    return x, classes, numbers


def test_classes_of_steps_are_told_in_unseen_sequences():
    (x, y, _), (unseen, y_test, _) = waves(40), waves(30, seed=1)
    classifier = so.OscillatorStepClassifier(**SMALL).fit(x, y)
    score = classifier.score(unseen, y_test)
    # The class of a step shows a few steps after a change: a window of values sees it no better.
    assert score > 0.85
    assert abs(classifier.best_score_ - score) < 0.05
    assert 0 < classifier.best_score_error_ < 0.05
    probabilities = classifier.predict_proba(unseen)
    assert [row.shape for row in probabilities] == [(len(row), 2) for row in unseen]
    chosen = np.concatenate(probabilities).max(1)
    assert chosen.mean() == pytest.approx(score, abs=0.05)


def test_numbers_of_steps_and_their_unit():
    (x, _, y), (unseen, _, y_test) = waves(40), waves(30, seed=1)
    regressor = so.OscillatorStepRegressor(**SMALL).fit(x, y)
    assert regressor.score(unseen, y_test) > 0.9
    assert regressor.best_score_ == pytest.approx(regressor.score(unseen, y_test), abs=0.05)
    pairs = [np.stack([row, 1e6 - 1000 * row], 1) for row in y]
    both = so.OscillatorStepRegressor(**SMALL).fit(x, pairs).predict(unseen[:3])
    for row, answer in zip(regressor.predict(unseen[:3]), both, strict=True):
        np.testing.assert_allclose(answer, np.stack([row, 1e6 - 1000 * row], 1), rtol=1e-4, atol=1e-3)


def test_no_answer_reads_a_later_step():
    x, y, numbers = waves(20)
    for model in (so.OscillatorStepClassifier(**SMALL).fit(x, y), so.OscillatorStepRegressor(**SMALL).fit(x, numbers)):
        changed = x[0].copy()
        changed[20:] = 100.0
        before, after = model.predict([x[0]])[0], model.predict([changed])[0]
        np.testing.assert_array_equal(before[:20], after[:20])
        assert (before[20:] != after[20:]).any()


@pytest.mark.parametrize("uneven", [False, True])
def test_a_stream_answers_what_predict_does(uneven):
    x, y, numbers = waves(20)
    spans = [np.random.default_rng(1).uniform(0.5, 2.0, len(row)) for row in x]
    given = {"timespans": spans} if uneven else {}
    one = {"timespans": spans[:1]} if uneven else {}
    regressor = so.OscillatorStepRegressor(**SMALL).fit(x, numbers, **given)
    stream = regressor.stream()
    pairs = zip(x[0], spans[0] if uneven else [None] * len(x[0]), strict=True)
    answers = [stream.push(value, span) for value, span in pairs]
    expected = regressor.predict(x[:1], **one)[0]
    np.testing.assert_allclose(answers, expected, atol=1e-4 * np.abs(expected).max())
    classifier = so.OscillatorStepClassifier(**SMALL).fit(x, y)
    stream = classifier.stream()
    assert [stream.push(value) for value in x[1]] == classifier.predict(x[1:2])[0].tolist()
    with pytest.raises(InputError, match=r"expected no timespan, as in fit, got 1\.0"):
        stream.push(0.0, 1.0)


def test_it_is_kept_whole_in_a_file_and_repeats(tmp_path):
    x, y, _ = waves(20)
    classifier = so.OscillatorStepClassifier(**SMALL).fit(x, y)
    classifier.save(tmp_path / "steps.safetensors")
    loaded = so.OscillatorStepClassifier.load(tmp_path / "steps.safetensors")
    again = so.OscillatorStepClassifier(**SMALL).fit(x, y)
    for name in ("coef_", "intercept_", "penalty_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(classifier, name))
    for row, same, repeated in zip(*(each.predict_proba(x) for each in (classifier, loaded, again)), strict=True):
        # The order in which BLAS adds depends on where arrays lie in memory.
        np.testing.assert_allclose(row, same, rtol=1e-12)
        np.testing.assert_allclose(row, repeated, rtol=1e-12)
    assert loaded.stream().push(0.3) in ("fast", "slow")


def test_more_steps_than_choose_the_penalty_are_all_summed_up(monkeypatch):
    from sostenuto.estimators.oscillators import steps

    x, _, y = waves(40)
    monkeypatch.setattr(steps, "_JUDGED", 500)
    few = so.OscillatorStepRegressor(**SMALL).fit(x, y)
    monkeypatch.setattr(steps, "_JUDGED", 10**6)
    all_at_once = so.OscillatorStepRegressor(**SMALL).fit(x, y)
    all_at_once.penalty_ = few.penalty_
    assert few.score(x, y) == pytest.approx(all_at_once.score(x, y), abs=0.02)
    assert few.best_score_ == pytest.approx(all_at_once.best_score_, abs=0.1)


def test_short_constant_and_weighted_sequences():
    x, _, y = waves(20)
    x, y = [*x, np.array([0.5]), np.full(40, 2.0)], [*y, np.array([0.2]), np.full(40, 3.0)]
    weights = np.ones(22)
    plain = so.OscillatorStepRegressor(**SMALL).fit(x, y)
    weighted = so.OscillatorStepRegressor(**SMALL).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(plain.predict(x)[-1], weighted.predict(x)[-1])
    assert all(np.isfinite(row).all() for row in plain.predict(x))
    broken = [*y[:-1], y[-1] * 100]
    weights[-1] = 0
    ignored = so.OscillatorStepRegressor(**SMALL).fit(x, broken, sample_weight=weights)
    assert np.concatenate(ignored.predict(x[:20])).max() < 100


def test_sequences_without_a_weight_do_not_count():
    x, classes, numbers = waves(12)
    weights = np.ones(12)
    weights[2:] = 0  # too few are left for every fold to have one
    assert so.OscillatorStepClassifier(**SMALL).fit(x, classes, sample_weight=weights).score(x[:2], classes[:2]) > 0.9
    weights[1] = 0
    with pytest.raises(InputError, match="expected at least 2 sequences to fit, of a weight above 0, got 1 sample"):
        so.OscillatorStepRegressor(**SMALL).fit(x, numbers, sample_weight=weights)


@pytest.mark.parametrize("span", [-1.0, 0.0, np.nan, np.inf])
def test_time_goes_forward_in_a_stream(span):
    x, y, _ = waves(6)
    stream = so.OscillatorStepClassifier(**SMALL).fit(x, y, timespans=[np.ones(len(row)) for row in x]).stream()
    stream.push(0.1, 1.0)
    with pytest.raises(InputError, match="expected a timespan above 0"):
        stream.push(0.2, span)


def test_what_does_not_fit_is_refused():
    x, y, numbers = waves(6)
    with pytest.raises(InputError, match=r"sequence 0: expected a target for each of its \d+ steps, got 1"):
        so.OscillatorStepRegressor(**SMALL).fit(x, [row[:1] for row in numbers])
    with pytest.raises(InputError, match="expected at least 2 classes, got 1 class, 'a'"):
        so.OscillatorStepClassifier(**SMALL).fit(x, [np.full(len(row), "a") for row in y])
    with pytest.raises(InputError, match="expected at least 2 sequences to fit"):
        so.OscillatorStepClassifier(**SMALL).fit(x[:1], y[:1])
