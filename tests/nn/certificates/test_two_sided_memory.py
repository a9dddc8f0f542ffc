"""Two-sided bounds of dense and independent recurrences, attacked by random, greedy and corner slopes."""

# ruff: noqa: N806 (matrices have the papers' letters)

import importlib.util
from fractions import Fraction

import numpy as np
import pytest
import torch

from sostenuto import nn as layers
from sostenuto.nn.certificates import LevelDecay, discrete, lure, remembering
from sostenuto.nn.certificates.inequality import Solution, is_negative, verified
from sostenuto.nn.certificates.system import SectorSystem
from sostenuto.nn.certificates.two_sided import fastest, slow_field, slowest
from sostenuto.nn.map_memory import slope_range

needs_cvxpy = pytest.mark.skipif(importlib.util.find_spec("cvxpy") is None, reason="needs cvxpy")


def small_map(seed):
    """A step of a random Lipschitz, residual or plain unit with 2 to 6 states."""
    draw = np.random.default_rng(seed)
    n, step = int(draw.integers(2, 7)), float(np.exp(draw.uniform(-4, -0.7)))
    A = draw.normal(size=(n, n)) / np.sqrt(n)
    A = A - A.T - draw.uniform(0, 2) * np.eye(n)
    W = draw.normal(size=(n, n)) / np.sqrt(n) * draw.uniform(0.1, 1.0)
    return SectorSystem(np.eye(n) + step * A, step * np.eye(n), W, 1.0)


def size(metric, delta):
    return float(np.sqrt(delta @ metric @ delta))


def attack(system, metric, rate, sign, draw):
    """Choose slopes greedily, corner by corner, and at random; give the worst change of a step beyond the rate."""
    n, units = system.input.shape
    delta, worst = draw.normal(size=n), -np.inf
    for _ in range(20):
        before, trials = size(metric, delta), []
        slopes = draw.integers(0, 2, units).astype(float)
        for _ in range(2):
            for i in range(units):
                options = []
                for k in (0.0, 1.0):
                    slopes[i] = k
                    options.append(sign * size(metric, system.at(slopes) @ delta))
                slopes[i] = float(np.argmax(options))
        trials = [system.at(slopes) @ delta, system.at(draw.uniform(size=units)) @ delta]
        changes = [np.log(size(metric, one) / before) for one in trials]
        worst = max(worst, *(sign * change for change in changes))
        delta = trials[0] / size(metric, trials[0])
    return worst - sign * -rate


@pytest.mark.parametrize("solver", [False, pytest.param(True, marks=needs_cvxpy)])
def test_no_slopes_break_either_side(solver, monkeypatch):
    if not solver:
        monkeypatch.setattr("sostenuto.nn.certificates.two_sided.has_solver", lambda: False)
    draw, below, above = np.random.default_rng(0), 0, 0
    for seed in range(4 if solver else 30):
        system = small_map(seed)
        one, other = fastest(system), slowest(system)
        if one is not None:
            below += 1
            assert attack(system, one.metric, one.rate, -1.0, draw) <= 1e-9, seed
        if other is not None:
            above += 1
            assert attack(system, other.metric, other.rate, 1.0, draw) <= 1e-9, seed
            assert one is None or one.rate >= other.rate
    assert below >= (3 if solver else 20)
    assert above >= (1 if solver else 6)


@needs_cvxpy
def test_the_solver_proves_more_than_norms(monkeypatch):
    system = small_map(3)
    with_solver = fastest(system)
    monkeypatch.setattr("sostenuto.nn.certificates.two_sided.has_solver", lambda: False)
    assert with_solver.rate <= fastest(system).rate * (1 + 1e-9)


def test_what_a_map_can_erase_has_no_lower_side():
    singular = SectorSystem(np.array([[0.5]]), np.array([[1.0]]), np.array([[-0.8]]), 1.0)
    assert fastest(singular) is None
    assert slowest(singular).rate > 0.6


def test_a_pair_is_checked_exactly():
    """Cholesky's method with its margin agrees with fractions: what is nearly singular is refused, on either side."""
    near = np.array([[-1.0, 1.0 - 1e-13], [1.0 - 1e-13, -1.0]])
    assert is_negative(near, np.zeros((2, 2)))
    assert not is_negative(np.array([[-1.0, 1.0], [1.0, -1.0]]), np.zeros((2, 2)))
    assert not is_negative(near, np.full((2, 2), 1e-12))
    found = fastest(small_map(5))
    system = small_map(5)
    half = Solution(found.metric, np.ones(system.input.shape[1]), found.rate / 2)
    assert not verified(system, half, discrete=True, lower=True)


