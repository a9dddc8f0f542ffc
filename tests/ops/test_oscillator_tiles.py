"""The layers run tile by tile equal the layers run one by one, forward and every gradient."""

import numpy as np
import pytest
import torch

from sostenuto.nn import UnICORNN
from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.scan import scan_layers
from sostenuto.ops.oscillator.tiles import oscillator_tiles, takes_tiles
from tests.apart import run_apart


def stored_stack(x, *given, **options):
    return scan_layers([x], *given, **options)


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
SHAPES = [
    # T, B, F, H, L: a step, odd widths, one thread's tile, several tiles, chunks that end early
    (1, 2, 1, 3, 1),
    (37, 5, 3, 7, 3),
    (63, 6, 20, 16, 2),
    (40, 33, 9, 24, 3),
    (300, 2, 70, 5, 2),
]


def case(*shape, dtype=torch.float64, bias=True, masks=True, spans=False):
    steps, batch, channels, units, layers = shape
    torch.manual_seed(steps + batch)
    cells = []
    for layer in range(layers):
        fan_in = units if layer else channels
        drawn = [torch.randn(units, fan_in, dtype=dtype) / fan_in**0.5, torch.randn(units, dtype=dtype)]
        drawn += [torch.rand(units, dtype=dtype), 0.3 * torch.rand(units, dtype=dtype)]
        matrix, shift, weight, step = (one.requires_grad_() for one in drawn)
        mask = (torch.rand(1, batch, units) > 0.2).to(dtype) / 0.8 if masks and layer < layers - 1 else None
        cells.append(Cell(matrix, shift if bias else None, None, weight, step, mask))
    x = torch.randn(steps, batch, channels, dtype=dtype, requires_grad=True)
    y, z = (torch.randn(layers, batch, units, dtype=dtype, requires_grad=True) for _ in range(2))
    timespans = torch.rand(steps, batch, dtype=dtype).round(decimals=1) if spans else None
    return x, cells, y, z, timespans


def leaves_of(x, cells, y, z):
    named = [(name, field) for cell in cells for name, field in zip(Cell._fields, cell, strict=True)]
    return [x, y, z, *(field for name, field in named if field is not None and name != "mask")]


def assert_near(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= TOLERANCE[dtype] * other.abs().max().clamp(min=1e-30)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_layers_one_by_one(shape, spans, dtype):
    x, cells, y, z, timespans = case(*shape, dtype=dtype, spans=spans)
    expected = stored_stack(x, cells, 0.7, y, z, timespans=timespans, backend="reference")
    found = oscillator_tiles(x, cells, 0.7, y, z, timespans=timespans)
    assert_near(found, expected, dtype)
    arriving = [torch.randn_like(one) for one in expected]
    leaves = leaves_of(x, cells, y, z)
    assert_near(torch.autograd.grad(found, leaves, arriving), torch.autograd.grad(expected, leaves, arriving), dtype)


@pytest.mark.parametrize("pick", ["the sum of all outputs", "the last output", "the last state of the lowest layer"])
def test_equals_whatever_the_loss_reads(pick):
    x, cells, y, z, _ = case(40, 33, 9, 24, 3, bias=False, masks=False)
    gradients = []
    for run in (oscillator_tiles, stored_stack):
        outputs, _, last = run(x, cells, 0.7, y, z)
        loss = {"the sum of all outputs": outputs.sum(), "the last output": outputs[-1].square().sum()}
        root = loss.get(pick, last[0].square().sum())
        gradients.append(torch.autograd.grad(root, leaves_of(x, cells, y, z), materialize_grads=True))
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() <= 1e-12 * other.abs().max().clamp(min=1e-30)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_does_not_depend_on_the_number_of_threads(threads):
    x, cells, y, z, _ = case(63, 6, 20, 16, 2)
    expected = stored_stack(x, cells, 0.7, y, z)
    torch.set_num_threads(threads)
    found = oscillator_tiles(x, cells, 0.7, y, z)
    gradients = torch.autograd.grad(found[0].square().sum(), leaves_of(x, cells, y, z))
    assert_near(found, expected, torch.float64)
    wanted = torch.autograd.grad(expected[0].square().sum(), leaves_of(x, cells, y, z))
    assert_near(gradients, wanted, torch.float64)


def test_reads_no_memory_that_nobody_wrote(deterministic):
    x, cells, y, z, _ = case(300, 33, 20, 24, 3, dtype=torch.float32)
    outputs, *ends = oscillator_tiles(x, cells, 0.7, y, z)
    found = torch.autograd.grad(outputs.square().sum(), leaves_of(x, cells, y, z))
    assert all(bool(one.isfinite().all()) for one in (outputs, *ends, *found))


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_takes_an_input_of_any_layout():
    x, cells, y, z, _ = case(40, 33, 9, 24, 1)
    batch_first = x.detach().transpose(0, 1).contiguous().transpose(0, 1)
    channels_first = x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0)
    expected = oscillator_tiles(x, cells, 0.7, y, z)
    for other in (batch_first, channels_first, x.detach()[:, :1].expand(-1, 33, -1)):
        found = oscillator_tiles(other, cells, 0.7, y, z)
        again = oscillator_tiles(other.contiguous(), cells, 0.7, y, z)
        assert torch.equal(found[0], again[0])
    assert torch.equal(oscillator_tiles(batch_first, cells, 0.7, y, z)[0], expected[0])


