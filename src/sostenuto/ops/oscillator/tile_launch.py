"""Layers of oscillators forward and back on the CPU: tensors laid out for the kernels, tiles handed to the threads."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._cpu.input_map import flat_input
from sostenuto.ops._cpu.panel_product import pack_into, padded
from sostenuto.ops._cpu.threads import run_kernel
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.cpu import tiles as cpu

TILE = 16
"""Batch rows of a tile at most."""


States = tuple[Float[Tensor, "L B H"], Float[Tensor, "L B H"]]


class Trace(NamedTuple):
    """What the backward pass reads: the lower layers' outputs, tanh and the last z of all, the top layer's outputs."""

    kept: Float[Tensor, "M T columns"]
    activated: Float[Tensor, "L T columns"]
    last: Float[Tensor, "L B H"]
    top: Float[Tensor, "T B H"]


class Peaks(NamedTuple):
    """The top layer's largest outputs over time, and how many steps have them; empty where they are not needed."""

    largest: Float[Tensor, "P H"]
    holders: Float[Tensor, "P H"]

    @classmethod
    def empty(cls, B: int, H: int, dtype: torch.dtype) -> "Peaks":
        """Allocate; for a batch of 0 there is none."""
        return cls(torch.empty(B, H, dtype=dtype), torch.empty(B, H, dtype=dtype))


def forward(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    timespans: Float[Tensor, "T B"] | None,
    step_sizes: tuple[float, ...] | None = None,
    masks: Float[Tensor, "M B H"] | None = None,
    *,
    keep: bool,
    input_gradient: bool,
    peak: bool = False,
) -> tuple[Float[Tensor, "L B H"], Trace, Peaks, Any]:
    """Return the last y of all layers, the trace, the largest outputs where ``peak``, and the weights as laid out.

    The trace has the top layer's outputs and, where ``keep``, what the backward pass needs; it has nothing where
    neither is wanted. ``input_gradient`` says whether ``x`` will have one.
    """
    (T, B), H = x.shape[:2], y.shape[2]
    top, peaks = new((T if keep or not peak else 0, B, H), y.dtype), Peaks.empty(B if peak else 0, H, y.dtype)
    ends = torch.empty(y.shape, dtype=y.dtype), torch.empty(y.shape, dtype=y.dtype)
    wanted = {"back": keep, "input_gradient": input_gradient}
    layers = laid_out(cells, stiffness, timespans, y.dtype, step_sizes, masks, **wanted)
    kept, activated = run_forward(layers, x, (y, z), ends, top, peaks, keep=keep)
    y_end, z_end = ends
    return y_end, Trace(kept, activated, z_end, top), peaks, layers


