import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from sostenuto.nn import LipschitzRNN
from sostenuto.nn.integrators import EXPLICIT, imex

F64 = torch.float64
ORDERS = {"euler": 1, "imex": 1, "midpoint": 2, "rk4": 4}


def system(seed=0, size=4):
    torch.manual_seed(seed)
    a, w = 0.7 * torch.randn(size, size, dtype=F64), torch.randn(size, size, dtype=F64)
    return a - 0.5 * torch.eye(size, dtype=F64), w, torch.randn(size, 2, dtype=F64)


def wave(t):
    return torch.tensor([math.sin(3 * t), math.cos(2 * t)], dtype=F64)


def exact(rate, start, end):
    """An adaptive solution, four digits finer than anything compared with it."""
    found = solve_ivp(
        lambda t, h: rate(t, torch.from_numpy(h.copy())).numpy(),
        (0, end),
        start.numpy(),
        "DOP853",
        rtol=1e-13,
        atol=1e-13,
    )
    return torch.from_numpy(found.y[:, -1])


def measured_order(error):
    """The slope of log error over log step, from the two finest of three steps."""
    errors = [error(count) for count in (40, 80, 160)]
    slopes = np.diff(np.log(errors)) / np.log(0.5)
    return slopes[-1]


@pytest.mark.parametrize(("name", "order"), ORDERS.items())
def test_orders_on_a_smooth_input(name, order):
    a, w, u = system()

    def rate(t, h):
        return a @ h + torch.tanh(w @ h + u @ wave(t))

    end = exact(rate, torch.zeros(4, dtype=F64), 2.0)

    def error(count):
        h, size = torch.zeros(4, dtype=F64), 2.0 / count
        for n in range(count):
            if name == "imex":
                h = imex(a, torch.tanh(w @ h + u @ wave(n * size)), h, size, 0.7)
            else:
                h = EXPLICIT[name](lambda state, s, n=n: rate((n + s) * size, state), h, size)
        return float((h - end).norm())

    assert measured_order(error) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(("name", "order"), ORDERS.items())
def test_orders_of_the_layer_on_a_held_input(name, order):
    """What a layer sees of an input are its samples, each held through its step: finer steps within them converge."""
    a, w, u = system(1)
    held = [wave(n) for n in range(3)]

    def error(count):
        layer = LipschitzRNN(2, 4, bias=False, beta=0.5, gamma=0.0, step_size=1 / count, integrator=name, dtype=F64)
        with torch.no_grad():
            layer.weight_ih_l0.copy_(u)
            layer.free_weight("weight_linear", 0, False).copy_(a)
            layer.free_weight("weight_hh", 0, False).copy_(w)
        x = torch.stack(held).repeat_interleave(count, dim=0)[:, None]
        return float((layer(x)[1][0, 0] - end).detach().norm())

    end = torch.zeros(4, dtype=F64)
    for value in held:
        end = exact(lambda _, h, value=value: a @ h + torch.tanh(w @ h + u @ value), end, 1.0)
    assert measured_order(error) == pytest.approx(order, abs=0.15)


def stiff(integrator, implicitness=1.0):
    layer = LipschitzRNN(
        1, 6, step_size=0.1, gamma=(200.0, 0.0), integrator=integrator, implicitness=implicitness, dtype=F64
    )
    return layer(torch.randn(300, 2, 1, dtype=F64))[0]


@pytest.mark.parametrize("implicitness", [0.5, 0.7, 1.0])
def test_imex_stays_bounded_where_euler_blows_up(implicitness):
    """A = −200 I and steps of .1: Euler multiplies by −19, IMEX by less than 1 in size."""
    assert not stiff("euler").abs().max() < 1e100
    assert stiff("imex", implicitness).abs().max() < 1
