"""memory="recompute": the same function and gradients as "store", with the states found again."""

import copy

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from sostenuto.checks import InputError
from sostenuto.nn import UnICORNN
from tests.laws.layer_laws import LayerLaws


class TestRecomputeUnICORNN(LayerLaws):
    cls = UnICORNN
    options = {"step_size": 0.3, "stiffness": 2.0, "memory": "recompute"}


class TestRecomputeReferenceUnICORNN(LayerLaws):
    cls = UnICORNN
    options = {"step_size": 0.3, "stiffness": 0.0, "memory": "recompute", "backend": "reference", "bias": False}


def pair(*sizes, dtype=torch.float64, chunk=None, **options):
    """The same layer with memory="store" and memory="recompute"."""
    store = UnICORNN(*sizes, dtype=dtype, **options)
    for name, parameter in store.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter)
    recompute = UnICORNN(*sizes, dtype=dtype, memory="recompute", **options)
    recompute.load_state_dict(store.state_dict())
    recompute._chunk = chunk
    return store, recompute


def results_and_gradients(layer, x, state=None, **options):
    """Outputs, final states, and gradients of a random weighing of them all: input, initial state, parameters."""
    torch.manual_seed(1)
    packed = not isinstance(x, torch.Tensor)
    data = (x.data if packed else x).detach().clone().requires_grad_()
    leaves = [data, *(part.detach().clone().requires_grad_() for part in state or ())]
    output, end = layer(x._replace(data=data) if packed else data, tuple(leaves[1:]) or None, **options)
    results = [output.data if packed else output, *end]
    torch.autograd.backward(results, [torch.randn_like(result) for result in results])
    parameters = [parameter.grad for parameter in layer.parameters() if parameter.requires_grad]
    return results, [leaf.grad for leaf in leaves] + parameters


