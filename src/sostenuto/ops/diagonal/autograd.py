"""The fast diagonal scans as one torch operator: what is saved, how it is differentiated, batched and traced.

The kernels are in ``cpu.py`` and ``gpu.py``; candidates make the recurrence the gated one.
Second derivatives go through the reference: a backward pass that is itself recorded is written as the reference's.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.backend import kernels_of
from sostenuto.ops.diagonal.reference import diagonal_scan_reference, gated_scan_reference
from sostenuto.ops.dispatch import folded, one_by_one, recorded_gradients, run_adjoint, runs_eagerly

_kernels = partial(kernels_of, "sostenuto.ops.diagonal")


@torch.library.custom_op("sostenuto::diagonal_scan", mutates_args=())
def diagonal_scan_op(
    inputs: Tensor, candidates: Tensor | None, start: Tensor, vectors: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Run the scan; return every state and the last one. ``vectors`` (4, H) are w, p, q and the threshold."""
    return _kernels(start).forward(inputs, candidates, start, vectors, activation)


@torch.library.custom_op("sostenuto::diagonal_scan_backward", mutates_args=())
def diagonal_scan_backward_op(
    inputs: Tensor,
    candidates: Tensor | None,
    start: Tensor,
    vectors: Tensor,
    activation: str,
    states: Tensor,
    d_states: Tensor,
    d_last: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the adjoint; return the gradients of inputs, candidates, start and vectors."""
    return _kernels(start).backward(inputs, candidates, start, vectors, activation, states, d_states, d_last)


@diagonal_scan_op.register_fake
def _scan_shapes(*tensors: Any) -> tuple[Tensor, Tensor]:
    inputs, _, start, _, _ = tensors
    return start.new_empty(inputs.shape), start.new_empty(start.shape)


@diagonal_scan_backward_op.register_fake
def _backward_shapes(*tensors: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs, candidates, start, vectors, *_ = tensors
    shapes = (inputs.shape, (0,) if candidates is None else candidates.shape, start.shape, vectors.shape)
    return tuple(start.new_empty(shape) for shape in shapes)  # pyright: ignore[reportReturnType]


def scan(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Run the scan of ``(inputs, candidates, start, vectors, activation)``."""
    return _Scan.apply(*inputs) if runs_eagerly(*inputs) else diagonal_scan_op(*inputs)  # pyright: ignore[reportReturnType]


class _Scan(torch.autograd.Function):
    """The scan in eager code: the same kernels, the same rule backward."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Run the kernel of the device and save what the backward pass needs."""
        output = _kernels(inputs[2]).forward(*inputs)
        ctx.set_materialize_grads(False)
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint kernel, or the reference where the gradient is differentiated again."""
        return _differentiated(ctx, gradients, _adjoint)


def _adjoint(inputs: Tensor, candidates: Tensor | None, start: Tensor, *others: Any) -> tuple[Tensor, ...]:
    return run_adjoint(_kernels(start).backward, inputs, candidates, start, *others)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.activation = inputs
    ctx.save_for_backward(*tensors, output[0])


def _backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    return _differentiated(ctx, gradients, diagonal_scan_backward_op)


def _differentiated(ctx: Any, gradients: tuple[Tensor | None, ...], adjoint: Any) -> tuple[Tensor | None, ...]:
    *tensors, states = ctx.saved_tensors
    inputs, candidates, start, _ = tensors
    d_states, d_last = (
        like.new_zeros(()).expand(like.shape) if gradient is None else gradient
        for gradient, like in zip(gradients, (states, start), strict=True)
    )
    if torch.is_grad_enabled():
        return *_recorded(tuple(tensors), ctx.activation, (d_states, d_last)), None
    if d_states.stride(0) == 0:
        d_states = d_states[:1]  # the same at every step, as where outputs are summed or only the last one is used
    d_inputs, d_candidates, d_start, d_vectors = adjoint(
        *tensors, ctx.activation, states, d_states.contiguous(), d_last.contiguous()
    )
    d_candidates = None if candidates is None else d_candidates.to(candidates.dtype)
    return d_inputs.to(inputs.dtype), d_candidates, d_start, d_vectors, None


def _recorded(
    tensors: tuple[Tensor | None, ...], activation: str, gradients: tuple[Tensor, Tensor]
) -> tuple[Tensor | None, ...]:
    """Differentiate the reference, keeping the graph, so that the gradient can be differentiated again."""
    inputs, candidates, start, vectors = tensors
    assert inputs is not None
    assert start is not None
    assert vectors is not None
    w, p, q, threshold = vectors.unbind(0)
    if candidates is None:
        kept = threshold if activation == "modrelu" else None
        results = diagonal_scan_reference(inputs, start, w, p, q, activation=activation, threshold=kept)
    else:
        results = gated_scan_reference(inputs, candidates, start, w)
    return tuple(recorded_gradients(results, tensors, gradients))


diagonal_scan_op.register_autograd(_backward, setup_context=_setup)


@diagonal_scan_op.register_vmap
def _batched(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Fold a mapped axis into the batch; where weights differ along it, run one after the other."""
    size = info.batch_size
    if in_dims[3] is None:
        folds = zip(inputs[:3], in_dims[:3], (1, 1, 0), strict=True)
        whole = [None if value is None else folded(value, dim, size, axis) for value, dim, axis in folds]
        states, last = diagonal_scan_op(*whole, *inputs[3:])
        return (states.unflatten(1, (size, -1)), last.unflatten(0, (size, -1))), (1, 0)
    return one_by_one(diagonal_scan_op, info.batch_size, in_dims, inputs)


@diagonal_scan_backward_op.register_vmap
def _batched_backward(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
    """Run one after the other: each has weight gradients of its own."""
    return one_by_one(diagonal_scan_backward_op, info.batch_size, in_dims, inputs)