def test_keeps_nothing_where_no_gradient_is_wanted():
    x, cells, y, z, _ = case(40, 33, 9, 24, 3)
    expected = oscillator_tiles(x, cells, 0.7, y, z)
    with torch.no_grad():
        found = oscillator_tiles(x, cells, 0.7, y, z)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert found[0].grad_fn is None


def test_the_way_back_can_be_gone_twice_but_not_after_a_weight_has_changed():
    """What was laid out on the forward pass serves the backward pass: it must be that of the weights as they are."""
    x, cells, y, z, _ = case(9, 2, 2, 3, 2)
    leaves = leaves_of(x, cells, y, z)
    loss = oscillator_tiles(x, cells, 0.7, y, z)[0].square().sum()
    once, twice = (torch.autograd.grad(loss, leaves, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, twice, strict=True))
    with torch.no_grad():
        cells[1].weight_ih.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, leaves)


def test_its_gradient_can_be_differentiated_again():
    x, cells, y, z, _ = case(9, 2, 2, 3, 2)
    leaves = leaves_of(x, cells, y, z)
    second = []
    for run in (oscillator_tiles, stored_stack):
        outputs = run(x, cells, 0.7, y, z)[0]
        first = torch.autograd.grad(outputs.square().sum(), leaves, create_graph=True)
        second.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    assert_near(*second, torch.float64)


def test_is_taken_where_every_thread_has_work():
    x, cells, y, z, _ = case(300, 6, 2, 3, 1)
    torch.set_num_threads(2)
    assert takes_tiles(x, cells, y, z)
    assert not takes_tiles(x, cells, y, z, backend="reference")
    assert not takes_tiles(x[:, :1], cells, y[:, :1], z[:, :1])
    assert takes_tiles(x[:9], cells, y, z)  # few rows, whatever the threads
    assert takes_tiles(x[:9, :1], cells, y[:, :1], z[:, :1])
    wide = [v.repeat_interleave(100, -1) for v in (x[:9], y, z)]
    assert not takes_tiles(wide[0], cells, *wide[1:])
    assert not takes_tiles(x, cells, y, z, timespans=torch.ones(300, 6, dtype=x.dtype, requires_grad=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert not takes_tiles(x, cells, y, z)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"skip": 2}, {"bias": False}, {"positive": True}])
