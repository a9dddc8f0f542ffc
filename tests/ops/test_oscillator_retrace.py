"""The recomputing stack by tiles equals the stored one, by the inverse and where the inverse is not true."""

import pytest
import torch

from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.recompute import oscillator_stack
from sostenuto.ops.oscillator.scan import scan_layers
from sostenuto.ops.oscillator.tiles import takes_tiles


def stored_stack(x, *given, **options):
    return scan_layers([x], *given, **options)


SHAPES = [(1, 256, 2, 3, 1), (70, 6, 3, 7, 3), (63, 6, 20, 16, 2), (40, 33, 9, 24, 3)]


def case(*shape, dtype=torch.float64, spans=False, low=0.0):
    steps, batch, channels, units, layers = shape
    torch.manual_seed(steps + batch)
    cells = []
    for layer in range(layers):
        fan_in = units if layer else channels
        drawn = [torch.randn(units, fan_in, dtype=dtype) / fan_in**0.5, torch.randn(units, dtype=dtype)]
        drawn += [low + torch.rand(units, dtype=dtype), 0.3 * torch.rand(units, dtype=dtype)]
        matrix, bias, weight, step = (one.requires_grad_() for one in drawn)
        mask = (torch.rand(1, batch, units) > 0.2).to(dtype) / 0.8 if layer < layers - 1 else None
        cells.append(Cell(matrix, bias, None, weight, step, mask))
    x = torch.randn(steps, batch, channels, dtype=dtype, requires_grad=True)
    y, z = (torch.randn(layers, batch, units, dtype=dtype, requires_grad=True) for _ in range(2))
    return x, cells, y, z, torch.rand(steps, batch, dtype=dtype) if spans else None


def gradients(results, x, cells, y, z):
    torch.manual_seed(9)
    leaves = [x, y, z, *(field for cell in cells for field in cell if field is not None and field.requires_grad)]
    return torch.autograd.grad(results, leaves, [torch.randn_like(result) for result in results])


@pytest.mark.parametrize("chunk", [None, 1, 13])
@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_stored_stack(shape, spans, chunk):
    x, cells, y, z, timespans = case(*shape, spans=spans)
    assert takes_tiles(x, cells, y, z, timespans=timespans)
    *found, drift = oscillator_stack(x, cells, 0.7, y, z, timespans=timespans, chunk=chunk)
    expected = stored_stack(x, cells, 0.7, y, z, timespans=timespans, backend="reference")
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= 1e-12 * other.abs().max()
    ours, theirs = (gradients(results, x, cells, y, z) for results in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() <= 1e-10 * other.abs().max()
    assert drift.restarted == 0
    assert all(0 < worst <= drift.tolerance for worst in drift.worst)


def test_a_lost_past_is_run_again():
    x, cells, y, z, _ = case(400, 4, 2, 8, 2, dtype=torch.float32, low=-3.0)
    *found, drift = oscillator_stack(x, cells, 0.5, y, z, chunk=200)
    ours = gradients(found, x, cells, y, z)
    assert drift.restarted == drift.chunks == 2
    assert max(drift.worst) > drift.tolerance
    # run forwards again it starts from the bits of the forward pass, and only sums are taken in another order
    *stored, _ = oscillator_stack(x, cells, 0.5, y, z, chunk=400)
    for one, other in zip(ours, gradients(stored, x, cells, y, z), strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()
