"""The Triton scans under Triton's interpreter, in a process of its own: the interpreter is chosen before the import."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch
from sostenuto.ops.activation import ACTIVATIONS
from sostenuto.ops.diagonal_scan import gpu
from sostenuto.ops.diagonal_scan.reference import diagonal_scan_reference, gated_scan_reference

def check(T, B, H, activation, gated=False, dtype=torch.float32, spread=False):
    torch.manual_seed(T)
    z, x = torch.randn(T, B, H).to(dtype), torch.randn(T, B, H).to(dtype) if gated else None
    start = 0.5 * torch.randn(B, H)
    vectors = torch.stack([1.5 * torch.rand(H) - 0.5, 0.2 + 0.6 * torch.rand(H), 0.1 + torch.rand(H), -torch.rand(H)])
    leaves = [None if v is None else v.double().requires_grad_() for v in (z, x, start, vectors)]
    w, p, q, bend = leaves[3].unbind(0)
    bend = bend if activation == "modrelu" else None
    if gated:
        results = gated_scan_reference(leaves[0], leaves[1], leaves[2], w)
    else:
        results = diagonal_scan_reference(leaves[0], leaves[2], w, p, q, activation=activation, threshold=bend)
    d_states = torch.randn(1 if spread else T, B, H)
    d_last = torch.randn(B, H)
    whole = d_states.double().expand(T, B, H)
    wanted = [leaf for leaf in leaves if leaf is not None]
    truth = [*results, *torch.autograd.grad(results, wanted, (whole, d_last.double()))]
    states, last = gpu.forward(z, x, start, vectors, activation)
    d_z, d_x, d_start, d_vectors = gpu.backward(z, x, start, vectors, activation, states, d_states, d_last)
    kept = [0, 1, 2] if activation != "modrelu" else [0, 1, 2, 3]
    kept = [0] if gated else kept
    got = [states, last, d_z, *([d_x] if gated else []), d_start, d_vectors[kept]]
    truth[-1] = truth[-1][kept]
    for index, (one, other) in enumerate(zip(got, truth, strict=True)):
        error = ((one.double() - other).abs().max() / other.abs().max()).item()
        assert error <= 1e-5, (T, B, H, activation, gated, index, error)

for T in (1, 7, 8, 17):
    check(T, 3, 13, "tanh", spread=T == 17)
    check(T, 3, 13, "logistic", gated=True)
for activation in ACTIVATIONS:
    check(9, 2, 40, activation)
check(9, 2, 16, "relu", dtype=torch.bfloat16)
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
