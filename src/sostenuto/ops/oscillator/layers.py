"""Layers of oscillators on each other, by the way that suits the call: it is chosen here and nowhere else."""

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.oscillator.cell import Cell, with_masks, with_steps
from sostenuto.ops.oscillator.maximum import time_max
from sostenuto.ops.oscillator.recompute import StackResult, oscillator_stack
from sostenuto.ops.oscillator.scan import scan_layers
from sostenuto.ops.oscillator.tiles import oscillator_tiles, takes_tiles


def oscillator_layers(
    below: Sequence[Float[Tensor, "T B _"]],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    skip: int = 0,
    timespans: Float[Tensor, "T B"] | None = None,
    step_sizes: tuple[float, ...] | None = None,
    masks: Float[Tensor, "M B H"] | None = None,
    memory: Literal["store", "recompute"] = "store",
    give: Literal["outputs", "peak", "state"] = "outputs",
    backend: str = "auto",
    chunk: int | None = None,
) -> StackResult:
    """Run z ← z − g(tanh(w⊙y + V u + b) + αy), y ← y + g⊙z over time and all layers (rusch2021, eq. (6)).

    A layer's u is the output y of the layer below, times its mask; the first one's is the input.

    Args:
        below: the input; before it, where one layer of several is run, what its ``weight_skip`` reads.
        cells: the layers' tensors.
        stiffness: α ≥ 0.
        y: the first y of all layers.
        z: the first z of all layers.
        skip: a cell with ``weight_skip`` reads the output of the layer ``skip`` + 1 below it as well.
        timespans: factors of g at each step; a span of 0 leaves the state as it is.
        step_sizes: Δt of each layer; the cells' steps are then c, and g = Δt·σ̂(c).
        masks: of all layers but the top one.
        memory: ``"recompute"`` keeps the states between chunks of time only, and finds the others by the inverse.
        give: outputs of every step, each unit's largest output over time (its ties share the gradient), or none.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        chunk: steps of a chunk; 2√T unless given.

    Returns:
        The outputs (T, B, H), their largest (B, H), or those of some or no steps; the last y and z (L, B, H); and with
        ``memory="recompute"`` the record of drift.

    >>> import torch
    >>> cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    >>> zero = torch.zeros(1, 2, 2)
    >>> oscillator_layers([torch.ones(9, 2, 1)], [cell], 1.0, zero, zero, give="peak").outputs.shape
    torch.Size([2, 2])
    """
    x = below[-1]
    if memory == "store" and takes_tiles(x, cells, y, z, timespans=timespans, backend=backend):
        made = oscillator_tiles(
            x, cells, stiffness, y, z, timespans=timespans, masks=masks, peak=give == "peak", step_sizes=step_sizes
        )
        return StackResult(*made, None)
    cells = with_masks(with_steps(cells, step_sizes), masks)
    if memory == "store":
        made = scan_layers(below, cells, stiffness, y, z, skip=skip, timespans=timespans, backend=backend)
        result = StackResult(*made, None)
    else:
        result = oscillator_stack(
            x, cells, stiffness, y, z,
            skip=skip, timespans=timespans, backend=backend, chunk=chunk, outputs=give != "state",
        )  # fmt: skip
    return result if give != "peak" else result._replace(outputs=time_max(result.outputs.transpose(0, 1)))
