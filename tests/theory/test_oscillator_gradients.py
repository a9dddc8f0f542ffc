"""The Hamiltonian of derivatives against autograd, and a hunt for a violation of the bound on the loss's gradient."""

import math

import pytest
import torch

from sostenuto.theory.oscillator_gradients import OscillatorLayer, gradient_hamiltonian, loss_gradient_bound

SYSTEMS = 400


def run(layers, biases, stiffness, inputs):
    """Return the last layer's positions, (time, system, hidden), of systems with parameters of their own."""
    entering = inputs
    for layer, bias in zip(layers, biases, strict=True):
        y = z = torch.zeros_like(layer.weight)
        rows = []
        for u in entering:
            drive = (layer.input_map @ u[..., None])[..., 0] + bias
            z = z - layer.step * (torch.tanh(layer.weight * y + drive) + stiffness * y)
            y = y + layer.step * z
            rows.append(y)
        entering = torch.stack(rows)
    return entering


def test_the_hamiltonian_moves_the_derivative_as_autograd_finds_it():
    """(y_θ, z_θ)′ of the differentiated equation is (∂H/∂z_θ, −∂H/∂y_θ), for θ = w_0, V_01 and b_1."""
    generator = torch.Generator().manual_seed(0)
    y, z, w, b, y_t, z_t = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    V, u = torch.randn(3, 2, generator=generator, dtype=torch.float64), torch.tensor([0.3, -1.1]).double()  # noqa: N806
    alpha = 1.7

    def field(state, weight, matrix, bias):
        return torch.cat([state[3:], -torch.tanh(weight * state[:3] + matrix @ u + bias) - alpha * state[:3]])

    slope = 1 - torch.tanh(w * y + V @ u + b) ** 2
    eye = torch.eye(3, dtype=torch.float64)
    cases = {
        0: (eye[0] * y[0], (eye[0], torch.zeros_like(V), torch.zeros_like(b))),
        1: (eye[0] * u[1], (torch.zeros_like(w), torch.outer(eye[0], torch.tensor([0.0, 1.0]).double()), 0 * b)),
        2: (eye[1], (torch.zeros_like(w), torch.zeros_like(V), eye[1])),
    }
    for forcing, direction in cases.values():
        tangent = (torch.cat([y_t, z_t]), *direction)
        moved = torch.autograd.functional.jvp(field, (torch.cat([y, z]), w, V, b), tangent)[1]
        point = [y_t.clone().requires_grad_(), z_t.clone().requires_grad_()]
        by_y, by_z = torch.autograd.grad(gradient_hamiltonian(*point, w, slope, forcing, alpha), point)
        torch.testing.assert_close(moved, torch.cat([by_z, -by_y]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_gradient_of_3600_systems_exceeds_its_bound(depth, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden, channels, count = 3, 2, (8, 25, 60)[seed]

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(SYSTEMS, *shape, generator=generator, dtype=torch.float64)

    stiffness = (0.0, 1.0, 9.0)[seed]
    layers, biases = [], []
    for index in range(depth):
        entering = channels if index == 0 else hidden
        step, weight = torch.exp(uniform(-4, -0.5, hidden)), uniform(-3, 4, hidden)
        weight[:20] = 0.0
        layers.append(OscillatorLayer(step, weight, uniform(-2, 2, hidden, entering)))
        biases.append(uniform(-2, 2, hidden))
    for layer, bias in zip(layers, biases, strict=True):
        for tensor in (layer.weight, layer.input_map, bias):
            tensor.requires_grad_()
    inputs = uniform(-1, 1, count, channels).movedim(1, 0)
    inputs[:, ::2] = inputs[:, ::2].sign()
    targets = uniform(-1, 1, count, hidden).movedim(1, 0).sign()
    answers = run(layers, biases, stiffness, inputs)
    loss = 0.5 * ((answers - targets) ** 2).sum() / count
    leaves = [(layer.weight, layer.input_map, bias) for layer, bias in zip(layers, biases, strict=True)]
    gradients = torch.autograd.grad(loss, [leaf for group in leaves for leaf in group])
    with torch.no_grad():
        bounds = loss_gradient_bound(layers, stiffness, count, largest_input=1.0, largest_target=1.0)
    closest = 0.0
    for index, bound in enumerate(bounds):
        limits = (bound.weight, bound.input_map, bound.bias)
        for gradient, limit in zip(gradients[3 * index : 3 * index + 3], limits, strict=True):
            assert (gradient.abs() <= limit * (1 + 1e-9)).all()
            closest = max(closest, float((gradient.abs() / limit).max()))
    assert closest > 1e-3


def test_the_counterexamples_to_the_paper_are_below_the_bound():
    """Erratum rusch2021.1: at w = −2, α = 1 the printed bound is 6.5e7 and the gradient 3e15."""
    one = torch.ones(1, dtype=torch.float64)
    bias = (0 * one).requires_grad_()
    layer, count = OscillatorLayer(0.1 * one, -2 * one, one[:, None]), 400
    answers = run([layer], [bias], 1.0, torch.zeros(count, 1, dtype=torch.float64))
    gradient = torch.autograd.grad(0.5 * ((answers - 1) ** 2).sum() / count, bias)[0]
    bound = loss_gradient_bound([layer], 1.0, count, largest_input=0.0, largest_target=1.0)[0]
    assert 6.5e7 < gradient.abs().item() <= bound.bias.item()
    too_fast = OscillatorLayer(3.0 * one, one, one[:, None])
    assert math.isnan(loss_gradient_bound([too_fast], 1.0, 5, largest_input=1.0, largest_target=1.0)[0].bias.item())
