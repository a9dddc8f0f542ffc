"""Certificates against brute force: no simulation may contradict one."""

# ruff: noqa: N803, N806 (matrices have the papers' letters)

import importlib.util
import sys

import mpmath
import numpy as np
import pytest
import torch

from sostenuto.benchmarks.certificates import certificates, largest_share, random_system, rate_limits
from sostenuto.checks import InputError, MissingExtraError
from sostenuto.nn.certificates import Certificate, contraction, discrete, lure, refused
from sostenuto.nn.certificates.inequality import Solution, best_rates, distortion, form, verified
from sostenuto.nn.certificates.norms import expansion, growth
from sostenuto.nn.certificates.riccati import search_with_one_multiplier
from sostenuto.nn.certificates.semidefinite import search
from sostenuto.nn.certificates.slopes import rate_limit
from sostenuto.nn.certificates.system import sector_system

needs_cvxpy = pytest.mark.skipif(importlib.util.find_spec("cvxpy") is None, reason="needs cvxpy")

STEP = 0.1


def small_system(seed, most=6):
    for trial in range(100):
        A, W = random_system(np.random.default_rng((seed, trial)))
        if len(A) <= most:
            return A, W
    raise AssertionError("no small system drawn")


def scalar(a, w):
    return torch.tensor([[float(a)]], dtype=torch.float64), torch.tensor([[float(w)]], dtype=torch.float64)


def test_no_system_certified_by_norms_diverges():
    """2000 systems of up to 16 units, all of one size simulated at once."""
    groups = {}
    for index in range(2000):
        A, W = random_system(np.random.default_rng((7, index)))
        found = contraction(A, W)
        assert not found.holds or found.rate <= rate_limits(A, W)[0] + 1e-12
        if found.holds:
            groups.setdefault(len(A), []).append((A, W, found.rate))
    certified = sum(len(group) for group in groups.values())
    assert 500 < certified < 1000
    generator = torch.Generator().manual_seed(0)
    for units, group in groups.items():
        A, W = (torch.stack([system[i] for system in group]) for i in (0, 1))
        rate = torch.tensor([system[2] for system in group])
        h = 3 * torch.randn(2, len(group), units, generator=generator, dtype=torch.float64)
        start = (h[0] - h[1]).norm(dim=-1)
        for n in range(1, 101):
            z = torch.randn(len(group), units, generator=generator, dtype=torch.float64)
            h = h + 0.02 * runge_kutta_slope(h, z, A, W, 0.02)
            bound = start * torch.exp(-rate * 0.02 * n)
            assert bool(((h[0] - h[1]).norm(dim=-1) <= bound * (1 + 1e-6) + 1e-12).all())


def runge_kutta_slope(h, z, A, W, step):
    def field(h):
        return torch.einsum("sij,psj->psi", A, h) + torch.tanh(torch.einsum("sij,psj->psi", W, h) + z)

    first = field(h)
    second = field(h + step / 2 * first)
    third = field(h + step / 2 * second)
    return (first + 2 * second + 2 * third + field(h + step * third)) / 6


@needs_cvxpy
def test_inequalities_certify_more_than_norms_and_never_wrongly():
    counts = dict.fromkeys(("norm", "lure", "discrete norm", "discrete inequality"), 0)
    for seed in range(40):
        A, W = small_system(seed)
        limits = rate_limits(A, W)
        found = certificates(A, W)
        for test, certificate in found.items():
            stepped = "discrete" in test
            if certificate.holds:
                counts[test] += 1
                assert certificate.rate <= limits[stepped] + 1e-12, (seed, test)
                share = largest_share(A, W, certificate, step=STEP if stepped else None, seed=seed, num_steps=60)
                assert share <= 1 + 1e-6, (seed, test, share)
        assert found["lure"].holds >= found["norm"].holds
        assert found["discrete inequality"].holds >= found["discrete norm"].holds
        if found["norm"].holds:
            assert found["lure"].rate >= found["norm"].rate
    assert counts["lure"] > 1.2 * counts["norm"] > 0
    assert counts["discrete inequality"] > 1.2 * counts["discrete norm"] > 0


@needs_cvxpy
def test_the_papers_counterexample_is_refused():
    A, W = scalar(-0.1, 1)
    assert contraction(A, W).reason == "not applicable: μ₂(A) + s‖B‖₂‖W‖₂ < 0 fails (0.9)"
    assert "fails (largest real part 0.9)" in lure(A, W).reason
    assert not discrete(1 + STEP * A, W, Q=torch.full((1, 1), STEP).double()).holds
    system = sector_system(A, W, None, 1.0)
    assert search(system, discrete=False, start=0.0, limit=10.0) is None  # the inequality itself refuses it too


