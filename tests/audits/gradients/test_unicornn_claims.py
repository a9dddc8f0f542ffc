"""What rusch2021 claims of gradients and is not so, on the library's own layer (docs/errata.md, items 1 and 4)."""

import math

import numpy as np
import pytest
import torch

from sostenuto.audits import oscillator_gradient_bounds, oscillator_saddles
from sostenuto.nn import UnICORNN

STEP = 0.1


def one_unit(weight, step=STEP, layers=1, stiffness=1.0, skip=None):
    """A stack of single units with V = 1, b = 0 and σ̂(c) = 1."""
    layer = UnICORNN(1, 1, num_layers=layers, step_size=step, stiffness=stiffness, skip=skip, dtype=torch.float64)
    with torch.no_grad():
        for level in range(layers):
            getattr(layer, f"weight_hh_l{level}").fill_(weight)
            getattr(layer, f"weight_ih_l{level}").fill_(1.0)
            getattr(layer, f"time_scale_l{level}").fill_(40.0)
            if skip is not None and level >= skip:
                # The first skip reads the input itself, and passes the first layer by.
                getattr(layer, f"weight_skip_l{level}").fill_(float(level > skip))
    return layer


def printed_bound(weight, stiffness, duration, target):
    """The right side of rusch2021, eq. (12), for one layer with ‖V‖ ≤ 1."""
    gain = max(2, abs(weight) + stiffness)
    gamma, beta = gain + gain**2 / 2, max(1 + 2 * stiffness, 4 * stiffness**2)
    reach = math.sqrt(2 / stiffness * (1 + 2 * beta * duration))
    delta = 2 + math.sqrt(2 * (1 + 2 * beta * duration)) + (2 + stiffness) * reach
    return duration * (1 + 2 * gamma * duration) * (target + reach) * delta


def loss_gradient(layer, x):
    """∂E/∂b of the paper's loss (10) with targets 1, by autograd."""
    loss = (layer(x)[0] - 1).square().sum(-1).mean() / 2
    return torch.autograd.grad(loss, layer.bias_ih_l0)[0].abs().item()


def resonant_input(weight, count, limit=4.0, stiffness=1.0):
    """Choose each input to feed the variation: curvature high while it returns to 0, low while it leaves."""
    y = z = dz = 0.0
    dy, chosen = 1.0, []
    for _ in range(count):
        u = min(max(-weight * y, -limit), limit) if dy * dz < 0 else math.copysign(limit, z)
        force = math.tanh(weight * y + u)
        q = stiffness + weight * (1 - force**2)
        z -= STEP * (force + stiffness * y)
        dz -= STEP * q * dy
        y, dy = y + STEP * z, dy + STEP * dz
        chosen.append(u)
    return torch.tensor(chosen, dtype=torch.float64)[:, None]


def test_a_saddle_breaks_proposition_3_1():
    layer, x = one_unit(-2.0), torch.zeros(400, 1, dtype=torch.float64)
    bound = printed_bound(-2.0, 1.0, 40.0, 1.0)
    assert bound == pytest.approx(6.5e7, rel=0.02)
    assert loss_gradient(layer, x) > 1e7 * bound
    found = oscillator_gradient_bounds(layer, x[None]).layers[0]
    assert math.exp(found.bounds[0].measured[-1]) == pytest.approx(2.3e17, rel=0.05)
    assert found.bounds[0].holds
    assert found.bounds[1].condition == "not applicable: 0 < h²q₀ < 4 fails (0)"
    assert oscillator_saddles(layer).layers[0].saddles == (0,)


def test_resonance_breaks_proposition_3_1_within_its_repair():
    layer, x = one_unit(1.0), resonant_input(1.0, 3000)
    assert x.abs().max() <= 4
    bound = printed_bound(1.0, 1.0, 300.0, 1.0)
    assert bound == pytest.approx(1.4e10, rel=0.02)
    assert loss_gradient(layer, x) > 500 * bound
    found = oscillator_gradient_bounds(layer, x[None]).layers[0]
    assert all(b.holds for b in found.bounds)
    assert math.exp(found.bounds[2].measured[-1]) > 1e15
    saddles = oscillator_saddles(layer)
    assert saddles.holds
    assert saddles.layers[0].resonant == 1
    assert found.bounds[1].measured[-1] / 3000 == pytest.approx(saddles.layers[0].resonance_growth, rel=0.1)


def slope(sizes, values):
    return np.polyfit(np.log(sizes), np.log(values), 1)[0]


@pytest.mark.parametrize(("layers", "skip"), [(1, None), (2, None), (3, None), (4, 2)])
def test_one_step_contributes_in_proportion_to_the_step_at_every_depth(layers, skip):
    """To ∂E_n/∂b of the first layer at t_n = 3 the step at t_k = 1 adds O(Δt), and all add O(1).

    rusch2021 has O(Δt^(2L−1)) in (74), and O(Δt^(2ν+2L−2νS−1)) in (80) for a stack with skips.
    """
    sizes, ones, totals = [0.04, 0.02, 0.01, 0.005], [], []
    for size in sizes:
        layer = one_unit(0.5, step=size, layers=layers, skip=skip)
        time = size * torch.arange(1, round(3 / size) + 1, dtype=torch.float64)
        x = torch.sin(2 * time)[:, None].requires_grad_()
        last = layer(x)[0][-1]
        loss = (last - 1).square().sum() / 2
        by_input, total = torch.autograd.grad(loss, (x, layer.bias_ih_l0))
        # V = 1: what step k adds to ∂E/∂b is ∂E/∂u_k, and the steps add up to the whole.
        assert by_input.sum().item() == pytest.approx(total.item(), rel=1e-9)
        ones.append(abs(by_input[round(1 / size) - 1].item()))
        totals.append(abs(total.item()))
    assert slope(sizes, ones) == pytest.approx(1, abs=0.15)
    assert slope(sizes, totals) == pytest.approx(0, abs=0.15)
