import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sostenuto.benchmarks._random_models import random_group, random_path, random_readout
from sostenuto.nn import ResidualGRU
from sostenuto.theory.bounds import remainder_bound, rkhs_norm_bound, signature_norm_bound, star_product_bound
from sostenuto.theory.discretization import discretization_bound, discretization_error, runge_kutta_bound
from sostenuto.theory.ode import ORDERS, discretize, solve
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.signature import signature
from sostenuto.theory.star_product import products_ending_in_time
from sostenuto.theory.taylor import taylor
from sostenuto.theory.tensor_field import rnn_field, tensor_field

ROUNDING = 1 + 1e-9
GROUPS = 40
MODELS = 50


def test_norms_and_star_products_of_2000_models_keep_their_bounds():
    """Erratum fermanian2021.3 and the theorems of docs/rnn_as_kernel.md; most row sums small enough."""
    applicable, tightest = 0, 0.0
    for seed in range(GROUPS):
        for index, field in enumerate(random_group(seed, MODELS, largest=0.3).fields):
            readout = random_readout(field, index)
            norm = float(rkhs_norm(field, 3, readout=readout).value)
            bound = rkhs_norm_bound(field, readout)
            order = 1 + index % 3
            product = products_ending_in_time(field, order)[-1]
            limit = star_product_bound(field, order)
            assert product.abs().max() <= limit.value * ROUNDING
            assert limit.value <= limit.terms["row_sum"] * ROUNDING
            largest = product.norm(dim=-1).max()
            assert largest <= limit.terms["euclidean"] * ROUNDING
            assert largest <= limit.terms["paper"] * ROUNDING
            if not bound.applicable:
                assert math.isnan(bound.value)
                assert math.isnan(bound.terms["row_sum"])
                continue
            applicable += 1
            tightest = max(tightest, norm / bound.value)
            assert norm <= bound.value * ROUNDING
            if not math.isnan(bound.terms["row_sum"]):
                assert bound.value <= bound.terms["row_sum"] * ROUNDING
    assert applicable > 1000
    assert tightest > 0.2


def test_errors_of_2000_models_keep_their_bounds():
    """Propositions 1 and 4, measured against the solution to rounding."""
    for seed in range(GROUPS):
        group = random_group(seed + 100, MODELS, steps=6, largest=3.0)
        exact = solve(group.batched, group.paths)
        with torch.no_grad():
            steps = (discretize(group.batched, group.paths) - exact).norm(dim=-1).amax(-1)
        for i, field in enumerate(group.fields):
            bound = discretization_bound(field, 6)
            assert steps[i] <= bound.value * ROUNDING + 1e-12
            assert bound.value <= bound.terms["paper"] * ROUNDING
            order = 1 + i % 3
            error = taylor(field, group.paths[i], order, prefixes=True) - exact[i]
            remainder = remainder_bound(field, order)
            assert error.abs().max() <= remainder.value * ROUNDING + 1e-12
            assert error.norm(dim=-1).max() <= remainder.terms["euclidean"] * ROUNDING + 1e-12
            assert error.norm(dim=-1).max() <= remainder.terms["paper"] * ROUNDING + 1e-12
            assert exact[i].norm(dim=-1).max() <= bound.terms["largest_state"] * ROUNDING


def test_runge_kutta_errors_keep_their_bounds():
    applicable = 0
    for seed in range(10):
        group = random_group(seed + 200, 20, steps=10, largest=2.0)
        exact = solve(group.batched, group.paths)
        for method in ORDERS:
            with torch.no_grad():
                errors = (discretize(group.batched, group.paths, method=method) - exact).abs().amax((-1, -2))
            for i, field in enumerate(group.fields):
                bound = runge_kutta_bound(field, group.paths[i], method=method)
                if bound.applicable:
                    applicable += 1
                    assert errors[i] <= bound.value * ROUNDING + 1e-13
                else:
                    assert bound.terms["largest_gamma"] > 0.25
    assert applicable > 500


@pytest.mark.parametrize(("method", "order"), list(ORDERS.items()))
def test_runge_kutta_bound_has_the_order(method, order):
    field = rnn_field(torch.eye(2) / 2, torch.ones(2, 1) / 2)
    values = []
    for steps in (40, 80):
        line = torch.linspace(0, 0.5, steps + 1, dtype=torch.float64)[1:, None]
        values.append(runge_kutta_bound(field, line, method=method).value)
    assert abs(math.log2(values[0] / values[1]) - order) < 0.25


