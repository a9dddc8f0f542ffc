"""Kernel estimators: what they learn, how they search, what they take, refuse and store."""

# ruff: noqa: N806 (K is the name of the contract)

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

import sostenuto as so
from sostenuto.checks import FileFormatError, InputError
from sostenuto.estimators.classes import deal_folds, one_against_rest, temperature
from sostenuto.estimators.rntk.base import unit_norm
from sostenuto.estimators.rntk.classifier import PAPER_GRID
from sostenuto.estimators.rntk.evidence import (
    gram_slopes,
    leave_one_out_likelihood,
    marginal_likelihood,
    maximize_evidence,
    profile_likelihood,
)
from sostenuto.estimators.rntk.regressor import leave_one_out
from sostenuto.estimators.rntk.search import GridScores, SupportVectors, accuracies, out_of_fold_scores, right_answers
from sostenuto.kernels import RecurrentNTK, as_objects

SMALL = {"sigma_w": (1.4, 1.45), "sigma_b": 0.1, "sigma_h": 0.0, "folds": 4, "random_state": 0}
FIXED = {"sigma_w": 1.4, "sigma_b": 0.1, "random_state": 0}


def three_classes(seed=0, count=45):
    rng = np.random.default_rng(seed)
    labels = np.array(["down", "flat", "up"])[np.arange(count) % 3]
    slope = np.array([-1.0, 0.0, 1.0])[np.arange(count) % 3]
    return [s * np.linspace(-1, 1, rng.integers(6, 12)) + 0.4 + 0.3 * rng.normal() for s in slope], labels


def slopes(count=40, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, count)
    return values[:, None] * np.linspace(-1, 1, 10) + 0.05 * rng.normal(size=(count, 10)), 1000 + 50 * values


