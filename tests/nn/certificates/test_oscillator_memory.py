"""The bounds on what oscillators remember, attacked by random, greedy and gradient-built inputs."""

import math

import mpmath
import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn import UnICORNN
from sostenuto.nn.certificates import half_lives, oscillator_growth
from sostenuto.nn.oscillator_memory import cell_growth, weight_limit

COUNT, STEPS = 2000, 400


@pytest.fixture(scope="module")
def systems():
    """2000 units, a tenth of them saddles, some with steps near the limit of stability."""
    draw = np.random.default_rng(0)
    stiffness = np.exp(draw.uniform(math.log(0.5), math.log(30), COUNT))
    weight = stiffness * draw.uniform(-1.2, 2.0, COUNT)
    step = np.exp(draw.uniform(math.log(0.01), math.log(1.0), COUNT)) * 1.9 / np.sqrt(stiffness + weight.clip(0))
    return step, weight, stiffness


def parts(found):
    return found.rate, found.scale, found.shear


def sizes(y, z, scale, shear):
    return np.hypot(scale * y, z - shear * y)


def test_the_examples_of_the_docs():
    for h, w, alpha, steps in ((0.05, 0.5, 1.0, 123), (0.1, 0.19, 30.0, 769), (0.45, 1.0, 2.0, 9)):
        assert math.floor(half_lives(oscillator_growth(np.array([h]), np.array([w]), alpha).rate)[0]) == steps


def test_no_input_shrinks_a_difference_faster(systems):
    """Random inputs and a greedy adversary, in every step; the bound is within a factor of two or so of the worst."""
    step, weight, stiffness = systems
    rate, scale, shear = parts(oscillator_growth(*systems))
    assert np.isfinite(rate).all()
    draw = np.random.default_rng(1)
    y, z = draw.normal(size=(2, 2, COUNT))
    worst = 0.0
    for n in range(STEPS):
        ends = [stiffness, stiffness + weight]
        moved = []
        for q in ends:
            new = z[1] - step * q * y[1]
            moved.append((y[1] + step * new, new))
        greedy = np.stack([sizes(one[0], one[1], scale, shear) for one in moved]).argmin(0)
        curvature = stiffness + weight * draw.uniform(size=COUNT)
        last = sizes(y, z, scale, shear)
        random = z[0] - step * curvature * y[0]
        y = np.stack([y[0] + step * random, np.choose(greedy, [moved[0][0], moved[1][0]])])
        z = np.stack([random, np.choose(greedy, [moved[0][1], moved[1][1]])])
        now = sizes(y, z, scale, shear)
        change = np.log(now / last)
        assert (np.abs(change) <= rate * (1 + 1e-9) + 1e-13).all(), n
        worst = worst + change[1]
        y, z = y / now, z / now
    found = -worst / STEPS
    ratio = found / rate
    assert (ratio <= 1).all()
    fits = weight > -stiffness  # a saddle forgets along one direction, whatever the bound
    assert 0.4 <= np.median(ratio[fits]) <= 0.7, np.median(ratio[fits])


def test_differences_of_any_size_of_the_layer_itself():
    """Two states far apart, large and small inputs that switch: secants, not derivatives."""
    layer = UnICORNN(3, 64, num_layers=2, step_size=0.4, stiffness=2.0, dtype=torch.float64)
    torch.manual_seed(0)
    with torch.no_grad():
        layer.weight_hh_l0.uniform_(-1.5, 3)
        layer.weight_ih_l0.mul_(10)
    found = layer.memory_certificate()
    growths = cell_growth(layer, 0, False)
    x = torch.randn(50, 8, 3, dtype=torch.float64) * torch.tensor([0.1, 10.0]).double().repeat(25)[:, None, None]
    starts = [tuple(10 * torch.randn(2, 8, 64, dtype=torch.float64) for _ in range(2)) for _ in range(2)]
    y0, z0 = (a[0] - b[0] for a, b in zip(starts[0], starts[1], strict=True))
    states = [layer(x, start)[1] for start in starts]
    y, z = (a[0] - b[0] for a, b in zip(states[0], states[1], strict=True))
    change = np.log(growths.size(y.detach().numpy(), z.detach().numpy()) / growths.size(y0.numpy(), z0.numpy()))
    assert (np.abs(change) <= 50 * growths.rate).all()
    assert found.remembers_at_least == pytest.approx(min(found.per_unit), rel=1e-12)
    kept = (growths.size(y.detach().numpy(), z.detach().numpy()) ** 2).sum(1) ** 0.5
    first = (growths.size(y0.numpy(), z0.numpy()) ** 2).sum(1) ** 0.5
    low, _ = found.curves([50])
    assert (kept / first >= low).all()


