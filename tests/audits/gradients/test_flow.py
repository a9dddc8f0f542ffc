# ruff: noqa: N806 (X is the name of the contract)
import math

import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits.gradients.flow import gradient_flow
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import UnICORNN


class Reading(nn.Module):
    def __init__(self, layer, classes=2, every_step=False):
        super().__init__()
        self.layer, self.head, self.every_step = layer, nn.Linear(layer.hidden_size, classes), every_step

    def forward(self, x):
        states = self.layer(x)[0]
        return self.head(states if self.every_step else states[:, -1])


def linear_rnn(weight, channels=1):
    """An RNN so weakly driven that tanh is the identity to rounding: gradients are powers of the weight."""
    rnn = nn.RNN(channels, len(weight), batch_first=True).double()
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(weight)
        rnn.weight_ih_l0.mul_(1e-9)
        rnn.bias_hh_l0.zero_()
        rnn.bias_ih_l0.zero_()
    return rnn


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.3])
def test_a_linear_recurrence_multiplies_gradients_by_its_weight(factor):
    torch.manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0]
    model = Reading(linear_rnn(factor * rotation)).double()
    X, y = torch.randn(6, 41, 1, dtype=torch.float64), torch.arange(6) % 2
    found = gradient_flow(model, X, y)
    sizes = np.asarray(found.layers[0].size)
    np.testing.assert_allclose(sizes, sizes[-1] * factor ** np.arange(39, -1, -1.0), rtol=1e-6)
    assert found.layers[0].rate == pytest.approx(math.log(factor), abs=1e-6)
    assert found.verdict == {0.7: "vanishing", 1.0: "healthy", 1.3: "exploding"}[factor]


@pytest.mark.parametrize("unit", [nn.GRU, nn.LSTM, UnICORNN])
def test_equals_the_gradient_through_a_split_run(unit):
    """∂L/∂h_k by running the layer in two parts, with the state between them a leaf."""
    torch.manual_seed(1)
    model = Reading(unit(2, 5, num_layers=2, batch_first=True)).double()
    X, y = torch.randn(3, 9, 2, dtype=torch.float64), torch.tensor([0, 1, 1])
    found = gradient_flow(model, X, y, batch_size=2)
    for cut in (1, 5):
        with torch.no_grad():
            state = model.layer(X[:, :cut])[1]
        parts = [part.detach().requires_grad_() for part in ((state,) if torch.is_tensor(state) else state)]
        output = model.layer(X[:, cut:], parts[0] if torch.is_tensor(state) else tuple(parts))[0]
        nn.functional.cross_entropy(model.head(output[:, -1]), y, reduction="sum").backward()
        for layer in range(2):
            square = sum(part.grad[layer].square().sum() for part in parts) / 3
            assert found.layers[layer].size[cut - 1] == pytest.approx(float(square.sqrt()), rel=1e-8)


def test_parameter_gradients_are_those_of_the_mean_loss():
    torch.manual_seed(2)
    model = Reading(nn.GRU(2, 4, batch_first=True), classes=3)
    X, y = torch.randn(7, 6, 2), torch.arange(7) % 3
    found = gradient_flow(model, X, y, batch_size=3)
    nn.functional.cross_entropy(model(X), y).backward()
    assert found.parameters == pytest.approx({name: float(p.grad.norm()) for name, p in model.named_parameters()}, 1e-4)


def test_a_class_at_every_step_and_the_model_is_left_alone():
    torch.manual_seed(3)
    model = Reading(nn.LSTM(1, 3, batch_first=True), every_step=True).train()
    found = gradient_flow(model, torch.randn(4, 8, 1), torch.randint(0, 2, (4, 8)))
    assert found.verdict == "healthy"
    assert model.training
    assert "forward" not in vars(model.layer)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert gradient_flow(model, torch.zeros(4, 8, 1), torch.zeros(4, 8, dtype=torch.long)).checksum != found.checksum


def test_what_cannot_be_followed_is_refused():
    X, y = torch.randn(4, 5, 2), [0, 1, 0, 1]
    model = Reading(nn.GRU(2, 3, batch_first=True, bidirectional=True))
    model.head = nn.Linear(6, 2)
    with pytest.raises(InputError, match="expected a recurrence of one direction, got a bidirectional one"):
        gradient_flow(model, X, y)
    with pytest.raises(InputError, match="expected a model with one recurrent layer"):
        gradient_flow(nn.Sequential(nn.Flatten(), nn.Linear(10, 2)), X, y)


def test_a_model_that_reads_its_largest_state_is_asked_too():
    """`UnICORNN.peak` hands ``timespans=None`` on: no time spans, and nothing to refuse."""
    torch.manual_seed(0)
    X, y = torch.randn(6, 12, 1), torch.arange(6) % 2
    found = gradient_flow(SequenceClassifier(UnICORNN(1, 4, batch_first=True), 2, "max"), X, y)
    assert len(found.layers[0].size) == 11


def test_time_spans_that_a_model_gives_its_layer_are_followed_step_by_step():
    class Uneven(Reading):
        def forward(self, x):
            spans = torch.linspace(0.5, 2.0, x.shape[1], dtype=x.dtype).expand(len(x), -1)
            return self.head(self.layer(x, timespans=spans)[0][:, -1])

    torch.manual_seed(0)
    model = Uneven(UnICORNN(1, 4, batch_first=True)).double()
    X, y = torch.randn(3, 9, 1, dtype=torch.float64), torch.tensor([0, 1, 1])
    found = gradient_flow(model, X, y)
    with torch.no_grad():
        spans = torch.linspace(0.5, 2.0, 9, dtype=torch.float64).expand(3, -1)
        state = model.layer(X[:, :4], timespans=spans[:, :4])[1]
    parts = tuple(part.requires_grad_() for part in state)
    output = model.layer(X[:, 4:], parts, timespans=spans[:, 4:])[0]
    nn.functional.cross_entropy(model.head(output[:, -1]), y, reduction="sum").backward()
    expected = math.sqrt(sum(float(part.grad.square().sum()) for part in parts) / 3)
    assert found.layers[0].size[3] == pytest.approx(expected, rel=1e-9)