class TestClassifier:
    @pytest.mark.parametrize("search", ["grid", "evidence", "none"])
    @pytest.mark.parametrize("model", ["svm", "gp"])
    def test_it_tells_classes_apart(self, search, model):
        X, y = three_classes()
        options = {**SMALL, "sigma_w": None if search == "evidence" else 1.4 if search == "none" else (1.4, 1.45)}
        learned = so.RNTKClassifier(search, model=model, **options).fit(X, y)
        new, truth = three_classes(seed=1)
        assert learned.score(new, truth) > 0.9
        assert learned.best_score_ > 0.9
        assert learned.classes_.tolist() == ["down", "flat", "up"]
        chances = learned.predict_proba(new)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        np.testing.assert_array_equal(learned.classes_[chances.argmax(1)], learned.predict(new))
        assert -np.log(chances[np.arange(len(truth)), np.searchsorted(learned.classes_, truth)]).mean() < 0.5

    def test_two_classes_of_sinusoids(self, sinusoids):
        values, names = sinusoids
        learned = so.RNTKClassifier(**SMALL).fit(values[:40], names[:40])
        assert learned.score(values[40:], names[40:]) > 0.8
        lead = learned.decision_function(values)
        assert lead.shape == (60,)
        np.testing.assert_array_equal(learned.classes_[(lead > 0).astype(int)], learned.predict(values))

    def test_the_machine_is_scikit_learns(self):
        X, y = three_classes()
        learned = so.RNTKClassifier("none", C=0.5, **FIXED).fit(X, y)
        kernel, scaled = learned.kernel_, [unit_norm(x[:, None]) for x in X]
        machine = SVC(C=0.5, kernel="precomputed", break_ties=True).fit(kernel(scaled), y)
        new = [unit_norm(x[:, None]) for x in three_classes(seed=2)[0]]
        cross = kernel(new, scaled)
        np.testing.assert_allclose(learned.decision_function(new), machine.decision_function(cross), rtol=1e-10)
        np.testing.assert_array_equal(learned.predict(new), machine.predict(cross))
        assert len(learned.sequences_) == len(machine.support_)

    def test_kernels_that_are_not_told_apart_are_averaged(self):
        X, y = three_classes()
        new = three_classes(seed=2)[0]
        options = {"sigma_w": [1.35, 1.4, 1.45], "sigma_b": 0.1, "sigma_h": 0.0, "C": [1.0, 10.0], "random_state": 0}
        learned = so.RNTKClassifier(folds=3, **options).fit(X, y)
        assert len(learned.costs_) == len(learned.kernel_of_) == len(learned.dual_coef_) > 2
        assert len(learned.kernels_) > 1
        alone = [
            so.RNTKClassifier("none", sigma_w=learned.kernels_[place].sigma_w, sigma_b=0.1, sigma_h=0.0, C=cost)
            for place, cost in zip(learned.kernel_of_, learned.costs_, strict=True)
        ]
        scores = [each.fit(X, y).decision_function(new) for each in alone]
        np.testing.assert_allclose(learned.decision_function(new), np.mean(scores, axis=0), rtol=1e-10)
        one = so.RNTKClassifier(choose="best", folds=3, **options).fit(X, y)
        assert (len(one.costs_), one.best_score_) == (1, learned.best_score_)
        np.testing.assert_allclose(one.decision_function(new), scores[0], rtol=1e-10)

    def test_the_default_grid_is_the_papers(self):
        assert [len(values) for values in PAPER_GRID.values()] == [1, 15, 1, 12, 5]
        learned = so.RNTKClassifier(sigma_h=0.0, sigma_b=(0.0, 0.1), folds=2, random_state=0).fit(
            *three_classes(count=9)
        )
        assert learned.cv_accuracy_.shape == (1, 15, 1, 2, 1, 5)
        assert learned.kernel_.sigma_w in PAPER_GRID["sigma_w"]
        assert 0 < learned.best_score_ <= 1

    def test_one_class_and_unknown_choices_are_refused(self):
        X, y = three_classes()
        with pytest.raises(InputError, match="expected at least 2 classes, got 1 class, 'a'"):
            so.RNTKClassifier(**SMALL).fit(X, ["a"] * len(X))
        for name, value in {"search": "best", "model": "forest", "scaling": "some"}.items():
            with pytest.raises(InputError, match=f"expected {name} to be one of"):
                clone(so.RNTKClassifier(**SMALL)).set_params(**{name: value}).fit(X, y)
        for name, value in {"sigma_b": -1.0, "sigma_w": (1.4, float("nan")), "C": 0.0, "folds": 1}.items():
            with pytest.raises(InputError, match=f"expected {name} to be"):
                clone(so.RNTKClassifier(**SMALL)).set_params(**{name: value}).fit(X, y)
        with pytest.raises(InputError, match="expected sigma_w to be one number with search='none'"):
            so.RNTKClassifier("none", sigma_w=(1.3, 1.4, 1.5)).fit(X, y)

    def test_classes_smaller_than_the_folds(self):
        X, y = three_classes(count=24)
        y = np.where(np.arange(24) == 5, "single", y)
        learned = so.RNTKClassifier(**{**SMALL, "folds": 10}).fit(X, y)
        assert "single" in learned.classes_
        assert np.isfinite(learned.predict_proba(X)).all()
        pair = so.RNTKClassifier(**{**SMALL, "folds": 10}).fit(X[:2], ["a", "b"])
        assert pair.predict(X[:2]).tolist() == ["a", "b"]

    def test_bad_sequences_are_refused_by_index(self):
        X, y = three_classes()
        learned = so.RNTKClassifier("none", **FIXED).fit(X, y)
        for bad, message in (
            (np.array([1.0, np.nan]), "sequence 3: expected no missing values"),
            (np.array([]), "sequence 3: expected at least one step"),
            (np.zeros((4, 2)), "sequence 3: expected 1 channels"),
        ):
            broken = [*X[:3], bad, *X[4:]]
            with pytest.raises(InputError, match=message):
                learned.predict(broken)
            with pytest.raises(InputError, match=message):
                clone(learned).fit(broken, y)
        with pytest.raises(InputError, match="expected 1 channels, as in fit, got 2"):
            learned.predict(np.zeros((3, 4, 2)))
        with pytest.raises(NotFittedError):
            so.RNTKClassifier().predict(X)

    def test_unit_norm_is_an_option(self):
        X, y = three_classes()
        larger = [7.0 * x for x in X]
        learned = so.RNTKClassifier("none", **FIXED).fit(X, y)
        np.testing.assert_allclose(learned.decision_function(larger), learned.decision_function(X), rtol=1e-9)
        plain = so.RNTKClassifier("none", unit_norm=False, **FIXED).fit(X, y)
        assert not np.allclose(plain.decision_function(larger), plain.decision_function(X))
        np.testing.assert_array_equal(unit_norm(np.zeros((3, 1))), 0.0)
        assert np.linalg.norm(unit_norm(np.full((3, 2), 1e200))) == pytest.approx(1.0)


