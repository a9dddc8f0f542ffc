"""Truncated back-propagation through time, against a plain loop that detaches the state at every border."""

from typing import Any

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.base import SequenceModel
from sostenuto.models.forecaster import Forecaster
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.nn import LAYERS

STEPS = 11


def make_layer(name: str, **options: Any) -> Any:
    more = {"step_size": 0.5} if name.startswith("residual") else {}
    return LAYERS[name](2, 3, num_layers=2, batch_first=True, **more, **options).double()


def gradients(model: SequenceModel, output: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (output * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def stepwise(model: Any, values: torch.Tensor, window: int, spans: torch.Tensor | None = None) -> torch.Tensor:
    """Run the layer one step at a time; the state is detached where a window, counted from the end, begins."""
    state, outputs = None, []
    for t in range(values.shape[1]):
        if state is not None and (values.shape[1] - t) % window == 0:
            state = state.detach() if isinstance(state, torch.Tensor) else tuple(part.detach() for part in state)
        more = {} if spans is None else {"timespans": spans[:, t : t + 1]}
        output, state = model.layer(values[:, t : t + 1], state, **more)
        outputs.append(output)
    return torch.cat(outputs, dim=1)


def assert_same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("window", [1, 3, 4, STEPS])
@pytest.mark.parametrize("name", LAYERS)
def test_every_step_read_out(name, window):
    model = SequenceToSequence(make_layer(name), 2).double().train()
    values, weights = torch.randn(2, STEPS, 2).double(), torch.randn(2, STEPS, 2).double()
    model.gradient_window = window
    got = gradients(model, model(values), weights)
    expected = gradients(model, model.head(stepwise(model, values, window)), weights)
    assert_same(got, expected)


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_one_read_out(name, readout):
    model = SequenceClassifier(make_layer(name), 3, readout).double().train()
    values, weights = torch.randn(2, STEPS, 2).double(), torch.randn(2, 3).double()
    model.gradient_window = 4
    got = gradients(model, model(values), weights)
    states = stepwise(model, values, 4)
    pooled = states[:, -1] if readout == "last" else states.mean(1)
    assert_same(got, gradients(model, model.head(pooled), weights))


def test_timespans_go_with_their_window():
    model = SequenceRegressor(make_layer("unicornn"), 2).double().train()
    values, spans = torch.randn(2, STEPS, 2).double(), torch.rand(2, STEPS).double() + 0.5
    model.gradient_window = 3
    got = gradients(model, model(values, None, spans), torch.ones(2, 2).double())
    states = stepwise(model, values, 3, spans)
    assert_same(got, gradients(model, model.head(states[:, -1]), torch.ones(2, 2).double()))


@pytest.mark.parametrize("window", [STEPS, STEPS + 5])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_window_that_holds_everything_changes_nothing(window, ragged):
    model = SequenceClassifier(make_layer("unicornn"), 3).double().train()
    values = torch.randn(3, STEPS, 2).double()
    lengths = torch.tensor([STEPS, 4, 7]) if ragged else None
    weights = torch.randn(3, 3).double()
    full = gradients(model, model(values, lengths), weights)
    model.gradient_window = window
    assert_same(gradients(model, model(values, lengths), weights), full)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_lengths_are_respected_in_windows(window):
    """A shorter sequence reads its own last state, and the padding after it has no say."""
    model = SequenceClassifier(make_layer("unicornn"), 3).double().train()
    values, lengths = torch.randn(3, STEPS, 2).double(), torch.tensor([STEPS, 4, 7])
    full = model(values, lengths)
    model.gradient_window = window
    torch.testing.assert_close(model(values, lengths), full)
    other = values.clone()
    other[1, 4:], other[2, 7:] = 50.0, -50.0
    torch.testing.assert_close(model(other, lengths), full)


@pytest.mark.parametrize("window", [1, 3, 4])
def test_only_last_saves_the_graph_and_keeps_the_gradient(window):
    model = SequenceClassifier(make_layer("unicornn"), 3).double().train()
    values, weights = torch.randn(2, STEPS, 2).double(), torch.randn(2, 3).double()
    model.gradient_window = window
    lean, whole = model.states(values, only_last=True), model.states(values, only_last=False)
    torch.testing.assert_close(lean, whole)
    expected = gradients(model, model.head(whole[:, -1]), weights)
    assert_same(gradients(model, model.head(lean[:, -1]), weights), expected)
    early = torch.autograd.grad(
        model.states(values, only_last=True)[:, : STEPS - window].sum(), list(model.layer.parameters()),
        allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    assert all(gradient.count_nonzero() == 0 for gradient in early)


def test_evaluation_is_never_cut():
    model = Forecaster(make_layer("gru"), 2).double()
    values = torch.randn(2, STEPS, 2).double()
    full = gradients(model.eval(), model(values), torch.ones(2, 1, 2).double())
    model.gradient_window = 2
    assert_same(gradients(model, model(values), torch.ones(2, 1, 2).double()), full)


def test_what_cannot_be_cut_is_refused():
    both = SequenceClassifier(make_layer("gru", bidirectional=True), 3).double()
    both.gradient_window = 2
    with pytest.raises(InputError, match="one direction"):
        both(torch.zeros(1, 4, 2).double())
    whole = SequenceClassifier(LAYERS["residual-gru"](2, 3, batch_first=True), 3)
    whole.gradient_window = 2
    with pytest.raises(InputError, match="fixed step_size"):
        whole(torch.zeros(1, 4, 2))
    whole.gradient_window = -3
    with pytest.raises(InputError, match="gradient_window"):
        whole(torch.zeros(1, 4, 2))
