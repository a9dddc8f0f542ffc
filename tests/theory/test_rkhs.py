import math

import pytest
import torch
from torch import nn

from sostenuto.nn import ResidualGRU, ResidualLSTM
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.tensor_field import TensorField, rnn_field, tensor_field
from tests.theory.brute_force import squared_norm
from tests.theory.test_star_product import CASES, random_field


@pytest.mark.parametrize("activation", ["tanh", "logistic", "identity"])
@pytest.mark.parametrize(("width", "channels", "order"), CASES)
def test_exact_norm_is_the_sum_over_all_words(width, channels, order, activation):
    field = random_field(width, channels, activation, seed=7, total_variation=0.2)
    readout = torch.randn(width, dtype=torch.float64)
    norm = rkhs_norm(field, order, readout=readout)
    expected = squared_norm(field, order, readout)
    assert abs(norm.squared - expected) <= 1e-10 * expected
    assert norm.value == norm.squared.sqrt()
    assert (norm.standard_error, norm.draws, norm.method) == (0, 0, "exact")
    assert norm.levels.sum() == pytest.approx(norm.squared.item(), rel=1e-14)


@pytest.mark.parametrize("layer", [ResidualGRU, ResidualLSTM])
def test_gated_norms_exact_and_stochastic(layer):
    field, readout = tensor_field(layer(1, 3)), torch.randn(3, dtype=torch.float64)
    exact = rkhs_norm(field, 3, readout=readout)
    assert exact.squared.item() == pytest.approx(squared_norm(field, 3, readout).item(), rel=1e-10)
    drawn = rkhs_norm(field, 3, readout=readout, method="stochastic", draws=4000)
    assert abs(drawn.squared - exact.squared) < 4 * drawn.standard_error


def test_read_out_bias_does_not_enter():
    field, head = random_field(3, 2, "tanh"), nn.Linear(3, 2)
    before = rkhs_norm(field, 3, readout=head)
    with torch.no_grad():
        head.bias += 10
    after = rkhs_norm(field, 3, readout=head)
    assert torch.equal(before.squared, after.squared)
    assert before.squared.shape == (2,)
    assert torch.equal(before.squared, rkhs_norm(field, 3, readout=head.weight).squared)
    assert rkhs_norm(field, 3).squared.shape == (3,)


def test_stochastic_estimates_lie_within_their_errors():
    """300 random cases: of a normal error 0.27 % lie beyond 3 standard errors, 0.8 cases; 5 or more have p = 0.0014."""
    generator = torch.Generator().manual_seed(1)
    scores = []
    for case in range(300):
        width, channels, order = 1 + case % 7, 1 + case % 3, 2 + case % 4
        activation = ("tanh", "logistic", "identity")[case % 3]
        field = random_field(width, channels, activation, seed=case, total_variation=(case % 5) / 5)
        readout = torch.randn(width, generator=generator)
        exact = rkhs_norm(field, order, readout=readout)
        drawn = rkhs_norm(field, order, readout=readout, method="stochastic", draws=3000, generator=generator)
        error = float(drawn.squared - exact.squared)
        assert drawn.draws == 3000
        if drawn.standard_error < 1e-9 * exact.squared:
            assert abs(error) <= 1e-9 * float(exact.squared)
        else:
            scores.append(error / float(drawn.standard_error))
    values = torch.tensor(scores)
    assert len(values) > 250
    assert (values.abs() > 3).sum() <= 4
    # Unbiased: the mean of as many standardized errors; skewed draws make it lean by far less than this.
    assert abs(values.mean()) * math.sqrt(len(values)) < 4


def test_every_level_of_the_draws_is_unbiased():
    field, readout = random_field(4, 2, "tanh", seed=3), torch.randn(2, 4)
    exact = rkhs_norm(field, 5, readout=readout)
    parts = [
        rkhs_norm(
            field, 5, readout=readout, method="stochastic", draws=2000, generator=torch.Generator().manual_seed(i)
        )
        for i in range(30)
    ]
    levels = torch.stack([part.levels for part in parts])
    error = levels.std(0) / math.sqrt(len(parts))
    assert ((levels.mean(0) - exact.levels).abs() <= 4.5 * error + 1e-12 * exact.levels).all()