class TestProtocol:
    def test_folds_are_even_in_size_and_class(self):
        classes = np.repeat([0, 1, 2], [23, 14, 3])
        folds = deal_folds(classes, 10, seed=1)
        sizes = np.bincount(folds)
        assert sizes.max() - sizes.min() <= 1
        for each in range(3):
            counts = np.bincount(folds[classes == each], minlength=10)
            assert counts.max() - counts.min() <= 1
        assert set(deal_folds(np.array([0, 1, 1]), 10, seed=0).tolist()) == {0, 1, 2}

    def test_a_free_machine_stands_for_every_larger_cost(self):
        """Counting with the shortcut is counting without it."""
        rng = np.random.default_rng(0)
        points, classes = rng.normal(size=(40, 3)), np.arange(40) % 3
        points[:, 0] += classes
        K = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1))
        folds, costs = deal_folds(classes, 5, seed=0), (100.0, 0.01, 1.0, 10.0, 1e4)
        expected = []
        for cost in costs:
            right = 0
            for fold in range(5):
                train, test = folds != fold, folds == fold
                machine = SVC(C=cost, kernel="precomputed", break_ties=True)
                machine.fit(K[np.ix_(train, train)], classes[train])
                right += int((machine.predict(K[np.ix_(test, train)]) == classes[test]).sum())
            expected.append(right)
        assert right_answers(K, classes, folds, costs).tolist() == expected
        assert SupportVectors.fit(K, classes, 1e5).is_free(1e6)
        assert not SupportVectors.fit(K, classes, 0.01).is_free(0.01)

    def test_the_best_kernels_are_in_question_each_with_its_best_costs(self):
        accuracy = np.array([[0.5, 0.9], [0.8, 0.7], [0.9, 0.9], [0.2, 0.1]])
        found = GridScores({"sigma_w": (1, 2, 3, 4)}, (1.0, 0.1), accuracy, count=100)
        assert found.shortlist(3) == [({"sigma_w": 1}, 0.1), ({"sigma_w": 3}, 0.1), ({"sigma_w": 2}, 1.0)]
        every = [(point["sigma_w"], cost) for point, cost in found.shortlist(3, every_cost=True)]
        assert every == [(1, 0.1), (3, 0.1), (3, 1.0), (2, 1.0)]
        assert len(found.shortlist()) == 4

    def test_equals_that_find_no_room_are_drawn_from_the_whole_grid(self):
        found = GridScores({"sigma_w": tuple(range(100))}, (1.0,), np.ones((100, 1)), count=100)
        first, second = ([point["sigma_w"] for point, _ in found.shortlist(20, seed=seed)] for seed in (0, 1))
        assert first == sorted(first)
        assert first != second
        assert min(max(first), max(second)) > 50

    def test_what_is_in_question_is_judged_over_all_deals(self):
        rng = np.random.default_rng(0)
        classes = np.arange(60) % 2
        points = rng.normal(size=(60, 2)) + np.stack([2.0 * classes, 0 * classes], axis=1)
        good, bad = points[:, :1] @ points[:, :1].T, points[:, 1:] @ points[:, 1:].T
        deals = [deal_folds(classes, 5, seed) for seed in range(3)]
        worst, best, equal = accuracies([(bad, 1.0), (good, 1.0), (good, 1.0)], classes, deals)
        assert worst < best == equal
        assert best == np.mean([right_answers(good, classes, folds, [1.0])[0] / 60 for folds in deals])

    def test_scores_out_of_fold_do_not_see_their_own_label(self):
        rng = np.random.default_rng(0)
        K = np.eye(60)
        classes = rng.integers(0, 2, 60)
        scores = out_of_fold_scores(K, classes, deal_folds(classes, 5, seed=0), 1.0)
        assert np.ptp(scores[:, 0]) < 1.0
        assert temperature(np.array([[3.0, -3.0], [-3.0, 3.0]]), np.array([1, 0])) > 50


