"""Every layer in one compiled graph, in a process of its own: symbolic sizes are not what the type checks ask for."""

import shutil

import pytest

from tests.apart import run_apart

SCRIPT = """
import torch
from torch.nn.utils.rnn import pack_sequence
from sostenuto.nn import LAYERS

OPTIONS = {"stable": {"form": "dissipative"}, "lipschitz": {"integrator": "imex"}}
NAMES = ("damped", "lipschitz", "antisymmetric", "cornn", "residual", "stable", "exprnn", "indrnn", "sru")
for name in NAMES:
    torch.compiler.reset()
    layer = LAYERS[name](2, 3, batch_first=True, **OPTIONS.get(name, {}))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 2, requires_grad=True)
    tensors = [x, *layer.parameters()]
    got, expected = (torch.autograd.grad(one(x)[0].sin().sum(), tensors) for one in (compiled, layer))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
layer = LAYERS["antisymmetric"](2, 3)
packed = pack_sequence([torch.randn(n, 2) for n in (5, 3)])
got, expected = (one(packed)[0].data for one in (torch.compile(layer, backend="aot_eager"), layer))
torch.testing.assert_close(got, expected)
"""

DYNAMIC = """
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from sostenuto.nn import LAYERS

for name in ("damped", "unicornn", "lipschitz", "cornn", "indrnn", "sru"):
    torch.compiler.reset()
    layer, counter = LAYERS[name](2, 6), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    compiled(torch.randn(4, 5, 2, requires_grad=True))  # dynamo may take two tries at the first graph
    tries = counter.frame_count
    for steps, batch in ((5, 3), (9, 4), (3, 7)):
        x = torch.randn(steps, batch, 2, requires_grad=True)
        tensors = [x, *layer.parameters()]
        got, expected = (torch.autograd.grad(one(x)[0].sin().sum(), tensors) for one in (compiled, layer))
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
    assert counter.frame_count == tries, (name, counter.frame_count, tries)
"""

WIDTHS = """
import torch
from sostenuto.nn import LipschitzRNN

CASES = ((8, torch.float64, "euler"), (16, torch.float32, "imex"), (128, torch.float32, "euler"))
for width, dtype, integrator in CASES:
    torch.compiler.reset()
    layer = LipschitzRNN(2, width, integrator=integrator, dtype=dtype)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 2, 2, dtype=dtype)
    tensors = [*layer.parameters()]
    got, expected = (torch.autograd.grad(one(x)[0].sin().sum(), tensors) for one in (compiled, layer))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
"""

INDUCTOR = """
import torch
from sostenuto.nn import LipschitzRNN

layer, x = LipschitzRNN(2, 16, integrator="imex"), torch.randn(3, 2, 2)
compiled = torch.compile(layer)
tensors = [*layer.parameters()]
got, expected = (torch.autograd.grad(one(x)[0].sin().sum(), tensors) for one in (compiled, layer))
for one, other in zip(got, expected, strict=True):
    torch.testing.assert_close(one, other)
"""


def test_every_layer_compiles_in_one_graph():
    run_apart(SCRIPT)


def test_one_graph_serves_every_length_and_batch():
    run_apart(DYNAMIC)


def test_widths_that_are_whole_panels():
    """Where no row is padded, gradients cut from one array would share its memory, which an operator may not."""
    run_apart(WIDTHS)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor():
    run_apart(INDUCTOR)
