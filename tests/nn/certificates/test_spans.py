"""A discrete certificate says which time spans it covers, and no spans within them may contradict it."""

import importlib.util
import itertools

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

from sostenuto.checks import InputError
from sostenuto.nn import AntisymmetricRNN, CoRNN, DampedOscillators, IndRNN, LipschitzRNN, StableRNN, UnICORNN

F64 = torch.float64
needs_cvxpy = pytest.mark.skipif(importlib.util.find_spec("cvxpy") is None, reason="needs cvxpy")


def contracting(seed=0, **options):
    torch.manual_seed(seed)
    layer = LipschitzRNN(2, 4, **{"gamma": (3.0, 0.5), "step_size": 0.1, "dtype": F64, **options})
    with torch.no_grad():
        for name in ("weight_hh", "weight_linear"):
            layer.free_weight(name, 0, False).normal_(std=0.3)
    return layer


def distances(layer, spans, seed=0):
    """Give the distance of two states that read the same random input, before and after each step."""
    generator = torch.Generator().manual_seed(seed)
    steps = len(spans)
    x = torch.randn(steps, 1, 2, generator=generator, dtype=F64).expand(-1, 2, -1)
    start = 2 * torch.randn(1, 2, 4, generator=generator, dtype=F64)
    states = torch.cat([start, layer(x, start, timespans=spans[:, None].expand(-1, 2))[0]])
    return (states[:, 0] - states[:, 1]).norm(dim=-1)


def test_a_certificate_without_spans_is_of_steps_of_one():
    layer = contracting()
    found = layer.certificate("discrete")
    assert found.holds
    assert found.spans == (1.0, 1.0)
    assert found.scope == "every input, time spans of 1"
    assert found == layer.certificate("discrete", spans=1.0)
    assert layer.certificate("lure").spans is None


def test_spans_that_diverge_are_not_certified():
    layer = contracting()
    assert layer.certificate("discrete").holds
    apart = distances(layer, torch.full((60,), 10.0, dtype=F64))
    assert apart[-1] > 1e6 * apart[0]
    assert not layer.certificate("discrete", spans=(1.0, 10.0)).holds
    assert not layer.certificate("discrete", spans=10.0).holds


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spans", [(0.2, 1.0), (0.5, 3.0), (2.0, 2.0)])
def test_no_spans_within_contradict(seed, spans):
    layer = contracting(seed)
    found = layer.certificate("discrete", spans=spans)
    assert found.holds
    assert found.spans == spans
    low, high = spans
    drawn = [torch.full((40,), value, dtype=F64) for value in spans]
    drawn += [low + (high - low) * torch.rand(40, dtype=F64), torch.tensor(spans, dtype=F64).repeat(20)]
    for kind in drawn:
        apart = distances(layer, kind, seed)
        bound = found.overshoot * torch.exp(-found.rate * torch.arange(41, dtype=F64)) * apart[0]
        assert bool((apart <= bound * (1 + 1e-9)).all())


def test_the_rate_is_that_of_the_shortest_span():
    layer = contracting()
    at_once = layer.certificate("discrete", spans=2.0)
    halves = layer.certificate("discrete", spans=(1.0, 2.0))
    assert 0 < halves.rate < at_once.rate
    assert halves.metric == at_once.metric


def test_exact_steps_are_certified_for_all_spans():
    layer = StableRNN(2, 4, activation="identity", integrator="exact", dtype=F64)
    found = layer.certificate("discrete", spans=(0.5, 1e3))
    assert found.holds
    torch.testing.assert_close(found.rate, layer.certificate("discrete", spans=0.5).rate)
    apart = distances(layer, 0.5 + 20 * torch.rand(40, dtype=F64))
    bound = found.overshoot * torch.exp(-found.rate * torch.arange(41, dtype=F64)) * apart[0]
    assert bool((apart <= bound * (1 + 1e-9)).all())


CURVED = {
    "imex": lambda: contracting(integrator="imex"),
    "implicit": lambda: CoRNN(2, 2, dtype=F64),
    "explicit": lambda: CoRNN(2, 2, dtype=F64, damping="explicit"),
}


@needs_cvxpy
@pytest.mark.parametrize("name", CURVED)
def test_no_spans_contradict_a_curve(name):
    torch.manual_seed(0)
    layer, (low, high) = CURVED[name](), (0.9, 1.1) if name == "explicit" else (0.6, 1.5)
    found, memory = layer.certificate("discrete", spans=(low, high)), layer.memory_certificate(spans=(low, high))
    assert found.holds
    assert found.spans == (low, high)
    assert found.rate <= layer.certificate("discrete", spans=low).rate * (1 + 1e-9)
    assert memory.remembers_at_least < layer.memory_certificate(spans=high).remembers_at_least
    x = torch.randn(40, 16, 2, dtype=F64)
    ends = []
    starts = [tuple(torch.randn(1, 16, layer.hidden_size, dtype=F64) for _ in layer.state_names) for _ in range(2)]
    for spans in (low + (high - low) * torch.rand(40, 16, dtype=F64), torch.tensor([[low], [high]]).repeat(20, 16)):
        ends = [layer(x, start if len(start) > 1 else start[0], timespans=spans.to(F64))[1] for start in starts]
        ends = [end if isinstance(end, tuple) else (end,) for end in ends]
        sizes = [
            torch.cat([one - other for one, other in zip(*pair, strict=True)], -1).norm(dim=-1)
            for pair in (starts, ends)
        ]
        share = (sizes[1] / sizes[0]).detach()
        assert bool((share <= found.overshoot * torch.exp(torch.tensor(-40 * found.rate)) * (1 + 1e-9)).all())
        below, above = memory.curves([40], euclidean=True)
        assert below[0] <= share.min()
        assert share.max() <= above[0]


