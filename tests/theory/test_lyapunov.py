"""Lyapunov matrices and transient growth: the equations hold, bounds bound, and the corrected lemmas are tested."""

# ruff: noqa: N806 (matrices have the papers' letters)

import numpy as np
import pytest
import scipy.linalg
import torch

from sostenuto.checks import InputError
from sostenuto.nn import GRU, LSTM, ResidualGRU
from sostenuto.theory.lyapunov import lyapunov
from sostenuto.theory.transient import norms_over_time, transient_growth

JORDAN = torch.tensor([[-1.0, 10.0], [0.0, -1.0]])


def hurwitz(seed, size=None):
    rng = np.random.default_rng(seed)
    size = size or int(rng.integers(1, 13))
    A = rng.normal(size=(size, size)) * rng.uniform(0.1, 3)
    A = np.triu(A, 1) * rng.uniform(0, 4) + np.tril(A)
    return torch.from_numpy(A - (np.linalg.eigvals(A).real.max() + rng.uniform(0.05, 2)) * np.eye(size))


def schur(seed):
    A = hurwitz(seed)
    return A / (torch.linalg.eigvals(A).abs().max() * np.random.default_rng(seed).uniform(1.02, 2))


def test_the_papers_counterexample():
    """Lemma A.8 says ‖P‖ ≤ 1/(2β₀) = ½; it is 25.7, and the norm rises to 3.7 before it decays."""
    found = lyapunov(JORDAN)
    assert found.norm == pytest.approx(25.7475, abs=1e-3)
    assert found.transient.peak == pytest.approx(3.69, abs=0.03)
    assert found.transient.abscissa == -1
    assert found.transient.initial == 4


@pytest.mark.parametrize("discrete", [False, True])
def test_matrices_solve_their_equation(discrete):
    for seed in range(100):
        A = schur(seed) if discrete else hurwitz(seed)
        found = lyapunov(A, discrete=discrete)
        a, eye = A.numpy(), np.eye(len(A))
        want = scipy.linalg.solve_discrete_lyapunov(a.T, eye) if discrete else None
        want = scipy.linalg.solve_continuous_lyapunov(a.T, -eye) if want is None else want
        assert np.allclose(found.P.numpy(), want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
        assert found.residual < 1e-8
        assert found.least > 0


def test_corrected_lemmas_hold_on_random_matrices():
    for seed in range(100):
        A = hurwitz(seed)
        found = lyapunov(A)
        size = torch.linalg.matrix_norm(A, 2).item()
        assert found.least >= 1 / (2 * size) * (1 - 1e-9)  # (65), corrected
        numerical = torch.linalg.eigvalsh((A + A.T) / 2)[-1].item()
        if numerical < 0:
            assert found.norm <= 1 / (-2 * numerical) * (1 + 1e-9)  # A.8, under the condition it needs
        share = 0.9
        radius = found.basin_radius(share)
        generator = torch.Generator().manual_seed(seed)
        v = torch.randn(50, len(A), generator=generator, dtype=torch.float64)
        v = radius * v / v.norm(dim=-1, keepdim=True) * torch.rand(50, 1, generator=generator).sqrt()
        bent = v * v * (v @ A.T)
        assert bool((2 * (v @ found.P * bent).sum(-1).abs() <= share * v.square().sum(-1) + 1e-15).all())


def test_normal_matrices_have_the_bound_of_the_lemma():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(6, 6))
    A = torch.from_numpy(M - M.T - 0.3 * np.eye(6))
    found = lyapunov(A)
    assert found.norm == pytest.approx(1 / 0.6, rel=1e-9)
    assert found.transient.peak_bound <= 1.0 + 1e-9
    assert found.condition == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("discrete", [False, True])
def test_growth_is_bracketed(discrete):
    """Against a fine grid: the peak is a norm that occurs, the bound is never exceeded, Kreiss' constant lies below."""
    for seed in range(30):
        A = schur(seed) if discrete else hurwitz(seed)
        found = transient_growth(A, discrete=discrete)
        slowest = -np.log(found.abscissa) if discrete else -found.abscissa
        end = min(20 / slowest, 400)
        times = torch.arange(0.0, max(end, 3)) if discrete else torch.linspace(0, end, 300)
        norms = norms_over_time(A, times, discrete=discrete)
        assert float(norms.max()) <= found.peak_bound * (1 + 1e-9)
        assert found.peak <= found.peak_bound <= 1.02 * found.peak
        there = norms_over_time(A, torch.tensor([found.peak_time]), discrete=discrete)
        assert float(there) == pytest.approx(found.peak, rel=1e-6)
        assert 1 <= found.kreiss <= found.peak_bound * (1 + 1e-9)
        assert found.peak_bound <= np.e * len(A) * found.kreiss * 3
        assert found.peak <= lyapunov(A, discrete=discrete).overshoot * (1 + 1e-9)


def test_solutions_stay_within_what_p_promises():
    for seed in range(30):
        A = hurwitz(seed, size=5)
        found = lyapunov(A)
        for time in (0.1, 1.0, 5.0):
            norm = torch.linalg.matrix_norm(torch.matrix_exp(time * A), 2).item()
            assert norm <= found.overshoot * np.exp(-found.rate * time) * (1 + 1e-9)
        F = schur(seed)
        stepped = lyapunov(F, discrete=True)
        for k in (1, 5, 40):
            norm = torch.linalg.matrix_norm(torch.linalg.matrix_power(F, k), 2).item()
            assert norm <= stepped.overshoot * np.exp(-stepped.rate * k) * (1 + 1e-9)


def test_level_sets_are_ellipsoids():
    found = lyapunov(JORDAN)
    lengths, directions = found.level_set(2.0)
    assert lengths[0] > lengths[1]
    ends = (directions * lengths).T
    assert torch.allclose(found.value(ends), torch.full((2,), 2.0).double())


def test_layers_are_linearized():
    torch.manual_seed(0)
    layer = ResidualGRU(2, 4, dtype=torch.float64)
    h, x = torch.randn(4).double(), torch.randn(2).double()
    found = lyapunov(layer, state=h, input=x)
    want = torch.autograd.functional.jacobian(lambda now: layer.vector_field(now, x), h)
    assert torch.allclose(found.matrix, want)
    assert not found.discrete
    small = GRU(2, 4, dtype=torch.float64)
    stepped = lyapunov(small)
    assert stepped.discrete
    assert stepped.matrix.shape == (4, 4)
    assert lyapunov(LSTM(2, 3, num_layers=2)).matrix.shape == (12, 12)


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (torch.eye(2), {}, "not applicable: spectral abscissa < 0 fails (1)"),
        (torch.eye(2), {"discrete": True}, "not applicable: spectral radius < 1 fails (1)"),
        (torch.full((1, 1), torch.nan), {}, "expected finite numbers in the matrix"),
        (torch.nn.Linear(2, 2), {}, "expected a recurrent layer of sostenuto or a matrix, got Linear"),
    ],
)
def test_what_has_no_lyapunov_matrix_is_refused(matrix, options, message):
    with pytest.raises(InputError) as caught:
        lyapunov(matrix, **options)
    assert message in str(caught.value)