def test_the_layer_is_the_same_with_and_without(options, monkeypatch):
    torch.manual_seed(0)
    layer = UnICORNN(3, 8, 3, dropout=0.3, dtype=torch.float64, **options)
    x = torch.randn(70, 4, 3, dtype=torch.float64)
    results = []
    for tiles in (True, False):
        if not tiles:
            monkeypatch.setattr("sostenuto.ops.oscillator.layers.takes_tiles", lambda *_, **__: False)
        torch.manual_seed(1)
        output, state = layer(x)
        gradients = torch.autograd.grad(output.square().sum() + state[1].sum(), list(layer.parameters()))
        results.append([output, *state, *gradients])
    assert_near(*results, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (20, 6, 3, 64, 2)])
def test_the_largest_outputs_are_those_of_all_outputs(shape, spans, dtype):
    x, cells, y, z, timespans = case(*shape, dtype=dtype, spans=spans)
    outputs, *ends = stored_stack(x, cells, 0.7, y, z, timespans=timespans, backend="reference")
    expected = [outputs.amax(0), *ends]
    found = oscillator_tiles(x, cells, 0.7, y, z, timespans=timespans, peak=True)
    assert_near(found, expected, dtype)
    leaves, arriving = leaves_of(x, cells, y, z), [torch.randn_like(one) for one in expected]
    assert_near(torch.autograd.grad(found, leaves, arriving), torch.autograd.grad(expected, leaves, arriving), dtype)
    with torch.no_grad():
        again = oscillator_tiles(x, cells, 0.7, y, z, timespans=timespans, peak=True)
    assert all(torch.equal(one, other) for one, other in zip(again, found, strict=True))


def test_steps_that_share_the_largest_output_share_its_gradient():
    """A time span of 0 leaves the state as it is, so that steps have one output; at rest all have."""
    x, cells, y, z, timespans = case(63, 6, 20, 16, 2, spans=True)
    assert timespans is not None
    timespans[20:30] = 0
    still = [cell._replace(bias=None) for cell in cells]
    rest = [torch.zeros_like(one) for one in (x, y, z)]
    for given in ((x, cells, y, z), (rest[0], still, *rest[1:])):
        leaves = [one.requires_grad_() for one in leaves_of(*given)]
        largest = oscillator_tiles(given[0], given[1], 0.7, *given[2:], timespans=timespans, peak=True)[0]
        outputs = oscillator_tiles(given[0], given[1], 0.7, *given[2:], timespans=timespans)[0]
        assert torch.equal(largest, outputs.amax(0))
        arriving = torch.randn_like(largest)
        one, other = (torch.autograd.grad(end, leaves, arriving) for end in (largest, outputs.amax(0)))
        assert_near(one, other, torch.float64)


def test_a_largest_output_that_is_not_a_number_shows():
    x, cells, y, z, _ = case(40, 33, 9, 24, 2)
    with torch.no_grad():
        x[7, 3, 0] = torch.nan
    largest = oscillator_tiles(x, cells, 0.7, y, z, peak=True)[0]
    assert largest[3].isnan().all()
    assert largest.isfinite().sum() == largest.numel() - 24
    (gradient,) = torch.autograd.grad(largest[4].sum(), x)
    assert gradient[:, 4].isfinite().all()


def test_the_largest_outputs_read_no_memory_that_nobody_wrote(deterministic):
    x, cells, y, z, _ = case(300, 33, 20, 24, 3, dtype=torch.float32)
    found = oscillator_tiles(x, cells, 0.7, y, z, peak=True)
    gradients = torch.autograd.grad(found[0].square().sum(), leaves_of(x, cells, y, z))
    with torch.no_grad():
        alone = oscillator_tiles(x, cells, 0.7, y, z, peak=True)
    assert all(bool(one.isfinite().all()) for one in (*found, *alone, *gradients))


