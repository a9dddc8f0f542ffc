"""The largest outputs over time, and the last state alone, are those of a call, whichever way they are found."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor
from sostenuto.nn import LSTM, UnICORNN
from sostenuto.ops.oscillator import layers
from tests.apart import run_apart

OPTIONS = [
    {},
    {"batch_first": True},
    {"skip": 2},
    {"bidirectional": True},
    {"memory": "recompute"},
    {"backend": "reference"},
    {"learn_step": False},
    {"positive": True},
    {"bias": False, "step_size": [0.1, 0.4, 0.2]},
]

RECOMPUTING = [{"memory": "recompute", **more} for more in ({}, {"batch_first": True}, {"skip": 2})]
RECOMPUTING += [{"memory": "recompute", **more} for more in ({"backend": "reference"}, {"bidirectional": True})]

COMPILED = """
import torch
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import UnICORNN

model = SequenceClassifier(UnICORNN(3, 8, 2, batch_first=True, memory="MEMORY"), 2, readout="READOUT")
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
x, weights = torch.randn(4, 70, 3), list(model.parameters())
got, expected = (torch.autograd.grad(one(x).sin().sum(), weights) for one in (compiled, model))
for one, other in zip(got, expected, strict=True):
    torch.testing.assert_close(one, other)
"""


def make(**options):
    torch.manual_seed(0)
    return UnICORNN(3, 8, 3, dropout=0.3, dtype=torch.float64, spread=2.0, **options)


def assert_near(found, expected, *, tolerance=1e-12):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= tolerance * other.abs().max().clamp(min=1e-30)


@pytest.mark.parametrize("more", ["nothing", "a state", "time spans"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_the_largest_output_of_a_call(options, more):
    layer, x = make(**options), torch.randn(70, 70, 3, dtype=torch.float64, requires_grad=True)
    layers = 6 if layer.bidirectional else 3
    state = tuple(torch.randn(2, layers, 70, 8, dtype=torch.float64)) if more == "a state" else None
    spans = torch.rand(70, 70, dtype=torch.float64) if more == "time spans" else None
    leaves = [x, *(one for one in layer.parameters() if one.requires_grad)]
    torch.manual_seed(1)
    expected = layer(x, state, timespans=spans)[0].amax(1 if layer.batch_first else 0)
    torch.manual_seed(1)
    found = layer.peak(x, state, timespans=spans)
    assert_near([found], [expected])
    arriving = torch.randn_like(found)
    assert_near(*(torch.autograd.grad(one, leaves, arriving, materialize_grads=True) for one in (found, expected)))


def test_takes_one_sequence_without_a_batch():
    layer, x = make().eval(), torch.randn(300, 3, dtype=torch.float64)
    for threads in (1, 2):  # by tiles, and not: one sequence would leave a thread idle
        torch.set_num_threads(threads)
        assert_near([layer.peak(x)], [layer(x)[0].amax(0)])


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_on_a_call_hear_one(kind):
    layer, heard = make().eval(), []
    handle = getattr(layer, kind)(lambda *given: heard.append(given) and None)
    layer.peak(torch.randn(70, 4, 3, dtype=torch.float64))
    assert len(heard) == 1
    handle.remove()
    layer.peak(torch.randn(70, 4, 3, dtype=torch.float64))
    assert len(heard) == 1


def test_a_call_that_was_replaced_is_made():
    class Doubled(UnICORNN):
        def forward(self, input, state=None, *, timespans=None):
            output, state = super().forward(input, state, timespans=timespans)
            return 2 * output, state

    layer = Doubled(3, 8, dtype=torch.float64)
    x = torch.randn(70, 4, 3, dtype=torch.float64)
    assert torch.equal(layer.peak(x), layer(x)[0].amax(0))


def test_packed_sequences_are_refused():
    packed = pack_sequence([torch.zeros(3, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)])
    with pytest.raises(InputError, match=r"expected a tensor.*pool the outputs"):
        make().peak(packed)


def test_can_be_transformed():
    layer, x = make().eval(), torch.randn(70, 4, 3, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer.peak(leaf).sum(), leaf)
    assert_near([torch.func.grad(lambda x: layer.peak(x).sum())(x)], [expected])


@pytest.mark.parametrize(("memory", "readout"), [("store", "max"), ("recompute", "last")])
def test_a_model_that_reads_it_out_can_be_compiled(memory, readout):
    """In a process of its own: symbolic sizes are not what the type checks ask for."""
    run_apart(COMPILED.replace("MEMORY", memory).replace("READOUT", readout))


@pytest.mark.parametrize("model", [SequenceClassifier, SequenceRegressor])
@pytest.mark.parametrize("case", ["whole", "ragged", "truncated", "another layer"])
def test_models_read_out_the_same_with_and_without(model, case, monkeypatch):
    layer = LSTM(3, 8, batch_first=True) if case == "another layer" else UnICORNN(3, 8, 2, batch_first=True)
    model = model(layer, 2, readout="max").double()
    model.gradient_window = 30 if case == "truncated" else None
    x = torch.randn(4, 70, 3, dtype=torch.float64)
    lengths = torch.tensor([70, 3, 9, 1]) if case == "ragged" else None
    results = []
    for found in (True, False):
        if not found:
            monkeypatch.delattr(UnICORNN, "peak")
        prediction = model(x, lengths)
        results.append([prediction, *torch.autograd.grad(prediction.square().sum(), list(model.parameters()))])
    assert_near(*results)


@pytest.mark.parametrize("more", ["nothing", "a state", "time spans"])
@pytest.mark.parametrize("options", [{}, *RECOMPUTING], ids=str)
def test_final_state_is_that_of_a_call(options, more):
    """Enough rows for tiles, and a length that no chunk divides."""
    layer, x = make(**options), torch.randn(83, 83, 3, dtype=torch.float64, requires_grad=True)
    layers = 6 if layer.bidirectional else 3
    state = tuple(torch.randn(2, layers, 83, 8, dtype=torch.float64)) if more == "a state" else None
    spans = torch.rand(83, 83, dtype=torch.float64) if more == "time spans" else None
    results = []
    for call in (layer.final_state, lambda *given, **more: layer(*given, **more)[1]):
        torch.manual_seed(1)
        y, z = call(x, state, timespans=spans)
        results.append([y, z, *torch.autograd.grad((y.sin() + z.cos()).sum(), [x, *layer.parameters()])])
    assert_near(*results, tolerance=1e-10)


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_final_state_of_packed_and_single_sequences(memory):
    layer = make(memory=memory).eval()
    packed = pack_sequence([torch.randn(length, 3, dtype=torch.float64) for length in (90, 40, 1)])
    single = torch.randn(40, 3, dtype=torch.float64)
    for given in (packed, single, single[:1]):
        assert_near(layer.final_state(given), layer(given)[1])


def test_final_state_has_second_derivatives():
    layer, x = make(memory="recompute").eval(), torch.randn(7, 40, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for y, _ in (layer.final_state(x), layer(x)[1]):
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.sin().sum(), [x, layer.weight("weight_hh", 0, False)]))
    assert_near(*results, tolerance=1e-10)


def test_drift_of_a_final_state_is_that_of_the_last_run():
    layer = make(memory="recompute")
    for _ in range(2):
        layer.final_state(torch.randn(50, 9, 3, dtype=torch.float64))[0].sum().backward()
    assert len(layer.last_drift) == 1
    assert 0 < max(layer.last_drift[0].worst) < 1e-9


def test_hooks_hear_a_call_for_a_final_state():
    layer, heard = make(memory="recompute"), []
    layer.register_forward_hook(lambda *_: heard.append(1))
    layer.final_state(torch.randn(5, 2, 3, dtype=torch.float64))
    assert heard


@pytest.mark.parametrize("options", RECOMPUTING[:4], ids=str)
def test_no_outputs_are_made_for_a_model_that_reads_the_last_step(options, monkeypatch):
    """Logits and gradients are those of the stored outputs."""
    made, stack = [], layers.oscillator_stack

    def watched(*given, **more):
        found = stack(*given, **more)
        made.append(len(found.outputs))
        return found

    monkeypatch.setattr(layers, "oscillator_stack", watched)
    x, results = torch.randn(6, 300, 3, dtype=torch.float64), []
    for memory in ("store", "recompute"):
        torch.manual_seed(0)
        layer = UnICORNN(3, 8, 3, dtype=torch.float64, **options | {"memory": memory, "batch_first": True})
        model = SequenceClassifier(layer, 4, readout="last").double()
        logits = model(x)
        results.append([logits, *torch.autograd.grad(logits.sin().sum(), list(model.parameters()))])
    assert made == [0]
    assert_near(*results, tolerance=1e-10)
