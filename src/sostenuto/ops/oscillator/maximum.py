"""The largest value over time, with a backward pass that costs next to nothing on the CPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.backend import HAS_NUMBA
from sostenuto.ops.dispatch import in_forward_mode, run_adjoint, runs_eagerly


def time_max(values: Float[Tensor, "B T H"]) -> Float[Tensor, "B H"]:
    """Return max_t values; where several steps hold it, they share its gradient evenly, as in `torch.amax`.

    torch's own backward pass goes three times over all steps. In eager code on the CPU, where values lie step after
    step as the layers write them, one pass finds the largest value again and hands it its gradient. All others are
    torch's.

    >>> time_max(torch.tensor([[[1.0, 4.0], [3.0, 2.0]]])).tolist()
    [[3.0, 4.0]]
    """
    lies_by_steps = values.ndim == 3 and values.transpose(0, 1).is_contiguous() and values.numel() > 0
    known = values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64) and HAS_NUMBA
    if known and lies_by_steps and values.requires_grad and runs_eagerly(values) and not in_forward_mode(values):
        return _TimeMax.apply(values)  # pyright: ignore[reportReturnType]
    return values.amax(1)


class _TimeMax(torch.autograd.Function):
    """torch's maximum, and a backward pass in one pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        """Find the largest values."""
        largest = values.amax(1)
        ctx.save_for_backward(values, largest)
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        """Hand the gradient to the step that has the value, or evenly to those that share it."""
        (gradient,) = gradients
        values, largest = ctx.saved_tensors
        if torch.is_grad_enabled():
            holds = values == largest[:, None]
            return holds * (gradient / holds.sum(1))[:, None]
        from sostenuto.ops.oscillator.cpu import maximum as cpu

        return run_adjoint(lambda gradient: (cpu.max_backward(values, largest, gradient),), gradient)[0]