def test_the_largest_outputs_pass_the_check_of_gradients_and_can_be_differentiated_twice():
    x, cells, y, z, _ = case(5, 2, 1, 2, 2)
    leaves = leaves_of(x, cells, y, z)

    def run(*_):
        return oscillator_tiles(x, cells, 0.7, y, z, peak=True)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_steps_can_be_given_by_their_parameters(dtype):
    x, cells, y, z, _ = case(37, 5, 3, 7, 3, dtype=dtype)
    sizes, leaves = (0.1, 0.5, 0.9), leaves_of(x, cells, y, z)
    stepped = [cell._replace(step=size * cell.step.sigmoid()) for cell, size in zip(cells, sizes, strict=True)]
    expected = stored_stack(x, stepped, 0.7, y, z, backend="reference")
    found = oscillator_tiles(x, cells, 0.7, y, z, step_sizes=sizes)
    assert_near(found, expected, dtype)
    arriving = [torch.randn_like(one) for one in expected]
    assert_near(torch.autograd.grad(found, leaves, arriving), torch.autograd.grad(expected, leaves, arriving), dtype)


def test_steps_given_by_their_parameters_can_be_differentiated_twice():
    x, cells, y, z, _ = case(4, 2, 1, 2, 2)
    leaves = leaves_of(x, cells, y, z)
    assert torch.autograd.gradgradcheck(lambda *_: oscillator_tiles(x, cells, 0.7, y, z, step_sizes=(0.4, 0.7)), leaves)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
def test_its_tanh_is_as_exact_as_that_of_the_other_scans(dtype, bound):
    """One step from rest with w = α = 0 and g = 1 gives −tanh(u)."""
    values = torch.cat([torch.linspace(-25, 25, 20_000), torch.logspace(-30, 0, 12_000)]).to(dtype)
    zeros, x = torch.zeros(1, 2000, 16, dtype=dtype), values.reshape(1, 2000, 16)
    cell = Cell(torch.eye(16, dtype=dtype), None, None, zeros[0, 0], torch.ones(16, dtype=dtype), None)
    found = -oscillator_tiles(x, [cell], 0.0, zeros, zeros)[0].flatten()
    truth = np.tanh(values.numpy().astype(np.longdouble))
    inside = truth != 0
    assert np.abs(found.numpy()[inside] / truth[inside] - 1).max() < bound
    assert found.abs().max() <= 1
    special = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype).repeat(4)[None, None]
    found = -oscillator_tiles(special, [cell], 0.0, zeros[:, :1], zeros[:, :1])[0].flatten()[3::4]
    assert found.isnan().all()


def test_masks_can_be_given_in_one_tensor():
    x, cells, y, z, _ = case(9, 3, 2, 4, 3)
    leaves, masks = leaves_of(x, cells, y, z), torch.cat([cell.mask for cell in cells if cell.mask is not None])
    bare, found = [cell._replace(mask=None) for cell in cells], []
    for run in (
        lambda: oscillator_tiles(x, cells, 0.7, y, z),
        lambda: oscillator_tiles(x, bare, 0.7, y, z, masks=masks),
    ):
        outputs = run()[0]
        once = torch.autograd.grad(outputs.square().sum(), leaves)
        first = torch.autograd.grad(run()[0].square().sum(), leaves, create_graph=True)
        twice = torch.autograd.grad(torch.stack([one.square().sum() for one in first]).sum(), leaves)
        found.append([outputs, *once, *twice])
    assert_near(*found, torch.float64)


SMALL = """
import sys
import torch
from sostenuto.nn import UnICORNN

torch.set_num_threads(2)
layer = UnICORNN(3, 32, 2)
for steps, batch in ((5, 3), (5, 1), (1, 1), (100, 8)):
    layer(torch.randn(steps, batch, 3))[0].sum().backward()
assert "sostenuto.ops.oscillator.cpu.scan" not in sys.modules
"""


def test_a_small_call_compiles_no_kernel_of_its_own():
    """A first call of few rows took another kernel than the training that follows: some ten seconds more."""
    run_apart(SMALL)
