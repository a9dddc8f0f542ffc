"""Inside scikit-learn's own tools: searches, pipelines, cross-validation, metadata routing."""

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sostenuto.estimators import RecurrentClassifier, RecurrentRegressor

TINY = {"hidden_size": 4, "num_layers": 1, "epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}


def test_grid_search(sinusoids):
    grid = {"hidden_size": np.array([4, 8]), "layer": ["unicornn", "gru"]}
    search = GridSearchCV(RecurrentClassifier(**TINY), grid, cv=2, error_score="raise").fit(*sinusoids)
    assert search.best_params_["layer"] in grid["layer"]
    assert search.predict(sinusoids[0]).shape == (60,)
    assert len(search.cv_results_["params"]) == 4


def test_grid_search_over_ragged_lists(ragged):
    sequences, labels = ragged
    grid = {"learning_rate": [1e-6, 0.1]}
    model = RecurrentClassifier(**{**TINY, "epochs": 20})
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(sequences, labels)
    assert search.best_params_ == {"learning_rate": 0.1}
    assert search.best_score_ > 0.9


def test_cross_validation_of_ragged_lists(ragged):
    sequences, labels = ragged
    scores = cross_val_score(RecurrentClassifier(**TINY), sequences, labels, cv=3, scoring="roc_auc")
    assert scores.shape == (3,)
    numbers = cross_val_predict(RecurrentRegressor(**TINY), sequences, labels, cv=2)
    assert numbers.shape == (30,)


def test_pipeline_of_a_matrix(sinusoids):
    values, names = sinusoids
    pipeline = make_pipeline(
        StandardScaler(), RecurrentClassifier(**{**TINY, "hidden_size": 16, "epochs": 20, "readout": "max"})
    )
    assert pipeline.fit(values, names).score(values, names) > 0.9
    assert pipeline.n_features_in_ == 24


def test_pipeline_of_lists(ragged):
    sequences, labels = ragged
    double = FunctionTransformer(lambda items: [2 * item for item in items])
    pipeline = make_pipeline(double, RecurrentClassifier(**TINY))
    expected = RecurrentClassifier(**TINY).fit(sequences, labels).predict_proba(sequences)
    np.testing.assert_allclose(pipeline.fit(sequences, labels).predict_proba(sequences), expected, atol=1e-5)


def test_timespans_are_routed_through_a_search(sinusoids):
    values, names = sinusoids
    spans = np.random.default_rng(0).uniform(0.5, 1.5, values.shape)
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = RecurrentClassifier(**TINY).set_fit_request(timespans=True).set_score_request(timespans=True)
        search = GridSearchCV(classifier, {"hidden_size": [4]}, cv=2, error_score="raise")
        search.fit(values, names, timespans=spans)
    assert search.best_estimator_.uses_timespans_


@pytest.mark.filterwarnings("ignore:Scoring failed")
def test_timespans_left_out_of_scoring_are_not_overlooked(sinusoids):
    values, names = sinusoids
    search = GridSearchCV(RecurrentClassifier(**TINY), {"hidden_size": [4]}, cv=2, error_score="raise")
    with pytest.raises(ValueError, match="expected timespans, as the estimator was fitted with them"):
        search.fit(values, names, timespans=np.ones_like(values))
