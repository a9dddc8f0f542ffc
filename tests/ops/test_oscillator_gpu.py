"""The Triton kernels of the oscillator scan, called as they are: on a GPU, or under Triton's interpreter."""

# ruff: noqa: N803 (T, B, H are the names inside ops)

import os
import subprocess
import sys

import pytest
import torch

from sostenuto.ops.oscillator.autograd import EVERY
from sostenuto.ops.oscillator.reference import oscillator_scan_reference
from tests.laws.op_laws import GPU

pytest.importorskip("triton", reason="Triton has no wheel for this system")
import triton
import triton.language as tl

from sostenuto.ops._gpu.tanh import tanh, tanh_with_slope
from sostenuto.ops.oscillator import gpu


def check(T, B, H, spans, marked=False, dtype=torch.float32):
    torch.manual_seed(T)
    checkpoints = torch.full((-(-T // EVERY), B, H), torch.nan, device=GPU) if marked else None
    x = torch.randn(T, B, H).to(GPU, dtype).float()
    weight, step = (2 * torch.rand(H) - 0.5).to(GPU), (0.05 + 0.2 * torch.rand(H)).to(GPU)
    y, z = 0.5 * torch.randn(B, H).to(GPU), 0.5 * torch.randn(B, H).to(GPU)
    timespans = (0.2 + torch.rand(T, B)).to(GPU) if spans else None
    leaves = [tensor.double().requires_grad_() for tensor in (x, weight, step, y, z)]
    double = None if timespans is None else timespans.double()
    outputs, _, last = oscillator_scan_reference(*leaves[:3], 1.3, *leaves[3:], timespans=double)
    d_outputs, d_last = torch.randn(T, B, H).to(GPU), torch.randn(B, H).to(GPU)
    truth = [outputs, last, *torch.autograd.grad((outputs, last), leaves, (d_outputs.double(), d_last.double()))]
    got, got_last = gpu.forward(x.to(dtype), weight, step, 1.3, y, z, timespans, checkpoints)
    if marked:
        assert checkpoints.isfinite().all()
        assert torch.equal(checkpoints[0], z)
    gradients = gpu.backward(
        x.to(dtype), weight, step, 1.3, y, got, got_last, timespans, d_outputs, d_last, checkpoints
    )
    assert gradients[0].dtype == dtype
    for index, (one, other) in enumerate(zip([got, got_last, *gradients], truth, strict=True)):
        error = ((one.double() - other).abs().max() / other.abs().max()).item()
        limit = 1e-2 if dtype == torch.bfloat16 and index == 2 else 1e-5
        assert error <= limit, (T, B, H, spans, marked, dtype, index, error)


@pytest.mark.gpu
@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("T", [1, 2, 12, 13, 16, 17, 33, 63])
def test_steps_in_and_beside_whole_blocks(T, spans):
    check(T, 3, 13, spans)


@pytest.mark.gpu
@pytest.mark.parametrize(("T", "spans"), [(20, False), (9, True)])
def test_many_columns(T, spans, monkeypatch):
    monkeypatch.setattr(gpu, "WIDE", 1)
    check(T, 2, 40, spans)


@pytest.mark.gpu
@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("T", [1, 7, 8, 9, 12, 20, 24])
def test_many_columns_from_marks(T, spans, monkeypatch):
    monkeypatch.setattr(gpu, "WIDE", 1)
    check(T, 2, 40, spans, marked=True)


@pytest.mark.gpu
@pytest.mark.parametrize("marked", [False, True])
def test_inputs_of_lower_precision(marked):
    check(21, 2, 16, False, marked=marked, dtype=torch.bfloat16)


@triton.jit
def _tanh(x, value, again, slope, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(x + o)
    t, s = tanh_with_slope(b, b * 2.885390081777927)
    tl.store(value + o, tanh(b, b * 2.885390081777927))
    tl.store(again + o, t)
    tl.store(slope + o, s)


@pytest.mark.gpu
def test_tanh_and_its_slope():
    near = torch.logspace(-20, 0, 16384)
    x = torch.cat([torch.linspace(-12, 12, 32768), near, -near]).to(GPU)
    value, again, slope = (torch.empty_like(x) for _ in range(3))
    _tanh[(16,)](x, value, again, slope, BLOCK=4096)
    truth = torch.tanh(x.double())
    for got in (value, again):
        assert ((got - truth) / truth).abs().max() < 1e-6
        assert got.abs().max() <= 1
    assert (slope.double() * torch.cosh(x.double()) ** 2 - 1).abs().max() < 5e-6


COMPILED = """
import warnings
warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from sostenuto.ops.oscillator import gpu

names = ("x", "weight", "step", "alpha", "y0", "z0", "spans", "outputs", "last", "checkpoints", "T", "B", "H")
signature = {name: {"alpha": "fp32", "T": "i32", "B": "i32", "H": "i32"}.get(name, "*fp32") for name in names}
constants = {"HAS_SPANS": False, "N": 4096, "EVERY": 0, "BLOCK": 32, "U": 4, "AHEAD": 0}
signature.update({name: "constexpr" for name in constants})
source = ASTSource(fn=gpu._forward, signature=signature, constexprs=constants)
text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"]
print("tanh.approx.f32" in text, "ex2.approx" in text)
"""


def test_compiles_for_a_gpu_with_an_accurate_tanh():
    """Compiled for an H200 without one: the interpreter cannot run the instructions."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "False True"
