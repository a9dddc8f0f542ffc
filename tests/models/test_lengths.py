"""A padded batch gives what its sequences give one by one, whatever stands in the padding."""

from typing import Any, get_args

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.choices import Readout
from sostenuto.models.base import SequenceModel, pool
from sostenuto.models.forecaster import Forecaster
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.models.tokens import TokenClassifier
from sostenuto.nn import LAYERS, UnICORNN

LENGTHS = [5, 1, 9, 4]
CONTINUOUS = ("unicornn", "residual-gru", "residual-lstm")


def make_layer(name: str, bidirectional: bool, channels: int = 2) -> Any:
    layer = LAYERS[name](channels, 3, num_layers=2, batch_first=True, bidirectional=bidirectional)
    return layer.double()


def ragged(channels: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Make sequences whose padding is far from zero."""
    values = torch.full((len(LENGTHS), max(LENGTHS), channels), 99.0, dtype=torch.float64)
    for row, length in zip(values, LENGTHS, strict=True):
        row[:length] = torch.randn(length, channels)
    return values, torch.tensor(LENGTHS)


def assert_one_by_one(model: SequenceModel, values: torch.Tensor, lengths: torch.Tensor, *spans: torch.Tensor) -> None:
    model.double().eval()
    together = model(values, lengths, *spans)
    for index, length in enumerate(lengths.tolist()):
        alone = model(values[index : index + 1, :length], None, *(s[index : index + 1, :length] for s in spans))
        expected = together[index : index + 1]
        if isinstance(model, SequenceToSequence):
            expected = expected[:, :length]
        torch.testing.assert_close(alone, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("readout", get_args(Readout))
@pytest.mark.parametrize("name", LAYERS)
def test_classifier_respects_lengths(name, readout, bidirectional):
    model = SequenceClassifier(make_layer(name, bidirectional), 4, readout)
    assert_one_by_one(model, *ragged())


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", ["regressor", "sequence", "forecaster", "tokens"])
def test_every_model_respects_lengths(kind, name, bidirectional):
    layer, (values, lengths) = make_layer(name, bidirectional), ragged()
    if kind == "tokens":
        values = torch.randint(1, 20, values.shape[:2])
    models: dict[str, SequenceModel] = {
        "regressor": SequenceRegressor(layer, 2, "mean"),
        "sequence": SequenceToSequence(layer, 3),
        "forecaster": Forecaster(layer, num_channels=2, horizon=3),
        "tokens": TokenClassifier(layer, 20, 3, "max"),
    }
    assert_one_by_one(models[kind], values, lengths)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_timespans_are_cut_to_length_too(name, bidirectional):
    values, lengths = ragged()
    spans = torch.rand(values.shape[:2], dtype=torch.float64) + 0.5
    model = SequenceClassifier(make_layer(name, bidirectional), 3)
    assert_one_by_one(model, values, lengths, spans)
    assert not torch.allclose(model(values, lengths, spans), model(values, lengths))


def test_shapes():
    values = torch.randn(3, 7, 2)
    for bidirectional in (False, True):
        layer = UnICORNN(2, 4, batch_first=True, bidirectional=bidirectional)
        assert SequenceClassifier(layer, 5)(values).shape == (3, 5)
        assert SequenceRegressor(layer, 2)(values).shape == (3, 2)
        assert SequenceToSequence(layer, 6)(values).shape == (3, 7, 6)
        assert Forecaster(layer, 2, 4)(values).shape == (3, 4, 2)


@pytest.mark.parametrize("readout", get_args(Readout))
def test_whole_lengths_are_no_lengths(readout):
    states = torch.randn(3, 5, 4)
    full = torch.full((3,), 5)
    for bidirectional in (False, True):
        given = pool(states, full, readout, bidirectional=bidirectional)
        torch.testing.assert_close(given, pool(states, None, readout, bidirectional=bidirectional))


def test_last_state_of_two_directions_is_where_each_pass_ends():
    states = torch.arange(24.0).reshape(1, 6, 4)
    got = pool(states, torch.tensor([3]), "last", bidirectional=True)
    assert got.tolist() == [[8.0, 9.0, 2.0, 3.0]]


def test_a_layer_must_be_batch_first():
    with pytest.raises(InputError, match="batch_first=True"):
        SequenceClassifier(UnICORNN(2, 4), 3)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_discrete_layers_refuse_timespans(name):
    model = SequenceClassifier(make_layer(name, False), 3).double()
    values, _ = ragged()
    with pytest.raises(InputError, match="expected no timespans"):
        model(values, None, torch.ones(values.shape[:2], dtype=torch.float64))
