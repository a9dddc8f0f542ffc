"""Steps without gradients: shorter calls on cached maps must give what whole calls give, and see every change."""

import copy
import pickle

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn import LAYERS, ExpRNN, LipschitzRNN, UnICORNN

OURS = [name for name in LAYERS if name not in ("lstm", "gru", "rnn")]
OPTIONS = {name: {"step_size": 0.1} for name in ("residual", "residual-gru", "residual-lstm")}


def make(name, **options):
    return LAYERS[name](2, 4, num_layers=2, dtype=torch.float64, **OPTIONS.get(name, {}), **options)


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def stream(layer, x, state=None):
    steps = []
    for x_t in x:
        step, state = layer.step(x_t, state)
        steps.append(step)
    return torch.stack(steps), state


@pytest.mark.parametrize("name", OURS)
def test_steps_are_the_whole_call(name):
    layer, x = make(name), torch.randn(5, 3, 2, dtype=torch.float64)
    expected, end = layer(x)
    alone, _ = layer(x[:, 0])
    with torch.no_grad():
        output, state = stream(layer, x)
        close(output, expected)
        close(stream(layer, x[:, 0])[0], alone)
    assert type(state) is type(end)
    for got, other in zip(*(((p,) if isinstance(p, torch.Tensor) else p) for p in (state, end)), strict=True):
        close(got, other)


@pytest.mark.parametrize("name", OURS)
def test_changed_weights_are_seen_within_a_stream(name):
    layer, other, x = make(name), make(name), torch.randn(3, 3, 2, dtype=torch.float64)
    with torch.no_grad():
        _, state = stream(layer, x)
        layer.load_state_dict(other.state_dict())
        close(layer.step(x[0], state)[0], other.step(x[0], state)[0])
        for parameter in (*layer.parameters(), *other.parameters()):
            parameter.mul_(0.9)
        close(layer.step(x[0], state)[0], other.step(x[0], state)[0])
        for parameter in layer.parameters():
            parameter.data.mul_(0.9)
        for parameter in other.parameters():
            parameter.mul_(0.9)
        close(layer.step(x[0])[0], other.step(x[0])[0])  # a new stream sees writes through data too


def test_gradients_never_meet_what_was_cached():
    layer, x = ExpRNN(2, 4), torch.randn(3, 3, 2)
    with torch.no_grad():
        _, state = stream(layer, x)
    output, _ = layer.step(x[0], state)
    output.sum().backward()
    assert layer.parametrizations.weight_hh_l0.original.grad.abs().max() > 0


def test_constrained_weights_are_computed_once_per_stream(monkeypatch):
    layer, x, count = LipschitzRNN(2, 4), torch.randn(6, 3, 2), []
    own = LipschitzRNN.discrete_map
    monkeypatch.setattr(LipschitzRNN, "discrete_map", lambda self, *a, **k: count.append(1) or own(self, *a, **k))
    with torch.no_grad():
        stream(layer, x)
    assert len(count) == 1


def test_hooks_hear_every_step():
    layer, heard = UnICORNN(2, 4), []
    layer.register_forward_hook(lambda *_: heard.append(1))
    with torch.no_grad():
        stream(layer, torch.randn(3, 3, 2))
    assert len(heard) == 3


@pytest.mark.parametrize("wrong", [torch.zeros(3, 5), torch.zeros(1, 2, 3, 2), torch.zeros(3, 2, dtype=torch.float64)])
def test_wrong_steps_are_refused_as_in_calls(wrong):
    layer = LipschitzRNN(2, 4)
    with torch.no_grad(), pytest.raises(InputError, match="expected"):
        layer.step(wrong)


def test_copies_and_pickles_stream_on_their_own():
    layer, x = ExpRNN(2, 4), torch.randn(3, 3, 2)
    with torch.no_grad():
        expected, state = stream(layer, x)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            close(stream(other, x)[0], expected)
            next(other.parameters()).mul_(0.5)
            assert not torch.equal(other.step(x[0], state)[0], layer.step(x[0], state)[0])


def test_inference_mode():
    layer, x = make("damped"), torch.randn(3, 3, 2, dtype=torch.float64)
    with torch.inference_mode():
        output, _ = stream(layer, x)
    close(output.clone(), layer(x)[0].detach())