@needs_cvxpy
def test_the_other_sign_of_w_would_certify_systems_that_diverge():
    """The inequality with −W holds for A = −.1, W = 1, whose states move to ±10: simulation tells the signs apart."""
    rng = np.random.default_rng(0)
    for units in (1, 2, 3) * 4:
        eye = np.eye(units)
        A = torch.from_numpy(-rng.uniform(0.05, 0.5) * eye)
        W = torch.from_numpy(rng.uniform(1, 2) * eye + 0.2 * rng.normal(size=(units, units)))
        assert not lure(A, W).holds
        wrong_sign = lure(A, -W)
        assert wrong_sign.holds
        assert largest_share(A, W, wrong_sign, step=None, seed=units) > 1
        assert largest_share(A, -W, wrong_sign, step=None, seed=units) <= 1 + 1e-6
    A, W = scalar(-0.1, 1)
    assert lure(A, -W).holds
    assert largest_share(A, W, lure(A, -W), step=None, seed=0) > 1


@needs_cvxpy
def test_what_a_solver_says_is_checked():
    A, W = scalar(-1, -3)
    system = sector_system(A, W, None, 1.0)
    solution = search(system, discrete=False, start=0.0, limit=10.0)
    assert verified(system, solution, discrete=False)
    assert solution.rate == pytest.approx(1, rel=0.02)
    for false in (
        Solution(-solution.metric, solution.multipliers, solution.rate),
        Solution(solution.metric, -solution.multipliers, solution.rate),
        Solution(solution.metric, solution.multipliers, 1.0 + 1e-9),
        Solution(solution.metric * np.nan, solution.multipliers, 0.1),
        Solution(solution.metric, 1e6 * solution.multipliers, 0.1),
    ):
        assert not verified(system, false, discrete=False)


@needs_cvxpy
def test_a_solver_that_lies_is_not_believed(monkeypatch):
    def lie(program, rate):
        return np.eye(1), np.full(1, 1e6)

    monkeypatch.setattr("sostenuto.nn.certificates.semidefinite._Program.solve", lie)
    A, W = scalar(-0.5, -3)
    answer = lure(A, W)
    assert not answer.holds
    assert answer.reason.endswith("fails (the solver finds no pair that passes the check)")


@pytest.mark.parametrize("stepped", [False, True])
def test_the_form_is_the_growth_of_the_norm(stepped):
    """Quadratic form at (δ, φ) = V′ + 2rV + 2Σλφ(sCδ − φ), written out by hand."""
    rng = np.random.default_rng(0)
    A, B, C = rng.normal(size=(3, 3)), rng.normal(size=(3, 2)), rng.normal(size=(2, 3))
    system = sector_system(*(torch.from_numpy(m) for m in (A, C, B)), 0.7)
    root = rng.normal(size=(3, 3))
    metric, multipliers, rate = root @ root.T, rng.uniform(size=2), 0.3
    whole, _ = form(system, metric, multipliers, rate, discrete=stepped)
    change, units = rng.normal(size=3), rng.normal(size=2)
    moved = A @ change + B @ units
    sector = 2 * (multipliers * units * (0.7 * C @ change - units)).sum()
    if stepped:
        want = moved @ metric @ moved - np.exp(-2 * rate) * change @ metric @ change + sector
    else:
        want = 2 * change @ metric @ moved + 2 * rate * change @ metric @ change + sector
    both = np.concatenate([change, units])
    assert both @ whole @ both == pytest.approx(want, rel=1e-12)


@needs_cvxpy
@pytest.mark.parametrize("stepped", [False, True])
def test_the_best_rate_is_where_the_form_stops_being_negative(stepped):
    A, W = small_system(11, most=4)
    eye = torch.eye(len(A)).double()
    system = sector_system(eye + STEP * A, W, STEP * eye, 1.0) if stepped else sector_system(A, W, None, 1.0)
    limit = rate_limit(system, discrete=stepped)
    solution = search(system, discrete=stepped, start=0.0, limit=limit)
    (best,) = best_rates(system, solution.metric, solution.multipliers[None], discrete=stepped)
    for share, negative in ((0.999, True), (1.001, False)):
        whole, _ = form(system, solution.metric, solution.multipliers, share * best, discrete=stepped)
        assert (np.linalg.eigvalsh(whole)[-1] < 0) == negative


def test_without_the_solver_norms_decide_and_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    A, W = scalar(-3, 1)
    answer = lure(A, W)
    assert (answer.holds, answer.test, answer.rate) == (True, "norm", contraction(A, W).rate)
    assert "alone; the matrix inequality needs cvxpy: pip install 'sostenuto[certificates]'" in answer.checked
    refusal = lure(*scalar(-1, -3))
    assert not refusal.holds
    assert "needs cvxpy" in refusal.reason
    assert "needs cvxpy" in discrete(*scalar(0.5, -3), Q=torch.full((1, 1), 0.3).double()).reason
    with pytest.raises(MissingExtraError, match=r"pip install 'sostenuto\[certificates\]'"):
        search(sector_system(A, W, None, 1.0), discrete=False, start=0.0, limit=1.0)