class TestEvidence:
    def test_it_is_the_likelihood_of_a_gaussian_process(self):
        X, y = slopes(20)
        kernel = RecurrentNTK(sigma_b=0.1)
        targets = ((y - y.mean()) / y.std())[:, None]
        value, amplitude, _, _ = profile_likelihood(kernel(X), 0.3, targets)
        process = GaussianProcessRegressor(amplitude * kernel, alpha=amplitude * 0.3, optimizer=None).fit(
            as_objects(X), targets[:, 0]
        )
        assert value == pytest.approx(process.log_marginal_likelihood(), rel=1e-9)
        for other in (0.9, 1.1):
            shifted = GaussianProcessRegressor(
                amplitude * other * kernel, alpha=amplitude * other * 0.3, optimizer=None
            )
            assert value > shifted.fit(as_objects(X), targets[:, 0]).log_marginal_likelihood()

    def test_it_climbs(self):
        X, y = three_classes(count=30)
        sequences = [unit_norm(x[:, None]) for x in X]
        targets = one_against_rest(np.unique(y, return_inverse=True)[1])
        fixed = {f"{name}_bounds": "fixed" for name in ("sigma_u", "sigma_h", "sigma_v")}
        start = RecurrentNTK(sigma_w=1.2, sigma_b=1.0, **fixed)
        found = maximize_evidence([start], sequences, targets)[0]
        least = max(
            profile_likelihood(start(sequences), share * start.diag(sequences).mean(), targets)[0]
            for share in (1e-3, 1e-2, 1e-1)
        )
        assert found.log_likelihood > least
        for factor in (0.97, 1.03):
            moved = clone(found.kernel).set_params(sigma_b=found.kernel.sigma_b * factor)
            low, high = moved.sigma_b_bounds
            if low < moved.sigma_b < high:
                assert profile_likelihood(moved(sequences), found.noise, targets)[0] < found.log_likelihood + 1e-3

    def test_leave_one_out_is_what_the_others_predict(self):
        X, y = slopes(12)
        K, targets = RecurrentNTK(sigma_b=0.1)(X), np.stack([y - y.mean(), y**2 - np.mean(y**2)], axis=1)
        value, amplitude, _ = leave_one_out_likelihood(K, 0.3, targets)
        expected = 0.0
        for i in range(12):
            rest = np.delete(np.arange(12), i)
            weights = np.linalg.solve(K[np.ix_(rest, rest)] + 0.3 * np.eye(11), K[rest, i])
            variance = amplitude * (K[i, i] + 0.3 - weights @ K[rest, i])
            errors = targets[i] - weights @ targets[rest]
            expected -= 0.5 * np.sum(errors**2 / variance + np.log(2 * np.pi * variance))
        assert value == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("likelihood", [marginal_likelihood, leave_one_out_likelihood])
    def test_derivatives_of_the_likelihoods(self, likelihood):
        rng = np.random.default_rng(0)
        root, targets, direction = rng.normal(size=(9, 9)), rng.normal(size=(9, 2)), rng.normal(size=(9, 9))
        K, direction = root @ root.T, direction + direction.T
        slope = 0.5 * np.sum(likelihood(K, 0.5, targets)[2]() * direction)
        above, below = (likelihood(K + side * 1e-5 * direction, 0.5, targets)[0] for side in (1, -1))
        assert slope == pytest.approx((above - below) / 2e-5, rel=1e-6)

    def test_differences_are_the_kernels_own_gradient(self):
        X = [unit_norm(x[:, None]) for x in three_classes(count=5)[0]]
        kernel = RecurrentNTK(sigma_w=1.4, sigma_b=0.3, sigma_h=0.2, sigma_v_bounds="fixed")
        K, slopes = gram_slopes(kernel, X)
        expected, exact = kernel(X, eval_gradient=True)
        np.testing.assert_allclose(K, expected, rtol=1e-10)
        np.testing.assert_allclose(slopes, exact, atol=1e-6 * np.abs(exact).max())

    def test_bounds_and_fixed_values_are_kept(self):
        X, y = three_classes(count=18)
        learned = so.RNTKClassifier("evidence", sigma_w=(1.3, 1.35), sigma_b=0.2, sigma_h=0.0, random_state=0).fit(X, y)
        assert 1.3 <= learned.kernel_.sigma_w <= 1.35
        assert (learned.kernel_.sigma_b, learned.kernel_.sigma_h) == (0.2, 0.0)