def test_reported_error_is_the_spread_of_estimates():
    field, readout = random_field(4, 2, "tanh", seed=3), torch.randn(4)
    norms = [
        rkhs_norm(field, 4, readout=readout, method="stochastic", draws=500, generator=torch.Generator().manual_seed(i))
        for i in range(200)
    ]
    spread = torch.stack([norm.squared for norm in norms]).std()
    reported = torch.stack([norm.standard_error for norm in norms]).mean()
    assert 0.85 < spread / reported < 1.15
    first = norms[0]
    assert first.standard_error.item() == pytest.approx(math.sqrt(first.variance.item() / 500))
    assert first.value_error.item() == pytest.approx((first.standard_error / (2 * first.value)).item())


def test_relative_error_is_met():
    field, readout = random_field(6, 2, "tanh", seed=9), torch.randn(6)
    norm = rkhs_norm(field, 4, readout=readout, method="stochastic", relative_error=0.03)
    assert norm.standard_error / norm.squared < 0.04
    exact = rkhs_norm(field, 4, readout=readout)
    assert abs(norm.squared - exact.squared) < 4 * norm.standard_error


def test_both_methods_are_differentiable_and_agree_in_the_mean():
    weights = [torch.randn(3, 3), torch.randn(3, 1), torch.randn(3), torch.randn(3)]
    weights = [weight.double().requires_grad_() for weight in weights]

    def gradients(**options):
        norm = rkhs_norm(rnn_field(*weights[:3]), 3, readout=weights[3], **options)
        return torch.cat([g.flatten() for g in torch.autograd.grad(norm.squared, weights)])

    exact = gradients()
    draws = torch.stack(
        [gradients(method="stochastic", draws=400, generator=torch.Generator().manual_seed(seed)) for seed in range(40)]
    )
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - exact).abs() <= 4.5 * error + 1e-9).all()

    def squared(*parameters):
        return rkhs_norm(rnn_field(*parameters[:3]), 3, readout=parameters[3]).squared

    assert torch.autograd.gradcheck(squared, weights)


def test_float32_weights_get_float32_gradients():
    weight = torch.randn(3, 3, requires_grad=True)
    norm = rkhs_norm(rnn_field(weight, torch.ones(3, 1)), 3, readout=torch.ones(3))
    assert norm.squared.dtype == torch.float64
    norm.squared.backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert weight.grad.abs().max() > 0


def test_wide_network_of_many_channels_by_draws():
    """Words are too many for the sum (17^5), not for draws; at order 3 both are there."""
    generator = torch.Generator().manual_seed(0)
    u, v, b = (
        torch.empty(*shape).uniform_(-0.125, 0.125, generator=generator) for shape in ((64, 64), (64, 16), (64,))
    )
    field, readout = rnn_field(u, v, b), torch.full((64,), 0.125)
    drawn = rkhs_norm(field, 6, readout=readout, method="stochastic", relative_error=0.05, generator=generator)
    assert drawn.standard_error / drawn.squared < 0.07
    exact, low = rkhs_norm(field, 3, readout=readout), drawn.levels[:3].sum()
    assert low.item() == pytest.approx(exact.squared.item(), rel=0.3)
    assert low < drawn.squared


def test_constant_rate_has_one_level():
    """Erratum fermanian2021.4: W = 0, b = 0, logistic, L = 1/2 gives ‖ξ‖ = 2, above the √2 of the paper's example 4."""
    field = rnn_field(torch.zeros(1, 1), torch.zeros(1, 1), None, "logistic", total_variation=0.5)
    assert rkhs_norm(field, 4, readout=torch.ones(1)).value == 2
    plain = TensorField(field.rate, 1, 1, 1)
    assert rkhs_norm(plain, 3, readout=torch.ones(1), method="stochastic", draws=5).value == 2