MODEL = {
    "seed": st.integers(0, 2**32),
    "width": st.integers(1, 64),
    "channels": st.integers(1, 4),
    "length": st.floats(0, 0.95),
    "size": st.floats(-4, 0.5),
    "bias": st.sampled_from([0.0, 0.3, 1.0, 30.0]),
    "same_sign": st.booleans(),
    "activation": st.sampled_from(["tanh", "logistic", "identity"]),
}


def hunted_field(seed, width, channels, length, size, bias, same_sign, activation):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(width, width + channels, generator=generator, dtype=torch.float64)
    weights = weights.abs() if same_sign else weights
    weights = weights * 10**size / weights.abs().sum(1).max()
    b = bias * torch.randn(width, generator=generator, dtype=torch.float64)
    u, v = weights.split([width, channels], dim=1)
    return rnn_field(u, v, b, activation, total_variation=length)


@settings(max_examples=150)
@given(**MODEL)
def test_no_model_breaks_the_norm_bound(**drawn):
    field = hunted_field(**drawn)
    order = 3 if field.letters > 3 else 4
    readout = random_readout(field, drawn["seed"] % 1000)
    value = float(rkhs_norm(field, order, readout=readout).value)
    for bound in (rkhs_norm_bound(field, readout), rkhs_norm_bound(field, readout, order=2)):
        assert not bound.applicable or value <= bound.value * ROUNDING
    for k, product in enumerate(products_ending_in_time(field, order), start=1):
        assert product.abs().max() <= star_product_bound(field, k).value * ROUNDING


@settings(max_examples=100)
@given(steps=st.integers(1, 12), order=st.integers(1, 4), **MODEL)
def test_no_model_breaks_the_error_bounds(steps, order, **drawn):
    field = hunted_field(**drawn)
    generator = torch.Generator().manual_seed(drawn["seed"])
    path = random_path(field.total_variation, (steps, field.input_size), generator)
    exact = solve(field, path)
    near = discretization_error(field, path).max()
    assert near <= discretization_bound(field, steps).value * ROUNDING + 1e-12
    error = (taylor(field, path, order, prefixes=True) - exact).abs().max()
    assert error <= remainder_bound(field, order).value * ROUNDING + 1e-12
    for method in ("rk3", "rk4"):
        bound = runge_kutta_bound(field, path, method=method)
        off = (discretize(field, path, method=method) - exact).abs().max()
        assert not bound.applicable or off <= bound.value * ROUNDING + 1e-12


@pytest.mark.parametrize("width", [1, 16, 64, 256])
@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_the_bound_holds_to_width_256_and_with_order_it_is_close(width, activation):
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        weights = torch.rand(width, width + 2, generator=generator, dtype=torch.float64)
        weights = weights / weights.sum(1, keepdim=True) * (0.05 if seed % 2 else 0.1)
        u, v = weights.split([width, 2], dim=1)
        bias = torch.full((width,), (0.0, 0.5, 1.0, 20.0)[seed], dtype=torch.float64)
        field, readout = rnn_field(u, v, bias, activation), torch.ones(width)
        norm = float(rkhs_norm(field, 5, readout=readout).value)
        bound, close = rkhs_norm_bound(field, readout), rkhs_norm_bound(field, readout, order=4)
        assert bound.applicable
        assert norm <= close.value * ROUNDING
        assert close.value <= bound.value * ROUNDING
        if seed >= 2:
            # Units away from rest: level 1 is not small beside what is left over.
            assert close.value <= 1.2 * norm


def test_the_bound_is_attained_without_weights():
    field = rnn_field(torch.zeros(3, 3), torch.zeros(3, 2), torch.full((3,), 40.0), "logistic", total_variation=0.8)
    readout = torch.tensor([1.0, -2.0, 0.5])
    bound = rkhs_norm_bound(field, readout)
    assert bound.value == bound.terms["row_sum"] == pytest.approx(3.5 * field.scale)
    signed = rkhs_norm(field, 3, readout=readout.abs())
    assert signed.value.item() == pytest.approx(bound.value, rel=1e-12)


