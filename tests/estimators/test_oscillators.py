# ruff: noqa: N806 (X is scikit-learn's own name)

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

import sostenuto as so
from sostenuto.checks import InputError
from sostenuto.estimators.oscillators.ridge import oscillator_summary
from sostenuto.ops.oscillator_bank import BankStream


def waves(count=60, length=80, seed=0, classes=3):
    """Noisy sine waves whose frequency is the class."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    time = np.arange(length)
    phase = generator.uniform(0, 2 * np.pi, (count, 1))
    return np.sin(0.2 * (1 + labels[:, None]) * time + phase) + generator.normal(size=(count, length)), labels


def test_waves_are_told_apart_and_probabilities_are_calibrated():
    X, y = waves(90)
    X_new, y_new = waves(300, seed=1)
    classifier = so.OscillatorClassifier(200, random_state=0).fit(X, y)
    assert classifier.score(X_new, y_new) > 0.95
    probabilities = classifier.predict_proba(X_new)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (classifier.classes_[probabilities.argmax(1)] == classifier.predict(X_new)).all()
    assert log_loss(y_new, probabilities) < 0.25  # ln 3 = 1.1 is what a guess has
    assert classifier.best_score_ > 0.9


def test_noise_alone_is_not_learned():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(120, 50)), generator.integers(0, 2, 120)
    classifier = so.OscillatorClassifier(100, random_state=0).fit(X, y)
    assert abs(classifier.best_score_ - 0.5) < 0.2
    assert classifier.predict_proba(generator.normal(size=(200, 50))).max() < 0.9


def test_labels_of_any_kind_unequal_lengths_channels_and_layouts():
    X, y = waves(45)
    names = np.array(["slow", "middle", "fast"])[y]
    ragged = [np.stack([row[: 60 + i % 20], row[: 60 + i % 20] ** 2], 1) for i, row in enumerate(X)]
    classifier = so.OscillatorClassifier(100, random_state=0).fit(ragged, names)
    assert set(classifier.predict(ragged)) == {"slow", "middle", "fast"}
    cube = np.stack([X, X**2], 2)
    btc = so.OscillatorFeatures(50, random_state=0).fit_transform(cube)
    bct = so.OscillatorFeatures(50, random_state=0, layout="bct").fit_transform(cube.transpose(0, 2, 1))
    np.testing.assert_array_equal(btc, bct)


def test_one_series_for_each_class_is_enough_to_answer():
    X, y = waves(60, classes=6, length=200)
    X_new, y_new = waves(120, classes=6, length=200, seed=5)
    classifier = so.OscillatorClassifier(200, random_state=0).fit(X[:6], y[:6])
    assert classifier.score(X_new, y_new) > 0.6
    assert np.isfinite(classifier.predict_proba(X_new)).all()


def test_a_window_of_a_sequence_is_cut_from_its_ends():
    X, _ = waves(6, length=50)
    features = so.OscillatorFeatures(16, random_state=0).fit([row[: 20 + 3 * i] for i, row in enumerate(X)])
    rows = features._read([row[: 20 + 3 * i] for i, row in enumerate(X)], None)
    late = features.transform([row[: 20 + 3 * i][int(0.2 * (20 + 3 * i)) :] for i, row in enumerate(X)])
    np.testing.assert_array_equal(rows.window(0.2, 1.0).features(features.bank_), late)


def test_features_have_names_ranges_and_a_seed():
    X, _ = waves()
    features = so.OscillatorFeatures(40, random_state=3).fit(X)
    values = features.transform(X)
    assert values.shape == (60, 640)
    assert values.min() >= 0
    assert values.max() <= 1
    names = features.get_feature_names_out()
    assert len(set(names)) == 640
    assert names[0] == "single0_above0"
    assert names[41] == "single1_above1"
    np.testing.assert_array_equal(clone(features).fit(X).transform(X), values)
    assert (so.OscillatorFeatures(40, random_state=4).fit_transform(X) != values).any()


@pytest.mark.parametrize("irregular", [False, True])
def test_a_stream_gives_the_features_of_transform(irregular):
    X, y = waves(30, length=50)
    spans = np.random.default_rng(2).uniform(0.2, 3.0, X.shape) if irregular else None
    classifier = so.OscillatorClassifier(80, random_state=0).fit(X, y, timespans=spans)
    features = so.OscillatorFeatures(80, random_state=0).fit(X, timespans=spans)
    part = {"timespans": spans[:1]} if irregular else {}
    stream, judged = features.stream(), classifier.stream()
    for t, value in enumerate(X[0]):
        span = () if spans is None else (spans[0, t],)
        stream.push(value, *span)
        judged.push(value, *span)
    np.testing.assert_allclose(stream.features(), features.transform(X[:1], **part)[0], atol=1e-6)
    np.testing.assert_allclose(judged.predict_proba(), classifier.predict_proba(X[:1], **part)[0], atol=1e-5)
    assert judged.predict() == classifier.predict(X[:1], **part)[0]


def test_steps_of_a_stream_are_walked_through_together(monkeypatch):
    X, _ = waves(20, length=200)
    features = so.OscillatorFeatures(80, random_state=0).fit(X)
    calls, push = [], BankStream.push
    monkeypatch.setattr(BankStream, "push", lambda *given: calls.append(len(given[1])) or push(*given))
    stream = features.stream()
    for value in X[0]:
        stream.push(value)
    assert max(calls) == 64  # one call costs what ten steps of 1000 units cost
    np.testing.assert_array_equal(stream.features(), features.transform(X[:1])[0])
    assert sum(calls) == 200
    for wrong in ([1.0, 2.0], np.nan):
        with pytest.raises(InputError, match="expected 1 finite values"):
            stream.push(wrong)
    with pytest.raises(InputError, match="expected no timespan"):
        stream.push(1.0, 2.0)


def test_only_ratios_of_timespans_matter():
    X, y = waves(30)
    spans = np.random.default_rng(2).uniform(0.2, 3.0, X.shape)
    seconds = so.OscillatorClassifier(60, random_state=0).fit(X, y, timespans=spans)
    hours = so.OscillatorClassifier(60, random_state=0).fit(X, y, timespans=spans * 3600)
    np.testing.assert_allclose(
        seconds.predict_proba(X, timespans=spans), hours.predict_proba(X, timespans=spans * 3600), atol=1e-3
    )
    with pytest.raises(InputError, match="expected timespans, as in fit, got none"):
        seconds.predict(X)


def test_missing_steps_are_drawn_through_as_missing_values_are():
    """Left out with its time or NaN: a missing step makes no difference, in whole sequences and in streams."""
    X, y = waves(40)
    holes, kept = X.copy(), np.ones(80, bool)
    kept[[10, 11, 12, 30, 50, 51]] = False
    holes[:, ~kept] = np.nan
    filled = so.OscillatorClassifier(100, random_state=0).fit(holes, y)
    spans = np.tile(np.diff(np.flatnonzero(kept), prepend=-1), (40, 1)).astype(float)
    timed = so.OscillatorClassifier(100, random_state=0).fit(X[:, kept], y, timespans=spans)
    np.testing.assert_allclose(timed.predict_proba(X[:, kept], timespans=spans), filled.predict_proba(holes), atol=1e-3)
    stream = timed.stream()
    for value, span in zip(X[0, kept], spans[0], strict=True):
        stream.push(value, span)
    np.testing.assert_allclose(
        stream.features(), timed._read(X[:1, kept], spans[:1]).features(timed.bank_)[0], atol=1e-6
    )
    far = spans.copy()
    far[:, 5] = 1e6  # in a few pieces
    assert np.isfinite(timed.predict_proba(X[:, kept], timespans=far)).all()


def test_missing_values_are_drawn_through():
    X, y = waves(60)
    holes = X.copy()
    holes[:, 10:14] = np.nan
    classifier = so.OscillatorClassifier(100, random_state=0).fit(holes, y)
    filled = X.copy()
    filled[:, 9:15] = X[:, [9]] + (X[:, [14]] - X[:, [9]]) * np.arange(6) / 5
    whole = so.OscillatorClassifier(100, random_state=0).fit(filled, y)
    np.testing.assert_allclose(classifier.predict_proba(holes), whole.predict_proba(filled), atol=0.02)


def test_weights_of_samples_and_classes():
    X, y = waves(120, classes=2)
    X = X + np.random.default_rng(8).normal(size=X.shape) * 4
    rare = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:6]])
    noise = np.random.default_rng(9).normal(size=(100, 80))
    plain = so.OscillatorClassifier(60, random_state=0).fit(X[rare], y[rare]).decision_function(noise)
    balanced = so.OscillatorClassifier(60, random_state=0, class_weight="balanced").fit(X[rare], y[rare])
    assert balanced.decision_function(noise).mean() > plain.mean() + 0.1
    weight = np.where(y[rare] == 1, 10.0, 1.0)
    weighted = so.OscillatorClassifier(60, random_state=0).fit(X[rare], y[rare], sample_weight=weight)
    np.testing.assert_allclose(
        weighted.decision_function(noise), balanced.decision_function(noise), atol=1e-4
    )  # the same weights, up to a factor


def test_numbers_are_predicted_one_or_several():
    generator = np.random.default_rng(0)
    speed = generator.uniform(0.1, 1.0, 120)
    X = np.sin(speed[:, None] * np.arange(100)) + 0.1 * generator.normal(size=(120, 100))
    regressor = so.OscillatorRegressor(200, random_state=0).fit(X[:80], speed[:80])
    assert regressor.score(X[80:], speed[80:]) > 0.97
    both = so.OscillatorRegressor(200, random_state=0).fit(X[:80], np.stack([speed, -speed], 1)[:80])
    np.testing.assert_allclose(both.predict(X[80:])[:, 0], regressor.predict(X[80:]), atol=1e-4)
    np.testing.assert_allclose(both.predict(X[80:])[:, 1], -regressor.predict(X[80:]), atol=1e-4)


def test_saved_and_loaded_it_answers_alike(tmp_path):
    X, y = waves(30)
    for estimator in (
        so.OscillatorClassifier(40, random_state=0).fit(X, np.array(["a", "b", "c"])[y]),
        so.OscillatorRegressor(40, random_state=0).fit(X, y.astype(float)),
    ):
        estimator.save(tmp_path / "model.safetensors")
        again = type(estimator).load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.predict(X), estimator.predict(X))


def test_a_search_over_it_works_and_bad_parameters_are_named():
    X, y = waves(45)
    assert cross_val_score(so.OscillatorClassifier(60, random_state=0), X, y, cv=3).mean() > 0.8
    with pytest.raises(InputError, match="expected n_units"):
        so.OscillatorClassifier(0).fit(X, y)
    with pytest.raises(InputError, match="expected quality to be two rising numbers above 0"):
        so.OscillatorClassifier(quality=(3.0, 1.0)).fit(X, y)
    with pytest.raises(InputError, match="expected 1 channels, as in fit, got 2"):
        so.OscillatorClassifier(20).fit(X[:, :, None], y).predict(np.zeros((3, 80, 2)))


@pytest.fixture
def few_rows(monkeypatch):
    """Let sums take over at sizes that a test can afford."""
    monkeypatch.setattr("sostenuto.estimators.oscillators.ridge.MOST_ROWS", 50)
    monkeypatch.setattr("sostenuto.estimators.oscillators.ridge.SAMPLE_ROWS", 60)
    monkeypatch.setattr("sostenuto.estimators.oscillators.features._CELLS", 16 * 30 * 25)


def test_many_sequences_are_summed_up_in_parts(few_rows, monkeypatch):
    X, y = waves(60)
    summed = so.OscillatorClassifier(30, random_state=0).fit(X, y)
    monkeypatch.setattr("sostenuto.estimators.oscillators.ridge.MOST_ROWS", 100)
    compared = so.OscillatorClassifier(30, random_state=0).fit(X, y)
    assert summed.penalty_ == compared.penalty_
    np.testing.assert_allclose(summed.decision_function(X), compared.decision_function(X), atol=1e-3)
    numbers = so.OscillatorRegressor(30, random_state=0).fit(X, y)
    monkeypatch.setattr("sostenuto.estimators.oscillators.ridge.MOST_ROWS", 50)
    sums = so.OscillatorRegressor(30, random_state=0).fit(X, y)
    np.testing.assert_allclose(sums.predict(X), numbers.predict(X), atol=1e-3)


def test_parts_given_one_after_the_other_are_all_learned(few_rows):
    X, y = waves(60)
    parts = so.OscillatorClassifier(30, random_state=0).partial_fit(X[:20], y[:20], classes=[0, 1, 2])
    alone = parts.decision_function(X)
    parts.partial_fit(X[20:45], y[20:45]).partial_fit(X[45:], y[45:])
    assert (parts.decision_function(X) != alone).any()
    assert parts.score(X, y) > 0.95
    weighted = so.OscillatorClassifier(30, random_state=0).partial_fit(X[:20], y[:20], classes=[0, 1, 2])
    weighted.partial_fit(X[20:], y[20:], sample_weight=np.ones(40))
    np.testing.assert_allclose(weighted.decision_function(X), parts.decision_function(X), atol=1e-6)
    numbers = so.OscillatorRegressor(30, random_state=0).partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    assert numbers.score(X, y) > 0.8


def test_what_partial_fit_cannot_do_is_said(few_rows, tmp_path):
    X, y = waves(60)
    parts = so.OscillatorClassifier(30, random_state=0).partial_fit(X[:20], y[:20])
    with pytest.raises(InputError, match=r"expected classes of the first part, got \[7\]"):
        parts.partial_fit(X[:3], [7, 7, 7])
    with pytest.raises(InputError, match="expected class_weight to be a dict or None with partial_fit"):
        so.OscillatorClassifier(class_weight="balanced").partial_fit(X, y)
    parts.save(tmp_path / "model.safetensors")
    loaded = so.OscillatorClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), parts.predict(X))
    with pytest.raises(InputError, match="whose sums were not kept"):
        loaded.partial_fit(X, y)


def test_fit_forgets_the_parts_before():
    X, y = waves(40)
    for model in (so.OscillatorClassifier(20, random_state=0), so.OscillatorRegressor(20, random_state=0)):
        model.partial_fit(X[:20], y[:20]).fit(X, y)
        with pytest.raises(InputError, match="whose sums were not kept"):
            model.partial_fit(X, y)


@pytest.mark.parametrize("model", [so.OscillatorClassifier, so.OscillatorRegressor])
def test_uneven_sequences_are_scored_alone_and_in_folds(model):
    X, y = waves(30)
    spans = np.random.default_rng(0).uniform(0.5, 2.0, X.shape)
    fitted = model(20, random_state=0).fit(X, y, timespans=spans)
    assert fitted.score(X, y, timespans=spans) > 0.8
    with config_context(enable_metadata_routing=True):
        routed = model(20, random_state=0).set_fit_request(timespans=True).set_score_request(timespans=True)
        assert np.isfinite(cross_val_score(routed, X, y, cv=2, params={"timespans": spans})).all()


def test_numbers_come_out_of_a_stream_in_their_unit():
    X, _ = waves(30)
    several = so.OscillatorRegressor(20, random_state=0).fit(X, 100 + 9 * X[:, -2:])
    one = so.OscillatorRegressor(20, random_state=0).fit(X, 100 + 9 * X[:, -1])
    for model in (several, one):
        stream = model.stream()
        for value in X[0]:
            stream.push(value)
        np.testing.assert_allclose(stream.predict(), model.predict(X[:1])[0], rtol=1e-6)


def test_a_cluster_of_one_or_two_workers_gives_the_same_sums(few_rows):
    distributed = pytest.importorskip("distributed", reason="needs the extra [cluster]")
    X, y = waves(60)
    here = so.OscillatorClassifier(30, random_state=0).fit(X, y)
    for workers in (1, 2):
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            there = so.OscillatorClassifier(30, random_state=0).fit(X, y, client=client)
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-10 * np.abs(here.coef_).max())


def test_a_lost_worker_costs_time_only(few_rows, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra [cluster]")
    X, y = waves(60)
    here = so.OscillatorClassifier(30, random_state=0).fit(X, y)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        submit, asked = client.submit, []

        def submitted(*given, **options):
            asked.append(submit(*given, **options))
            if len(asked) == 3:
                distributed.wait(asked)  # what the worker holds is lost with it
                cluster.sync(cluster.workers[0].close, nanny=False)
            return asked[-1]

        monkeypatch.setattr(client, "submit", submitted)
        there = so.OscillatorClassifier(30, random_state=0).fit(X, y, client=client)
    assert len(asked) == 5
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-10 * np.abs(here.coef_).max())


def test_the_kernel_is_what_a_ridge_on_standardized_features_sees():
    X, y = waves(30, length=50)
    kernel = so.OscillatorKernel(X, 40)
    K = kernel(X)
    np.testing.assert_allclose(K, K.T, rtol=1e-12)
    assert np.linalg.eigvalsh(K).min() > -1e-12
    np.testing.assert_allclose(kernel.diag(X), K.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(K.mean(0), 0, atol=1e-6)  # centered on the reference
    np.testing.assert_allclose(kernel.diag(X).mean(), 1, rtol=1e-4)
    ragged = [row[: 30 + i % 20] for i, row in enumerate(X)]
    tiles = so.kernels.gram(kernel, ragged, X, progress=False, tile_size=7)
    np.testing.assert_allclose(tiles, kernel(ragged, X), rtol=1e-10, atol=1e-12)
    same = K[y[:, None] == y].mean()
    assert same > 0.1 > K[y[:, None] != y].mean()


def test_another_reference_is_another_matrix_on_disk(tmp_path):
    X, _ = waves(12, length=50)
    so.kernels.gram(so.OscillatorKernel(X, 20), X, out=tmp_path / "k.npy", progress=False)
    with pytest.raises(InputError, match="other"):
        so.kernels.gram(so.OscillatorKernel(X[:6], 20), X, out=tmp_path / "k.npy", progress=False)


def test_a_few_gross_errors_among_the_targets_cost_little():
    generator = np.random.default_rng(0)

    def waves(count):
        speed = generator.uniform(0.1, 1, count)
        phase = generator.uniform(0, 6, (count, 1))
        return np.sin(speed[:, None] * np.arange(80) + phase) + 0.1 * generator.normal(size=(count, 80)), speed

    (values, speed), (unseen, truth) = waves(100), waves(100)
    wrong = speed.copy()
    wrong[[3, 30, 60, 90]] *= 1000
    clean = so.OscillatorRegressor(200, random_state=0).fit(values, speed).score(unseen, truth)
    spoiled = so.OscillatorRegressor(200, random_state=0).fit(values, wrong).score(unseen, truth)
    assert clean > 0.9
    assert spoiled > clean - 0.1
    # Wide but honest targets are left to squares.
    wide = np.exp(4 * speed)
    plain = so.OscillatorRegressor(200, random_state=0).fit(values, wide)
    weighted = so.OscillatorRegressor(200, random_state=0).fit(values, wide, sample_weight=np.ones(100))
    np.testing.assert_allclose(plain.coef_, weighted.coef_)


def test_a_period_where_many_oscillators_were_drawn_does_not_weigh_more_for_that():
    X, y = np.random.default_rng(0).normal(size=(30, 50)), np.arange(30) % 2
    fitted = so.OscillatorClassifier(60, random_state=0).fit(X, y)
    fitted.importance_ = np.ones_like(fitted.importance_)
    shares = np.array(oscillator_summary(fitted, (), ("a", "b")).by_period)
    filled = shares > 0
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_allclose(shares[filled], 1 / filled[0].sum())
