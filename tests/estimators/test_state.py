"""Pickles without modules, and files without pickles."""

import copy
import io
import pickle
import pickletools

import numpy as np
import pytest
from sklearn.base import clone

from sostenuto.checks import FileFormatError, InputError
from sostenuto.estimators import RecurrentClassifier, RecurrentRegressor
from sostenuto.training.run_folder import load_model

TINY = {"hidden_size": 4, "num_layers": 1, "epochs": 3, "batch_size": 16, "device": "cpu"}


@pytest.fixture
def fitted(sinusoids):
    return RecurrentClassifier(**TINY, random_state=0, class_weight={"slow": 2.0, "fast": 1.0}).fit(*sinusoids)


def imported_by(payload: bytes) -> set[str]:
    """Name the modules a pickle imports from while it is read."""
    found = set()

    class Recorder(pickle.Unpickler):
        def find_class(self, module, name):
            found.add(module)
            return super().find_class(module, name)

    Recorder(io.BytesIO(payload)).load()
    return found


class TestPickle:
    @pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy], ids=["pickle", "copy"])
    def test_predictions_come_back_equal(self, fitted, sinusoids, copied):
        again = copied(fitted)
        np.testing.assert_array_equal(again.predict_proba(sinusoids[0]), fitted.predict_proba(sinusoids[0]))
        np.testing.assert_array_equal(again.classes_, fitted.classes_)
        assert (again.config_, again.history_, again.encoding_) == (fitted.config_, fitted.history_, fitted.encoding_)
        assert again.get_params() == fitted.get_params()
        assert again.n_features_in_ == 24

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_it_holds_no_module_of_torch(self, fitted, protocol):
        payload = pickle.dumps(fitted, protocol)
        found = imported_by(payload)
        assert {name for name in found if name.startswith("sostenuto")} == {"sostenuto.estimators.recurrent"}
        assert {name.partition(".")[0] for name in found} <= {"sostenuto", "numpy", "copyreg", "_codecs"}
        texts = [argument for _, argument, _ in pickletools.genops(payload) if isinstance(argument, str)]
        assert not [text for text in texts if "torch" in text]

    def test_an_estimator_before_fitting(self):
        again = pickle.loads(pickle.dumps(RecurrentRegressor("gru", epochs=2)))
        assert again.get_params() == RecurrentRegressor("gru", epochs=2).get_params()

    def test_pickling_leaves_the_estimator_as_it_was(self, fitted):
        before = set(vars(fitted))
        pickle.dumps(fitted)
        assert set(vars(fitted)) == before

    def test_altered_weights_are_refused(self, fitted):
        state = fitted.__getstate__()
        packed = bytearray(state["_packed"])
        packed[-1] ^= 1
        with pytest.raises(FileFormatError, match=r"a stored RecurrentClassifier: expected .* altered"):
            clone(fitted).__setstate__({**state, "_packed": bytes(packed)})


class TestFile:
    def test_a_classifier_comes_back_whole(self, fitted, sinusoids, tmp_path):
        fitted.save(tmp_path / "model.safetensors")
        again = RecurrentClassifier.load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.predict_proba(sinusoids[0]), fitted.predict_proba(sinusoids[0]))
        assert again.predict(sinusoids[0]).dtype == fitted.predict(sinusoids[0]).dtype
        assert again.get_params() == fitted.get_params()
        assert (again.config_, again.history_) == (fitted.config_, fitted.history_)
        assert again.n_features_in_ == 24
        assert again.fit(*sinusoids).score(*sinusoids) == fitted.score(*sinusoids)

    @pytest.mark.parametrize("kind", [int, bool, object, "U8", np.int8])
    def test_labels_of_every_kind(self, sinusoids, tmp_path, kind):
        labels = np.asarray(["1", "0"] * 30).astype(int).astype(kind)
        if kind is object:
            labels = labels.astype(str).astype(object)
        learned = RecurrentClassifier(**TINY).fit(sinusoids[0], labels)
        learned.save(tmp_path / "model.safetensors")
        again = RecurrentClassifier.load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.classes_, learned.classes_)
        assert again.classes_.dtype == learned.classes_.dtype

    def test_weights_of_numbered_classes_keep_their_labels(self, sinusoids, tmp_path):
        learned = RecurrentClassifier(**TINY, class_weight={0: 1.0, 1: 2.0}).fit(sinusoids[0], [0, 1] * 30)
        learned.save(tmp_path / "model.safetensors")
        assert RecurrentClassifier.load(tmp_path / "model.safetensors").class_weight == {0: 1.0, 1: 2.0}

    def test_a_regressor_and_its_generator_as_the_seed_it_drew(self, ragged, tmp_path):
        sequences, labels = ragged
        learned = RecurrentRegressor(**TINY, random_state=np.random.RandomState(3)).fit(sequences, labels)
        learned.save(tmp_path / "model.safetensors")
        again = RecurrentRegressor.load(tmp_path / "model.safetensors")
        expected = learned.predict(sequences)
        np.testing.assert_array_equal(again.predict(sequences), expected)
        np.testing.assert_array_equal(again.fit(sequences, labels).predict(sequences), expected)
        assert not hasattr(again, "n_features_in_")

    def test_it_is_a_model_that_the_library_opens(self, fitted, tmp_path):
        fitted.save(tmp_path / "model.safetensors")
        stored = load_model(tmp_path / "model.safetensors")
        assert stored.encoding.classes == ("fast", "slow")

    def test_the_wrong_class_is_refused(self, fitted, tmp_path):
        fitted.save(tmp_path / "model.safetensors")
        with pytest.raises(
            InputError, match="expected a RecurrentRegressor, got a RecurrentClassifier; load it with Rec"
        ):
            RecurrentRegressor.load(tmp_path / "model.safetensors")

    @pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", bytes(200)], ids=["empty", "pickle", "zeros"])
    def test_other_files_are_refused(self, tmp_path, content):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(FileFormatError, match="expected a model written by sostenuto"):
            RecurrentClassifier.load(tmp_path / "model.safetensors")

    def test_no_file_is_refused(self, tmp_path):
        with pytest.raises(FileFormatError, match="expected a saved estimator, got No such file"):
            RecurrentClassifier.load(tmp_path / "model.safetensors")
