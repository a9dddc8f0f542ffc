"""Layers of oscillators forward and back on the CPU: tensors laid out for the kernels, tiles handed to the threads."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.buffers import new
from sostenuto.ops.oscillator_stack.cell import Cell
from sostenuto.ops.oscillator_tiles import cpu
from sostenuto.ops.panel_product.cpu import pack_into, padded
from sostenuto.ops.threads import run_blocks

TILE = 16
"""Batch rows of a tile at most."""
RECOMPUTED_CHANNELS = 8
"""Up to so many input channels the first layer's tanh is computed again on the way back instead of kept."""


class Trace(NamedTuple):
    """What the way back reads: outputs of the lower layers, tanh of the layers that keep it, the last z of all."""

    kept: Float[Tensor, "M T columns"]
    risen: Float[Tensor, "N T columns"]
    last: Float[Tensor, "L B H"]


def forward(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    timespans: Float[Tensor, "T B"] | None,
    *,
    keep: bool,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "L B H"], Trace]:
    """Give the top layer's outputs, the last y of all layers and, where ``keep``, what the way back needs."""
    (T, B, channels), (L, _, H), dtype = x.shape, y.shape, y.dtype
    top = new((T, B, H), dtype)
    kept = new((L - 1 if keep else 0, T, B * H), dtype)
    risen = new((_risers(L, channels) if keep else 0, T, B * H), dtype)
    y_end, z_end = (part.detach().clone(memory_format=torch.contiguous_format) for part in (y, z))
    layers = _layers(cells, stiffness, timespans, dtype, back=False, input_gradient=False)
    read = layers, *_input(x), channels
    written = y_end.numpy(), z_end.numpy(), kept.numpy(), risen.numpy(), top.view(T, B * H).numpy()
    run_blocks(lambda low, high: cpu.forward_tile(*read, *written, low, high), B, tile_of(B))
    return top, y_end, Trace(kept, risen, z_end)


class TileGradients(NamedTuple):
    """Gradients of the input (None where not asked for), of the first y and z, and of each layer's V, w, g and b."""

    x: Float[Tensor, "T B F"] | None
    y: Float[Tensor, "L B H"]
    z: Float[Tensor, "L B H"]
    matrices: list[Tensor]
    weight: Float[Tensor, "L H"]
    step: Float[Tensor, "L H"]
    bias: Float[Tensor, "L H"]


