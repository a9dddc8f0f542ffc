"""The Triton kernels of the diagonal scans, called as they are: on a GPU, or under Triton's interpreter."""

# ruff: noqa: N803 (T, B, H are the names inside ops)

import pytest
import torch

from sostenuto.ops.activation import ACTIVATIONS
from sostenuto.ops.diagonal.reference import diagonal_scan_reference, gated_scan_reference
from tests.laws.op_laws import GPU

pytest.importorskip("triton", reason="Triton has no wheel for this system")
from sostenuto.ops.diagonal import gpu

pytestmark = pytest.mark.gpu


def check(T, B, H, activation, gated=False, dtype=torch.float32, spread=False):
    torch.manual_seed(T)
    z, x = torch.randn(T, B, H).to(dtype), torch.randn(T, B, H).to(dtype) if gated else None
    start = 0.5 * torch.randn(B, H)
    vectors = torch.stack([1.5 * torch.rand(H) - 0.5, 0.2 + 0.6 * torch.rand(H), 0.1 + torch.rand(H), -torch.rand(H)])
    z, start, vectors = (v.to(GPU) for v in (z, start, vectors))
    x = None if x is None else x.to(GPU)
    leaves = [None if v is None else v.double().requires_grad_() for v in (z, x, start, vectors)]
    w, p, q, bend = leaves[3].unbind(0)
    bend = bend if activation == "modrelu" else None
    if gated:
        results = gated_scan_reference(leaves[0], leaves[1], leaves[2], w)
    else:
        results = diagonal_scan_reference(leaves[0], leaves[2], w, p, q, activation=activation, threshold=bend)
    d_states, d_last = torch.randn(1 if spread else T, B, H).to(GPU), torch.randn(B, H).to(GPU)
    whole = d_states.double().expand(T, B, H)
    wanted = [leaf for leaf in leaves if leaf is not None]
    truth = [*results, *torch.autograd.grad(results, wanted, (whole, d_last.double()))]
    states, last = gpu.forward(z, x, start, vectors, activation)
    d_z, d_x, d_start, d_vectors = gpu.backward(z, x, start, vectors, activation, states, d_states, d_last)
    kept = [0] if gated else [0, 1, 2, 3] if activation == "modrelu" else [0, 1, 2]
    got = [states, last, d_z, *([d_x] if gated else []), d_start, d_vectors[kept]]
    truth[-1] = truth[-1][kept]
    for index, (one, other) in enumerate(zip(got, truth, strict=True)):
        error = ((one.double() - other).abs().max() / other.abs().max()).item()
        assert error <= 1e-5, (T, B, H, activation, gated, index, error)


@pytest.mark.parametrize("T", [1, 7, 8, 17])
@pytest.mark.parametrize("gated", [False, True])
def test_steps_in_and_beside_whole_blocks(T, gated):
    check(T, 3, 13, "logistic" if gated else "tanh", gated=gated, spread=T == 17 and not gated)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_nonlinearity(activation):
    check(9, 2, 40, activation)


def test_inputs_of_lower_precision():
    check(9, 2, 16, "relu", dtype=torch.bfloat16)
