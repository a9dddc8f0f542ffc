"""The fast dense scan as a torch operator: what is saved, how it is differentiated, batched and traced.

The kernels are in ``cpu.py`` and ``gpu.py``. Second derivatives go through the reference: a backward pass that is
itself recorded (``create_graph=True``) is written as the reference's.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sostenuto.ops.backend import kernels_of, native_backend
from sostenuto.ops.dense.reference import dense_scan_reference
from sostenuto.ops.dispatch import folded, one_by_one, recorded_gradients, run_adjoint, runs_eagerly

_kernels = partial(kernels_of, "sostenuto.ops.dense")


@torch.library.custom_op("sostenuto::dense_scan", mutates_args=())
def dense_scan_op(
    inputs: Tensor,
    start: Tensor,
    weight: Tensor,
    linear: Tensor,
    gain: Tensor,
    threshold: Tensor | None,
    activation: str,
    precision: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the scan; return every state, the last one and, where ``keep``, σ at every step."""
    return _kernels(start).forward(inputs, start, weight, linear, gain, threshold, activation, precision, keep)


@torch.library.custom_op("sostenuto::dense_scan_backward", mutates_args=())
def dense_scan_backward_op(
    start: Tensor,
    weight: Tensor,
    linear: Tensor,
    gain: Tensor,
    activation: str,
    precision: str,
    states: Tensor,
    activated: Tensor,
    d_states: Tensor,
    d_last: Tensor,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the adjoint; return the gradients of inputs, start and, where ``wanted``, of weight, linear and gain."""
    return _kernels(start).backward(
        start, weight, linear, gain, activation, precision, states, activated, d_states, d_last, wanted
    )


@dense_scan_op.register_fake
def _scan_shapes(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    z, start, *_, keep = inputs
    activated = _kept_dtype(z, start)
    states = start.new_empty((*z.shape[:2], start.shape[1]))
    return states, start.new_empty(start.shape), start.new_empty(z.shape if keep else (0,), dtype=activated)


def _kept_dtype(z: Tensor, start: Tensor) -> torch.dtype:
    """Return the precision in which σ is kept: the input's on the GPU, which may be lower, the state's on the CPU."""
    return z.dtype if native_backend(start) == "gpu" else start.dtype


@dense_scan_backward_op.register_fake
def _backward_shapes(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    start, weight, linear, gain, _, _, _, activated, _, _, wanted = inputs
    sizes = [tensor.shape if want else (0,) for tensor, want in zip((weight, linear, gain), wanted, strict=True)]
    return (
        activated.new_empty(activated.shape),
        start.new_empty(start.shape),
        *(start.new_empty(size) for size in sizes),
    )  # pyright: ignore[reportReturnType]


def scan(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Run the scan of ``(inputs, start, weight, linear, gain, threshold, activation, precision)``."""
    keep = torch.is_grad_enabled() and any(isinstance(v, Tensor) and v.requires_grad for v in inputs)
    if runs_eagerly(*inputs):
        return _Scan.apply(*inputs, keep)[:2]  # pyright: ignore[reportReturnType]
    return dense_scan_op(*inputs, keep or _transformed())[:2]


def _transformed() -> bool:
    """Whether a functorch transform may ask for a gradient that ``requires_grad`` does not show."""
    return torch._C._are_functorch_transforms_active()


class _Scan(torch.autograd.Function):
    """The scan in eager code: the same kernels, the same rule backward."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run the kernel of the device and save what the backward pass needs."""
        output = _kernels(inputs[1]).forward(*inputs)
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint kernel, or the reference where the gradient is differentiated again."""
        return _differentiated(ctx, gradients, _adjoint)


def _adjoint(start: Tensor, *others: Any) -> tuple[Tensor, ...]:
    return run_adjoint(_kernels(start).backward, start, *others)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    z, start, weight, linear, gain, threshold, ctx.activation, ctx.precision, _ = inputs
    states, _, activated = output
    ctx.save_for_backward(z, start, weight, linear, gain, threshold, states, activated)


def _backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    return _differentiated(ctx, gradients, dense_scan_backward_op)


def _differentiated(ctx: Any, gradients: tuple[Tensor | None, ...], adjoint: Any) -> tuple[Tensor | None, ...]:
    z, start, weight, linear, gain, threshold, states, activated = ctx.saved_tensors
    d_states, d_last = (
        like.new_zeros(()).expand(like.shape) if gradient is None else gradient
        for gradient, like in zip(gradients[:2], (states, start), strict=True)
    )
    if torch.is_grad_enabled():
        results = dense_scan_reference(z, start, weight, linear, gain, activation=ctx.activation, threshold=threshold)
        inputs = (z, start, weight, linear, gain, threshold)
        return *recorded_gradients(results, inputs, (d_states, d_last)), None, None, None
    if d_states.stride(0) == 0:
        d_states = d_states[:1]  # the same at every step, as where outputs are summed or only the last one is used
    needed = ctx.needs_input_grad
    d_z, d_start, *d_weights = adjoint(
        start, weight, linear, gain, ctx.activation, ctx.precision, states, activated,
        d_states.contiguous(), d_last.contiguous(), list(needed[2:5]),
    )  # fmt: skip
    d_threshold = (d_z * torch.sign(activated)).sum((0, 1)) if threshold is not None and needed[5] else None
    d_weights = [gradient if need else None for gradient, need in zip(d_weights, needed[2:5], strict=True)]
    return d_z.to(z.dtype), d_start, *d_weights, d_threshold, None, None, None


dense_scan_op.register_autograd(_backward, setup_context=_setup)


@dense_scan_op.register_vmap
def _batched(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Fold a mapped axis into the batch; where weights differ along it, run one after the other."""
    size, keep = info.batch_size, inputs[-1]
    if all(dim is None for dim in in_dims[2:6]):
        z, start = folded(inputs[0], in_dims[0], size, 1), folded(inputs[1], in_dims[1], size, 0)
        states, last, activated = dense_scan_op(z, start, *inputs[2:])
        kept = activated.unflatten(1, (size, -1)) if keep else activated.expand(1, size, 0)
        return (states.unflatten(1, (size, -1)), last.unflatten(0, (size, -1)), kept), (1, 0, 1)
    return one_by_one(dense_scan_op, info.batch_size, in_dims, inputs)


@dense_scan_backward_op.register_vmap
def _batched_backward(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
    """Run one after the other: each has weight gradients of its own."""
    return one_by_one(dense_scan_backward_op, info.batch_size, in_dims, inputs)


class DrivenScan(torch.autograd.Function):
    """Call ``apply(x, matrix, bias, start, weight, linear, gain, activation)``; returns every state."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Project and scan; keep σ where a gradient may be asked for."""
        from sostenuto.ops.dense import cpu

        x, matrix, bias, start, weight, linear, gain, activation = inputs
        ctx.activation = activation
        ctx.set_materialize_grads(False)
        keep = any(ctx.needs_input_grad)
        states, _, activated = cpu.forward(
            x, start, weight, linear, gain, None, activation, "exact", keep, matrix, bias
        )
        ctx.save_for_backward(x, matrix, bias, start, weight, linear, gain, states, activated)
        return states

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint, through the input map too."""
        (d_states,) = arriving
        if d_states is None:
            return (None,) * 8
        if torch.is_grad_enabled():
            inputs = x, matrix, bias, *system = ctx.saved_tensors[:7]
            result = dense_scan_reference(F.linear(x, matrix, bias), *system, activation=ctx.activation)[0]
            return *recorded_gradients([result], inputs, [d_states]), None
        from sostenuto.ops.dense import cpu

        x, matrix, bias, start, weight, linear, gain, states, activated = ctx.saved_tensors
        if d_states.stride(0) == 0:
            d_states = d_states[:1]  # the same at every step, as where outputs are summed
        needed = ctx.needs_input_grad
        gradients = run_adjoint(
            cpu.backward_to_input, x, matrix, start, weight, linear, gain, ctx.activation, states, activated,
            d_states.contiguous(), torch.zeros_like(start), (needed[0], needed[5] or needed[6]),
        )  # fmt: skip
        inputs = (x, matrix, bias, start, weight, linear, gain)
        wanted = zip(gradients, needed, inputs, strict=False)
        kept = (gradient if need and tensor is not None else None for gradient, need, tensor in wanted)
        return *kept, None
