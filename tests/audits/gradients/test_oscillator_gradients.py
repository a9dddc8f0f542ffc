# ruff: noqa: N803, N806 (X is the name of the contract)

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.autograd.functional import jacobian

from sostenuto.audits import oscillator_gradient_bounds
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import UnICORNN
from tests.laws.audit_laws import AuditLaws
from tests.laws.oscillating import with_oscillators


class TestOscillatorGradients(AuditLaws):
    def ask(self, model, X, y, **options):
        with with_oscillators(model):
            return oscillator_gradient_bounds(model, X, **options)


def wild(layer, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return layer


@pytest.mark.parametrize("start", [0, 7])
def test_norms_are_those_of_autograd(start):
    """The weighted norm of the layer's own Jacobian, by autograd through `UnICORNN.forward`."""
    layer = wild(UnICORNN(2, 4, step_size=0.5, stiffness=2.0, dtype=torch.float64), 1.0)
    x = torch.randn(30, 2, dtype=torch.float64)
    zero = torch.zeros(1, 4, dtype=torch.float64)
    state = layer(x[:start], (zero, zero))[1] if start else (zero, zero)

    def end(y, z):
        return torch.cat(layer(x[start:], (y, z))[1], dim=-1).flatten()

    full = torch.cat([part.reshape(8, 4) for part in jacobian(end, tuple(part.detach() for part in state))], dim=1)
    h, w, alpha = layer.effective_step().detach(), layer.weight_hh_l0.detach(), 2.0
    q0, largest = alpha + w / 2, torch.maximum((alpha + w).abs(), torch.tensor(alpha))
    result = oscillator_gradient_bounds(layer, x[None], start=start)
    assert (result.start, result.lags[-1]) == (start, 30 - start)
    zeros = torch.zeros_like(h)
    for bound, (yy, yz) in zip(result.layers[0].bounds[:2], ((largest, zeros), (q0, -h * q0 / 2)), strict=True):
        norms = []
        for unit in range(4):
            form = torch.tensor([[yy[unit], yz[unit]], [yz[unit], 1.0]], dtype=torch.float64)
            root = torch.linalg.cholesky(form).mT
            block = full[[unit, 4 + unit]][:, [unit, 4 + unit]]
            norms.append(torch.linalg.matrix_norm(root @ block @ torch.linalg.inv(root), ord=2).item())
        assert math.exp(bound.measured[-1]) == pytest.approx(max(norms), rel=1e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("stiffness", [0.0, 1.0, 12.0])
def test_no_bound_is_exceeded(scale, stiffness):
    layer = wild(UnICORNN(2, 60, num_layers=2, step_size=0.5, stiffness=stiffness, bidirectional=True), scale)
    X = [3 * torch.randn(length, 2) for length in (90, 25, 60, 1)]
    result = oscillator_gradient_bounds(layer, X, batch_size=2)
    assert len(result.layers) == 4
    for found in result.layers:
        always, mean, along = found.bounds
        assert all(bound.holds for bound in found.bounds)
        assert (always.condition, always.covered, found.units) == ("", 60, 60)
        assert 0 < mean.covered == along.covered
        assert mean.measured == along.measured
        for bound in found.bounds:
            assert all(a <= b + 1e-9 for a, b in zip(bound.measured, bound.bound, strict=True))
        assert all(a <= b + 1e-9 for a, b in zip(along.bound, mean.bound, strict=True))
    assert "EXCEEDED" not in result.summary()


def test_time_spans_that_differ_leave_the_first_bound():
    layer = wild(UnICORNN(1, 30, stiffness=1.0, step_size=0.6), 2.0)
    spans = np.random.default_rng(0).uniform(0.1, 3, (3, 70))
    always, mean, along = oscillator_gradient_bounds(layer, torch.randn(3, 70, 1), timespans=spans).layers[0].bounds
    assert always.condition == ""
    assert always.holds
    assert always.slack is not None
    for bound in (mean, along):
        assert bound.condition.startswith("not applicable: one time span within each sequence fails (0.1")
        assert (bound.covered, bound.bound, bound.slack) == (0, (), None)


def test_equal_time_spans_are_a_larger_step():
    layer, longer = UnICORNN(1, 5, step_size=0.2), UnICORNN(1, 5, step_size=0.4)
    longer.load_state_dict(layer.state_dict())
    X = torch.randn(2, 20, 1)
    first = oscillator_gradient_bounds(layer, X, timespans=np.full((2, 20), 2.0)).layers[0].bounds
    second = oscillator_gradient_bounds(longer, X).layers[0].bounds
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.measured, other.measured, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(one.bound, other.bound, rtol=1e-5, atol=1e-7)


def test_conditions_that_fail_are_named():
    layer = UnICORNN(1, 4, stiffness=0.0, step_size=1.0, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.tensor([0.0, -2.0, 4.0, 100.0]))
        layer.time_scale_l0.zero_()
    result = oscillator_gradient_bounds(layer, torch.randn(2, 10, 1))
    always, mean, _ = result.layers[0].bounds
    assert always.condition == "not applicable: q̄ > 0 fails (0), for 1 of 4 units"
    assert mean.condition == "not applicable: 0 < h²q₀ < 4 fails (−0.25 to 12.5), for 3 of 4 units"
    assert (always.covered, mean.covered) == (3, 1)
    assert mean.condition in result.summary()
    nn.init.zeros_(layer.weight_hh_l0)
    result = oscillator_gradient_bounds(layer, torch.randn(2, 10, 1))
    assert [bound.condition for bound in result.layers[0].bounds] == [
        "not applicable: q̄ > 0 fails (0)",
        *["not applicable: 0 < h²q₀ < 4 fails (0)"] * 2,
    ]
    assert "no bound for every input" in result.summary()
    ax = Figure().add_subplot()
    result.plot(ax)
    assert ax.texts


def test_growth_beyond_floats_is_told():
    layer = UnICORNN(1, 1, step_size=2.0, stiffness=1.0, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.fill_(-3.0)
        layer.time_scale_l0.fill_(30.0)
        layer.weight_ih_l0.zero_()
    result = oscillator_gradient_bounds(layer, torch.zeros(1, 1000, 1))
    assert max(result.layers[0].bounds[0].measured) > 1500
    assert "10^" in result.summary()
    assert type(result).from_dict(result.to_dict()) == result


def test_a_layer_above_a_lost_one_is_not_measured():
    with pytest.warns(UserWarning, match="stability limit"):
        layer = UnICORNN(1, 3, num_layers=2, step_size=[9.0, 0.1], stiffness=1.0)
    result = oscillator_gradient_bounds(layer, torch.randn(1, 400, 1))
    assert {b.condition for b in result.layers[1].bounds} == {"not measured: a layer below leaves the range of float64"}


def test_a_model_is_audited_as_its_layer():
    model = SequenceClassifier(UnICORNN(2, 4, num_layers=2, batch_first=True), num_classes=3)
    X = [torch.randn(length, 2) for length in (9, 4, 7)]
    assert oscillator_gradient_bounds(model, X).layers == oscillator_gradient_bounds(model.layer, X).layers


def test_a_start_after_the_end_is_refused():
    with pytest.raises(InputError, match="expected start below 5 steps, got 5"):
        oscillator_gradient_bounds(UnICORNN(1, 2), torch.zeros(1, 5, 1), start=5)
