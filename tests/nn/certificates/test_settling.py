"""Units without a linear part come to rest under a constant input, or the condition that fails is named."""

# ruff: noqa: N806 (matrices have the papers' letters)

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn.certificates.settling import settling

ACTIVATIONS = {
    "tanh": torch.tanh,
    "hardtanh": torch.nn.functional.hardtanh,
    "relu": torch.relu,
    "logistic": torch.sigmoid,
    "identity": lambda v: v,
}
ENERGIES = {
    "tanh": lambda v: v.abs() + torch.log1p(torch.exp(-2 * v.abs())) - np.log(2),
    "hardtanh": lambda v: torch.where(v.abs() < 1, v**2 / 2, v.abs() - 0.5),
    "relu": lambda v: torch.relu(v) ** 2 / 2,
    "logistic": torch.nn.functional.softplus,
    "identity": lambda v: v**2 / 2,
}
"""Integrals of the activations."""


def random_weights(seed, units=5):
    rng = np.random.default_rng(seed)
    skew = rng.normal(size=(units, units))
    root = rng.normal(size=(units, units)) / units
    return torch.from_numpy(skew - skew.T - root @ root.T - rng.uniform(0.05, 1) * np.eye(units))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_certified_steps_come_to_rest(activation):
    certified = 0
    for seed in range(10):
        W, step = random_weights(seed), 0.05 * (seed % 5 + 1) / 5
        answer = settling(W, activation, step_size=step)
        assert settling(W, activation).holds
        if not answer.holds:
            assert "fails" in answer.reason
            continue
        certified += 1
        generator = torch.Generator().manual_seed(seed)
        h, z = 2 * torch.randn(2, 20, 5, generator=generator, dtype=torch.float64)
        v = h @ W.T + z
        first, energy = ACTIVATIONS[activation](v).norm(dim=-1), ENERGIES[activation](v).sum(-1)
        slope = 0.25 if activation == "logistic" else 1.0
        margin = -float(torch.linalg.eigvalsh(W + W.T + slope * step * W.T @ W)[-1]) / 2
        for n in range(1, 1501):
            speed = ACTIVATIONS[activation](v)
            h = h + step * speed
            v = h @ W.T + z
            lost = energy - ENERGIES[activation](v).sum(-1)
            assert bool((lost >= step * margin * speed.square().sum(-1) - 1e-9).all())
            energy = energy - lost
            if answer.rate is not None:
                assert bool((ACTIVATIONS[activation](v).norm(dim=-1) <= first * np.exp(-answer.rate * n) + 1e-9).all())
        if activation in ("tanh", "hardtanh", "identity") and step * margin * n > 20:
            assert torch.allclose(h, -torch.linalg.solve(W, z.T).T, atol=0.05)
    assert certified >= 3


def test_hurwitz_alone_is_refused():
    """Both eigenvalues of this matrix are −1, and large steps move for very long (wang2024, figure 11b)."""
    answer = settling(torch.tensor([[1.0, 1.0], [-4.0, -3.0]]))
    assert answer.reason == "not applicable: λ_max(W + Wᵀ) < 0 fails (3)"
    assert answer.scope == "constant input"


def test_a_step_that_is_too_long_is_refused_and_would_not_rest():
    W = torch.tensor([[-0.1, 5.0], [-5.0, -0.1]], dtype=torch.float64)
    assert settling(W, step_size=0.005).holds
    assert not settling(W, step_size=0.1).holds
    h = torch.tensor([0.1, 0.0], dtype=torch.float64)
    for _ in range(2000):
        h = h + 0.1 * torch.tanh(W @ h)
    assert float(torch.tanh(W @ h).norm()) > 0.1


def test_wrong_options_are_refused():
    with pytest.raises(InputError, match="expected activation to be one of"):
        settling(torch.eye(2), "gelu")
    with pytest.raises(InputError, match="expected step_size to be a finite number above 0"):
        settling(torch.eye(2), step_size=0.0)
