import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from sostenuto.training.summary import PAIRS_KEPT, classification_scores, regression_scores


@given(st.integers(0, 50), st.integers(2, 5), st.integers(1, 30))
def test_classification_scores_are_those_of_scikit_learn(seed, classes, count):
    rng = np.random.default_rng(seed)
    actual, probabilities = rng.integers(classes, size=count), rng.dirichlet(np.ones(classes), size=count)
    names = tuple(str(i) for i in range(classes))
    got = classification_scores(actual, probabilities, names)
    guessed, labels, present = probabilities.argmax(1), np.arange(classes), np.unique(actual)
    assert got.accuracy == pytest.approx(metrics.accuracy_score(actual, guessed))
    assert np.array_equal(got.confusion, metrics.confusion_matrix(actual, guessed, labels=labels))
    recall = metrics.recall_score(actual, guessed, labels=present, average="macro", zero_division=0)
    f1 = metrics.f1_score(actual, guessed, labels=present, average="macro", zero_division=0)
    assert (got.balanced_accuracy, got.macro_f1) == (pytest.approx(recall), pytest.approx(f1))
    assert got.log_loss == pytest.approx(-np.log(probabilities[np.arange(count), actual]).mean())
    rows = metrics.precision_recall_fscore_support(actual, guessed, labels=labels, zero_division=0)
    for score, precision, recall, f1, support in zip(got.per_class, *rows, strict=True):  # pyright: ignore[reportArgumentType]
        assert (score.precision, score.recall, score.f1, score.support) == pytest.approx(
            (precision, recall, f1, support)
        )


def test_a_certain_mistake_has_a_finite_log_loss():
    assert np.isfinite(classification_scores(np.array([1]), np.array([[1.0, 0.0]]), ("a", "b")).log_loss)


@given(st.integers(0, 50), st.integers(2, 30))
def test_regression_scores_are_those_of_scikit_learn(seed, count):
    rng = np.random.default_rng(seed)
    actual, predicted = rng.normal(size=count), rng.normal(size=count)
    got = regression_scores(actual, predicted)
    assert got.rmse == pytest.approx(metrics.root_mean_squared_error(actual, predicted))
    assert got.mae == pytest.approx(metrics.mean_absolute_error(actual, predicted))
    assert got.r2 == pytest.approx(metrics.r2_score(actual, predicted))
    assert got.actual == tuple(actual)


def test_a_constant_target_has_no_r2_and_many_pairs_are_thinned():
    assert np.isnan(regression_scores(np.ones(3), np.zeros(3)).r2)
    many = regression_scores(np.arange(5000.0), np.arange(5000.0) + 1)
    assert len(many.actual) == len(many.predicted) == PAIRS_KEPT
    assert many.count == 5000
    assert all(p == a + 1 for a, p in zip(many.actual, many.predicted, strict=True))
