"""The Triton scan under Triton's interpreter, in a process of its own: the interpreter is chosen before the import."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch
from sostenuto.ops.dense_scan import gpu
from sostenuto.ops.dense_scan.reference import dense_scan_reference

def check(T, B, H, full_linear, full_gain, activation="tanh", dtype=torch.float32, spread=False, weights=True):
    torch.manual_seed(T)
    # mostly of one sign, so that the sums over everything that are the coefficients' gradients do not cancel
    z, start = (1 + torch.randn(T, B, H)).to(dtype), 0.5 * torch.rand(B, H)
    weight = 0.7 * torch.randn(H, H) / H**0.5
    linear = 0.8 * torch.eye(H) + 0.1 * torch.randn(H, H) / H**0.5 if full_linear else torch.tensor([[0.9]])
    gain = 0.4 * torch.randn(H, H) / H**0.5 if full_gain else torch.tensor([0.3])
    bend = -0.5 * torch.rand(H) if activation == "modrelu" else None
    leaves = [v.double().requires_grad_() for v in (z, start, weight, linear, gain)]
    double = None if bend is None else bend.double()
    results = dense_scan_reference(*leaves, activation=activation, threshold=double)
    d_states, d_last = torch.rand(1 if spread else T, B, H), torch.rand(B, H)
    whole = d_states.double().expand(T, B, H)
    truth = [*results, *torch.autograd.grad(results, leaves, (whole, d_last.double()))]
    singles = [v.float().requires_grad_() for v in (z, start, weight, linear, gain)]
    rough = dense_scan_reference(*singles, activation=activation, threshold=bend)
    rough = [*rough, *torch.autograd.grad(rough, singles, (whole.float(), d_last))]
    states, last, risen = gpu.forward(z, start, weight, linear, gain, bend, activation, "exact", True)
    again, _, none = gpu.forward(z, start, weight, linear, gain, bend, activation, "exact", False)
    assert torch.equal(again, states) and none.numel() == 0
    matrices = start, weight, linear, gain
    gradients = gpu.backward(*matrices, activation, "exact", states, risen, d_states, d_last, [weights] * 3)
    got = [states, last, *gradients] if weights else [states, last, *gradients[:2]]
    least = 1e-5 if dtype == torch.float32 else 2e-2
    for index, (one, single, other) in enumerate(zip(got, rough, truth, strict=weights)):
        error, own = (((value.double() - other).abs().max() / other.abs().max()).item() for value in (one, single))
        limit = max(least, 2 * own)  # as the laws of scans have it: a sum that cancels has no better in float32
        assert error <= limit, (T, B, H, full_linear, full_gain, activation, index, error)

for T in (1, 2, 17):
    for full_linear in (False, True):
        for full_gain in (False, True):
            check(T, 17, 13, full_linear, full_gain, spread=T == 17)
for activation in ("relu", "hardtanh", "logistic", "identity", "modrelu"):
    check(5, 3, 20, True, False, activation)
check(9, 2, 16, True, False, dtype=torch.bfloat16)
check(9, 2, 16, True, False, weights=False)
print("agreed")
"""


def test_under_the_interpreter():
    pytest.importorskip("triton", reason="Triton has no wheel for this system")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "agreed"
