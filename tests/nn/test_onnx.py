"""Every layer as an ONNX file that runs without torch, and as a trace; in processes of their own.

Symbolic sizes are not what the type checks ask for.
"""

import importlib.util

import pytest

from sostenuto.nn import LAYERS
from tests.apart import run_apart

CASES = [
    *((name, {}) for name in LAYERS),
    ("unicornn", {"positive": True}),
    ("unicornn", {"memory": "recompute"}),
    ("unicornn", {"bidirectional": True}),
    ("lipschitz", {"integrator": "imex"}),
    ("lipschitz", {"gated": True, "integrator": "rk4"}),
    ("antisymmetric", {"gated": True}),
    ("cornn", {"damping": "explicit"}),
    ("stable", {"form": "dissipative"}),
    ("stable", {"form": "symmetric", "reparametrization": "exp"}),
    ("stable", {"activation": "identity", "integrator": "exact"}),
    ("exprnn", {"map": "cayley"}),
    ("indrnn", {"batch_norm": True}),
]
FIXED = ("lstm", "gru", "rnn", "residual", "residual-gru", "residual-lstm")
"""Exported for one length: torch's own units, and steps that are 1/T of the length."""

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


def check(layer, fixed):
    length = None if fixed else ({0: torch.export.Dim("length", min=2, max=64)},)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "layer.onnx")
        example = (torch.randn(5, 3, 2),)
        torch.onnx.export(layer, example, file, dynamo=True, verbose=False, dynamic_shapes=length)
        session = onnxruntime.InferenceSession(file)
        for steps in (5,) if fixed else (2, 5, 9):
            x = torch.randn(steps, 3, 2)
            got = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            for one, other in zip(got, flattened(layer(x)), strict=True):
                torch.testing.assert_close(torch.from_numpy(one), other.detach(), rtol=1e-4, atol=1e-5)
"""

LAYER = """
layer = LAYERS[{name!r}](2, 7, num_layers=2, **{options!r}).eval()
if {name!r} == "stable":
    with torch.no_grad():  # eigenvalues on both sides of where e^x is cut
        layer.parametrizations.weight_hh_l0.original.mul_(20)
check(layer, {fixed})
"""

REMOVED = """
layer = LAYERS["stable"](2, 7, form="dissipative").eval()
parametrize.remove_parametrizations(layer, "weight_hh_l0")
check(layer, False)
"""

SIZES = """
layer = LAYERS[{name!r}](2, 7, num_layers=2, batch_first=True).eval()
shapes = ({{0: torch.export.Dim("batch", min=2)}},) if {counts} != (4,) else None
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "layer.onnx")
    torch.onnx.export(layer, (torch.randn(4, 9, 2),), file, dynamo=True, verbose=False, dynamic_shapes=shapes)
    session = onnxruntime.InferenceSession(file)
    for count in {counts}:
        x = torch.randn(count, 9, 2)
        got = session.run(None, {{session.get_inputs()[0].name: x.numpy()}})
        torch.testing.assert_close(torch.from_numpy(got[0]), layer(x)[0].detach(), rtol=1e-4, atol=1e-5)
"""

TRACED = """
import warnings

import torch

from sostenuto.nn import LAYERS

warnings.simplefilter("ignore")
for name, options in {cases!r}:
    layer = LAYERS[name](2, 4, num_layers=2, **options).eval()
    traced = torch.jit.trace(layer, (torch.randn(5, 3, 2),))
    x = torch.randn(5, 3, 2)
    torch.testing.assert_close(traced(x), layer(x), rtol=1e-4, atol=1e-5)
"""

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs onnx, onnxscript and onnxruntime",
)


@needs_onnx
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_onnx_file_computes_the_same(name, options):
    run_apart(ONNX + LAYER.format(name=name, options=options, fixed=name in FIXED))


@needs_onnx
@pytest.mark.parametrize("counts", [(4,), (2, 4, 6)], ids=["one", "any"])
@pytest.mark.parametrize("name", ["stack", "lipschitz"])
def test_onnx_file_of_one_length_for_one_batch_or_any(name, counts):
    """What comes from `torch.onnx.export` without a word about sizes, and with the batch alone left open."""
    run_apart(ONNX + SIZES.format(name=name, counts=counts))


@needs_onnx
def test_onnx_file_without_the_constraint():
    run_apart(ONNX + REMOVED)


def test_traced_layers_compute_the_same():
    run_apart(TRACED.format(cases=CASES))
