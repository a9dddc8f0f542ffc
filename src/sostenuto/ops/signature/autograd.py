"""The compiled signature as one torch operator: what is saved, how it is differentiated and traced.

The kernels are in ``cpu.py``. Second derivatives go through the reference: a backward pass that is itself recorded is
written as the reference's.
"""

import importlib
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.dispatch import run_adjoint, runs_eagerly
from sostenuto.ops.signature.reference import signature_levels_reference


@torch.library.custom_op("sostenuto::signature_levels", mutates_args=())
def signature_levels_op(increments: Tensor, level: int, prefixes: bool) -> Tensor:
    """Return the levels of whole paths, or of every prefix."""
    return _kernels().forward(increments, level, prefixes)


@torch.library.custom_op("sostenuto::signature_levels_backward", mutates_args=())
def signature_levels_backward_op(increments: Tensor, level: int, prefixes: bool, gradient: Tensor) -> Tensor:
    """Return the gradient of the increments."""
    return _kernels().backward(increments, level, prefixes, gradient)


def _kernels() -> Any:
    """Import the kernels only when they are used."""
    return importlib.import_module("sostenuto.ops.signature.cpu.levels")


@signature_levels_op.register_fake
def _shape(increments: Tensor, level: int, prefixes: bool) -> Tensor:
    batch, time, channels = increments.shape
    size = sum(channels**k for k in range(1, level + 1))
    return increments.new_empty((batch, time, size) if prefixes else (batch, size))


@signature_levels_backward_op.register_fake
def _backward_shape(*inputs: Any) -> Tensor:
    return torch.empty_like(inputs[0], memory_format=torch.contiguous_format)


def compiled_levels(increments: Tensor, level: int, prefixes: bool) -> Tensor:
    """Run the kernels, directly in plain eager mode and as a registered operator elsewhere."""
    if runs_eagerly(increments):
        return _Levels.apply(increments, level, prefixes)  # pyright: ignore[reportReturnType]
    return signature_levels_op(increments, level, prefixes)


class _Levels(torch.autograd.Function):
    """The signature in eager code: the same kernels, the same rule backward."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Run the kernel and save the increments, all that the backward pass needs."""
        output = _kernels().forward(*inputs)
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint kernel, or the reference where the gradient is differentiated again."""
        return _differentiated(ctx, gradients[0], lambda *inputs: run_adjoint(_adjoint, *inputs)[0])


def _adjoint(*inputs: Any) -> tuple[Tensor]:
    return (_kernels().backward(*inputs),)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 (torch passes it by name)
    increments, ctx.level, ctx.prefixes = inputs
    ctx.save_for_backward(increments)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return _differentiated(ctx, gradient, signature_levels_backward_op)


def _differentiated(ctx: Any, gradient: Tensor, adjoint: Any) -> tuple[Tensor | None, ...]:
    (increments,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        levels = signature_levels_reference(increments, ctx.level, prefixes=ctx.prefixes)
        return torch.autograd.grad(levels, increments, gradient, create_graph=True)[0], None, None
    return adjoint(increments, ctx.level, ctx.prefixes, gradient), None, None


signature_levels_op.register_autograd(_backward, setup_context=_setup)
