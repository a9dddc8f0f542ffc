"""Every layer in one compiled graph, in a process of its own: symbolic sizes are not what the type checks ask for."""

from tests.apart import run_apart

SCRIPT = """
import torch
from torch.nn.utils.rnn import pack_sequence
from sostenuto.nn import LAYERS

OPTIONS = {"stable": {"form": "dissipative"}, "lipschitz": {"integrator": "imex"}}
NAMES = ("lipschitz", "antisymmetric", "cornn", "residual", "stable", "exprnn", "indrnn", "sru")
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

for name in ("unicornn", "lipschitz", "cornn", "indrnn", "sru"):
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


def test_every_layer_compiles_in_one_graph():
    run_apart(SCRIPT)


def test_one_graph_serves_every_length_and_batch():
    run_apart(DYNAMIC)