@pytest.mark.parametrize("seed", range(4))
def test_a_proved_rate_holds_in_fractions(seed):
    """The norm's inequality for corner slopes, V⁺ − ρ²V ≥ 0, in exact arithmetic: all leading minors are positive."""
    system = small_map(seed)
    found = fastest(system)
    if found is None:
        pytest.skip("nothing is proved of this one")
    X = exact(found.metric)
    rho = Fraction(float(np.exp(-2 * found.rate) * (1 - 1e-15)))
    for corner in range(2 ** system.input.shape[1]):
        slopes = np.array([(corner >> i) & 1 for i in range(system.input.shape[1])], dtype=float)
        F, Q, W = (exact(part) for part in (system.linear, system.input * slopes, system.output))
        M = F + Q @ W
        assert positive(M.T @ X @ M - rho * X)


def exact(matrix):
    return np.vectorize(lambda value: Fraction(float(value)), otypes=[object])(matrix)


def positive(matrix):
    """Eliminate in fractions."""
    matrix = matrix.copy()
    for i in range(len(matrix)):
        if matrix[i, i] <= 0:
            return False
        for j in range(i + 1, len(matrix)):
            matrix[j] = matrix[j] - matrix[i] * (matrix[j, i] / matrix[i, i])
    return True


def test_steps_between_two_sizes_are_covered():
    draw = np.random.default_rng(1)
    for seed in range(60):
        system = small_map(seed)
        field = SectorSystem(system.linear - np.eye(len(system.linear)), system.input, system.output, 1.0)
        rate = slow_field(field, 2.0)
        if rate is None:
            continue
        for _ in range(50):
            delta = draw.normal(size=len(field.linear))
            moved = (
                delta + draw.uniform(0, 2) * field.at(draw.integers(0, 2, field.input.shape[1]).astype(float)) @ delta
            )
            assert np.linalg.norm(moved) >= np.exp(-rate) * np.linalg.norm(delta) * (1 - 1e-12)