def test_inputs_built_by_gradients():
    """Adam moves the inputs so that the difference shrinks: it comes near the bound and not below."""
    torch.manual_seed(0)
    layer = UnICORNN(8, 8, bias=False, step_size=0.6, stiffness=1.0, learn_step=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.eye(8))
        layer.weight_hh_l0.copy_(torch.linspace(0.3, 2.0, 8))
    found, steps = cell_growth(layer, 0, False), 60
    scale, shear = (torch.tensor(part) for part in (found.scale, found.shear))
    inputs = torch.randn(steps, 1, 8, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([inputs], lr=0.1)
    start = [(torch.full((1, 2, 8), 0.01).double() * torch.tensor([1.0, -1.0])[:, None], torch.zeros(1, 2, 8).double())]
    size = torch.ones(8)
    for _ in range(60):
        y, z = (part[0, 0] - part[0, 1] for part in layer(inputs.expand(-1, 2, -1), start[0])[1])
        size = torch.hypot(scale * y, z - shear * y)
        optimizer.zero_grad()
        size.log().sum().backward()
        optimizer.step()
    shrunk = -np.log(size.detach().numpy() / found.size(np.full(8, 0.02), np.zeros(8))) / steps
    assert (shrunk <= found.rate).all()
    assert np.median(shrunk / found.rate) > 0.3


def test_rounding_is_counted_at_the_edge(systems):
    """50 digits: the norm of the worst step is never beyond the rate, and within 1e-9 of it for one step size."""
    mpmath.mp.dps = 50
    step, weight, stiffness = (values[:300] for values in systems)
    for h, w, alpha in [*zip(step, weight, stiffness, strict=True), (1.9999999, 1e-9, 1.0), (1e-6, 1e-12, 1e-8)]:
        found = oscillator_growth(np.array([h]), np.array([w]), alpha)
        h, w, alpha = (mpmath.mpf(float(value)) for value in (h, w, alpha))
        middle = alpha + w / 2
        squared = middle * (1 - h**2 * middle / 4)
        largest = max(abs(alpha), abs(alpha + w))
        exact = 2 * mpmath.asinh(h * mpmath.sqrt(largest) / 2)
        if squared > 0:
            exact = min(exact, mpmath.asinh(h * abs(w) / (4 * mpmath.sqrt(squared))))
        assert exact <= mpmath.mpf(float(found.rate[0])) <= exact * (1 + mpmath.mpf(10) ** -6) + mpmath.mpf(10) ** -14


def test_irregular_spans_are_covered(systems):
    """Every step draws a span of its own; the adversary chooses both the span and the curvature."""
    step, weight, stiffness = (values[:500] for values in systems)
    step = step / 3
    rate, scale, shear = parts(oscillator_growth(step, weight, stiffness, spans=(0.5, 2.0)))
    fixed, _, _ = parts(oscillator_growth(step, weight, stiffness, spans=(2.0, 2.0)))
    assert (rate >= fixed * (1 - 1e-9)).mean() > 0.99
    draw = np.random.default_rng(2)
    y, z = draw.normal(size=(2, 500))
    for _ in range(200):
        last, best = sizes(y, z, scale, shear), None
        for span in (0.5, draw.uniform(0.5, 2.0), 2.0):
            for q in (stiffness, stiffness + weight):
                new = z - span * step * q * y
                trial = np.stack([y + span * step * new, new])
                size = sizes(trial[0], trial[1], scale, shear)
                assert (np.abs(np.log(size / last)) <= rate * (1 + 1e-9) + 1e-13).all()
                if best is None or draw.uniform() < 0.5:
                    best = trial
        y, z = best


def test_a_bounded_drive_proves_more():
    h, w = np.array([0.1]), np.array([1.0])
    every, small = oscillator_growth(h, w, 1.0).rate, oscillator_growth(h, w, 1.0, drive=0.5).rate
    assert small < every / 2
    slopes = np.array([(math.tanh(a) - math.tanh(b)) / (a - b) for a, b in ((0.5, -0.5), (0.5, 0.4999))])
    assert (slopes >= 1 / math.cosh(0.5) ** 2).all()


def test_the_largest_weight_that_keeps_a_promise():
    for h in (0.01, 0.3, 1.5):
        for n in (100.0, 784.0):
            limit = weight_limit(torch.tensor([h], dtype=torch.float64), 1.0, n).numpy()[0]
            inside = oscillator_growth(np.full(2, h), limit * np.array([0.999, -0.999]), 1.0).rate
            outside = oscillator_growth(np.full(2, h), limit * np.array([1.01, -1.01]), 1.0).rate
            assert half_lives(inside).min() >= n > half_lives(outside).min()
    assert weight_limit(torch.tensor([2.0]), 1.0, 10.0) == 0


def test_a_certificate_says_what_it_is_about():
    layer = UnICORNN(1, 256, num_layers=3, bidirectional=True)
    found = layer.memory_certificate(spans=(0.5, 2.0))
    assert found.holds
    assert len(found.per_unit) == 512
    assert "time spans from 0.5 to 2" in found.conditions
    assert found.remembers_at_least < layer.memory_certificate().remembers_at_least
    assert type(found).from_dict(found.to_dict()) == found
    with pytest.raises(InputError, match="drive"):
        layer.memory_certificate(drive=-1.0)

    class Louder(UnICORNN):
        def run(self, *args):
            return super().run(*args)

    assert "Louder changes run" in Louder(1, 4).memory_certificate().reason
