"""The formulas against exact products of Jacobians, and a hunt for a violation of each bound."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.theory.oscillator import (
    JacobianProduct,
    always_growth,
    always_norm,
    continuous_propagator,
    curvature_growth,
    mean_growth,
    mean_norm,
    oscillator_propagator,
    position_bound,
    resonance_growth,
    saddle_growth,
    step_jacobian,
    velocity_bound,
)

UNITS = 200
ROUNDING = 1e-9
seeds = st.integers(0, 2**31)


def curvature_range(weight, stiffness):
    """Return the least and largest q = α + w·tanh′ that any input can bring about."""
    return torch.minimum(stiffness, stiffness + weight), torch.maximum(stiffness, stiffness + weight)


def draw(generator, low, high, *, logarithmic=False, shape=(UNITS,)):
    share = torch.rand(shape, generator=generator, dtype=torch.float64)
    if logarithmic:
        return torch.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return low + share * (high - low)


def draw_units(seed, weights):
    """Steps, weights and stiffnesses of many units; a tenth have α = 0, a tenth sit just inside the stability limit."""
    generator = torch.Generator().manual_seed(seed)
    step = draw(generator, 1e-3, 2.0, logarithmic=True)
    stiffness = draw(generator, 1e-3, 100.0, logarithmic=True)
    stiffness[:20] = 0
    weight = {
        "any": draw(generator, -5.0, 5.0),
        "large": draw(generator, 10.0, 1e4, logarithmic=True),
        "negative": -draw(generator, 1e-2, 1e3, logarithmic=True),
        "small": draw(generator, -1e-6, 1e-6),
    }[weights]
    gap = draw(generator, 1e-5, 1e-1, logarithmic=True)[20:40]
    return generator, step, weight, stiffness, gap


def draw_drive(generator, steps):
    """Drives of many kinds: noise, switches, slow waves and constants, from weak to saturating."""
    size = draw(generator, 1e-2, 30.0, logarithmic=True)
    time = torch.arange(steps, dtype=torch.float64)[:, None]
    wave = torch.sin(time * draw(generator, 1e-2, 3.0, logarithmic=True))
    noise = torch.randn((steps, UNITS), generator=generator, dtype=torch.float64)
    kinds = torch.stack([noise, wave, wave.sign(), torch.ones_like(noise)])
    return size * kinds[torch.randint(0, 4, (UNITS,), generator=generator), :, torch.arange(UNITS)].T


def walk(step, weight, stiffness, drive):
    """Yield curvature, y and z after each step from zero."""
    y = z = torch.zeros_like(step)
    for pushed in drive:
        force = torch.tanh(weight * y + pushed)
        z = z - step * (force + stiffness * y)
        y = y + step * z
        yield stiffness + weight * (1 - force**2), y, z


kinds = st.sampled_from(["any", "large", "negative", "small"])


@settings(max_examples=60)
@given(seed=seeds, weights=kinds, steps=st.integers(1, 120))
def test_no_state_exceeds_its_bound(seed, weights, steps):
    generator, step, weight, stiffness, gap = draw_units(seed, weights)
    stiffness[20:40] = 4 * (1 - gap) / step[20:40] ** 2
    fits = step * stiffness.sqrt() < 2
    for n, (_, y, z) in enumerate(walk(step, weight, stiffness, draw_drive(generator, steps)), start=1):
        far, fast = position_bound(step, stiffness, n), velocity_bound(step, stiffness, n)
        assert (y.abs()[fits] <= far[fits] * (1 + ROUNDING)).all()
        assert (z.abs()[fits] <= fast[fits] * (1 + ROUNDING)).all()
        assert fast[~fits].isnan().all()
        assert far[~fits].isnan().all()
    assert fits.sum() > 60


@settings(max_examples=60)
@given(seed=seeds, weights=kinds, steps=st.integers(1, 120))
def test_no_gradient_along_a_trajectory_exceeds_its_bounds(seed, weights, steps):
    generator, step, weight, stiffness, gap = draw_units(seed, weights)
    weight[20:40] = 2 * (4 * (1 - gap) / step[20:40] ** 2 - stiffness[20:40])
    curvatures = [q for q, _, _ in walk(step, weight, stiffness, draw_drive(generator, steps))]
    # Units outside the stability limit leave the range of float64, and tanh is flat there.
    assert_bounded(step, weight, stiffness, [torch.where(q.isnan(), stiffness, q) for q in curvatures])


@settings(max_examples=60)
@given(seed=seeds, weights=kinds, steps=st.integers(1, 120))
def test_no_product_of_possible_jacobians_exceeds_its_bounds(seed, weights, steps):
    """Any curvatures between α and α + w, the extremes most of all, switched at random or in resonance."""
    generator, step, weight, stiffness, gap = draw_units(seed, weights)
    weight[20:40] = 2 * (4 * (1 - gap) / step[20:40] ** 2 - stiffness[20:40])
    low, high = curvature_range(weight, stiffness)
    share = torch.rand((steps, UNITS), generator=generator, dtype=torch.float64)
    share[:, ::2] = share[:, ::2].round()
    quarter = (torch.pi / (2 * step * high.clamp(min=1e-9).sqrt())).round().clamp(1, steps)
    turns = (torch.arange(steps)[:, None] // quarter) % 2
    share[:, 1::4] = turns[:, 1::4]
    curvatures = [low + part * (high - low) for part in share]
    assert_bounded(step, weight, stiffness, curvatures)


def assert_bounded(step, weight, stiffness, curvatures):
    product = JacobianProduct((UNITS,))
    outer, inner = always_norm(weight, stiffness), mean_norm(step, weight, stiffness)
    per_step = mean_growth(step, weight, stiffness)
    fits = (step**2 * (stiffness + weight / 2) > 0) & (step**2 * (stiffness + weight / 2) < 4)
    along = torch.zeros(UNITS, dtype=torch.float64)
    for n, q in enumerate(curvatures, start=1):
        product.multiply(step, q)
        along += curvature_growth(step, weight, stiffness, q)
        assert (product.log_norm(outer) <= n * always_growth(step, weight, stiffness) + ROUNDING).all()
        inside = product.log_norm(inner)[fits]
        assert (inside <= along[fits] + ROUNDING).all()
        assert (along[fits] <= n * per_step[fits] + ROUNDING).all()
    assert per_step[~fits].isnan().all()
    assert inner.scale[~fits].isnan().all()


@settings(max_examples=20)
@given(seed=seeds)
def test_steps_of_unequal_size_keep_the_first_bound(seed):
    generator, _, weight, stiffness, _ = draw_units(seed, "any")
    low, high = curvature_range(weight, stiffness)
    product, bound = JacobianProduct((UNITS,)), torch.zeros(UNITS, dtype=torch.float64)
    for _ in range(60):
        step = draw(generator, 1e-3, 2.0, logarithmic=True)
        product.multiply(step, torch.where(draw(generator, 0, 1) < 0.5, low, high))
        bound += always_growth(step, weight, stiffness)
        assert (product.log_norm(always_norm(weight, stiffness)) <= bound + ROUNDING).all()


@given(seed=seeds)
@settings(max_examples=20)
def test_the_third_bound_is_exact_for_one_step(seed):
    generator = torch.Generator().manual_seed(seed)
    step, mean = draw(generator, 1e-2, 1.0), draw(generator, 1e-2, 3.9)
    weight = draw(generator, -10, 10)
    stiffness = mean / step**2 - weight / 2
    low, high = curvature_range(weight, stiffness)
    q = low + draw(generator, 0, 1) * (high - low)
    product = JacobianProduct((UNITS,))
    product.multiply(step, q)
    got = product.log_norm(mean_norm(step, weight, stiffness))
    torch.testing.assert_close(got, curvature_growth(step, weight, stiffness, q), rtol=1e-8, atol=1e-10)


def test_the_first_bound_is_attained_where_the_curvature_is_most_negative():
    step, weight, stiffness = 0.3, -5.0, 1.0
    product = JacobianProduct((1,))
    product.multiply(step, torch.tensor([stiffness + weight]))
    got = product.log_norm(always_norm(weight, stiffness))
    assert got.item() == pytest.approx(always_growth(step, weight, stiffness).item(), rel=1e-12)


def test_norms_equal_those_of_plain_matrices():
    generator, step, weight, stiffness, _ = draw_units(5, "any")
    low, high = curvature_range(weight, stiffness)
    product, plain = JacobianProduct((UNITS,)), torch.eye(2, dtype=torch.float64).expand(UNITS, 2, 2)
    for _ in range(12):
        q = low + draw(generator, 0, 1) * (high - low)
        product.multiply(step, q)
        plain = step_jacobian(step, q) @ plain
    q0 = stiffness + weight / 2
    outer = torch.stack([torch.maximum(stiffness, (stiffness + weight).abs()), torch.zeros(UNITS), torch.ones(UNITS)])
    inner = torch.stack([q0, -step * q0 / 2, torch.ones(UNITS)])
    for norm, (yy, yz, zz) in ((always_norm(weight, stiffness), outer), (mean_norm(step, weight, stiffness), inner)):
        fits = ~norm.scale.isnan()
        form = torch.stack([yy, yz, yz, zz], -1).unflatten(-1, (2, 2))[fits].double()
        root = torch.linalg.cholesky(form).mT
        want = torch.linalg.matrix_norm(root @ plain[fits] @ torch.linalg.inv(root), ord=2).log()
        torch.testing.assert_close(product.log_norm(norm)[fits], want, rtol=1e-7, atol=1e-7)


def test_determinants_are_one():
    step = torch.linspace(0.01, 2, 50, dtype=torch.float64)
    determinants = torch.linalg.det(step_jacobian(step, torch.linspace(-3, 3, 50)))
    torch.testing.assert_close(determinants, torch.ones(50, dtype=torch.float64))


@pytest.mark.parametrize("turn", [0.0, 1e-3, 0.5, 1.7, 1.999])
def test_the_propagator_is_the_exact_product(turn):
    step = 0.37
    stiffness = (turn / step) ** 2
    power = torch.eye(2, dtype=torch.float64)
    for lag in range(1, 300):
        power = step_jacobian(step, stiffness) @ power
        got = oscillator_propagator(step, stiffness, lag).item()
        assert got == pytest.approx(power[0, 1].item(), rel=1e-9, abs=1e-9 * lag)


def test_the_propagator_is_not_the_papers():
    """Proposition 3.2 has t_n − t_k in its place, 15.7 after five half turns; it is 0 there."""
    step, lags = 0.01, torch.arange(1, 1571)
    got = oscillator_propagator(step, 1.0, lags)
    assert got.abs().max() < 1.001
    assert abs(got[-1].item()) < 0.01 < step * 1570
    torch.testing.assert_close(got, continuous_propagator(1.0, step * lags), rtol=0, atol=2e-3)


def test_the_propagator_needs_a_stable_step():
    with pytest.raises(InputError, match=r"not applicable: h√α < 2 fails \(2.5\)"):
        oscillator_propagator(2.5, 1.0, 3)


def test_the_printed_velocity_bound_is_false():
    """|z_n| ≤ t_n fails for a drive that pushes with the motion; the corrected bound holds."""
    step, stiffness = torch.tensor([1.8]).double(), torch.tensor([1.0]).double()
    y = z = torch.zeros(1, dtype=torch.float64)
    worst = 0.0
    for n in range(1, 200):
        z = z - step * (-torch.sign(z - step * y * stiffness + 1e-12) + stiffness * y)
        y = y + step * z
        worst = max(worst, z.abs().item() / (n * step.item()))
        assert z.abs() <= velocity_bound(step, stiffness, n) * (1 + ROUNDING)
    assert worst > 1


def test_growth_at_a_saddle_is_the_products():
    product = JacobianProduct((1,))
    for _ in range(5000):
        product.multiply(0.1, torch.tensor([-1.0]))
    rate = product.log_norm(always_norm(-2.0, 1.0)).item() / 5000
    assert rate == pytest.approx(saddle_growth(0.1, -2.0, 1.0).item(), rel=1e-3)
    assert saddle_growth(0.1, -1.0, 1.0).item() == 0


@pytest.mark.parametrize(("step", "weight", "stiffness"), [(0.1, -0.9, 1.0), (0.1, 1.0, 1.0), (0.241, 0.9, 12.53)])
def test_growth_in_resonance_is_the_worst_products(step, weight, stiffness):
    rate = resonance_growth(step, weight, stiffness).item()
    assert 0 < rate <= mean_growth(step, weight, stiffness).item()
    strong, weak = (step_jacobian(step, stiffness + slope * weight) for slope in (1.0, 1 / math.cosh(4) ** 2))
    quarters = [round(math.pi / (2 * math.acos(matrix.trace().item() / 2))) for matrix in (strong, weak)]
    worst = 0.0
    for p in (*range(1, 25), quarters[0]):
        for r in (*range(1, 25), quarters[1]):
            period = torch.linalg.matrix_power(weak, r) @ torch.linalg.matrix_power(strong, p)
            worst = max(worst, torch.linalg.eigvals(period).abs().max().log().item() / (p + r))
    assert rate == pytest.approx(worst, rel=1e-6)


def test_a_free_unit_does_not_resonate():
    steps = torch.linspace(0.01, 1.99, 100)
    assert (resonance_growth(steps, 0.0, 1.0) == 0).all()


def test_a_unit_without_any_stiffness_has_no_bound():
    assert always_growth(0.1, 0.0, 0.0).isnan()
    assert always_norm(0.0, 0.0).scale.isnan()
    assert mean_growth(0.1, -2.0, 1.0).isnan()
    assert resonance_growth(0.1, -2.0, 1.0).isnan()