@needs_cvxpy
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e6])
def test_certificates_do_not_see_units(scale):
    """A decoupled stable system in units that are 10⁴ apart, in time or in state, is certified as in equal ones."""
    slow = torch.tensor([[-1.0, 0.3], [-0.2, -1.0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    A = torch.block_diag(slow, scale * slow)
    assert lure(A, 0.9 * torch.block_diag(eye, scale * eye)).holds
    T = torch.diag(torch.tensor([1.0, 1.0, scale, scale], dtype=torch.float64))
    both = torch.block_diag(slow, slow)
    W = 0.7 * torch.eye(4, dtype=torch.float64) @ T.inverse()
    assert lure(both, W, B=T).holds
    found = discrete(torch.eye(4, dtype=torch.float64) + 0.1 * both, W, Q=0.1 * T)
    assert found.holds
    assert found.rate == pytest.approx(0.0297, rel=0.05)


NOTHING = ("ExpRNN", "SRU", "LSTM", "GRU", "ResidualGRU", "ResidualLSTM")
OPTIONS = {
    "LipschitzRNN": {"gamma": 1.5},
    "ResidualRNN": {"step_size": 0.1},
    "AntisymmetricRNN": {"gamma": 0.01, "step_size": 0.01},
}


@pytest.mark.parametrize("name", sorted(set(layers.__all__) - {"LAYERS", "RecurrentLayer"}))
def test_every_layer_keeps_what_is_proved_of_it(name):
    """Pairs of states and one input, in float64: neither side is broken in the Euclidean norm."""
    torch.manual_seed(0)
    layer = getattr(layers, name)(2, 6, dtype=torch.float64, **OPTIONS.get(name, {}))
    found = layer.memory_certificate()
    if name in NOTHING:
        assert not found.holds
        assert "not provable, because" in found.summary()
        return
    if name in ("DampedOscillators", "Stack"):
        pytest.skip("has tests of its own")
    assert found.holds
    x = torch.randn(30, 40, 2, dtype=torch.float64)
    shape = [torch.randn(1, 40, 6, dtype=torch.float64) for _ in range(2 * len(layer.state_names))]
    half = len(shape) // 2
    states = [tuple(shape[:half]), tuple(shape[half:])]
    start = torch.cat([a - b for a, b in zip(*states, strict=True)], -1).norm(dim=-1)
    ends = [layer(x, state if half > 1 else state[0])[1] for state in states]
    ends = [end if isinstance(end, tuple) else (end,) for end in ends]
    left = (torch.cat([a - b for a, b in zip(*ends, strict=True)], -1).norm(dim=-1) / start).detach()
    low, high = found.curves([30], euclidean=True)
    assert float(left.min()) >= low[0] * (1 - 1e-9)
    assert float(left.max()) <= high[0] * (1 + 1e-9)


def test_independent_linear_units_are_exact():
    layer = layers.StableRNN(1, 8, activation="identity", integrator="exact", dtype=torch.float64)
    found = layer.memory_certificate()
    factors = torch.exp(layer.step_size * layer.weight_hh_l0).detach().numpy()
    assert np.allclose(found.per_unit, np.log(2) / -np.log(factors), rtol=1e-12)
    assert found.remembers_at_least == pytest.approx(np.log(2) / -np.log(factors.min()), rel=1e-12)
    assert found.forgets_at_most == pytest.approx(np.log(2) / -np.log(factors.max()), rel=1e-12)
    wide = layer.memory_certificate(spans=(0.5, 2.0))
    assert wide.remembers_at_least == pytest.approx(found.remembers_at_least / 2, rel=1e-9)
    assert wide.forgets_at_most == pytest.approx(found.forgets_at_most * 2, rel=1e-9)


def test_a_span_that_folds_a_unit_over_has_no_lower_side():
    """1 + εw passes through 0 between the shortest and the longest step, though neither step itself erases anything."""
    layer = layers.StableRNN(1, 1, activation="identity", reparametrization="direct", step_size=1.0)
    with torch.no_grad():
        layer.weight_hh_l0 = torch.tensor([-1.0])
    assert layer.memory_certificate(spans=0.5).remembers_at_least > 0
    assert layer.memory_certificate(spans=1.5).remembers_at_least > 0
    assert layer.memory_certificate(spans=(0.5, 1.5)).remembers_at_least == 0


def test_a_drive_keeps_slopes_open():
    assert slope_range("tanh", 0.5)[0] == pytest.approx(1 / np.cosh(0.5) ** 2)
    assert slope_range("logistic", 1.0)[0] == pytest.approx(np.exp(1) / (1 + np.exp(1)) ** 2)
    assert slope_range("hardtanh", 1.0) == (1.0, 1.0)
    torch.manual_seed(0)
    layer = layers.StableRNN(1, 4)
    assert layer.memory_certificate().forgets_at_most is None
    found = layer.memory_certificate(drive=1.0)
    assert found.forgets_at_most is not None
    assert found.summary().startswith("While activations read within ±1, at least half")


def test_a_stack_forgets_together():
    """Two layers of factor ½, the upper one reading the lower: the bound is the exact cascade."""
    level = LevelDecay(np.log(2), np.log(2), 1.0, 1.0, 1.0)
    found = remembering([level, level], np.zeros(0), norm="", checked="")
    _, high = found.curves([1, 2, 5])
    matrix = np.array([[0.5, 0.0], [0.5, 0.5]])
    assert np.allclose(high, [(np.linalg.matrix_power(matrix, n) @ np.ones(2)).max() for n in (1, 2, 5)])
    window = found.window(1e-3)
    left = [(np.linalg.matrix_power(matrix, n) @ np.full(2, 2.0))[-1] for n in range(40)]
    assert window.steps == next(n for n in range(40) if max(left[n:]) <= 1e-3)


def test_a_drive_bounds_states_only_where_the_linear_part_shrinks_them():
    """h ← .9h + .1σ(−h + z) reaches .1A/(1 − .9) with arguments up to A, and h ← h + .1σ(−h + z) any h at all."""
    layer, eye = layers.LipschitzRNN(1, 1, step_size=0.1, bias=False, dtype=torch.float64), torch.eye(1).double()
    with torch.no_grad():
        layer.weight_linear_l0, layer.weight_hh_l0 = -eye, -eye
    found = layer.memory_certificate(drive=3.0)
    farthest = np.tanh(3.0) * 0.1 / (1 - 0.9)
    assert found.levels[0].reach >= farthest
    walking = layers.AntisymmetricRNN(1, 1, step_size=0.1, gamma=1.0)
    found = walking.memory_certificate(drive=1.0)
    assert found.forgets_at_most is not None
    assert "no bound on the states is known" in found.window(0.01).reason
    linear = layers.StableRNN(1, 1, activation="identity", step_size=0.1, dtype=torch.float64)
    with torch.no_grad():
        pull, push = -float(linear.weight_hh_l0), float(linear.weight_ih_l0)
    found = linear.memory_certificate(drive=2.0)
    assert found.levels[0].reach == pytest.approx(2.0 / pull, rel=1e-6)
    state = linear(torch.full((3000, 1, 1), 2.0 / push, dtype=torch.float64))[1]
    assert float(state.detach()) == pytest.approx(found.levels[0].reach, rel=1e-6)
    assert abs(float(state.detach())) <= found.levels[0].reach * (1 + 1e-12)


def test_dropout_between_layers_is_a_condition():
    plain, dropping = (layers.LipschitzRNN(2, 4, 2, gamma=3.0, step_size=0.1, dropout=p) for p in (0.0, 0.5))
    assert not any("dropout" in said for said in plain.memory_certificate().conditions)
    assert dropping.memory_certificate().conditions[0].startswith("eval mode: dropout")
