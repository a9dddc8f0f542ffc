"""The fast scan of damped oscillators as one torch operator: what is saved, how it is differentiated and batched.

The kernels are in ``cpu.py`` and ``gpu.py``. Second derivatives go through the reference: a backward pass that is
itself recorded is written as the reference's.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.backend import kernels_of
from sostenuto.ops.damped.reference import damped_scan_reference
from sostenuto.ops.dispatch import folded, one_by_one, run_adjoint, runs_eagerly

_kernels = partial(kernels_of, "sostenuto.ops.damped")


@torch.library.custom_op("sostenuto::damped_scan", mutates_args=())
def damped_scan_op(
    inputs: Tensor, start: Tensor, power: Tensor, gain: Tensor, readout: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the scan; return the outputs, the last state and every state."""
    return _kernels(start).forward(inputs, start, power, gain, readout, lengths)


@torch.library.custom_op("sostenuto::damped_scan_backward", mutates_args=())
def damped_scan_backward_op(
    inputs: Tensor,
    start: Tensor,
    power: Tensor,
    gain: Tensor,
    readout: Tensor,
    lengths: Tensor | None,
    states: Tensor,
    d_outputs: Tensor,
    d_last: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the adjoint; return the gradients of inputs, start, power, gain and readout."""
    results = _kernels(start).backward(inputs, start, power, gain, readout, lengths, states, d_outputs, d_last)
    d_inputs, d_start, *others = results
    return d_inputs, d_start, *(part.clone() for part in others)  # an operator's results may not share memory


@damped_scan_op.register_fake
def _scan_shapes(*tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs, start, *_ = tensors
    states = (inputs.shape[0], *start.shape)
    return start.new_empty(inputs.shape), start.new_empty(start.shape), start.new_empty(states)


@damped_scan_backward_op.register_fake
def _backward_shapes(*tensors: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    start = tensors[1]
    return tuple(start.new_empty(like.shape) for like in tensors[:5])  # pyright: ignore[reportReturnType]


def scan(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Run the scan of ``(inputs, start, power, gain, readout, lengths)``."""
    if not runs_eagerly(*inputs):
        return damped_scan_op(*inputs)[:2]
    if not torch.is_grad_enabled():
        return _kernels(inputs[1]).forward(*inputs, keep=False)[:2]
    return _Scan.apply(*inputs)  # pyright: ignore[reportReturnType]


class _Scan(torch.autograd.Function):
    """The scan in eager code: the same kernels, the same rule backward."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Run the kernel of the device and save what the backward pass needs."""
        outputs, last, states = _kernels(inputs[1]).forward(*inputs, keep=any(ctx.needs_input_grad))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, states)
        return outputs, last

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint kernel, or the reference where the gradient is differentiated again."""
        d_outputs, d_last = gradients
        return _differentiated(ctx, d_outputs, d_last, lambda *read: run_adjoint(_kernels(read[1]).backward, *read))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs, output[2])


def _backward(ctx: Any, d_outputs: Tensor, d_last: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _differentiated(ctx, d_outputs, d_last, damped_scan_backward_op)


def _differentiated(
    ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None, adjoint: Any
) -> tuple[Tensor | None, ...]:
    *tensors, lengths, states = ctx.saved_tensors
    inputs, start = tensors[:2]
    arriving = start.new_zeros(()).expand(inputs.shape) if d_outputs is None else d_outputs
    ending = start.new_zeros(()).expand(start.shape) if d_last is None else d_last
    if torch.is_grad_enabled():
        return *_recorded(tensors, lengths, (arriving, ending)), None
    if arriving.stride(0) == 0:
        arriving = arriving[:1]  # the same at every step, as where outputs are summed or only the last one is used
    d_inputs, *others = adjoint(*tensors, lengths, states, arriving.contiguous(), ending.contiguous())
    return d_inputs.to(inputs.dtype), *others, None


def _recorded(
    tensors: list[Tensor], lengths: Tensor | None, gradients: tuple[Tensor, Tensor]
) -> tuple[Tensor | None, ...]:
    """Differentiate the reference, keeping the graph, so that the gradient can be differentiated again."""
    inputs, start, power, gain, readout = tensors
    results = damped_scan_reference(inputs, start, power, gain, readout, lengths=lengths)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    derivatives = iter(torch.autograd.grad(results, wanted, gradients, create_graph=True, allow_unused=True))
    return tuple(next(derivatives) if tensor.requires_grad else None for tensor in tensors)


damped_scan_op.register_autograd(_backward, setup_context=_setup)


@damped_scan_op.register_vmap
def _batched(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Fold a mapped axis into the batch; where coefficients differ along it, run one after the other."""
    x, start, power, gain, readout, lengths = inputs
    size = info.batch_size
    shared = all(dim is None for dim in in_dims[2:5]) and power.shape[2] == gain.shape[2] == 1
    if not shared:
        return one_by_one(damped_scan_op, size, in_dims, inputs)
    x, start = folded(x, in_dims[0], size, 1), folded(start, in_dims[1], size, 0)
    lengths = None if lengths is None else folded(lengths, in_dims[5], size, 0)
    outputs, last, states = damped_scan_op(x, start, power, gain, readout, lengths)
    parted = outputs.unflatten(1, (size, -1)), last.unflatten(0, (size, -1)), states.unflatten(1, (size, -1))
    return parted, (1, 0, 1)


@damped_scan_backward_op.register_vmap
def _batched_backward(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
    """Run one after the other: each has weight gradients of its own."""
    return one_by_one(damped_scan_backward_op, info.batch_size, in_dims, inputs)
