"""Every layer as an ONNX file that runs without torch, and as a trace; in processes of their own.

Symbolic sizes are not what the type checks ask for.
"""

import importlib.util

import pytest

from tests.apart import run_apart

CASES = """
CASES = [(name, {}) for name in LAYERS] + [
    ("unicornn", {"positive": True}),
    ("unicornn", {"memory": "recompute"}),
    ("lipschitz", {"integrator": "imex"}),
    ("lipschitz", {"gated": True, "integrator": "rk4"}),
    ("antisymmetric", {"gated": True}),
    ("cornn", {"damping": "explicit"}),
    ("stable", {"form": "dissipative"}),
    ("stable", {"activation": "identity", "integrator": "exact"}),
    ("exprnn", {"map": "cayley"}),
    ("indrnn", {"batch_norm": True}),
]
"""

ONNX = """
import logging
import tempfile
import warnings
from pathlib import Path

import onnxruntime
import torch
from torch.nn.utils import parametrize

from sostenuto.nn import LAYERS

warnings.simplefilter("ignore")
logging.disable()


def flattened(pair):
    output, state = pair
    return [output, *((state,) if isinstance(state, torch.Tensor) else state)]


def check(layer, *lengths, **options):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "layer.onnx")
        torch.onnx.export(layer, (torch.randn(5, 3, 2),), file, dynamo=True, verbose=False, **options)
        session = onnxruntime.InferenceSession(file)
        for steps in lengths:
            x = torch.randn(steps, 3, 2)
            got = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            for one, other in zip(got, flattened(layer(x)), strict=True):
                torch.testing.assert_close(torch.from_numpy(one), other.detach(), rtol=1e-4, atol=1e-5)


LENGTH = {"dynamic_shapes": ({0: torch.export.Dim("length", min=2, max=64)},)}
"""

EVERY_LAYER = (
    ONNX
    + CASES
    + """
for name, options in CASES:
    layer = LAYERS[name](2, 4, num_layers=2, **options).eval()
    # Exported for every length, but for torch's own units and a step that is 1/T of the length.
    fixed = name in ("lstm", "gru", "rnn", "residual", "residual-gru", "residual-lstm")
    try:
        check(layer, *((5,) if fixed else (2, 5, 9)), **({} if fixed else LENGTH))
    except Exception as error:
        raise AssertionError(f"{name} {options}") from error
"""
)

OTHER_WIDTHS = (
    ONNX
    + """
check(LAYERS["unicornn"](2, 5, bidirectional=True).eval(), 2, 7, **LENGTH)
check(LAYERS["exprnn"](2, 33).eval(), 2, 7, **LENGTH)
layer = LAYERS["stable"](2, 17, form="symmetric", reparametrization="exp").eval()
with torch.no_grad():
    layer.parametrizations.weight_hh_l0.original.mul_(20)  # eigenvalues on both sides of where e^x is cut
check(layer, 2, 7, **LENGTH)
parametrize.remove_parametrizations(layer, "weight_hh_l0")
check(layer, 2, 7, **LENGTH)
"""
)

TRACED = (
    """
import warnings

import torch

from sostenuto.nn import LAYERS

warnings.simplefilter("ignore")
"""
    + CASES
    + """
for name, options in CASES:
    layer = LAYERS[name](2, 4, num_layers=2, **options).eval()
    traced = torch.jit.trace(layer, (torch.randn(5, 3, 2),))
    x = torch.randn(5, 3, 2)
    torch.testing.assert_close(traced(x), layer(x), rtol=1e-4, atol=1e-5)
"""
)

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs onnx, onnxscript and onnxruntime",
)


@needs_onnx
@pytest.mark.parametrize("program", [EVERY_LAYER, OTHER_WIDTHS], ids=["every", "widths"])
def test_onnx_files_compute_the_same(program):
    run_apart(program)


def test_traced_layers_compute_the_same():
    run_apart(TRACED)