@pytest.mark.parametrize("name", CURVED)
def test_derivatives_bound_how_a_curve_moves(name):
    torch.manual_seed(0)
    layer = CURVED[name]()
    curve = layer._curve(0, False, (0.5, 3.0), (0.0, 1.0))
    eye = np.eye(len(curve.at(1.0).linear))
    for low, high in ((0.5, 0.8), (1.0, 3.0)):
        slopes = np.random.default_rng(0).uniform(size=(20, curve.at(1.0).input.shape[1]))
        for slope in slopes:
            first, middle, last = (curve.at(span).at(slope) for span in (low, (low + high) / 2, high))
            moved = np.linalg.norm(middle - first, 2), np.linalg.norm(middle - (first + last) / 2, 2)
            assert moved[0] <= (high - low) / 2 * curve._bound(1, low, high, eye)
            assert moved[1] <= (high - low) ** 2 / 8 * curve._bound(2, low, high, eye)
            assert np.linalg.norm(middle - first, 2) >= 0.02 * (high - low) * curve._bound(1, low, high, eye)
    assert np.linalg.norm(curve.at(1.7).input, 2) <= curve.push(eye)


@needs_cvxpy
def test_spans_without_a_common_norm_are_refused():
    torch.manual_seed(0)
    layer = CoRNN(2, 4, dtype=F64, damping="explicit")
    found = layer.certificate("discrete", spans=(0.1, 8.0))
    assert not found.holds
    assert "one norm for all time spans" in found.reason or "inside the unit circle" in found.reason


def test_settling_holds_up_to_the_largest_span():
    layer = AntisymmetricRNN(2, 4, gamma=1.0, step_size=0.01, dtype=F64)
    assert layer.certificate("discrete settling").holds
    assert layer.certificate("discrete settling", spans=(0.1, 2.0)).spans == (0.1, 2.0)
    assert not layer.certificate("discrete settling", spans=(0.1, 1e4)).holds
    relu = StableRNN(2, 4, activation="relu", step_size=0.1, dtype=F64)
    one, other = (relu.certificate("discrete settling", spans=spans) for spans in ((0.5, 2.0), (2.0, 2.0)))
    assert 0 < one.rate < other.rate


def test_wrong_spans_are_refused():
    for wrong in ((2.0, 1.0), (0.0, 1.0), (1.0, float("inf")), (1.0, float("nan")), -1.0):
        with pytest.raises(InputError, match="expected spans"):
            contracting().certificate("discrete", spans=wrong)
    with pytest.raises(InputError, match="expected no spans with 'lure'"):
        contracting().certificate("lure", spans=1.0)
    with pytest.raises(InputError, match="IndRNN is a discrete map"):
        IndRNN(2, 4).certificate("discrete", spans=1.0)


class Louder(LipschitzRNN):
    def forward(self, input, state=None, **options):
        return super().forward(1000 * input, state, **options)


class Renamed(LipschitzRNN):
    """Changes nothing that runs."""

    def extra_repr(self):
        return "renamed"


@pytest.mark.parametrize("kind", ["contraction", "lure", "discrete"])
def test_a_changed_recurrence_is_not_certified(kind):
    options = {"gamma": (9.0, 0.0), "dtype": F64}
    assert LipschitzRNN(2, 4, **options).certificate(kind).holds
    assert Renamed(2, 4, **options).certificate(kind).holds
    found = Louder(2, 4, **options).certificate(kind)
    assert not found.holds
    assert "Louder changes forward" in found.reason
    patched = LipschitzRNN(2, 4, **options)
    patched.discrete_map = lambda *_, **__: None
    assert "changes discrete_map" in patched.certificate(kind).reason


def test_every_pair_of_spans_of_a_grid():
    """The largest span decides: what holds for it holds for every shorter one."""
    layer = contracting(3)
    grid = [0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0]
    holds = {span: layer.certificate("discrete", spans=span).holds for span in grid}
    for low, high in itertools.combinations(grid, 2):
        assert layer.certificate("discrete", spans=(low, high)).holds == holds[high]
        assert holds[low] >= holds[high]


def test_hooks_prunings_and_broken_weights():
    """A hook may do anything; a pruned weight is what the next call makes of it; NaN has no theorem."""
    hooked = IndRNN(2, 4)
    hooked.register_forward_hook(lambda *_: None)
    assert "IndRNN has a hook" in hooked.memory_certificate().reason
    assert "IndRNN has a hook" in hooked.certificate("discrete").reason
    pruned = IndRNN(2, 4, activation="tanh")
    prune.l1_unstructured(pruned, "weight_hh_l0", amount=0.5)
    with torch.no_grad():
        pruned.weight_hh_l0_orig.mul_(0.1)
    stale = pruned.memory_certificate()
    pruned(torch.zeros(3, 1, 2))
    assert stale == pruned.memory_certificate()
    for layer in (UnICORNN(2, 4), DampedOscillators(2, 4), IndRNN(2, 4)):
        with torch.no_grad():
            layer.weight_hh_l0[1] = torch.nan
        assert "weight_hh_l0 is not finite" in layer.memory_certificate().reason
        assert not layer.certificate("discrete").holds
