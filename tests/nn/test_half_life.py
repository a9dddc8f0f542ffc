"""Layers that promise to remember keep the promise at every step of training, however violent."""

import copy
import pickle

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.constraints import Between
from sostenuto.nn import DampedOscillators, StableRNN, Stack, UnICORNN


def violent_steps(layer, count=6, rate=3.0, span=None):
    """Train on noise with a large learning rate; yield after every step."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    x = torch.randn(20, 4, layer.input_size)
    x = x.to(next(layer.parameters()).dtype)
    for _ in range(count):
        optimizer.zero_grad()
        spans = None if span is None else torch.full((20, 4), span)
        loss = -layer(x, timespans=spans)[0].square().mean()
        loss.backward()
        optimizer.step()
        yield layer


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2}, {"positive": True, "stiffness": 0.3}]
)
def test_unicornn_keeps_its_promise_while_it_is_trained(options):
    torch.manual_seed(0)
    layer = UnICORNN(2, 16, half_life=100, step_size=0.3, **options)
    for trained in violent_steps(layer):
        assert min(trained.memory_certificate().layers) >= 100
    assert layer.weight_hh_l0.abs().max() > 0.5 * layer.weight_limit().max()
    layer.reset_parameters()
    assert min(layer.memory_certificate().layers) >= 100


def test_a_promise_survives_copies_files_and_functional_calls():
    torch.manual_seed(0)
    layer = UnICORNN(2, 8, half_life=50)
    again = UnICORNN(2, 8, half_life=50)
    again.load_state_dict(layer.state_dict())
    x = torch.randn(10, 3, 2)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), again):
        assert torch.equal(other(x)[0], layer(x)[0])
        assert other.memory_certificate() == layer.memory_certificate()
    moved = {name: value + 1 for name, value in layer.named_parameters()}
    called = torch.func.functional_call(layer, moved, (x,))[0]
    with torch.no_grad():
        for name, value in layer.named_parameters():
            value.copy_(moved[name])
    assert torch.equal(called, layer(x)[0])


def test_a_weight_can_be_assigned_inside_the_limit_only():
    layer = UnICORNN(2, 4, half_life=100, dtype=torch.float64)
    value = layer.weight_limit().detach() * torch.tensor([0.5, -0.5, 0.9, 0.0])
    layer.weight_hh_l0 = value
    assert torch.allclose(layer.weight_hh_l0, value)
    with pytest.raises(InputError, match="between"):
        layer.weight_hh_l0 = 2 * layer.weight_limit().detach()
    with pytest.raises(InputError, match="lower step_size or stiffness"):
        UnICORNN(2, 4, half_life=10, step_size=2.5)


def test_the_gradient_is_right():
    layer = UnICORNN(1, 3, half_life=20, dtype=torch.float64)
    x = torch.randn(6, 2, 1, dtype=torch.float64)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(*free):
        return torch.func.functional_call(layer, dict(zip(names, free, strict=True)), (x,))[0]

    free = tuple(value.detach().clone().requires_grad_() for value in values)
    assert torch.autograd.gradcheck(run, free)


@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_stable_units_remember_as_long_as_promised(activation):
    layer = StableRNN(2, 8, activation=activation, half_life=50)
    for trained in violent_steps(layer):
        assert trained.memory_certificate().remembers_at_least >= 50


@pytest.mark.parametrize("integrator", ["euler", "exact"])
def test_linear_stable_units_forget_as_promised(integrator):
    layer = StableRNN(2, 8, activation="identity", integrator=integrator, half_life=20, forget_within=200)
    for trained in violent_steps(layer):
        found = trained.memory_certificate()
        assert found.remembers_at_least >= 20
        assert found.forgets_at_most <= 200
    with pytest.raises(InputError, match="activation='identity'"):
        StableRNN(2, 8, forget_within=10)
    with pytest.raises(InputError, match="forget_within above half_life"):
        StableRNN(2, 8, activation="identity", half_life=20, forget_within=10)
    with pytest.raises(InputError, match="form='diagonal'"):
        StableRNN(2, 8, form="symmetric", half_life=20)


def test_damped_units_remember_as_long_as_promised():
    layer = DampedOscillators(2, 8, half_life=100, time_scales=(1.0, 50.0))
    for trained in violent_steps(layer):
        assert trained.memory_certificate().remembers_at_least >= 100
    with pytest.raises(InputError, match="expected half_life of at most"):
        DampedOscillators(2, 8, half_life=1e9).memory_certificate()


@pytest.mark.parametrize("name", ["damped", "unicornn", "stable"])
def test_a_stack_remembers_as_long_as_promised(name):
    layer = Stack(2, 8, 2, layer=name, half_life=100, bidirectional=True)
    found = layer.memory_certificate()
    assert min(found.layers) >= 100
    assert found.forgets_at_most is None
    assert "nothing" not in found.summary().lower()
    with pytest.raises(InputError, match="damped, unicornn and stable"):
        Stack(2, 8, layer="sru", half_life=10)


def test_between_says_what_it_takes():
    with pytest.raises(InputError, match="between -1 and 1, got 0 to 1"):
        Between(-1.0, 1.0).right_inverse(torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: UnICORNN(2, 8, num_layers=2, step_size=30.0, half_life=2.5, time_span=0.01),
        lambda: DampedOscillators(2, 8, half_life=2.5, time_span=0.01),
        lambda: StableRNN(2, 8, half_life=2.5, time_span=0.01),
        lambda: StableRNN(2, 8, half_life=2.5, activation="identity", integrator="exact", time_span=0.01),
        lambda: Stack(2, 8, half_life=2.5, layer_options={"time_span": 0.01}),
    ],
)
def test_a_promise_in_time_is_kept_at_its_time_span(make):
    torch.manual_seed(0)
    for layer in violent_steps(make(), count=3, span=0.01):
        found = layer.memory_certificate(spans=0.01)
        assert found.remembers_at_least >= 250
        assert found.remembers_time >= 2.5
        assert "in the unit of the time spans)" in found.summary()


@pytest.mark.parametrize("integrator", ["euler", "exact"])
def test_both_promises_in_time_hold_for_shorter_spans_too(integrator):
    torch.manual_seed(0)
    options = {"activation": "identity", "integrator": integrator, "time_span": 0.5, "dtype": torch.float64}
    for layer in violent_steps(StableRNN(2, 8, half_life=4.0, forget_within=60.0, **options), count=3):
        found = layer.memory_certificate(spans=(0.01, 0.5))
        assert found.remembers_time >= 4
        assert found.forgets_time <= 60
    spans = 0.01 + 0.49 * torch.rand(40, 1, dtype=torch.float64)
    x = torch.zeros(40, 1, 2, dtype=torch.float64)
    start = torch.eye(8, dtype=torch.float64)[None]
    left = [layer(x.expand(-1, 8, -1), state, timespans=spans.expand(-1, 8))[1] for state in (start, 0 * start)]
    share = (left[0] - left[1])[0].norm(dim=-1)
    time = float(spans.sum())
    assert bool((share >= 0.5 ** (time / 4) * (1 - 1e-9)).all())
    assert bool((share <= 0.5 ** (time / 60) * (1 + 1e-9)).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "make",
    [
        lambda: UnICORNN(2, 32, step_size=0.7, stiffness=2.0, half_life=81.1),
        lambda: UnICORNN(2, 32, step_size=30.0, half_life=0.377, time_span=0.01),
        lambda: StableRNN(2, 32, half_life=99.3),
        lambda: StableRNN(2, 32, half_life=20.3, forget_within=203.0, activation="identity"),
    ],
)
def test_a_promise_is_kept_in_every_dtype(make, dtype):
    """Weights driven to either end of what they may be, and rounded to a layer's dtype."""
    torch.manual_seed(0)
    layer = make().to(dtype)
    spans = layer.time_span if layer.time_span != 1 else None
    for size in (1.0, 1e4):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(size * torch.randn_like(parameter))
        found = layer.memory_certificate(spans=spans)
        assert found.remembers_at_least >= layer.half_life / layer.time_span
        if getattr(layer, "forget_within", None):
            assert found.forgets_at_most <= layer.forget_within


def test_a_promise_that_rounding_breaks_is_refused():
    assert StableRNN(2, 4, half_life=2e6).memory_certificate().remembers_at_least >= 2e6
    with pytest.raises(InputError, match=r"weights in torch\.float32 can keep.*finer dtype"):
        StableRNN(2, 4, half_life=2e6, activation="identity", integrator="exact")
