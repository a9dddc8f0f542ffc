"""The Triton kernels of the damped scan, called as they are: on a GPU, or under Triton's interpreter."""

# ruff: noqa: N803 (T, B, H are the names inside ops)

import pytest
import torch

from sostenuto.ops.damped.reference import damped_scan_reference
from tests.laws.op_laws import GPU

pytest.importorskip("triton", reason="Triton has no wheel for this system")
from sostenuto.ops.damped import gpu, learned_coefficients
from sostenuto.ops.damped.coefficients import _learned_from_parts

pytestmark = pytest.mark.gpu


def check(T, B, H, *, steps=1, rows=1, ragged=False, spread=False, dtype=torch.float32):
    torch.manual_seed(T)
    size, angle = 0.3 + 0.65 * torch.rand(steps, rows, H), 3 * torch.rand(steps, rows, H)
    tensors = [
        torch.randn(T, B, H).to(dtype),
        0.5 * torch.randn(B, 2 * H),
        torch.stack([size * angle.cos(), size * angle.sin()]),
        torch.randn(2, steps, rows, H),
        torch.randn(2, H),
    ]
    tensors = [tensor.to(GPU) for tensor in tensors]
    lengths = torch.randint(1, T + 1, (B,), device=GPU) if ragged else None
    leaves = [tensor.double().requires_grad_() for tensor in tensors]
    results = damped_scan_reference(*leaves, lengths=lengths)
    d_outputs, d_last = torch.randn(1 if spread else T, B, H).to(GPU), torch.randn(B, 2 * H).to(GPU)
    arriving = (d_outputs.double().expand(T, B, H), d_last.double())
    truth = [*results, *torch.autograd.grad(results, leaves, arriving)]
    outputs, last, states = gpu.forward(*tensors, lengths)
    got = [outputs, last, *gpu.backward(*tensors, lengths, states, d_outputs, d_last)]
    for index, (one, other) in enumerate(zip(got, truth, strict=True)):
        error = ((one.double() - other).abs().max() / other.abs().max()).item()
        assert one.shape == other.shape
        assert error <= 1e-5, (T, B, H, index, error)
    # A compiler may fuse other products where nothing is kept, so the last bit is free.
    torch.testing.assert_close(gpu.forward(*tensors, lengths, keep=False)[0], outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("T", [1, 7, 8, 17, 137])
@pytest.mark.parametrize("ragged", [False, True])
def test_steps_in_and_beside_whole_blocks(T, ragged):
    check(T, 3, 13, ragged=ragged, spread=T == 17)


@pytest.mark.parametrize(("steps", "rows"), [(9, 3), (9, 1), (1, 3)])
@pytest.mark.parametrize("ragged", [False, True])
def test_coefficients_that_vary(steps, rows, ragged):
    check(9, 3, 13, steps=steps, rows=rows, ragged=ragged)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_nothing_stays_nothing_where_coefficients_grow():
    """The product of a chunk's coefficients overflows; no state is multiplied by it."""
    one = torch.ones(2, 1, 1, 3, device=GPU)
    inputs, start = torch.zeros(200, 2, 3, device=GPU), torch.zeros(2, 6, device=GPU)
    inputs[-1] = 1.0
    outputs, last, states = gpu.forward(inputs, start, 1e3 * one, one, one[:, 0, 0], None)
    assert outputs[:-1].abs().max() == 0
    assert (outputs[-1] == 2).all()
    found = gpu.backward(inputs, start, 1e3 * one, one, one[:, 0, 0], None, states, 0 * inputs, 0 * last)
    assert all(part.abs().max() == 0 for part in found)


def test_inputs_of_lower_precision():
    check(9, 2, 16, dtype=torch.bfloat16)


@pytest.mark.parametrize("added", [0.0, 40.0])
def test_coefficients_from_what_is_learned(added):
    """From decays of e^-9, whose gradient would cancel in float32, to fast ones; more units than a program has."""
    logs = torch.cat([torch.linspace(-9, 1.2, 40), torch.linspace(-9, 1.2, 40)[torch.randperm(40)]]).to(GPU)
    logs[:3], logs[40:43] = -12.0, -13.0
    arriving = [torch.randn(2, 1, 1, 40).to(GPU) for _ in range(2)]
    leaves = [logs.double().requires_grad_(), logs.clone().requires_grad_()]
    truth, found = _learned_from_parts(leaves[0], added), learned_coefficients(leaves[1], added)
    assert type(found[0].grad_fn).__name__ == "_LearnedBackward"
    truth = [*truth, *torch.autograd.grad(truth, leaves[0], [part.double() for part in arriving])]
    found = [*found, *torch.autograd.grad(found, leaves[1], arriving)]
    for one, other in zip(found, truth, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=2e-7)


def test_second_derivatives_of_coefficients_are_the_parts():
    logs = torch.randn(8).to(GPU).requires_grad_()
    (slope,) = torch.autograd.grad(learned_coefficients(logs)[1].sum(), logs, create_graph=True)
    (expected,) = torch.autograd.grad(_learned_from_parts(logs, 0.0)[1].sum(), logs, create_graph=True)
    pair = [torch.autograd.grad(part.square().sum(), logs)[0] for part in (slope, expected)]
    torch.testing.assert_close(*pair)