@needs_cvxpy
@pytest.mark.parametrize("stepped", [False, True])
def test_one_multiplier_proves_less_than_many_and_more_than_norms(stepped):
    more = 0
    for seed in range(30):
        A, W = small_system(seed)
        eye = torch.eye(len(A)).double()
        system = sector_system(eye + STEP * A, W, STEP * eye, 1.0) if stepped else sector_system(A, W, None, 1.0)
        limit = rate_limit(system, discrete=stepped)
        if limit <= 0:
            continue
        found = search_with_one_multiplier(system, discrete=stepped, limit=limit)
        many = search(system, discrete=stepped, start=0.0, limit=limit)
        norm = -np.log(expansion(system)[0]) if stepped else -growth(system)[0]
        if found is None:
            assert norm < 1e-6
            continue
        assert verified(system, found, discrete=stepped)
        assert found.rate <= limit
        assert found.rate <= 1.02 * many.rate
        assert found.rate >= 0.97 * norm
        more += norm < 0
    assert more >= 3


@needs_cvxpy
def test_large_systems_have_one_multiplier_and_say_so():
    rng = np.random.default_rng(0)
    units = 80
    skew = rng.normal(size=(units, units)) / np.sqrt(units)
    A = torch.from_numpy(-1.5 * np.eye(units) + skew - skew.T)
    W = torch.from_numpy(0.8 * rng.normal(size=(units, units)) / np.sqrt(units) - 0.5 * np.eye(units))
    assert not contraction(A, W).holds
    answer = lure(A, W)
    assert (answer.holds, answer.test) == (True, "riccati equation")
    assert "Λ = λI, as there are more than 64 states and units" in answer.checked
    assert largest_share(A, W, answer, step=None, seed=0, num_steps=50) <= 1 + 1e-6
    eye = torch.eye(units).double()
    stepped = discrete(eye + 0.01 * A, W, Q=0.01 * eye)
    assert (stepped.holds, stepped.test) == (True, "riccati equation")
    assert largest_share(A, W, stepped, step=0.01, seed=0, num_steps=50) <= 1 + 1e-6
    assert lure(-2 * torch.eye(33), torch.eye(33)).holds
    refusal = lure(A, -4 * W)
    assert not refusal.holds


def test_euler_needs_its_own_certificate():
    turn = torch.tensor([[-0.1, 10.0], [-10.0, -0.1]], dtype=torch.float64)
    eye, W = torch.eye(2).double(), 0.01 * torch.eye(2).double()
    assert contraction(turn, W).holds
    assert "largest modulus 1.041" in discrete(eye + 0.03 * turn, W, Q=0.03 * eye).reason
    assert discrete(eye + 0.001 * turn, W, Q=0.001 * eye).holds


@pytest.mark.parametrize(
    ("slope", "push", "holds"), [("tanh", 1.2, False), ("logistic", 3.9, True), ("relu", 0.9, True)]
)
def test_slopes_count(slope, push, holds):
    assert contraction(*scalar(-1, push), slope).holds == holds
    assert lure(*scalar(-1, push), slope).holds == holds
    F = torch.zeros(1, 1).double()
    assert discrete(F, scalar(0, push)[1], slope).holds == holds


def test_the_identity_is_judged_by_its_eigenvalues():
    A, W = torch.tensor([[0.0, 10.0], [0.0, 0.0]]).double(), -torch.eye(2).double()
    assert not contraction(A, W, "identity").holds
    answer = lure(A, W, "identity")
    assert (answer.holds, answer.test) == (True, "linear")
    assert answer.rate == pytest.approx(1, rel=0.02)
    for time in (0.5, 1, 5, 20):
        assert torch.linalg.matrix_norm(torch.matrix_exp(time * (A + W)), 2) <= answer.overshoot * np.exp(
            -answer.rate * time
        )
    F = torch.eye(2).double() + STEP * A
    stepped = discrete(F, W, "identity", Q=STEP * torch.eye(2).double())
    assert stepped.rate == pytest.approx(-np.log(0.9), rel=0.02)
    power = torch.linalg.matrix_power(F + STEP * W, 30)
    assert torch.linalg.matrix_norm(power, 2) <= stepped.overshoot * np.exp(-30 * stepped.rate)
    assert not lure(-A - A.T, -W, "identity").holds


