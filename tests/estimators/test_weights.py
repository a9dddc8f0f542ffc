"""Weights of sequences in `fit`."""

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.estimators import RecurrentClassifier, RecurrentRegressor, RNTKClassifier, RNTKRegressor

WHOLE = {
    "hidden_size": 4,
    "num_layers": 1,
    "epochs": 5,
    "batch_size": 1000,
    "learning_rate": 0.05,
    "scaling": "none",
    "validation_fraction": 0.0,
    "random_state": 0,
    "device": "cpu",
    "training_options": {"input_noise": 0.0, "label_smoothing": 0.0},
}


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_a_weight_is_a_number_of_repetitions(sinusoids, kind):
    values, names = sinusoids
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, len(values))
    if kind == "classes":
        make, targets = RecurrentClassifier, names
    else:
        # Unit variance and mean 0 either way: the scaling of the targets is of all sequences.
        make, targets = RecurrentRegressor, np.where(names == "slow", -1.0, 1.0)
        counts = np.repeat(rng.integers(0, 4, 30), 2)
    weighted = make("gru", **WHOLE).fit(values, targets, counts)
    repeated = make("gru", **WHOLE).fit(values.repeat(counts, axis=0), targets.repeat(counts))
    plain = make("gru", **WHOLE).fit(values, targets)

    def answers(estimator):
        return estimator.predict_proba(values) if kind == "classes" else estimator.predict(values)

    np.testing.assert_allclose(answers(weighted), answers(repeated), atol=1e-5)
    assert np.abs(answers(weighted) - answers(plain)).max() > 1e-3
    even = make("gru", **WHOLE).fit(values, targets, np.full(len(values), 2.0))
    np.testing.assert_array_equal(answers(even), answers(plain))


def test_wrong_weights_are_refused(sinusoids):
    values, names = sinusoids
    for weights, message in [
        (np.ones(3), r"expected sample_weight of shape \(60,\), got \(3,\)"),
        (np.full(60, -1.0), "expected sample_weight of at least 0, got -1.0"),
        (np.zeros(60), "at least one non-zero number, got only zeros"),
    ]:
        with pytest.raises(InputError, match=message):
            RecurrentClassifier(**WHOLE).fit(values, names, sample_weight=weights)


@pytest.mark.parametrize("make", [RNTKClassifier, RNTKRegressor])
def test_kernel_machines_say_that_they_take_none(make):
    with pytest.raises(TypeError, match=rf"{make.__name__}.fit takes no sample_weight.*Recurrent{make.__name__[4:]}"):
        make().fit(np.zeros((4, 5)), [0, 1, 0, 1], sample_weight=np.ones(4))
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'other'"):
        make().fit(np.zeros((4, 5)), [0, 1, 0, 1], other=1)
