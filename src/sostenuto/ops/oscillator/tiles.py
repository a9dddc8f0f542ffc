"""Layers of oscillators on each other as one function of eager code on the CPU, every state kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_positive
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import needs_reference, recorded_gradients, run_adjoint, runs_eagerly
from sostenuto.ops.oscillator.cell import Cell, cells_of, with_masks, with_steps
from sostenuto.ops.oscillator.scan import scan_layers


@dataclass(frozen=True)
class TilePlan:
    """What is asked of all tiles: whether a backward pass, whether the largest outputs, and what a cell's step means.

    Without ``step_sizes`` it is g. With one Δt for each layer it is c, and g = Δt·σ̂(c) is made where the weights are
    laid out: as operations of their own, three layers' steps took as long as all of that. ``masks`` of all layers but
    the top one, in one tensor, take the place of the cells' own.
    """

    stiffness: float
    keep: bool
    peak: bool
    step_sizes: tuple[float, ...] | None
    masks: Tensor | None


class TiledLayers(torch.autograd.Function):
    """Call ``apply(plan, timespans, x, y, z, *tensors)`` with the cells' fields one after the other.

    Returns the top layer's outputs, or the largest of each unit over time, and the last y and z of all layers.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run all tiles; keep what the backward pass needs."""
        from sostenuto.ops.oscillator import tile_launch as sweep

        plan, timespans, x, y, z, *tensors = inputs
        wanted = {"keep": plan.keep, "input_gradient": ctx.needs_input_grad[2], "peak": plan.peak}
        operands = x.to(y.dtype), cells_of(tensors), plan.stiffness, y, z, timespans, plan.step_sizes, plan.masks
        y_end, trace, peaks, layers = sweep.forward(*operands, **wanted)
        ctx.plan = plan
        ctx.set_materialize_grads(False)
        if plan.keep:
            ctx.layers = layers  # copies; that no weight has changed since is checked where the saved ones are unpacked
            ctx.save_for_backward(timespans, x, y, z, *tensors, *trace, *peaks)
        return peaks.largest if plan.peak else trace.top, y_end, trace.last

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint of all tiles."""
        timespans, x, y, z, *tensors, kept, activated, last, top, largest, holders = ctx.saved_tensors
        wanted, plan = ctx.needs_input_grad[2:], ctx.plan
        if torch.is_grad_enabled():
            cells = with_steps(with_masks(cells_of(tensors), plan.masks), plan.step_sizes)
            outputs, *ends = scan_layers([x.to(y.dtype)], cells, plan.stiffness, y, z, timespans=timespans)
            results = outputs.amax(0) if plan.peak else outputs, *ends
            gradients = recorded_gradients(results, (x, y, z, *tensors), arriving)
        else:
            from sostenuto.ops.oscillator import tile_launch as sweep

            peaks = sweep.Peaks(largest, holders) if plan.peak else None
            operands = (ctx.layers, x.to(y.dtype), y, sweep.Trace(kept, activated, last, top), peaks)
            needed = {"input_gradient": wanted[0], "state_gradients": wanted[1] or wanted[2]}
            gradients = run_adjoint(lambda *d: sweep.backward(*operands, *d, **needed).listed(x.dtype), *arriving)
        return None, None, *(g if want else None for g, want in zip(gradients, wanted, strict=True))


LEAST_ROWS = 256
"""Rows, of all steps and sequences, from which tiles are worth the packing of wide matrices, and several threads."""
NARROW_UNITS = 256
"""Units or channels up to which packing is cheap: fewer rows take tiles too, and compile no second kernel."""
IDLE_SHARE = 1.4
"""Threads over the share of them that has work, at most: one sequence alone is better spread by its units."""
MOST_UNITS = 512
"""Units or channels up to which a layer's matrices stay in the second cache."""


def takes_tiles(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
) -> bool:
    """Whether `oscillator_tiles` can run this, and fast: eager code on the CPU, little work or some for every thread.

    >>> cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    >>> takes_tiles(torch.ones(3, 1, 1), [cell], torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    True
    """
    T, B, channels = x.shape
    tensors = [tensor for cell in cells for tensor in cell if tensor is not None]
    eager = runs_eagerly(x, y, z, timespans, *tensors)
    if not eager or choose_backend(backend, y) != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    if (timespans is not None and timespans.requires_grad) or needs_reference(x, y, z, *tensors):
        return False
    plain = all(tensor.dtype == y.dtype for tensor in tensors) and all(cell.weight_skip is None for cell in cells)
    if T == 1 and not torch.is_grad_enabled():  # of a stream: one step has nothing to tile
        return False
    width, threads = max(channels, y.shape[2]), torch.get_num_threads()
    if T * B < LEAST_ROWS:
        return plain and width <= NARROW_UNITS
    balanced = -(-B // threads) * threads <= IDLE_SHARE * B
    return plain and balanced and width <= MOST_UNITS


def oscillator_tiles(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    timespans: Float[Tensor, "T B"] | None = None,
    masks: Float[Tensor, "M B H"] | None = None,
    peak: bool = False,
    step_sizes: tuple[float, ...] | None = None,
) -> tuple[Float[Tensor, "*T B H"], Float[Tensor, "L B H"], Float[Tensor, "L B H"]]:
    """Run z ← z − g(tanh(w⊙y + V u + b) + αy), y ← y + g⊙z over time and all layers.

    A layer's u is the output y of the layer below, times its mask where it has one; the first one's is ``x``. Returns
    the top layer's outputs, and the last y and z of all layers. It means `scan_layers`, and
    asks for what `takes_tiles` looks at. With ``peak`` each unit's largest output over time takes the place of all
    outputs, with the gradient of `time_max`: the tiles follow it as they run. With ``step_sizes`` Δt,
    one for each layer, the cells' steps are c, and g = Δt·σ̂(c). ``masks`` of all layers but the top one take the place
    of the cells' own. Reference: rusch2021, eq. (6).

    >>> cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    >>> outputs, y, z = oscillator_tiles(torch.zeros(9, 2, 1), [cell], 1.0, torch.zeros(1, 2, 2), torch.zeros(1, 2, 2))
    >>> outputs.shape, float(outputs.abs().max())
    (torch.Size([9, 2, 2]), 0.0)
    """
    check_positive("stiffness", stiffness, zero=True)
    tensors = [field for cell in cells for field in cell]
    inputs = (x, y, z, *tensors)
    keep = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs)
    result: Any = TiledLayers.apply(TilePlan(stiffness, keep, peak, step_sizes, masks), timespans, *inputs)
    return result
