"""The averages of any activation: fitted to the variance, split at kinks, refused where the error cannot be kept."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sostenuto.checks import InputError
from sostenuto.kernels import RecurrentNTK
from sostenuto.ops.recurrent_ntk.duals import Correlation, ReLU
from sostenuto.ops.recurrent_ntk.hinges import find_hinges, hinge_coefficients, hinges_pair
from sostenuto.ops.recurrent_ntk.quadrature import LIMIT, MOST, Quadrature


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def averages(function, one, other, cosine, step):
    """E[φ(√q z)φ(√p z′)] and its derivative by C on a grid in coordinates along and across the diagonal."""
    z = np.arange(-9, 9 + step, step)
    weight = np.exp(-(z[:, None] ** 2 + z[None] ** 2) / 2) * step**2 / (2 * math.pi)
    high, low = math.sqrt((1 + cosine) / 2), math.sqrt((1 - cosine) / 2)
    points = [
        torch.from_numpy(s * (high * z[:, None] + sign * low * z[None]))
        for s, sign in ((math.sqrt(one), 1), (math.sqrt(other), -1))
    ]
    values = [function(p.requires_grad_()) for p in points]
    slopes = [torch.autograd.grad(v.sum(), p)[0].numpy() for v, p in zip(values, points, strict=True)]
    size = math.sqrt(one * other)
    product = values[0].detach().numpy() * values[1].detach().numpy()
    return (product * weight).sum(), size * (slopes[0] * slopes[1] * weight).sum()


@pytest.mark.parametrize(
    "function", [torch.tanh, torch.sigmoid, F.gelu, torch.sin, F.softplus], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("one", "other"), [(1e-6, 0.5), (1.0, 9.0), (9.0, 16.0)])
def test_smooth_functions_against_two_dimensional_integrals(function, one, other):
    dual = Quadrature(function).fitted(lambda _: [tensor(one, other)])
    left, right = dual.moments(tensor(one)), dual.moments(tensor(other))
    for cosine in (-0.999, -0.4, 0.3, 0.95):
        got = dual.pair(Correlation(tensor(cosine), tensor(1 - cosine), tensor(1 + cosine)), left, right)
        value, slope = averages(function, one, other, cosine, 0.03)
        size = float(left.root * right.root)
        assert float(got.value) == pytest.approx(value, abs=1e-10 * size)
        assert float(got.slope) == pytest.approx(slope, abs=1e-10 * math.sqrt(float(left.slope * right.slope)))


KINKED = {"relu": (1.0, 0.0), "abs": (1.0, -1.0), "leaky": (1.0, 0.01), "mirrored": (-0.2, 1.7)}


@pytest.mark.parametrize("name", KINKED)
@pytest.mark.parametrize("variance", [1e-12, 1.0, 1e6])
def test_functions_with_a_kink_at_zero_against_the_closed_form(name, variance):
    """a·x for x > 0 and b·x for x < 0 is (a − b)·relu(x) + b·x."""
    a, b = KINKED[name]
    dual = Quadrature(lambda x: torch.where(x > 0, a * x, b * x)).fitted(lambda _: [tensor(variance)])
    cosine = tensor(-1.0, -0.7, 0.0, 0.6, 0.999999, 1.0)
    at = Correlation(cosine, 1 - cosine, 1 + cosine)
    moments = dual.moments(tensor(variance))
    got, relu = dual.pair(at, moments, moments), ReLU().pair(at, moments, moments)
    value = (a - b) ** 2 * relu.value + (b * (a - b) + b**2) * cosine
    slope = (a - b) ** 2 * relu.slope + b * (a - b) + b**2
    stated = float(dual.error(tensor(variance))[0])
    assert stated < 1e-7
    size = variance * (a**2 + b**2) / 2
    assert ((got.value - variance * value).abs() <= stated * size).all()
    assert ((got.slope - variance * slope).abs() <= stated * size).all()


def test_kinks_are_found_and_their_averages_are_closed_forms():
    assert find_hinges(F.hardtanh).pairs == ((-1.0, 1.0), (1.0, -1.0))
    assert find_hinges(nn.LeakyReLU(0.3)).pairs == ((0.0, 0.7),)
    shifted = find_hinges(lambda x: (x - 1 / 3).abs() + torch.relu(x - math.pi))
    np.testing.assert_allclose(shifted.places, (1 / 3, math.pi), rtol=1e-12)
    np.testing.assert_allclose(shifted.jumps, (2, 1), rtol=1e-12)
    for smooth in (torch.tanh, F.gelu, torch.sin, torch.erf, F.softplus, F.elu):
        assert find_hinges(smooth).pairs == ()
    generator = np.random.default_rng(0)
    for _ in range(200):
        h, k, rho = *generator.normal(size=2).tolist(), float(generator.uniform(-0.9, 0.9))
        value, corner = hinges_pair(tensor(h), tensor(k), tensor(1 - rho), tensor(1 + rho), (h < 0, k < 0))
        one, other = (hinge_coefficients(tensor(v), 400)[0] for v in (h, k))
        powers = tensor(rho) ** torch.arange(400)
        assert float(value) == pytest.approx(float((one * other * powers).sum()), abs=1e-12)
        order = torch.arange(1, 400)
        assert float(corner) == pytest.approx(float((order * (one * other)[1:] * powers[:-1]).sum()), abs=1e-12)


@pytest.mark.parametrize("function", [F.hardtanh, F.relu6, F.softshrink, F.elu, F.selu, F.hardswish, torch.tanh])
@pytest.mark.parametrize("sigma_u", [0.1, 1.0, 3.0])
def test_the_stated_error_bounds_the_error(function, sigma_u):
    """Coarse duals against the finest, at variances and correlations drawn to break the bound."""
    generator = torch.Generator().manual_seed(0)
    variances = sigma_u**2 * torch.rand(2, 60, generator=generator, dtype=torch.float64)
    delta = 10 ** (-6 * torch.rand(60, generator=generator, dtype=torch.float64))
    at = Correlation(1 - delta, delta, 2 - delta)
    fine = Quadrature(function, MOST)
    best = [fine.moments(v) for v in variances]
    truth = fine.pair(at, *best)
    allowed = torch.maximum(*(fine.error(v) for v in variances))
    for terms in (16, 64, 256):
        dual = Quadrature(function, terms)
        got = dual.pair(at, *(dual.moments(v) for v in variances))
        stated = torch.maximum(*(dual.error(v) for v in variances)) + allowed
        sizes = best[0].root * best[1].root, (best[0].slope * best[1].slope).abs().sqrt()
        # What is not smaller than the number itself is refused, and bounds nothing: a flat place between hinges.
        refused = stated > 1
        assert int(refused.sum()) < 60
        assert (((got.value - truth.value).abs() <= stated * sizes[0]) | refused).all()
        assert (((got.slope - truth.slope).abs() <= stated * sizes[1]) | refused).all()


def test_kernels_of_large_inputs_are_right_or_refused():
    x = 3 * np.random.default_rng(0).normal(size=(3, 4))
    erf, series = RecurrentNTK(activation="erf"), RecurrentNTK(activation=torch.erf)
    np.testing.assert_allclose(series(x), erf(x), rtol=1e-9)
    assert series.quadrature_error(x) < 1e-11
    tanh = RecurrentNTK(activation=torch.tanh)
    assert tanh.quadrature_error([[8.0, 5.0]]) < LIMIT
    with pytest.raises(
        InputError, match=r"averages converge to 0.0001, got a relative error of .* deviation of 3.*scale"
    ):
        tanh([[30.0, 30.0]])
    for method in (tanh.diag, tanh.log_diag, tanh.quadrature_error):
        with pytest.raises(InputError, match="expected an activation whose averages converge"):
            method([[30.0, 30.0]])
    for jump in (torch.sign, lambda x: (x > 0.3).double(), lambda x: torch.sin(300 * x)):
        with pytest.raises(InputError, match="expected an activation whose averages converge"):
            RecurrentNTK(activation=jump)(x)


@pytest.mark.parametrize("function", [torch.relu, F.leaky_relu, torch.abs], ids=lambda f: f.__name__)
def test_kernels_of_kinked_functions_and_their_gradients(function):
    x = np.random.default_rng(1).normal(size=(3, 5))
    kernel = RecurrentNTK(2, function, sigma_b=0.1)
    stated = kernel.quadrature_error(x)
    assert stated < 1e-7
    np.testing.assert_allclose(kernel.diag(x), np.diag(kernel(x)), rtol=100 * stated)
    if function is torch.relu:
        closed = RecurrentNTK(2, "relu", sigma_b=0.1)
        np.testing.assert_allclose(kernel(x), closed(x), rtol=100 * stated)
        np.testing.assert_allclose(kernel.sensitivity(x[0], x[1]), closed.sensitivity(x[0], x[1]), rtol=1e-6)
        gradients = [each(x, eval_gradient=True)[1] for each in (kernel, closed)]
        off = ~np.eye(3, dtype=bool)
        np.testing.assert_allclose(gradients[0][off], gradients[1][off], rtol=1e-6, atol=1e-7)