class TestRegressor:
    @pytest.mark.parametrize("model", ["ridge", "gp"])
    def test_it_finds_the_slope(self, model):
        X, y = slopes()
        learned = so.RNTKRegressor(model).fit(X, y)
        new, truth = slopes(seed=1)
        assert learned.score(new, truth) > 0.95
        both = so.RNTKRegressor(model, sigma_w=1.4, sigma_b=0.1).fit(X, np.stack([y, -3 * y], axis=1))
        predicted = both.predict(new)
        assert predicted.shape == (40, 2)
        np.testing.assert_allclose(predicted[:, 1], -3 * predicted[:, 0], rtol=1e-6)

    def test_ridge_is_scikit_learns_and_leaves_one_out(self):
        X, y = slopes(25)
        K, targets = RecurrentNTK(sigma_b=0.1)(X), ((y - y.mean()) / y.std())[:, None]
        error, ridge, weights = leave_one_out(K, targets, (1e-2,))
        machine = KernelRidge(alpha=ridge, kernel="precomputed").fit(K, targets)
        np.testing.assert_allclose(weights, machine.dual_coef_, rtol=1e-6)
        errors = []
        for left in range(25):
            kept = np.arange(25) != left
            without = np.linalg.solve(K[np.ix_(kept, kept)] + ridge * np.eye(24), targets[kept])
            errors.append(float(targets[left, 0] - (K[left, kept] @ without)[0]))
        assert error == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-6)

    def test_the_deviation_is_that_of_new_observations(self):
        rng = np.random.default_rng(0)
        X, y = slopes(80)
        y = y + 5.0 * rng.normal(size=80)
        learned = so.RNTKRegressor("gp").fit(X[:60], y[:60])
        mean, deviation = learned.predict(X[60:], return_std=True)
        assert deviation.shape == mean.shape == (20,)
        assert 2.5 < np.median(deviation) < 10
        far = learned.predict(50 * X[60:], return_std=True)[1]
        assert (far > 2 * deviation).all()
        with pytest.raises(InputError, match="expected model='gp' with return_std=True, got model='ridge'"):
            so.RNTKRegressor(sigma_w=1.4, sigma_b=0.1).fit(X, y).predict(X, return_std=True)

    def test_ragged_channels(self, ragged):
        sequences, labels = ragged
        assert so.RNTKRegressor(sigma_w=1.4, sigma_b=0.1).fit(sequences, labels).score(sequences, labels) > 0.9


