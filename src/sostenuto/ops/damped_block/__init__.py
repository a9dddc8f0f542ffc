"""A residual block around damped oscillators as one op: norm, input map, scan, mixing, gate and sum."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops.backend import choose_backend, kernels_of
from sostenuto.ops.damped_block.autograd import run_block
from sostenuto.ops.damped_block.reference import BlockWeights, Widening, damped_block_reference, mixed
from sostenuto.ops.dispatch import needs_reference, runs_eagerly

LEAST_ROWS = 64
"""Steps times sequences below which the parts run one by one: to lay out the weights takes longer."""
WIDEST = 1024
"""Most units whose row a program of the GPU holds whole."""

__all__ = ["LEAST_ROWS", "WIDEST", "BlockWeights", "Widening", "compiled_steps", "damped_block", "mixed"]


def damped_block(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weights: BlockWeights,
    *,
    lengths: Int[Tensor, " B"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B S"]]:
    """Run one block over all time: inputs + GLU(M GELU(p ⊙ scan(V norm(inputs) + b) + q ⊙ norm(inputs)) + m).

    The scan is `damped_scan`'s; `sostenuto.nn.Stack` writes the block out. Every tensor but ``lengths`` is
    differentiable. Few rows, a compiler and lower precision run the parts one by one; on a GPU so do time spans, and
    more than `WIDEST` units.

    Args:
        inputs: what the block reads, and adds to.
        start: the state before the first step, real parts and then imaginary parts.
        weights: coefficients and matrices.
        lengths: steps of each sequence; its state stays after them, and the block reads no past.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.

    Returns:
        The outputs and the last state.

    >>> one, eye = torch.ones(4), torch.eye(4)
    >>> weights = BlockWeights(
    ...     torch.zeros(2, 1, 1, 4), torch.ones(2, 1, 1, 4), torch.ones(2, 4), one, 0 * one, eye, None, one, one,
    ...     torch.cat([eye, eye]), None,
    ... )
    >>> outputs, last = damped_block(torch.zeros(30, 3, 4), torch.zeros(3, 8), weights)
    >>> outputs.shape, last.shape
    (torch.Size([30, 3, 4]), torch.Size([3, 8]))
    """
    tensors = [tensor for tensor in (inputs, start, *weights) if tensor is not None]
    same = all(tensor.dtype == start.dtype and tensor.device == start.device for tensor in tensors)
    plain = (
        runs_eagerly(*tensors) and not needs_reference(*tensors) and not torch.is_autocast_enabled(start.device.type)
    )
    chosen = choose_backend(backend, start)
    fused = same and plain and inputs.shape[0] * inputs.shape[1] >= LEAST_ROWS
    if not (fused and (chosen == "cpu" or (chosen == "gpu" and weights.spans is None and len(weights.norm) <= WIDEST))):
        return damped_block_reference(inputs, start, weights, lengths, backend=backend)
    return run_block(inputs, start, lengths, weights)


def compiled_steps(
    blocks: Sequence[BlockWeights], widening: Widening | None, *, backend: str = "auto"
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] | None:
    """Lay all blocks out for single steps without gradients on the CPU; None where no kernel is built for them.

    Args:
        blocks: the weights of each block, without time spans.
        widening: the map before the first block, if there is one.
        backend: that of the scans.

    Returns:
        ``step(inputs, real, imaginary)``, which gives the output and the states after it, real and imaginary parts.

    >>> one, eye = torch.ones(4), torch.eye(4)
    >>> weights = BlockWeights(
    ...     torch.zeros(2, 1, 1, 4), torch.ones(2, 1, 1, 4), torch.ones(2, 4), one, 0 * one, eye, None, one, one,
    ...     torch.cat([eye, eye]), None,
    ... )
    >>> step = compiled_steps([weights, weights], None)
    >>> [part.shape for part in step(torch.zeros(3, 4), torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))]
    [torch.Size([3, 4]), torch.Size([2, 3, 4]), torch.Size([2, 3, 4])]
    """
    tensors = [tensor for weights in blocks for tensor in weights if tensor is not None]
    first = tensors[0]
    same = all(tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors)
    if not same or choose_backend(backend, first) != "cpu":
        return None
    kernels = kernels_of("sostenuto.ops.damped_block", first)
    plan = kernels.plan_steps(blocks, widening)
    return lambda *parts: kernels.step_blocks(plan, *parts)
