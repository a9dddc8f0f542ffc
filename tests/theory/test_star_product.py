import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn import GRU, ResidualGRU, ResidualLSTM
from sostenuto.theory.activation import LOGISTIC, TANH
from sostenuto.theory.star_product import products_ending_in_time, star_products
from sostenuto.theory.tensor_field import TensorField, rnn_field, tensor_field
from tests.theory.brute_force import all_words

CASES = [(1, 1, 5), (4, 1, 5), (2, 2, 5), (4, 3, 4), (3, 3, 5)]


def random_field(width, channels, activation, *, seed=0, total_variation=0.5):
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randn(*shape, generator=generator) for shape in ((width, width), (width, channels), (width,))]
    return rnn_field(*draw, activation, total_variation=total_variation)


@pytest.mark.parametrize("activation", ["tanh", "logistic", "identity"])
@pytest.mark.parametrize(("width", "channels", "order"), CASES)
def test_closed_recursion_is_the_definition_on_every_word(width, channels, order, activation):
    field = random_field(width, channels, activation, seed=order)
    for found, expected in zip(star_products(field, order), all_words(field, order), strict=True):
        assert found.shape == expected.shape
        assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()


@pytest.mark.parametrize("layer", [ResidualGRU, ResidualLSTM])
def test_nested_derivatives_of_gated_units_are_the_definition(layer):
    field = tensor_field(layer(2, 3), total_variation=0.3)
    for found, expected in zip(star_products(field, 4), all_words(field, 4), strict=True):
        assert (found - expected).abs().max() <= 1e-12 * expected.abs().max().clamp(min=1)


def test_only_words_ending_in_time_are_not_zero():
    levels = all_words(random_field(3, 2, "tanh"), 4)
    for level in levels[1:]:
        assert level[..., :-1, :].abs().max() == 0
        assert level[..., -1, :].abs().min() >= 0
        assert level[..., -1, :3].abs().max() > 0


def test_affine_words_have_one_matrix_fewer_than_printed():
    """Erratum fermanian2021.1: W_{i3} W_{i2} (W_{i1} h + b_{i1}), at h = 0."""
    field = random_field(3, 2, "identity")
    matrix = torch.zeros(5, 5, dtype=torch.float64)
    matrix[:3] = field.scale * torch.cat([field.recurrent, field.input_map], dim=1)
    time = torch.cat([field.scale * field.bias, torch.zeros(2, dtype=torch.float64)])
    level = star_products(field, 3)[2]
    assert torch.allclose(level[2, 2, 2], matrix @ matrix @ time, rtol=1e-13)
    basis = torch.eye(5, dtype=torch.float64)
    assert torch.allclose(level[0, 2, 2], matrix @ matrix @ basis[3], rtol=1e-13)
    assert level[0, 0, 2].abs().max() == 0


def test_gradients_reach_the_weights():
    weights = [torch.randn(2, 2), torch.randn(2, 1), torch.randn(2)]
    weights = [weight.double().requires_grad_() for weight in weights]

    def level(*parameters):
        return products_ending_in_time(rnn_field(*parameters), 4)[-1]

    assert torch.autograd.gradcheck(level, weights)


def test_gradients_of_nested_derivatives_agree_with_the_recursion():
    weights = [torch.randn(2, 2), torch.randn(2, 1), torch.randn(2)]
    weights = [weight.double().requires_grad_() for weight in weights]
    field = rnn_field(*weights)
    plain = TensorField(field.rate, 2, 2, 1)
    grads = [torch.autograd.grad(products_ending_in_time(f, 3)[-1].sum(), weights) for f in (field, plain)]
    for one, other in zip(*grads, strict=True):
        assert torch.allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("activation", [TANH, LOGISTIC])
def test_derivatives_stay_below_their_factorial_bound(activation):
    """The lemma behind the bound for every width: |σ^(m)| ≤ ρ^m·m!."""
    points = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    values = activation.derivatives(points, 10)
    for m, value in enumerate(values):
        assert value.abs().max() <= activation.ratio**m * torch.lgamma(torch.tensor(m + 1.0)).exp() * (1 + 1e-9)


def test_derivatives_are_those_of_autograd():
    points = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
    for activation in (TANH, LOGISTIC):
        value = activation(points)
        for derivative in activation.derivatives(points.detach(), 4)[1:]:
            value = torch.autograd.grad(value.sum(), points, create_graph=True)[0]
            assert torch.allclose(value, derivative, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tensor_field(GRU(1, 2)), "expected a ResidualRNN"),
        (lambda: tensor_field(ResidualGRU(1, 2, num_layers=2)), "expected one layer, got 2"),
        (lambda: tensor_field(ResidualGRU(1, 2, bidirectional=True)), "expected one direction"),
        (lambda: tensor_field(ResidualGRU(1, 2, step_size=0.1)), "expected duration = T·step_size"),
        (lambda: rnn_field(torch.ones(1, 1), torch.ones(1, 1), activation="relu"), "expected a smooth activation"),
        (lambda: rnn_field(torch.ones(1, 1), torch.ones(1, 1), total_variation=1.0), "below 1"),
        (lambda: products_ending_in_time(random_field(64, 16, "tanh"), 7), 'method="stochastic"'),
    ],
)
def test_refusals_say_what_was_expected(make, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        make()