def assert_equal_layers(store, recompute, x, *arguments, tolerance=1e-10, **options):
    results, gradients = results_and_gradients(store, x, *arguments, **options)
    found, found_gradients = results_and_gradients(recompute, x, *arguments, **options)
    for one, other in zip(found, results, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    for one, other in zip(found_gradients, gradients, strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max()


def start(layers, batch, hidden, dtype=torch.float64):
    return tuple(torch.randn(layers, batch, hidden, dtype=dtype) for _ in range(2))


CASES = {
    "plain": {},
    "skip": {"num_layers": 4, "skip": 2},
    "skip from the input": {"num_layers": 3, "skip": 2},
    "no stiffness": {"stiffness": 0.0},
    "positive": {"positive": True, "stiffness": 0.5},
    "frozen steps": {"learn_step": False},
    "steps of their own": {"step_size": [0.1, 0.2, 0.4]},
    "no bias": {"bias": False},
    "reference": {"backend": "reference"},
    "bidirectional": {"bidirectional": True},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_results_and_gradients_are_those_of_store(options):
    options = {"num_layers": 3, "step_size": 0.2, "stiffness": 1.3, **options}
    store, recompute = pair(2, 5, chunk=7, **options)
    rows = options["num_layers"] * store.num_directions
    assert_equal_layers(store, recompute, torch.randn(40, 3, 2, dtype=torch.float64), start(rows, 3, 5))
    assert len(recompute.last_drift) == (rows if store.bidirectional else 1)
    assert all(drift.chunks == 6 and drift.restarted == 0 for drift in recompute.last_drift)


@pytest.mark.parametrize("length", [1, 2, 63, 1000])
def test_any_length_in_single_precision(length):
    store, recompute = pair(2, 5, 3, dtype=torch.float32)
    x = torch.randn(length, 3, 2)
    assert_equal_layers(store, recompute, x, start(3, 3, 5, torch.float32), tolerance=2e-5)
    assert recompute.last_drift[0].restarted == 0


def test_timespans_and_packing():
    store, recompute = pair(2, 5, 2, chunk=4)
    x = torch.randn(20, 3, 2, dtype=torch.float64)
    spans = torch.rand(20, 3, dtype=torch.float64)
    spans[5:9] = 0
    assert_equal_layers(store, recompute, x, start(2, 3, 5), timespans=spans)
    packed = pack_sequence([x[:n, b] for b, n in enumerate((3, 20, 11))], enforce_sorted=False)
    assert_equal_layers(*pair(2, 5, 2, chunk=4), packed, start(2, 3, 5))


def test_spans_that_want_a_gradient_take_the_stored_path():
    store, recompute = pair(2, 5, 2)
    x, spans = torch.randn(9, 3, 2, dtype=torch.float64), torch.rand(9, 3, dtype=torch.float64).requires_grad_()
    gradients = [torch.autograd.grad(layer(x, timespans=spans)[0].sum(), spans)[0] for layer in (store, recompute)]
    torch.testing.assert_close(*gradients)
    assert recompute.last_drift == ()


def test_dropout_draws_the_same_masks_and_keeps_them():
    store, recompute = pair(2, 50, 3, chunk=5, dropout=0.5)
    assert_equal_layers(store, recompute, torch.randn(20, 3, 2, dtype=torch.float64))


def test_a_loss_of_the_final_state_alone():
    store, recompute = pair(1, 6, 2)
    x = torch.randn(30, 2, 1, dtype=torch.float64)
    for part in range(2):
        gradients = []
        for layer in (store, recompute):
            layer.zero_grad()
            layer(x)[1][part][-1].square().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-10, atol=1e-12)


def test_second_derivatives_are_those_of_store():
    store, recompute = pair(1, 3, 2)
    x = torch.randn(6, 2, 1, dtype=torch.float64, requires_grad=True)
    found = []
    for layer in (store, recompute):
        (first,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*found)


def test_mixed_precision_recomputes_in_the_same_precision():
    store, recompute = pair(2, 8, 2, dtype=torch.float32, chunk=6)
    x = torch.randn(30, 3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        results, _ = results_and_gradients(store, x)
        found, _ = results_and_gradients(recompute, x)
    torch.testing.assert_close(found, results)
    losses = []
    for layer in (store, recompute):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer(x)[0].square().mean()
        loss.backward()
        losses.append([parameter.grad for parameter in layer.parameters()])
    for one, other in zip(*losses, strict=True):
        assert (one - other).abs().max() <= 0.02 * other.abs().max()
    assert recompute.last_drift[0].restarted == 0


def saddle(chunk):
    """Weights in [−2, −1] with α = ½: the origin is a saddle, and the float32 inverse loses the past."""
    store, recompute = pair(1, 8, 2, dtype=torch.float32, stiffness=0.5, step_size=0.1, chunk=chunk)
    with torch.no_grad():
        for layer in range(2):
            store.weight("weight_hh", layer, False).uniform_(-2, -1)
    recompute.load_state_dict(store.state_dict())
    return store, recompute, torch.randn(4000, 2, 1)


@pytest.mark.parametrize("tiles", [True, False])
@pytest.mark.parametrize("chunk", [None, 500, 4000])
def test_a_saddle_gives_the_right_gradient(chunk, tiles, monkeypatch):
    # both compute the drive by one product, so that they start from the same bits
    monkeypatch.setattr("sostenuto.ops.oscillator.scan.FUSED_CHANNELS", 0)
    if not tiles:
        for place in ("layers", "recompute"):
            monkeypatch.setattr(f"sostenuto.ops.oscillator.{place}.takes_tiles", lambda *_, **__: False)
    store, recompute, x = saddle(chunk)
    gradients = []
    for layer in (store, recompute):
        layer(x)[0][-1].sum().backward()
        gradients.append([parameter.grad for parameter in layer.parameters()])
    # rounding in float32 alone changes these gradients by as much as their size: see the op's README
    for one, other in zip(*reversed(gradients), strict=True):
        assert (one - other).abs().max() <= 1e-3 * other.abs().max()
    (drift,) = recompute.last_drift
    if chunk == 4000:
        assert drift.restarted == drift.chunks == 1
        assert drift.worst[0] > 0.01


def test_without_the_check_the_saddle_would_give_a_wrong_gradient(monkeypatch):
    monkeypatch.setattr("sostenuto.ops.oscillator.recompute.TOLERANCE", {torch.float32: float("inf")})
    store, recompute, x = saddle(4000)
    for layer in (store, recompute):
        layer(x)[0][-1].sum().backward()
    one, other = recompute.weight_hh_l0.grad, store.weight_hh_l0.grad
    assert (one - other).abs().max() > 0.1 * other.abs().max()


def test_states_that_are_not_finite_are_run_forwards():
    store, recompute = pair(1, 3, 1)
    x = torch.randn(9, 1, 1, dtype=torch.float64)
    x[4] = torch.nan
    for layer in (store, recompute):
        layer(x)[0].sum().backward()
    assert recompute.last_drift[0].restarted == 2
    assert recompute.last_drift[0].worst == [float("inf")]
    torch.testing.assert_close(recompute.weight_ih_l0.grad, store.weight_ih_l0.grad, equal_nan=True)


def test_what_is_kept_grows_with_the_chunks_not_the_steps():
    store, recompute = pair(1, 16, 3)
    kept = []
    for layer in (store, recompute):
        sizes = {}

        def pack(tensor, sizes=sizes):
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(torch.randn(2500, 2, 1, dtype=torch.float64))
        kept.append(sum(sizes.values()))
    boundaries, weights = 2 * 3 * 51 * 2 * 16, sum(parameter.numel() for parameter in recompute.parameters())
    assert kept[1] <= 2500 * 2 * 1 + boundaries + 2 * weights + 200
    assert kept[1] < 0.04 * kept[0]


def test_the_call_can_be_differentiated_twice_and_records_anew():
    _, recompute = pair(1, 4, 2)
    x = torch.randn(16, 2, 1, dtype=torch.float64)
    output = recompute(x)[0]
    (first,) = torch.autograd.grad(output.sum(), recompute.weight_hh_l0, retain_graph=True)
    record = copy.deepcopy(recompute.last_drift)
    (second,) = torch.autograd.grad(output.sum(), recompute.weight_hh_l0)
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    assert recompute.last_drift == record
    assert all(0 <= worst <= record[0].tolerance for worst in record[0].worst)


def test_a_changed_weight_between_forward_and_backward_is_an_error():
    _, recompute = pair(1, 4)
    output = recompute(torch.randn(16, 2, 1, dtype=torch.float64))[0]
    with torch.no_grad():
        recompute.weight_ih_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_stream_reads_what_a_layer_skips_to():
    layer, x = pair(2, 5, num_layers=4, skip=2)[1].eval(), torch.randn(6, 3, 2, dtype=torch.float64)
    state, outputs = None, []
    with torch.no_grad():
        for x_t in x:
            output, state = layer.step(x_t, state)
            outputs.append(output)
        torch.testing.assert_close(torch.stack(outputs), layer(x)[0], rtol=0, atol=1e-14)


def test_bad_memory_is_refused():
    with pytest.raises(InputError, match="memory"):
        UnICORNN(1, 2, memory="forget")
    with pytest.raises(InputError, match="one direction or no skip"):
        UnICORNN(1, 2, 4, bidirectional=True, skip=2, memory="recompute")


def test_a_backend_without_an_inverse_runs_chunks_forwards(monkeypatch):
    """A GPU's path, run on the CPU: the scan's operator goes by the device of what it is given."""
    store, recompute = pair(2, 5, num_layers=4, skip=2, chunk=7)
    monkeypatch.setattr("sostenuto.ops.oscillator.recompute.choose_backend", lambda *_, **__: "gpu")
    assert_equal_layers(store, recompute, torch.randn(40, 3, 2, dtype=torch.float64), start(4, 3, 5), tolerance=1e-14)
    assert recompute.last_drift[0].worst == [0.0] * 4