def run_forward(
    layers: Any,
    x: Float[Tensor, "T B F"],
    first: States,
    last: States,
    top: Float[Tensor, "S B H"],
    peaks: Peaks | None = None,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Write the outputs into ``top`` and the last states into ``last``; give what is kept of all layers."""
    (T, B, _), (L, _, H) = x.shape, last[0].shape
    kept, activated = empty_trace(T, B, H, L if keep else 0, top.dtype)
    y, z = (part.detach().contiguous().numpy() for part in first)
    largest, holders = (part.view(-1).numpy() for part in peaks or Peaks.empty(0, H, top.dtype))
    run = cpu.ForwardRun(
        y, z, last[0].numpy(), last[1].numpy(), kept.numpy(), activated.numpy(), T, top.view(len(top), B * H).numpy(),
        largest, holders,
    )  # fmt: skip
    run_kernel(cpu.forward_tile, cpu.forward_tiles, (layers, flat_input(x), run), B, tile_of(B))
    return kept, activated


def empty_trace(T: int, B: int, H: int, layers: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Allocate the outputs of all layers but the top one, and for tanh of all; for none if there is no layer."""
    return new((max(layers - 1, 0), T, B * H), dtype), new((layers, T, B * H), dtype)


class TileGradients(NamedTuple):
    """Gradients of the input (None where not asked for), of the first y and z, and of each layer's V, w, g and b.

    Where those of the first states are not needed they have no layers; where the steps were given as c, ``step`` has
    its gradients.
    """

    x: Float[Tensor, "T B F"] | None
    y: Float[Tensor, "S B H"]
    z: Float[Tensor, "S B H"]
    matrices: list[Tensor]
    weight: list[Tensor]
    step: list[Tensor]
    bias: list[Tensor]

    def listed(self, input_dtype: torch.dtype) -> list[Tensor | None]:
        """List them in the order of cells' fields; a mask and what is skipped have none."""
        listed: list[Tensor | None] = [None if self.x is None else self.x.to(input_dtype), self.y, self.z]
        for matrix, bias, weight, step in zip(self.matrices, self.bias, self.weight, self.step, strict=True):
            listed += [matrix, bias, None, weight, step, None]
        return listed


class Sums(NamedTuple):
    """What the backward pass adds up: gradients of the states, and each tile's own of the matrices and vectors."""

    y: Float[Tensor, "S B H"]
    z: Float[Tensor, "S B H"]
    matrices: Any
    vectors: Any

    @classmethod
    def empty(
        cls,
        channels: int,
        like: Float[Tensor, "L B H"],
        arriving: tuple[Tensor | None, Tensor | None],
        *,
        states: bool = True,
    ) -> "Sums":
        """Begin with the gradients that arrive at the last y and z; the others are set by the first `run_backward`.

        Without ``states`` the gradients of the first ones are not needed; where none arrive, they are left out.
        """
        (L, B, H), dtype = like.shape, torch.float64
        tiles, rows = -(-B // tile_of(B)), channels + (L - 1) * H
        sums = new((tiles, rows, padded(H, like.dtype)), dtype), new((tiles, L, 3, H), dtype)
        left_out = not states and all(gradient is None for gradient in arriving)
        cotangents = [like.new_empty(0, B, H) if left_out else _start(gradient, like) for gradient in arriving]
        return cls(*cotangents, *(part.numpy() for part in sums))

    def gradients(self, layers: Any, d_x: Float[Tensor, "T B F"] | None) -> TileGradients:
        """Add the tiles up."""
        (_, L, _, H), rows = self.vectors.shape, self.matrices.shape[1]
        matrices, vectors = (part[0] if len(part) == 1 else part.sum(0) for part in (self.matrices, self.vectors))
        if len(layers.sizes) > 0:
            vectors[:, 1] *= layers.sizes[:, None] * layers.rates * (1 - layers.rates)
        kind, top = layers.weight.dtype, rows - (L - 1) * H
        cuts = [0, *range(top, rows + 1, H)]
        named = [
            torch.from_numpy(matrices[low:high, :H].T.astype(kind, order="C")) for low, high in itertools.pairwise(cuts)
        ]
        parts = torch.from_numpy(vectors.astype(kind)).view(3 * L, H).unbind()
        return TileGradients(d_x, self.y, self.z, named, *(list(parts[place::3]) for place in range(3)))


def backward(
    layers: Any,
    x: Float[Tensor, "T B F"],
    y: Float[Tensor, "L B H"],
    trace: Trace,
    peaks: Peaks | None,
    d_top: Float[Tensor, "*T B H"] | None,
    d_y: Float[Tensor, "L B H"] | None,
    d_z: Float[Tensor, "L B H"] | None,
    *,
    input_gradient: bool,
    state_gradients: bool = True,
) -> TileGradients:
    """Run the adjoint of all layers, laid out by `forward`; a gradient that is None does not arrive.

    With ``peaks`` the gradient ``d_top`` is that of the largest outputs: steps that share one share it evenly.
    """
    d_x = new(tuple(x.shape), y.dtype) if input_gradient else None
    sums = Sums.empty(x.shape[2], y, (d_y, d_z), states=state_gradients)
    if peaks is None or d_top is None:
        run_backward(layers, x, y, trace, d_top, d_x, sums)
    else:
        run_backward(layers, x, y, trace, (d_top / peaks.holders)[None], d_x, sums, peaks.largest)
    return sums.gradients(layers, d_x)


def run_backward(
    layers: Any,
    x: Float[Tensor, "T B F"],
    y: Float[Tensor, "L B H"],
    trace: Trace,
    d_top: Float[Tensor, "S B H"] | None,
    d_x: Float[Tensor, "T B F"] | None,
    sums: Sums,
    largest: Float[Tensor, "B H"] | None = None,
    *,
    begins: bool = True,
) -> None:
    """Run the adjoint over a stretch of time that began with ``y``; the sums begin here, or go on from later ones.

    Where ``largest`` outputs are given, the one row of ``d_top`` is for the steps that have them.
    """
    (T, B, channels), H = x.shape, y.shape[2]
    target = new((0, 1), y.dtype) if d_x is None else d_x.view(T, B * channels)
    most = new((0,), y.dtype) if largest is None else largest.detach().view(-1)
    kept, activated = trace.kept.numpy(), trace.activated.numpy()
    run = cpu.BackwardRun(
        y.detach().contiguous().numpy(), trace.last.numpy(), kept, activated, trace.top.view(T, B * H).numpy(),
        most.numpy(), *_arriving(d_top, B * H, y.dtype),
    )  # fmt: skip
    tile = tile_of(B)
    d_states = sums.y.numpy(), sums.z.numpy()
    gradients = cpu.Gradients(*d_states, target.numpy(), sums.matrices, sums.vectors, tile, begins)
    run_kernel(cpu.backward_tile, cpu.backward_tiles, (layers, flat_input(x), run, gradients), B, tile)


def tile_of(batch: int) -> int:
    """Choose the rows of a tile: every thread has as many as the others, as nearly as can be."""
    threads = max(torch.get_num_threads(), 1)
    rounds = -(-batch // (threads * TILE))
    return -(-batch // (threads * rounds))


def laid_out(
    cells: Sequence[Cell],
    stiffness: float,
    timespans: Tensor | None,
    dtype: torch.dtype,
    step_sizes: tuple[float, ...] | None = None,
    masks: Float[Tensor, "M B H"] | None = None,
    *,
    back: bool,
    input_gradient: bool,
) -> Any:
    """Lay the weights of all layers out for the kernels; ``back`` packs the matrices for the backward pass too.

    With ``step_sizes`` Δt the cells' steps are c, and g = Δt·σ̂(c). ``masks`` take the place of the cells' own.
    """
    L, (H, channels), none = len(cells), cells[0].weight_ih.shape, torch.empty(0, dtype=dtype)
    still = none if all(cell.bias is not None for cell in cells) else torch.zeros(H, dtype=dtype)
    vectors = [[cell.weight_hh for cell in cells], [cell.step for cell in cells]]
    vectors.append([still if cell.bias is None else cell.bias for cell in cells])
    stacked = torch.cat([vector.detach() for kind in vectors for vector in kind]).to(dtype).view(3, L, H)
    rates = none.view(0, H).numpy() if step_sizes is None else torch.sigmoid(stacked[1]).numpy()
    weight, step, bias = stacked.numpy()
    widths = padded(H, dtype), padded(channels, dtype)
    into_at = _borders([depth * widths[0] for depth in (channels, *[H] * (L - 1))])
    back_at = _borders([H * widths[1] * input_gradient, *[H * widths[0]] * (L - 1)] if back else [])
    # whole vectors, so that both begin at a vector's border
    into, factors = np.split(torch.empty(int(into_at[-1] + back_at[-1]), dtype=dtype).numpy(), [int(into_at[-1])])
    sizes = np.array(step_sizes or (), into.dtype)
    if step_sizes is not None:
        np.multiply(sizes[:, None], rates, out=step)
    for layer, cell in enumerate(cells):
        matrix = cell.weight_ih.detach().to(dtype).numpy()
        pack_into(matrix.T, into[into_at[layer] : into_at[layer + 1]])
        if back and back_at[layer + 1] > back_at[layer]:
            pack_into(matrix, factors[back_at[layer] : back_at[layer + 1]])
    if masks is None:
        drawn = [cell.mask.detach().reshape(-1) for cell in cells if cell.mask is not None]
        masks = torch.stack(drawn) if drawn else none.view(0, 0, 1)
    layers = cpu.Layers(
        into=into, into_at=into_at, back=factors, back_at=back_at, bias=bias, weight=weight, step=step,
        masks=masks.to(dtype).flatten(1).numpy(), spans=none.view(0, 0).numpy(),
        alpha=into.dtype.type(stiffness), sizes=sizes, rates=rates,
    )  # fmt: skip
    return with_spans(layers, timespans, dtype)


def with_spans(layers: Any, timespans: Float[Tensor, "T B"] | None, dtype: torch.dtype) -> Any:
    """Put the time spans of a stretch of time beside the weights."""
    return layers if timespans is None else layers._replace(spans=timespans.detach().to(dtype).contiguous().numpy())


def _borders(sizes: list[int]) -> Any:
    """Say where parts that lie one after the other begin, and where the last one ends."""
    return np.array([0, *itertools.accumulate(sizes)])


def _arriving(d_top: Tensor | None, columns: int, dtype: torch.dtype) -> tuple[Any, int]:
    """Return the gradient's rows and 1; or, where all steps share one row, that row and 0."""
    if d_top is None:
        return torch.zeros(1, columns, dtype=dtype).numpy(), 0
    has_time_stride = int(d_top.stride(0) != 0 and d_top.shape[0] > 1)
    shared = d_top if has_time_stride else d_top[:1]
    return shared.detach().to(dtype).contiguous().view(len(shared), columns).numpy(), has_time_stride


def _start(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros(like.shape, dtype=like.dtype)
    return gradient.detach().to(like.dtype).clone(memory_format=torch.contiguous_format)
