"""The last state alone is that of a call, with the same gradients, and what recomputes makes no outputs for it."""

import subprocess
import sys

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from sostenuto.models.classifier import SequenceClassifier
from sostenuto.nn import UnICORNN

OPTIONS = [
    {},
    {"memory": "recompute"},
    {"memory": "recompute", "batch_first": True},
    {"memory": "recompute", "skip": 2},
    {"memory": "recompute", "backend": "reference"},
    {"memory": "recompute", "bidirectional": True},
]
COMPILED = """
import torch
from sostenuto.models.classifier import SequenceClassifier
from sostenuto.nn import UnICORNN

model = SequenceClassifier(UnICORNN(3, 8, 2, batch_first=True, memory="recompute"), 2, readout="last")
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
x, weights = torch.randn(4, 70, 3), list(model.parameters())
got, expected = (torch.autograd.grad(one(x).sin().sum(), weights) for one in (compiled, model))
for one, other in zip(got, expected, strict=True):
    torch.testing.assert_close(one, other)
"""


def make(**options):
    torch.manual_seed(0)
    return UnICORNN(3, 8, 3, dropout=0.3, dtype=torch.float64, spread=2.0, **options)


def outcome(layer, x, found, leaves):
    y, z = found
    return [y, z, *torch.autograd.grad((y.sin() + z.cos()).sum(), leaves)]


def assert_near(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-10 * other.abs().max().clamp(min=1e-30)


@pytest.mark.parametrize("more", ["nothing", "a state", "time spans"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_that_of_a_call(options, more):
    """Enough rows for tiles, and a length that no chunk divides."""
    layer, x = make(**options), torch.randn(83, 83, 3, dtype=torch.float64, requires_grad=True)
    layers = 6 if layer.bidirectional else 3
    state = tuple(torch.randn(2, layers, 83, 8, dtype=torch.float64)) if more == "a state" else None
    spans = torch.rand(83, 83, dtype=torch.float64) if more == "time spans" else None
    leaves = [x, *layer.parameters()]
    found = []
    for call in (layer.final_state, lambda *given, **more: layer(*given, **more)[1]):
        torch.manual_seed(1)
        found.append(outcome(layer, x, call(x, state, timespans=spans), leaves))
    assert_near(*found)


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_packed_and_single_sequences(memory):
    layer = make(memory=memory).eval()
    packed = pack_sequence([torch.randn(length, 3, dtype=torch.float64) for length in (90, 40, 1)])
    single = torch.randn(40, 3, dtype=torch.float64)
    for given in (packed, single, single[:1]):
        assert_near(layer.final_state(given), layer(given)[1])


def test_second_derivatives():
    layer, x = make(memory="recompute").eval(), torch.randn(7, 40, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for y, _ in (layer.final_state(x), layer(x)[1]):
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.sin().sum(), [x, layer.weight("weight_hh", 0, False)]))
    assert_near(*found)


def test_drift_is_that_of_the_last_run():
    layer = make(memory="recompute")
    layer.final_state(torch.randn(50, 9, 3, dtype=torch.float64))[0].sum().backward()
    assert len(layer.last_drift) == 1
    assert 0 < max(layer.last_drift[0].worst) < 1e-9


def test_hooks_hear_a_call():
    layer, heard = make(memory="recompute"), []
    layer.register_forward_hook(lambda *_: heard.append(1))
    layer.final_state(torch.randn(5, 2, 3, dtype=torch.float64))
    assert heard


def test_a_model_that_reads_the_last_step_makes_no_outputs(monkeypatch):
    """The tensor of all outputs is nowhere asked for, and logits and gradients are those of the stored one."""
    x = torch.randn(6, 300, 3, dtype=torch.float64)
    found = []
    for memory in ("store", "recompute"):
        torch.manual_seed(0)
        layer = UnICORNN(3, 8, 2, batch_first=True, memory=memory, dtype=torch.float64)
        model = SequenceClassifier(layer, 4, readout="last").double()
        if memory == "recompute":
            monkeypatch.setattr(UnICORNN, "forward", None)
            monkeypatch.setattr(UnICORNN, "_is_heard", lambda _: False)
        logits = model(x)
        found.append([logits, *torch.autograd.grad(logits.sin().sum(), list(model.parameters()))])
    assert_near(*found)


def test_compiles():
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
