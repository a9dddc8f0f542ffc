"""What the estimators learn, take and refuse."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import sostenuto
from sostenuto.checks import InputError
from sostenuto.cli import app
from sostenuto.estimators import RecurrentClassifier, RecurrentRegressor
from sostenuto.training.config import RunConfig
from sostenuto.training.recipes import model_config, training_config
from sostenuto.training.run_folder import load_model

PLAIN = {"label_smoothing": 0.0, "input_noise": 0.0, "weight_decay": 0.0}
TINY = {
    "hidden_size": 4,
    "num_layers": 1,
    "epochs": 3,
    "batch_size": 16,
    "learning_rate": 0.02,
    "training_options": PLAIN,
    "random_state": 0,
    "device": "cpu",
}
ESTIMATORS = (RecurrentClassifier, RecurrentRegressor)


def classifier(**options):
    return RecurrentClassifier(**{**TINY, **options})


def regressor(**options):
    return RecurrentRegressor(**{**TINY, **options})


class TestLearning:
    def test_a_classifier_tells_slow_from_fast(self, sinusoids):
        values, names = sinusoids
        learned = RecurrentClassifier(epochs=20, random_state=0, device="cpu").fit(values[:40], names[:40])
        assert learned.score(values[40:], names[40:]) > 0.9
        quick = classifier(hidden_size=16, epochs=20, readout="max").fit(values[:40], names[:40])
        assert quick.score(values[40:], names[40:]) > 0.9

    def test_a_regressor_finds_the_slope(self):
        rng = np.random.default_rng(0)
        slopes = rng.uniform(-1, 1, 80)
        values = slopes[:, None] * np.arange(12) + rng.normal(size=(80, 12))
        learned = regressor(hidden_size=16, epochs=20, learning_rate=0.02).fit(values[:60], 1000 + 50 * slopes[:60])
        assert learned.score(values[60:], 1000 + 50 * slopes[60:]) > 0.8

    def test_several_targets(self):
        rng = np.random.default_rng(0)
        targets = rng.normal(size=(80, 2)) * [1.0, 1e4]
        values = (targets / [1.0, 1e4])[:, None, :] + 0.1 * rng.normal(size=(80, 6, 2))
        learned = regressor(hidden_size=16, epochs=30, learning_rate=0.05).fit(values, targets)
        assert learned.predict(values).shape == (80, 2)
        assert learned.score(values, targets) > 0.8

    def test_one_column_of_targets_stays_a_column(self):
        values, targets = np.random.default_rng(0).normal(size=(12, 5)), np.arange(12.0)
        assert regressor().fit(values, targets[:, None]).predict(values).shape == (12, 1)
        assert regressor().fit(values, targets).predict(values).shape == (12,)

    def test_class_weights_pull_towards_their_class(self, sinusoids):
        values, names = sinusoids
        free = classifier(layer="gru").fit(values, names).predict_proba(values)[:, 0].mean()
        pulled = classifier(layer="gru", class_weight={"fast": 50.0, "slow": 1.0}).fit(values, names)
        assert pulled.predict_proba(values)[:, 0].mean() > free + 0.05

    def test_balanced_weights_are_the_weights_they_stand_for(self, sinusoids):
        values, names = sinusoids[0][:40], np.array(["a"] * 30 + ["b"] * 10)
        balanced = classifier(class_weight="balanced").fit(values, names)
        spelled_out = classifier(class_weight={"a": 40 / 60, "b": 40 / 20}).fit(values, names)
        np.testing.assert_array_equal(balanced.predict_proba(values), spelled_out.predict_proba(values))

    def test_the_best_epoch_is_kept_and_patience_stops(self, sinusoids):
        values, names = sinusoids
        learned = classifier(epochs=200, validation_fraction=0.25, patience=2, learning_rate=0.05).fit(values, names)
        assert len(learned.history_) < 200
        assert "validation_accuracy" in learned.history_[0]


class TestLabels:
    @pytest.mark.parametrize(
        "labels",
        [["b", "a"], ["10", "2"], [10, 2], [True, False], [1.0, -1.0], np.array(["y", "x"], dtype=object)],
        ids=lambda labels: str(list(labels)),
    )
    def test_classes_are_sorted_as_numpy_sorts_them(self, sinusoids, labels):
        values = sinusoids[0]
        targets = np.asarray(labels)[np.arange(60) % 2]
        learned = classifier(hidden_size=16, epochs=20, readout="max").fit(values, targets)
        np.testing.assert_array_equal(learned.classes_, np.unique(targets))
        predicted = learned.predict(values)
        assert predicted.dtype == learned.classes_.dtype
        assert np.mean(predicted == targets) > 0.9
        np.testing.assert_array_equal(predicted, learned.classes_[learned.predict_proba(values).argmax(1)])
        assert learned.encoding_.classes == tuple(str(label) for label in np.unique(targets).tolist())

    def test_many_numbered_classes_keep_their_columns(self):
        targets = np.repeat(np.arange(12), 4).astype(str)
        values = np.repeat(np.arange(12.0), 4)[:, None] * np.ones(5)
        learned = classifier(layer="gru", hidden_size=32, epochs=60, learning_rate=0.05).fit(values, targets)
        assert learned.classes_.tolist() == sorted(map(str, range(12)))
        assert learned.score(values, targets) > 0.9

    def test_one_class_is_refused(self, sinusoids):
        with pytest.raises(ValueError, match="expected at least 2 classes, got 1 class, 'slow'"):
            classifier().fit(sinusoids[0], ["slow"] * 60)


class TestInput:
    def test_ragged_lists(self, ragged):
        sequences, labels = ragged
        learned = classifier(epochs=15).fit(sequences, labels)
        assert learned.score(sequences, labels) > 0.9
        assert learned.classes_.tolist() == [-2, 7]
        assert not hasattr(learned, "n_features_in_")
        alone = [learned.predict_proba([sequence])[0] for sequence in sequences]
        np.testing.assert_allclose(alone, learned.predict_proba(sequences), atol=1e-5)

    def test_an_object_array_and_tensors_are_lists_too(self, ragged):
        sequences, labels = ragged
        expected = classifier().fit(sequences, labels).predict_proba(sequences)
        boxed = np.empty(len(sequences), dtype=object)
        boxed[:] = sequences
        tensors = tuple(torch.from_numpy(sequence) for sequence in sequences)
        for given in (boxed, tensors):
            np.testing.assert_array_equal(classifier().fit(given, labels).predict_proba(given), expected)

    def test_one_channel_may_be_written_in_four_ways(self, sinusoids):
        values, names = sinusoids
        expected = classifier().fit(values, names).predict_proba(values)
        forms = (values[:, :, None], list(values), values.tolist(), torch.from_numpy(values))
        for form in forms:
            np.testing.assert_array_equal(classifier().fit(form, names).predict_proba(form), expected)

    def test_layouts(self, ragged):
        labels = ragged[1]
        values = np.random.default_rng(0).normal(size=(30, 6, 2))
        expected = classifier().fit(values, labels).predict_proba(values)
        turned = classifier(layout="bct").fit(values.transpose(0, 2, 1), labels)
        np.testing.assert_array_equal(turned.predict_proba(values.transpose(0, 2, 1)), expected)
        np.testing.assert_array_equal(turned.predict_proba([v.T for v in values]), expected)

    def test_a_matrix_has_features(self, sinusoids):
        values, names = sinusoids
        learned = classifier().fit(values, names)
        assert learned.n_features_in_ == 24
        with pytest.raises(
            InputError, match=r"X has 20 features, .* is expecting 24 .*pass sequences of another length"
        ):
            learned.predict(values[:, :20])
        assert learned.predict(values[:, :20, None]).shape == learned.predict([v[:20] for v in values]).shape == (60,)
        assert not hasattr(learned.fit(list(values), names), "n_features_in_")

    def test_predictions_do_not_depend_on_the_batch(self, sinusoids):
        values, names = sinusoids
        learned = classifier(hidden_size=16).fit(values, names)
        alone = np.concatenate([learned.predict_proba(row[None]) for row in values])
        np.testing.assert_allclose(alone, learned.predict_proba(values), atol=1e-5)

    def test_a_single_step(self):
        values = np.linspace(-1, 1, 20)[:, None]
        learned = classifier(hidden_size=8, epochs=20, learning_rate=0.1).fit(values, values[:, 0] > 0)
        assert learned.score(values, values[:, 0] > 0) > 0.9

    def test_missing_values(self, sinusoids):
        values, names = sinusoids
        values[7, 3] = np.nan
        with pytest.raises(InputError, match=r"sequence 7: expected no missing values, got NaN; pass missing='mask'"):
            classifier().fit(values, names)
        with pytest.raises(InputError, match="sequence 7"):
            classifier().fit(np.nan_to_num(values), names).predict(list(values))
        for missing in ("mask", "interpolate"):
            learned = classifier(missing=missing).fit(values, names)
            assert np.isfinite(learned.predict_proba(values)).all()
            assert learned.__sklearn_tags__().input_tags.allow_nan
        assert not classifier().__sklearn_tags__().input_tags.allow_nan
        assert classifier().__sklearn_tags__().input_tags.three_d_array

    def test_timespans_count(self, sinusoids):
        values, names = sinusoids
        spans = np.random.default_rng(0).uniform(0.5, 1.5, values.shape)
        learned = classifier().fit(values, names, timespans=spans)
        plain = learned.predict_proba(values, timespans=np.ones_like(values))
        assert not np.allclose(learned.predict_proba(values, timespans=list(spans)), plain)
        assert 0 <= learned.score(values, names, timespans=spans) <= 1
        with pytest.raises(InputError, match="expected timespans, as the estimator was fitted with them, got none"):
            learned.predict(values)
        spans[2, 0] = 0.0
        with pytest.raises(InputError, match="sequence 2: expected finite timespans above 0"):
            learned.predict(values, timespans=spans)


class TestRefusal:
    def test_of_channels(self, ragged):
        sequences, labels = ragged
        learned = classifier().fit(sequences, labels)
        with pytest.raises(InputError, match="expected 2 channels, as in training, got 3"):
            learned.predict(np.zeros((4, 5, 3)))
        with pytest.raises(InputError, match="sequence 4: expected 2 channels as in sequence 0, got 1"):
            learned.predict([*sequences[:4], sequences[4][:, :1]])

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (np.zeros((0, 2)), "sequence 3: expected at least one step"),
            (np.full((3, 2), np.inf), "sequence 3: expected finite values"),
            (np.array([["a", "b"]]), "sequence 3: expected numbers"),
            (np.zeros((2, 2, 2)), "sequence 3: expected an array of 1 or 2 axes"),
        ],
    )
    def test_of_a_sequence_by_its_index(self, ragged, bad, message):
        sequences, labels = ragged
        sequences[3] = bad
        with pytest.raises(InputError, match=message):
            classifier().fit(sequences, labels)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"layer": "lstn"}, "expected layer to be one of 'stack'"),
            ({"hidden_size": 0}, "expected hidden_size to be a whole number of at least 1, got 0"),
            ({"epochs": 2.5}, "expected training.epochs to be a whole number, got 2.5"),
            ({"layout": "tbc"}, "expected layout to be one of"),
            ({"validation_fraction": 1.0}, "expected validation_fraction to be a number of at least 0 and below 1"),
            (
                {"patience": 3, "validation_fraction": 0.0},
                "expected validation_fraction above 0 together with patience",
            ),
            ({"layer_options": {"hidden_size": 3}}, "expected every option once, layer_options without hidden_size"),
            ({"layer_options": {"beta": 3}}, "expected options of the layer 'stack'"),
            ({"layer_options": {"dtype": torch.float64}}, "expected layer_options to be made of numbers, text"),
            ({"layer_options": 3}, "expected layer_options to be a dict or None, got 3"),
            ({"training_options": {"momentun": 0.9}}, "expected keys of training among epochs, .* got momentun"),
            ({"training_options": {"seed": 3}}, "expected every option once, training_options without seed"),
            ({"device": "abacus"}, "expected a device such as auto"),
            ({"class_weight": "even"}, "class_weight"),
        ],
        ids=lambda case: str(case) if isinstance(case, dict) else "",
    )
    def test_of_a_parameter(self, sinusoids, options, message):
        with pytest.raises(ValueError, match=message):
            classifier(**options).fit(*sinusoids)

    @pytest.mark.parametrize("kind", ESTIMATORS)
    def test_before_fitting(self, kind, tmp_path):
        with pytest.raises(NotFittedError):
            kind().predict([[1.0, 2.0]])
        with pytest.raises(NotFittedError):
            kind().save(tmp_path / "model.safetensors")

    def test_of_a_class_as_a_number(self, sinusoids):
        with pytest.raises(ValueError, match="Unknown label type"):
            classifier().fit(sinusoids[0], np.linspace(0, 1, 60))


class TestRandomness:
    @pytest.mark.parametrize("layer", ["unicornn", "gru"])
    def test_a_seed_gives_the_same_predictions(self, sinusoids, layer):
        values, names = sinusoids
        first, second, other = (
            classifier(layer=layer, random_state=seed).fit(values, names).predict_proba(values) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, second)
        assert not np.allclose(first, other)

    def test_none_draws_from_numpy(self, sinusoids):
        seeds = []
        before = np.random.get_state()
        try:
            for start in (5, 5, 6):
                np.random.seed(start)
                seeds.append(classifier(random_state=None, epochs=1).fit(*sinusoids).config_.training.seed)
        finally:
            np.random.set_state(before)
        assert seeds[0] == seeds[1] != seeds[2]

    @pytest.mark.parametrize("options", [{}, {"num_layers": 2, "validation_fraction": 0.2}], ids=str)
    def test_torch_and_numpy_are_left_alone(self, sinusoids, options):
        torch_before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
        classifier(**options).fit(*sinusoids).predict(sinusoids[0])
        assert torch.equal(torch.random.get_rng_state(), torch_before)
        np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)


@pytest.mark.parametrize(
    ("kind", "task"), [(RecurrentClassifier, "classification"), (RecurrentRegressor, "regression")]
)
def test_recipes_fill_in_what_is_none(kind, task):
    learned = kind(epochs=1, hidden_size=np.int64(5), num_layers=1, random_state=3).fit(np.eye(4), [0, 1, 0, 1])
    assert learned.config_.model == model_config("stack", task, hidden_size=5, num_layers=1)
    assert learned.config_.training == training_config("stack", task, 3, epochs=1, seed=3)


def test_python_and_the_command_line_have_the_same_defaults(tmp_path):
    """The same sequences, once as a file of training series with a test file, once as an array."""
    values = np.random.default_rng(0).normal(size=(40, 12, 1))
    names = np.array(["a", "b"] * 20)
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", X=values, y=names)
    options = ["--epochs", "1", "--hidden-size", "4", "--quiet", "--device", "cpu", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "train.npz"), "--test", str(tmp_path / "test.npz"), *options])
    assert done.exit_code == 0, done.output
    stored = load_model(tmp_path / "run" / "model.safetensors")
    config = RunConfig.load(tmp_path / "run" / "config.toml")
    learned = RecurrentClassifier(epochs=1, hidden_size=4, device="cpu", random_state=0).fit(values, names)
    assert (learned.config_.model, learned.config_.training) == (config.model, config.training)
    assert learned.config_.data.validation == config.data.validation
    for name, weight in learned.model_.state_dict().items():
        assert torch.equal(weight, stored.model.state_dict()[name]), name
    assert clone(learned).get_params()["learning_rate"] is None


def test_options_reach_layer_and_training(sinusoids):
    options = {"layer_options": {"bidirectional": True}, "training_options": {"ema_decay": 0.9}, "readout": "mean"}
    learned = classifier(**options, device=torch.device("cpu")).fit(*sinusoids)
    assert learned.model_.layer.bidirectional
    assert learned.model_.readout == "mean"
    assert learned.config_.training.ema_decay == 0.9


def test_public_names():
    assert sostenuto.RecurrentClassifier is RecurrentClassifier
    assert sostenuto.RecurrentRegressor is RecurrentRegressor
