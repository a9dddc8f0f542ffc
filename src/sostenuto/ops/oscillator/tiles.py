"""Layers of oscillators on each other as one function of eager code on the CPU, every state kept."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_positive
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import needs_reference, runs_eagerly
from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.tiles_autograd import TiledLayers, TilePlan

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
    if not eager or choose_backend(backend, y, built=("cpu", "gpu")) != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    if (timespans is not None and timespans.requires_grad) or needs_reference(x, y, z, *tensors):
        return False
    plain = all(tensor.dtype == y.dtype for tensor in tensors) and all(cell.weight_skip is None for cell in cells)
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
    the top layer's outputs, and the last y and z of all layers. It means `oscillator_stack.autograd.stored_stack`, and
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
    given = (x, y, z, *tensors)
    keep = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    found: Any = TiledLayers.apply(TilePlan(stiffness, keep, peak, step_sizes, masks), timespans, *given)
    return found
