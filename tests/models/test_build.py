from typing import Any

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.models.build import build_model
from sostenuto.models.forecaster import Forecaster
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.models.tokens import TokenClassifier
from sostenuto.nn import LAYERS

RNG = np.random.default_rng(0)
SEQUENCES = [RNG.normal(size=(n, 2)) for n in (5, 3, 6, 4)]
WORDS = [RNG.integers(1, 9, n) for n in (5, 3, 6, 4)]
CLASSES = np.array(["a", "b", "a", "c"])

SETS: dict[str, tuple[SequenceSet, type, tuple[int, ...]]] = {
    "classes": (SequenceSet(SEQUENCES, CLASSES), SequenceClassifier, (4, 3)),
    "number": (SequenceSet(SEQUENCES, RNG.normal(size=4)), SequenceRegressor, (4, 1)),
    "numbers": (SequenceSet(SEQUENCES, RNG.normal(size=(4, 2)), "regression"), SequenceRegressor, (4, 2)),
    "steps": (SequenceSet(SEQUENCES, [RNG.normal(size=(len(s), 3)) for s in SEQUENCES]), SequenceToSequence, (4, 6, 3)),
    "step classes": (
        SequenceSet(SEQUENCES, [np.arange(len(s)) % 3 for s in SEQUENCES], "sequence"),
        SequenceToSequence,
        (4, 6, 3),
    ),
    "forecast": (SequenceSet(SEQUENCES, RNG.normal(size=(4, 3, 2)), "forecast"), Forecaster, (4, 3, 2)),
    "word classes": (SequenceSet(WORDS, CLASSES), TokenClassifier, (4, 3)),
    "word number": (SequenceSet(WORDS, RNG.normal(size=4)), TokenClassifier, (4, 1)),
}


def learn(name: str, **options: Any) -> Encoding:
    return Encoding.fit(SETS[name][0], **options)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", SETS)
def test_the_model_fits_the_encoding(name, layer):
    data, kind, shape = SETS[name]
    encoding = learn(name)
    model = build_model(encoding, layer, hidden_size=4)
    batch = encoding.encode(data)
    assert type(model) is kind
    assert model(batch.values, batch.lengths).shape == shape


def test_indicators_of_missing_values_widen_the_input():
    encoding = learn("forecast", missing="mask")
    model = build_model(encoding, "gru", hidden_size=4)
    batch = encoding.encode(SETS["forecast"][0])
    assert batch.values.shape[2] == 4
    assert model(batch.values, batch.lengths).shape == (4, 3, 2)


def test_options_reach_layer_and_embedding():
    model = build_model(learn("word classes"), "unicornn", readout="max", embedding_size=7, hidden_size=4, num_layers=2)
    assert isinstance(model, TokenClassifier)
    assert model.readout == "max"
    assert model.embedding.weight.shape == (9, 7)
    assert (model.layer.hidden_size, model.layer.num_layers) == (4, 2)
    vectors = torch.randn(9, 11)
    given = build_model(learn("word classes"), "gru", embedding_size=7, embedding=vectors, hidden_size=4)
    assert given.layer.input_size == 11


@pytest.mark.parametrize(
    ("layer", "options", "fragment"),
    [
        ("perceptron", {}, "expected layer to be one of 'stack'"),
        ("unicornn", {"hidden_size": 0}, "hidden_size"),
        ("unicornn", {"hidden_size": "wide"}, "hidden_size"),
        ("unicornn", {"hidden_size": 4, "colour": "red"}, "colour"),
        ("unicornn", {}, "hidden_size"),
        ("unicornn", {"hidden_size": 4, "step_size": -1.0}, "step_size"),
        ("lstm", {"hidden_size": 0}, "hidden_size"),
        ("lstm", {"hidden_size": 4, "num_layers": 0}, "num_layers"),
        ("gru", {"hidden_size": 4, "dropout": 2.0}, "dropout"),
        ("gru", {"hidden_size": 4, "dropout": None}, "dropout"),
        ("gru", {"hidden_size": "wide"}, "hidden_size"),
        ("rnn", {"hidden_size": 4, "nonlinearity": "sine"}, "nonlinearity"),
        ("lstm", {"hidden_size": 4, "proj_size": 2}, "proj_size"),
        ("lstm", {"hidden_size": 4, "batch_first": True}, "batch_first"),
        ("residual-gru", {"hidden_size": 4, "device": "cuda"}, "device"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(layer, options, fragment):
    with pytest.raises(InputError, match=fragment) as caught:
        build_model(learn("classes"), layer, **options)
    assert str(caught.value).startswith("expected ")
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("task", ["sequence", "forecast"])
def test_tokens_have_one_target_a_sequence(task):
    targets = [np.arange(len(w)) % 2 for w in WORDS] if task == "sequence" else RNG.normal(size=(4, 1, 1))
    encoding = Encoding.fit(SequenceSet(WORDS, targets, task))
    with pytest.raises(InputError, match=f"expected one target per sequence for tokens, got the task '{task}'"):
        build_model(encoding, "gru", hidden_size=4)