def test_a_map_that_forgets_in_two_steps_has_a_certificate():
    F = torch.tensor([[0.0, 5.0], [0.0, 0.0]]).double()
    assert discrete(F, torch.zeros(2, 2).double()).holds


@needs_cvxpy
def test_oscillators_that_are_damped_enough():
    """A coupled oscillator network: the norm test cannot hold (μ₂(A) ≥ 0), the inequality can."""
    rng = np.random.default_rng(0)
    units, gamma, epsilon = 3, 2.0, 2.0
    eye, zero = np.eye(units), np.zeros((units, units))
    A = torch.from_numpy(np.block([[zero, eye], [-gamma * eye, -epsilon * eye]]))
    B = torch.from_numpy(np.concatenate([zero, eye]))
    C = torch.from_numpy(0.4 * rng.normal(size=(units, 2 * units)))
    assert not contraction(A, C, B=B).holds
    answer = lure(A, C, B=B)
    assert answer.holds
    assert answer.overshoot > 1
    assert not lure(A, 10 * C, B=B).holds
    h = torch.randn(2, 50, 2 * units, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = (h[0] - h[1]).norm(dim=-1)
    for n in range(1, 2001):
        z = 2 * torch.sin(torch.arange(units) + 0.003 * n)
        h = h + 0.005 * (h @ A.T + torch.tanh(h @ C.T + z) @ B.T)
        assert ((h[0] - h[1]).norm(dim=-1) <= 1.01 * answer.overshoot * np.exp(-answer.rate * 0.005 * n) * first).all()


def test_a_unit_without_linear_part_never_contracts_under_every_input():
    W = torch.tensor([[-1.0, 5.0], [-5.0, -1.0]]).double()
    assert "largest real part" in lure(torch.zeros(2, 2).double(), W).reason
    assert not discrete(torch.eye(2).double(), W, Q=0.01 * torch.eye(2).double()).holds


@needs_cvxpy
def test_records_survive_json_and_say_what_was_checked():
    answer = lure(*scalar(-1, -3))
    assert Certificate.from_dict(answer.to_dict()) == answer
    assert answer.summary().startswith("Certified (lure, matrix inequality test) for every input: [[AᵀP")
    gone = refused("lure", "the form h′ = Ah + Bσ(Ch + z)", "a gate multiplies the state")
    assert gone.summary().endswith("fails (a gate multiplies the state).")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.zeros(2, 3), torch.zeros(2, 2)), {}, "expected a square A"),
        ((torch.zeros(2, 2), torch.zeros(2, 3)), {}, "expected W to have 2 columns"),
        ((torch.zeros(2, 2), torch.zeros(3, 2)), {}, "expected W of shape (2, 2) where B is left out"),
        ((torch.zeros(2, 2), torch.zeros(3, 2)), {"B": torch.zeros(3, 2)}, "expected B of shape (2, 3)"),
        ((torch.full((1, 1), torch.nan), torch.zeros(1, 1)), {}, "expected finite numbers in A"),
        ((torch.zeros(1, 1), torch.zeros(1, 1), "gelu"), {}, "expected slope to be one of 'tanh'"),
        ((torch.zeros(1, 1), torch.zeros(1, 1), (1.0, 0.0)), {}, "expected a finite least slope"),
    ],
)
def test_wrong_matrices_are_refused(arguments, options, message):
    from sostenuto.nn.certificates.system import sector_system as build

    A, W, slope = (*arguments, 1.0)[:3]
    with pytest.raises(InputError) as caught:
        build(A, W, options.get("B"), slope)
    assert message in str(caught.value)


@pytest.mark.parametrize("scale", [1e4, 1e12])
def test_overshoot_is_a_number_in_every_unit(scale):
    """States in units that are far apart: rounding hides the least eigenvalue of P, and its bound does not."""
    units = torch.tensor([1.0, scale, scale**0.5]).double()
    A = torch.tensor([[-2.0, 0.5, 0.2], [0.1, -2.0, 0.3], [0.4, 0.2, -2.0]]).double()
    turned = A * units[:, None] / units
    answer = lure(turned, torch.zeros(3, 3).double())
    assert answer.holds
    largest = max(float(torch.linalg.matrix_norm(torch.matrix_exp(t * turned), 2)) for t in (0.05, 0.2, 0.5))
    assert largest <= answer.overshoot < np.inf


def test_distortion_bounds_the_condition():
    draw = np.random.default_rng(0)
    for power in (0, 3, 12):
        root = draw.normal(size=(4, 4))
        metric = root @ root.T * np.outer(*(10.0 ** (power * np.array([0, -1, 1, 0.5])),) * 2)
        with mpmath.workdps(60):
            values = mpmath.eigsy(mpmath.matrix(metric.tolist()), eigvals_only=True)
            assert distortion(metric) >= mpmath.sqrt(max(values) / min(values))
