"""The Triton kernel of the recurrent NTK, called as it is: on a GPU, or under Triton's interpreter."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from sostenuto.ops.recurrent_ntk.cpu import kernel as cpu
from sostenuto.ops.recurrent_ntk.cpu.profile import profiles
from tests.laws.op_laws import GPU

pytest.importorskip("triton", reason="Triton has no wheel for this system")
from sostenuto.ops.recurrent_ntk import gpu


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    """Cut 9 sequences into two tiles, the second with one of them."""
    monkeypatch.setattr(gpu, "ROWS", 8)
    monkeypatch.setattr(gpu, "COLUMNS", 8)


def check(lengths, layers, erf, start, kind, channels, scale=1.0):
    generator = np.random.default_rng(0)
    lengths = np.array(sorted(lengths, reverse=True))
    x = [generator.normal(size=(t, channels)) * scale for t in lengths]
    x[1] = -x[0] if len(x[1]) == len(x[0]) else x[1]
    x[-1] = x[-2] if lengths[-1] == lengths[-2] else x[-1]
    numbers = np.arange(len(x))
    numbers[-1] = numbers[-2] if lengths[-1] == lengths[-2] else numbers[-1]
    sigmas = np.array([[1.3] * layers, [0.9] * layers, [start / 2] * layers, [start] * layers])
    side = profiles(np.concatenate(x), lengths, sigmas, erf)
    options = {"layers": layers, "erf": erf, "bias": start > 0, "kind": kind}
    table = torch.from_numpy(np.ascontiguousarray(np.moveaxis(side.table, 0, -1))).to(GPU)
    t = torch.from_numpy(lengths).to(GPU), torch.from_numpy(numbers).to(GPU)
    for mode in ("all", "upper"):
        truth = cpu.pairs(side, side, (numbers, numbers), pooling="last", mode=mode, **options)
        got = gpu.pairs(table, table, (t[0],) * 2, (t[1],) * 2, parts=side.parts, mode=mode, **options).cpu().numpy()
        if mode == "upper":
            truth, got = np.triu(truth), np.triu(got)
        error = np.abs(got - truth).max() / np.abs(truth).max()
        assert error < 1e-13, (lengths, layers, erf, start, kind, mode, error)


# Triton interprets by numpy, which warns of what lanes beyond the last sequence divide; a GPU does not.
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
@pytest.mark.gpu
@pytest.mark.parametrize(("layers", "erf", "start"), list(itertools.product((1, 2, 3), (False, True), (0.0, 0.4))))
@pytest.mark.parametrize("lengths", [[3] * 9, [4, 3, 3, 2, 2, 2, 2, 1, 1]], ids=["equal", "ragged"])
def test_agrees_with_the_cpu(layers, erf, start, lengths):
    """Of one length: a step before the loop and two in it."""
    check(lengths, layers, erf, start, "ntk", 1 if lengths[0] == 3 else 2)


@pytest.mark.gpu
def test_the_kernel_without_training_agrees_with_the_cpu():
    check([3] * 9, 2, False, 0.3, "nngp", 2)


@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e-3, 1e3, 1e6])
def test_small_and_large_inputs_agree_with_the_cpu(scale):
    check([3] * 9, 2, True, 0.0, "ntk", 1, scale)
    check([3] * 9, 1, True, 0.0, "nngp", 2, scale)


COMPILED = """
import warnings
warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from sostenuto.ops.recurrent_ntk import gpu

constants = dict(LAYERS=1, PARTS=3, BIAS=1, ERF=False, NTK=True, UPPER=True, EQUAL=True)
constants.update(BI=gpu.ROWS, BJ=gpu.COLUMNS, UNROLL=gpu.UNROLL)
kinds = {"left": "*fp64", "right": "*fp64", "out": "*fp64"}
signature = {
    name: "constexpr" if name in constants
    else kinds.get(name, "*i64" if name.startswith(("lengths", "identities")) else "i32")
    for name in gpu._pairs.arg_names
}
source = ASTSource(fn=gpu._pairs, signature=signature, constexprs=constants)
text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": gpu.WARPS}).asm["ptx"]
print("sqrt.rn.f64" in text, "div.rn.f64" in text, "rsqrt.approx" in text)
"""


def test_compiled_for_an_h200_no_step_has_a_rounded_root_or_a_division():
    """These branch, pair by pair, so that pairs no longer run side by side."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "False False True"
