"""The Triton kernels of the dense scan, called as they are: on a GPU, or under Triton's interpreter."""

# ruff: noqa: N803 (T, B, H are the names inside ops)

import pytest
import torch

from sostenuto.ops.dense.reference import dense_scan_reference
from tests.laws.op_laws import GPU, close

pytest.importorskip("triton", reason="Triton has no wheel for this system")
from sostenuto.ops.dense import gpu

pytestmark = pytest.mark.gpu


def check(T, B, H, full_linear, full_gain, activation="tanh", dtype=torch.float32, spread=False, weights=True):
    torch.manual_seed(T)
    # mostly of one sign, so that the sums over everything that are the coefficients' gradients do not cancel
    z, start = (1 + torch.randn(T, B, H)).to(dtype), 0.5 * torch.rand(B, H)
    weight = 0.7 * torch.randn(H, H) / H**0.5
    linear = 0.8 * torch.eye(H) + 0.1 * torch.randn(H, H) / H**0.5 if full_linear else torch.tensor([[0.9]])
    gain = 0.4 * torch.randn(H, H) / H**0.5 if full_gain else torch.tensor([0.3])
    bend = -0.5 * torch.rand(H) if activation == "modrelu" else None
    z, start, weight, linear, gain = (v.to(GPU) for v in (z, start, weight, linear, gain))
    bend = None if bend is None else bend.to(GPU)
    leaves = [v.double().requires_grad_() for v in (z, start, weight, linear, gain)]
    double = None if bend is None else bend.double()
    results = dense_scan_reference(*leaves, activation=activation, threshold=double)
    d_states, d_last = torch.rand(1 if spread else T, B, H).to(GPU), torch.rand(B, H).to(GPU)
    whole = d_states.double().expand(T, B, H)
    truth = [*results, *torch.autograd.grad(results, leaves, (whole, d_last.double()))]
    singles = [v.float().requires_grad_() for v in (z, start, weight, linear, gain)]
    rough = dense_scan_reference(*singles, activation=activation, threshold=bend)
    rough = [*rough, *torch.autograd.grad(rough, singles, (whole.float(), d_last))]
    states, last, activated = gpu.forward(z, start, weight, linear, gain, bend, activation, "exact", True)
    again, _, none = gpu.forward(z, start, weight, linear, gain, bend, activation, "exact", False)
    close(again, states, 0.0 if GPU == "cpu" else 1e-6)  # two programs, and a compiler that may round them apart
    assert none.numel() == 0
    matrices = start, weight, linear, gain
    gradients = gpu.backward(*matrices, activation, "exact", states, activated, d_states, d_last, [weights] * 3)
    got = [states, last, *gradients] if weights else [states, last, *gradients[:2]]
    least = 1e-5 if dtype == torch.float32 else 2e-2
    for index, (one, single, other) in enumerate(zip(got, rough, truth, strict=weights)):
        error, own = (((value.double() - other).abs().max() / other.abs().max()).item() for value in (one, single))
        limit = max(least, 2 * own)  # as the laws of scans have it: a sum that cancels has no better in float32
        assert error <= limit, (T, B, H, full_linear, full_gain, activation, index, error)


@pytest.mark.parametrize("T", [1, 2, 17])
@pytest.mark.parametrize("full_linear", [False, True])
@pytest.mark.parametrize("full_gain", [False, True])
def test_every_form_agrees_with_the_reference(T, full_linear, full_gain):
    check(T, 17, 13, full_linear, full_gain, spread=T == 17)


@pytest.mark.parametrize("activation", ["relu", "hardtanh", "logistic", "identity", "modrelu"])
def test_every_nonlinearity(activation):
    check(5, 3, 20, True, False, activation)


def test_inputs_of_lower_precision():
    check(9, 2, 16, True, False, dtype=torch.bfloat16)


def test_without_the_gradients_of_matrices():
    check(9, 2, 16, True, False, weights=False)