class TestFeatures:
    def test_a_linear_machine_on_them_is_the_kernel_machine(self):
        X, y = three_classes()
        pipeline = make_pipeline(so.NystroemRNTK(45, **FIXED), LinearSVC())
        assert pipeline.fit(X, y).score(*three_classes(seed=1)) > 0.9
        features = pipeline[0].transform(X)
        scaled = [unit_norm(x[:, None]) for x in X]
        np.testing.assert_allclose(features @ features.T, pipeline[0].kernel_(scaled), rtol=1e-6)
        assert pipeline[0].get_feature_names_out()[:2].tolist() == ["nystroemrntk0", "nystroemrntk1"]

    def test_greedy_landmarks_and_cross_validation(self, sinusoids):
        pipeline = make_pipeline(so.NystroemRNTK(10, choice="greedy", **FIXED), LinearSVC())
        assert cross_val_score(pipeline, *sinusoids, cv=3).mean() > 0.6
        assert pipeline.fit(*sinusoids)[0].transform(sinusoids[0]).shape == (60, 10)


class TestFile:
    @pytest.mark.parametrize(
        "estimator",
        [
            so.RNTKClassifier(**SMALL),
            so.RNTKClassifier("none", model="gp", **FIXED),
            so.RNTKRegressor(sigma_w=1.4, sigma_b=0.1),
            so.RNTKRegressor("gp", sigma_w=1.4, sigma_b=0.1),
            so.NystroemRNTK(7, random_state=np.random.RandomState(3)),
        ],
        ids=["svm", "gp classes", "ridge", "gp", "landmarks"],
    )
    def test_it_comes_back_whole(self, estimator, tmp_path):
        X, y = three_classes()
        targets = np.arange(45.0) if isinstance(estimator, so.RNTKRegressor) else y
        learned = clone(estimator).fit(X, targets)
        learned.save(tmp_path / "model.safetensors")
        again = type(estimator).load(tmp_path / "model.safetensors")
        assert set(vars(again)) == set(vars(learned))
        assert again.kernel_ == learned.kernel_
        new = three_classes(seed=4)[0]
        if isinstance(estimator, so.NystroemRNTK):
            np.testing.assert_array_equal(again.transform(new), learned.transform(new))
        else:
            np.testing.assert_array_equal(again.predict(new), learned.predict(new))
        if isinstance(estimator, so.RNTKClassifier):
            np.testing.assert_array_equal(again.predict_proba(new), learned.predict_proba(new))
        learned.save(tmp_path / "twice.safetensors")
        assert (tmp_path / "twice.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
        assert again.fit(X, targets) is again

    def test_others_are_refused(self, tmp_path):
        learned = so.RNTKClassifier("none", **FIXED).fit(*three_classes())
        path = tmp_path / "model.safetensors"
        learned.save(path)
        with pytest.raises(InputError, match=r"expected a RNTKRegressor, got a RNTKClassifier; load it with RNTKC"):
            so.RNTKRegressor.load(path)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))
        with pytest.raises(FileFormatError, match="altered bytes"):
            so.RNTKClassifier.load(path)
        for other in (b"", bytes(100), b"\x80\x04K\x01."):
            path.write_bytes(other)
            with pytest.raises(FileFormatError, match="expected a kernel estimator written by sostenuto"):
                so.RNTKClassifier.load(path)
        with pytest.raises(FileFormatError, match="got No such file"):
            so.RNTKClassifier.load(tmp_path / "none.safetensors")
        odd = so.RNTKClassifier("none", activation=np.tanh, **FIXED)
        odd.kernel_, odd.sequences_ = learned.kernel_, learned.sequences_
        with pytest.raises(InputError, match="expected activation to be 'relu' or 'erf' in a file, got a function"):
            odd.save(path)


def test_real_data(real_data):
    data = so.datasets.load("ucr/GunPoint", data_dir=real_data)
    learned = so.RNTKClassifier("none", **FIXED).fit(data.train.sequences, np.asarray(data.train.targets))
    assert learned.score(data.test.sequences[:60], np.asarray(data.test.targets)[:60]) > 0.85
