"""The fast oscillator scan as a torch operator: what is saved, how it is differentiated, batched and traced.

The kernels are in ``cpu.py`` and ``gpu.py``; nothing is computed here. Second derivatives go through the reference: a
backward pass that is itself recorded (``create_graph=True``) is written as the reference's.
"""

import importlib
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.backend import native_backend
from sostenuto.ops.dispatch import folded, one_by_one, recorded_gradients, run_adjoint, runs_eagerly
from sostenuto.ops.oscillator.reference import oscillator_scan_reference

EVERY = 8
"""Steps between two checkpoints."""
WIDE = 1 << 17
"""From so many columns (batch × units) on, memory bounds a scan on the GPU."""


def new_checkpoints(x: Float[Tensor, "T B H"], y: Float[Tensor, "B H"]) -> Float[Tensor, "n B H"]:
    """Allocate the checkpoints of a scan of ``x`` from ``y``: none but on a GPU and for many columns.

    >>> len(new_checkpoints(torch.zeros(20, 2, 3), torch.zeros(2, 3)))
    0
    """
    steps, batch, hidden = x.shape
    marked = native_backend(y) == "gpu" and batch * hidden >= WIDE
    return y.new_empty((-(-steps // EVERY) if marked else 0, batch, hidden))


@torch.library.custom_op("sostenuto::oscillator_scan", mutates_args=())
def oscillator_scan_op(
    x: Tensor, weight: Tensor, step: Tensor, stiffness: float, y: Tensor, z: Tensor, timespans: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the scan; return y at every step, z at the last, and the checkpoints that the backward pass starts from."""
    checkpoints = new_checkpoints(x, y)
    return *_forward(checkpoints, x, weight, step, stiffness, y, z, timespans), checkpoints


@torch.library.custom_op("sostenuto::oscillator_scan_backward", mutates_args=())
def oscillator_scan_backward_op(
    x: Tensor,
    weight: Tensor,
    step: Tensor,
    stiffness: float,
    y: Tensor,
    outputs: Tensor,
    last: Tensor,
    timespans: Tensor | None,
    d_outputs: Tensor,
    d_last: Tensor,
    checkpoints: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the adjoint; return the gradients of x, weight, step, y and z."""
    gradients = _adjoint(x, weight, step, stiffness, y, outputs, last, timespans, d_outputs, d_last, checkpoints)
    d_x, d_weight, d_step, d_y, d_z = gradients
    return d_x, d_weight.clone(), d_step.clone(), d_y, d_z  # an operator's results may not share memory


def kernels_of(state: Tensor) -> Any:
    """Import the kernels of the device only when they are used."""
    return _kernels(native_backend(state))


@cache
def _kernels(backend: str) -> Any:
    return importlib.import_module("sostenuto.ops.oscillator." + ("cpu.scan" if backend == "cpu" else "gpu"))


def _forward(checkpoints: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Run the kernel of the device; one that knows no checkpoints is given none."""
    return kernels_of(inputs[4]).forward(*inputs, *([checkpoints] if len(checkpoints) else []))


def _adjoint(*inputs: Any) -> tuple[Tensor, ...]:
    *others, checkpoints = inputs
    return kernels_of(checkpoints).backward(*others, *([checkpoints] if len(checkpoints) else []))[:5]


@oscillator_scan_op.register_fake
def _scan_shapes(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, _, _, _, y, z, _ = inputs
    return y.new_empty(x.shape), z.new_empty(z.shape), new_checkpoints(x, y)


@oscillator_scan_backward_op.register_fake
def _backward_shapes(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x, weight, step, _, y, *_ = inputs
    return tuple(y.new_empty(like.shape) for like in (x, weight, step, y, y))  # pyright: ignore[reportReturnType]


def scan(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Run the scan: straight through autograd in eager code, as a registered operator outside plain eager mode."""
    if not runs_eagerly(*inputs):
        return oscillator_scan_op(*inputs)[:2]
    if not torch.is_grad_enabled():
        return kernels_of(inputs[4]).forward(*inputs)
    return _Scan.apply(*inputs)  # pyright: ignore[reportReturnType]


class _Scan(torch.autograd.Function):
    """The scan in eager code: the same kernels, the same rule backward."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Run the kernel of the device and save what the backward pass needs."""
        checkpoints = new_checkpoints(inputs[0], inputs[4])
        output = _forward(checkpoints, *inputs)
        _save(ctx, inputs, (*output, checkpoints))
        # The CPU kernels know what to do where nothing arrives.
        ctx.set_materialize_grads(native_backend(inputs[4]) == "gpu")
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint kernel, or the reference where the gradient is differentiated again."""
        d_outputs, d_last = gradients
        return _differentiated(ctx, d_outputs, d_last, lambda *inputs: run_adjoint(_adjoint, *inputs))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, step, stiffness, y, z, timespans = inputs
    ctx.stiffness = stiffness
    ctx.save_for_backward(x, weight, step, y, z, timespans, *output)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[2])
    _save(ctx, inputs, output)


def _backward(ctx: Any, d_outputs: Tensor, d_last: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _differentiated(ctx, d_outputs, d_last, oscillator_scan_backward_op)


def _differentiated(
    ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None, adjoint: Any
) -> tuple[Tensor | None, ...]:
    x, weight, step, y, z, timespans, outputs, last, checkpoints = ctx.saved_tensors
    if torch.is_grad_enabled():
        d_x, d_weight, d_step, d_y, d_z = _recorded(
            ctx.stiffness, (x, weight, step, y, z), timespans, d_outputs, d_last
        )
    else:
        d_x, d_weight, d_step, d_y, d_z = adjoint(
            x, weight, step, ctx.stiffness, y, outputs, last, timespans, d_outputs, d_last, checkpoints
        )
        d_x = None if d_x is None else d_x.to(x.dtype)
    return d_x, d_weight, d_step, None, d_y, d_z, None


def _recorded(
    stiffness: float,
    tensors: tuple[Tensor, ...],
    timespans: Tensor | None,
    d_outputs: Tensor | None,
    d_last: Tensor | None,
) -> list[Tensor | None]:
    """Differentiate the reference, keeping the graph, so that the gradient can be differentiated again."""
    x, weight, step, y, z = tensors
    outputs, _, last = oscillator_scan_reference(x, weight, step, stiffness, y, z, timespans=timespans)
    return recorded_gradients((outputs, last), tensors, (d_outputs, d_last))


oscillator_scan_op.register_autograd(_backward, setup_context=_setup)


@oscillator_scan_op.register_vmap
def _batched(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Fold a mapped axis into the batch; where weights differ along it, run one after the other."""
    x, weight, step, stiffness, y, z, timespans = inputs
    size = info.batch_size
    if in_dims[1] is None and in_dims[2] is None:
        x, y, z = (
            folded(tensor, dim, size, axis)
            for tensor, dim, axis in ((x, in_dims[0], 1), (y, in_dims[4], 0), (z, in_dims[5], 0))
        )
        spans = None if timespans is None else folded(timespans, in_dims[6], size, 1)
        outputs, last, checkpoints = oscillator_scan_op(x, weight, step, stiffness, y, z, spans)
        parted = outputs.unflatten(1, (size, -1)), last.unflatten(0, (size, -1)), checkpoints.unflatten(1, (size, -1))
        return parted, (1, 0, 1)
    return one_by_one(oscillator_scan_op, info.batch_size, in_dims, inputs)


@oscillator_scan_backward_op.register_vmap
def _batched_backward(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
    """Run one after the other: each has weight gradients of its own."""
    return one_by_one(oscillator_scan_backward_op, info.batch_size, in_dims, inputs)