def backward(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    timespans: Float[Tensor, "T B"] | None,
    top: Float[Tensor, "T B H"],
    trace: Trace,
    d_top: Float[Tensor, "T B H"] | None,
    d_y: Float[Tensor, "L B H"] | None,
    d_z: Float[Tensor, "L B H"] | None,
    *,
    input_gradient: bool,
) -> TileGradients:
    """Run the adjoint of all layers; a gradient that is None does not arrive."""
    (T, B, channels), (L, _, H), dtype = x.shape, y.shape, y.dtype
    y_bar, z_bar = (_start(gradient, y) for gradient in (d_y, d_z))
    d_x = new((T, B, channels) if input_gradient else (0, 1, 1), dtype)
    layers = _layers(cells, stiffness, timespans, dtype, back=True, input_gradient=input_gradient)
    tile, wide = tile_of(B), padded(H, dtype)
    tiles, rows = -(-B // tile), channels + (L - 1) * H
    d_matrix, d_vectors = np.zeros((tiles, rows * wide)), np.zeros((tiles, L, 3, H))
    read = (
        layers, *_input(x), channels, y.detach().contiguous().numpy(), trace.last.numpy(), trace.kept.numpy(),
        trace.risen.numpy(), top.view(T, B * H).numpy(), *_arriving(d_top, B * H, dtype),
    )  # fmt: skip
    written = y_bar.numpy(), z_bar.numpy(), d_x.flatten(1).numpy()

    def kernel(low: int, high: int) -> None:
        at = low // tile
        cpu.backward_tile(*read, *written, d_matrix[at], d_vectors[at], low, high)

    run_blocks(kernel, B, tile)
    sums = torch.from_numpy(d_matrix.sum(0)).view(rows, wide)[:, :H].to(dtype)
    matrices = [part.T.contiguous() for part in sums.split([channels, *[H] * (L - 1)])]
    weight, step, bias = torch.from_numpy(d_vectors.sum(0)).to(dtype).unbind(1)
    return TileGradients(d_x if input_gradient else None, y_bar, z_bar, matrices, weight, step, bias)


def tile_of(batch: int) -> int:
    """Choose the rows of a tile: every thread has as many as the others, as nearly as can be."""
    threads = max(torch.get_num_threads(), 1)
    rounds = -(-batch // (threads * TILE))
    return -(-batch // (threads * rounds))


def _risers(layers: int, channels: int) -> int:
    return layers - (channels <= RECOMPUTED_CHANNELS)


def _layers(
    cells: Sequence[Cell],
    stiffness: float,
    timespans: Tensor | None,
    dtype: torch.dtype,
    *,
    back: bool,
    input_gradient: bool,
) -> Any:
    matrices = [cell.weight_ih.detach().to(dtype).numpy() for cell in cells]
    none = np.empty(0, matrices[0].dtype)
    into = _packed([matrix.T for matrix in matrices], none)
    returned = [matrix if index or input_gradient else none.reshape(0, 0) for index, matrix in enumerate(matrices)]
    rows = [torch.stack([getattr(cell, name) for cell in cells]).detach().to(dtype) for name in ("weight_hh", "step")]
    width = rows[0].shape[1]
    bias = torch.stack([rows[0].new_zeros(width) if c.bias is None else c.bias for c in cells]).detach().to(dtype)
    masks = [cell.mask.detach().reshape(-1).to(dtype) for cell in cells if cell.mask is not None]
    mask = torch.stack(masks).numpy() if masks else none.reshape(0, 0)
    spans = none.reshape(0, 0) if timespans is None else timespans.detach().to(dtype).contiguous().numpy()
    factors, factors_at = _packed(returned if back else [], none)
    weight, step = (part.numpy() for part in rows)
    return cpu.Layers(
        into=into[0], into_at=into[1], back=factors, back_at=factors_at, bias=bias.numpy(), weight=weight, step=step,
        masks=mask, spans=spans, alpha=mask.dtype.type(stiffness),
    )  # fmt: skip


def _packed(matrices: list[Any], none: Any) -> tuple[Any, Any]:
    """Pack right factors one after the other; give them and where each begins."""
    kind = torch.from_numpy(none).dtype
    sizes = [matrix.shape[0] * padded(matrix.shape[1], kind) for matrix in matrices]
    borders = np.cumsum([0, *sizes])
    packed = torch.zeros(int(borders[-1]), dtype=kind).numpy()  # torch's memory begins where a vector does
    for matrix, low, high in zip(matrices, borders[:-1], borders[1:], strict=True):
        pack_into(matrix, packed[low:high])
    return packed, borders


def _input(x: Tensor) -> tuple[Any, int, int]:
    """Give the input flat, and how far its steps and its rows lie apart: any layout whose channels are neighbors."""
    x = x.detach() if x.stride(2) == 1 or x.shape[2] == 1 else x.detach().contiguous()
    span = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((span,), (1,)).numpy(), x.stride(0), x.stride(1)


def _arriving(d_top: Tensor | None, columns: int, dtype: torch.dtype) -> tuple[Any, int]:
    """Give the gradient's rows and 1; or, where all steps share one row, that row and 0."""
    if d_top is None:
        return torch.zeros(1, columns, dtype=dtype).numpy(), 0
    moves = int(d_top.stride(0) != 0 and d_top.shape[0] > 1)
    shared = d_top if moves else d_top[:1]
    return shared.detach().to(dtype).contiguous().view(len(shared), columns).numpy(), moves


def _start(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros(like.shape, dtype=like.dtype)
    return gradient.detach().to(like.dtype).clone(memory_format=torch.contiguous_format)
