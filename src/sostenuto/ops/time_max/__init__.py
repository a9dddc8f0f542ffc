"""The largest value over time, with a way back that costs next to nothing on the CPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops import buffers
from sostenuto.ops.backend import HAS_NUMBA
from sostenuto.ops.dispatch import in_forward_mode, runs_eagerly


def time_max(values: Float[Tensor, "B T H"]) -> Float[Tensor, "B H"]:
    """Give max_t values; where several steps hold it, they share its gradient evenly, as in `torch.amax`.

    torch's own way back looks for the largest value at every step again, three passes over all of them. In eager code
    on the CPU, where values lie step after step as the layers write them, the forward pass notes the step instead. Any
    other values are torch's.

    >>> time_max(torch.tensor([[[1.0, 4.0], [3.0, 2.0]]])).tolist()
    [[3.0, 4.0]]
    """
    lies_by_steps = values.ndim == 3 and values.transpose(0, 1).is_contiguous() and values.numel() > 0
    known = values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64) and HAS_NUMBA
    if known and lies_by_steps and values.requires_grad and runs_eagerly(values) and not in_forward_mode(values):
        return _TimeMax.apply(values)  # pyright: ignore[reportReturnType]
    return values.amax(1)


class _TimeMax(torch.autograd.Function):
    """The maximum, the step that has it, and the count of steps that do."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        """Find all three in one pass."""
        from sostenuto.ops.time_max import cpu

        largest, steps, alone = cpu.largest(values)
        ctx.alone, ctx.steps, ctx.shape = alone, steps, values.shape
        ctx.save_for_backward(values, largest)
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        """Hand the gradient to the step noted, or evenly to those that share the value."""
        (gradient,) = gradients
        values, largest = ctx.saved_tensors
        if ctx.alone:
            B, T, H = ctx.shape
            spread = buffers.new((T, B, H), gradient.dtype).zero_()
            return spread.scatter_(0, ctx.steps[None], gradient[None]).transpose(0, 1)
        holds = values == largest[:, None]
        return holds * (gradient / holds.sum(1))[:, None]
