"""Bounds on decaying and fading memory against random systems, normal and far from it."""

import math

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.theory.memory_decay import (
    contraction_fading_gain,
    fading_memory_gain,
    inherited_decay_bound,
    response_decay_bound,
)

ROUNDING = 1 + 1e-9


def test_responses_of_3000_linear_systems_keep_their_bound():
    """Theorem A.4, made finite; half of the systems are far from normal, as erratum wang2024.1's is."""
    generator = torch.Generator().manual_seed(0)
    times = torch.cat([torch.linspace(0, 3, 13), torch.tensor([5.0, 10.0, 20.0])]).double()
    applicable, closest = 0, 0.0
    for index in range(3000):
        size = 1 + index % 4
        w = torch.randn(size, size, generator=generator, dtype=torch.float64)
        w = torch.triu(5 * w, 1) - torch.diag(w.diagonal().abs() + 0.1) if index % 2 else w - 1.5 * torch.eye(size)
        b, c = torch.randn(2, size, generator=generator, dtype=torch.float64)
        decay, order = float(torch.rand((), generator=generator)) * 0.5, 1 + index % 3
        bound = response_decay_bound(w, b, c, decay=decay, order=order)
        if not bound.applicable:
            assert math.isnan(bound.value)
            assert bound.terms["abscissa"] >= -decay
            continue
        applicable += 1
        flows = torch.linalg.matrix_exp(w * times[:, None, None])
        values = flows @ (torch.linalg.matrix_power(w, order - 1) @ b) @ c * torch.exp(decay * times)
        assert float(values.abs().max()) <= bound.value * ROUNDING
        closest = max(closest, float(values.abs().max()) / bound.value)
    assert applicable > 1000
    assert closest > 0.9


def test_the_spectrum_alone_would_be_no_bound():
    """Erratum wang2024.1: eigenvalues −1, −1, and a response that first grows."""
    w = torch.tensor([[-1.0, 10.0], [0.0, -1.0]], dtype=torch.float64)
    b, c = torch.eye(2, dtype=torch.float64)[[1, 0]]
    found = response_decay_bound(w, b, c, decay=0.0)
    assert found.value >= 10 * math.exp(-1)


def test_limits_of_decaying_functions_decay():
    """Lemma A.10 on random sums of exponentials, their approximants being truncated sums."""
    generator = torch.Generator().manual_seed(0)
    times = torch.linspace(0, 30, 200, dtype=torch.float64)
    for _ in range(1000):
        rates = 0.3 + 2 * torch.rand(8, generator=generator, dtype=torch.float64)
        sizes = torch.randn(8, generator=generator, dtype=torch.float64) * 0.5 ** torch.arange(8)
        parts = (sizes[:, None] * torch.exp(-rates[:, None] * times)).cumsum(0)
        errors = (parts[-1] - parts[:-1]).abs().amax(1)
        bound = inherited_decay_bound(times, size=float(sizes.abs().sum()), decay=float(rates.min()), errors=errors)
        assert (parts[-1].abs() <= bound * ROUNDING).all()
    with pytest.raises(InputError, match="expected errors of at least 0"):
        inherited_decay_bound(times, size=1.0, decay=1.0, errors=torch.tensor([-1.0]))


def test_the_gain_of_linear_functionals_is_attained_and_never_exceeded():
    generator = torch.Generator().manual_seed(0)
    for _ in range(1000):
        response = torch.randn(12, 2, generator=generator, dtype=torch.float64)
        weight = float(torch.rand((), generator=generator)) ** torch.arange(12, dtype=torch.float64)
        gain = fading_memory_gain(response, weight).value
        change = torch.randn(12, 2, generator=generator, dtype=torch.float64)
        change = change / (weight * change.norm(dim=1)).max()
        assert abs(float((response * change).sum())) <= gain * ROUNDING
        worst = response / response.norm(dim=1, keepdim=True) / weight[:, None]
        assert float((response * worst).sum()) == pytest.approx(gain, rel=1e-12)
    rising = fading_memory_gain(torch.ones(2, 1).double(), torch.tensor([0.5, 1.0]).double())
    assert rising.reason == "not applicable: 0 < w ≤ 1, falling fails (0.5)"


def test_contractions_fade():
    """2000 random recurrences h ← tanh(W h + V x): inputs that differ, also far in the past."""
    generator = torch.Generator().manual_seed(0)
    steps, systems = 40, 2000
    w, v = (torch.randn(systems, 3, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    factors = 0.9 * torch.rand(systems, generator=generator, dtype=torch.float64)
    w = w * (factors / torch.linalg.matrix_norm(w, 2))[:, None, None]
    gains = torch.linalg.matrix_norm(v, 2)
    x, other = torch.randn(2, steps, systems, 3, 1, generator=generator, dtype=torch.float64)
    states = [torch.zeros(systems, 3, 1, dtype=torch.float64) for _ in range(2)]
    for one, two in zip(x, other, strict=True):
        states = [torch.tanh(w @ state + v @ entering) for state, entering in zip(states, (one, two), strict=True)]
    apart = (states[0] - states[1]).norm(dim=(1, 2))
    distances = (x - other).norm(dim=(2, 3)).flip(0)
    for index in range(systems):
        decay = float(factors[index]) + (1 - float(factors[index])) * 0.5
        bound = contraction_fading_gain(float(factors[index]), float(gains[index]), decay=decay)
        weighted = (decay ** torch.arange(steps, dtype=torch.float64) * distances[:, index]).max()
        assert float(apart[index]) <= bound.value * float(weighted) * ROUNDING
    assert math.isnan(contraction_fading_gain(0.5, 1.0, decay=0.5).value)
