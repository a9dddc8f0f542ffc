"""A target for every step, from arrays and from lists of unequal lengths."""

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.estimators import RecurrentClassifier, RecurrentRegressor, RNTKClassifier

TINY = {"hidden_size": 8, "num_layers": 1, "epochs": 30, "batch_size": 8, "random_state": 0, "device": "cpu"}
EXACT = {"input_noise": 0.0, "label_smoothing": 0.0}


@pytest.fixture
def signs():
    """Noise of 5 to 9 steps, the sign of every step, and the running sum."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(rng.integers(5, 10), 1)) for _ in range(24)]
    return values, [np.where(v[:, 0] > 0, "up", "down") for v in values], [v.cumsum(0)[:, 0] for v in values]


def test_classes_of_steps(signs, tmp_path):
    values, names, _ = signs
    classifier = RecurrentClassifier("gru", **TINY, learning_rate=0.05, step_targets=True, training_options=EXACT)
    classifier.fit(values, names)
    answers = classifier.predict(values)
    assert [len(row) for row in answers] == [len(value) for value in values]
    right = np.mean(np.concatenate(answers) == np.concatenate(names))
    assert classifier.score(values, names) == pytest.approx(right)
    assert right > 0.9
    assert classifier.predict_proba(values)[0].shape == (len(values[0]), 2)
    assert classifier.decision_function(values)[0].shape == (len(values[0]),)
    same = np.stack([value[:5] for value in values])
    assert classifier.predict(same).shape == (24, 5)
    classifier.save(tmp_path / "steps.safetensors")
    again = RecurrentClassifier.load(tmp_path / "steps.safetensors")
    np.testing.assert_array_equal(again.predict(same), classifier.predict(same))


def test_numbers_of_steps(signs):
    values, _, sums = signs
    same, targets = np.stack([value[:5] for value in values]), np.stack([row[:5] for row in sums])
    regressor = RecurrentRegressor("gru", **TINY, learning_rate=0.05, step_targets=True)
    assert regressor.fit(same, targets).predict(same).shape == (24, 5)
    assert regressor.score(same, targets) > 0.7
    pairs = np.stack([targets, -targets], axis=2)
    assert regressor.fit(same, pairs).predict(same).shape == (24, 5, 2)
    ragged = regressor.fit(values, sums, sample_weight=np.ones(24)).predict(values)
    assert [row.shape for row in ragged] == [row.shape for row in sums]


def test_what_is_not_said_is_not_guessed(signs):
    values, names, sums = signs
    same = np.stack([value[:5] for value in values])
    several = RecurrentRegressor("gru", **TINY).fit(same, np.stack([row[:5] for row in sums]))
    assert several.encoding_.task == "regression"
    with pytest.raises(InputError, match="sequence 0: expected a target for every step, as step_targets=True says"):
        RecurrentClassifier(**TINY, step_targets=True).fit(same, ["a", "b"] * 12)
    with pytest.raises(InputError, match="sequence 0: expected a target for each of its 5 steps, got "):
        RecurrentClassifier(**TINY, step_targets=True).fit(same, names)
    with pytest.raises(InputError, match="sequence 0: expected numbers as targets"):
        RecurrentRegressor(**TINY, step_targets=True).fit(values, names)


@pytest.mark.parametrize("make", [lambda **o: RecurrentClassifier(**{**TINY, "epochs": 1}, **o), RNTKClassifier])
def test_exchanged_axes_are_warned_of(make):
    X = np.random.default_rng(0).normal(size=(12, 3, 60))  # noqa: N806
    fixed = {} if make is not RNTKClassifier else {"search": "none", "sigma_w": 1.4, "sigma_b": 0.1, "folds": 2}
    with pytest.warns(UserWarning, match=r"read as 3 steps of 60 channels; .* pass layout='bct'"):
        make(**fixed).fit(X, [0, 1] * 6)
    make(**fixed, layout="bct").fit(X, [0, 1] * 6)


def test_missing_values_are_spoken_of_as_the_estimator_can():
    X = np.full((4, 5), np.nan)  # noqa: N806
    with pytest.raises(InputError, match="pass missing='mask' or missing='interpolate'"):
        RecurrentClassifier(**TINY).fit(X, [0, 1] * 2)
    with pytest.raises(InputError, match="fill them in first: RNTKClassifier has no rule for missing values"):
        RNTKClassifier().fit(X, [0, 1] * 2)