def test_counterexample_to_proposition_5():
    """Erratum fermanian2021.2: Λ₁ = 12 is above the printed √2·a·s·… without its s, a = 2."""
    field = rnn_field(torch.zeros(9, 9), torch.zeros(9, 1), torch.full((9,), 30.0), "logistic", total_variation=0.5)
    largest = float(products_ending_in_time(field, 1)[0].norm())
    assert largest == pytest.approx(12, abs=1e-9)
    assert largest > math.sqrt(2) * 2 * 4
    bound = star_product_bound(field, 1)
    assert largest <= bound.terms["euclidean"] * ROUNDING
    assert largest <= bound.terms["paper"] * ROUNDING


def test_counterexample_to_example_4():
    """Erratum fermanian2021.4: ‖ξ‖ = 2 where the printed B is √2."""
    field = rnn_field(torch.zeros(1, 1), torch.zeros(1, 1), None, "logistic", total_variation=0.5)
    assert (
        math.sqrt(2) < rkhs_norm(field, 3, readout=torch.ones(1)).value <= rkhs_norm_bound(field, torch.ones(1)).value
    )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), length=st.floats(0, 0.99), channels=st.integers(1, 3), steps=st.integers(1, 8))
def test_signature_norms_keep_proposition_3(seed, length, channels, steps):
    path = random_path(length, (steps, channels), torch.Generator().manual_seed(seed))
    norms = signature(path, 6, basepoint=True, total_variation=length, prefixes=True).norm()
    bound = signature_norm_bound(length)
    assert norms.max() <= bound.value * ROUNDING
    assert bound.value <= bound.terms["paper"] * ROUNDING


def test_straight_line_comes_close_to_proposition_3():
    """Σ_k r^{2k} is the norm of a line of length r: the bound can hardly be smaller."""
    line = torch.tensor([[0.5]], dtype=torch.float64)
    norm = signature(line, 20, basepoint=True).norm()
    assert norm.item() == pytest.approx(1 / math.sqrt(1 - 0.25), rel=1e-9)


def test_gated_units_have_no_bound_and_the_record_says_why():
    field = tensor_field(ResidualGRU(1, 2))
    path = torch.zeros(4, 1)
    for bound in (
        rkhs_norm_bound(field),
        star_product_bound(field, 2),
        remainder_bound(field, 2),
        discretization_bound(field, 10),
        runge_kutta_bound(field, path),
    ):
        assert math.isnan(bound.value)
        assert bound.reason == "not applicable: f(h, x) = σ(U h + V x + b) fails"
        assert bound.to_dict()["value"] is None


def test_failing_condition_is_named_with_its_value():
    field = rnn_field(torch.ones(1, 1), torch.zeros(1, 1), total_variation=0.5)
    assert rkhs_norm_bound(field).reason == "not applicable: 2ρ·max_r √(s²‖U_r‖₁² + ‖V_r‖₂²) ≤ 1 fails (8)"
    assert "4γ_j ≤ 1 at every step fails (4)" in runge_kutta_bound(field, torch.zeros(1, 1)).reason


@pytest.mark.parametrize("activation", ["tanh", "identity"])
def test_a_bound_beyond_float64_is_infinite_and_says_so(activation):
    """duration·‖U‖ > 709: Grönwall's e^{K_h} overflows."""
    field = rnn_field(torch.eye(2) * 800, torch.ones(2, 1), activation=activation)
    unbounded = [star_product_bound(field, 2), remainder_bound(field, 2)] if activation == "identity" else []
    for bound in [discretization_bound(field, 10), *unbounded]:
        assert bound.value == math.inf
        assert bound.applicable
        assert "the bound is infinite" in bound.reason
    assert not any(math.isnan(each.value) for each in (star_product_bound(field, 2), remainder_bound(field, 2)))
    huge = rnn_field(torch.eye(2).double() * 1e100, torch.ones(2, 1).double(), activation=activation)
    assert star_product_bound(huge, 5).value == math.inf
    path = torch.zeros(4000, 1, dtype=torch.float64)
    if activation == "tanh":
        found = runge_kutta_bound(field, path)
        assert found.applicable
        assert "the bound is infinite" in found.reason
    still = rnn_field(torch.eye(2) * 800, torch.zeros(2, 1), activation=activation)
    assert discretization_bound(still, 10).value == 0.0
