"""The scan of independent undamped oscillators (UnICORNN): check, choose a backend, apply."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_positive
from sostenuto.ops._cpu.workspace import product
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import needs_reference, recorded_gradients, run_adjoint, runs_eagerly
from sostenuto.ops.oscillator.autograd import scan
from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.reference import oscillator_scan_reference

FUSED_CHANNELS = 8
"""Up to so many input channels the drive is computed inside the scan, in both passes; above, by one product."""


class DrivenScan(torch.autograd.Function):
    """Call ``apply(x, matrix, bias, weight, step, stiffness, y, z, timespans)``; returns every y, the last y and z."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Project and scan; keep the drive only where it was written."""
        from sostenuto.ops.oscillator.cpu import scan as cpu

        x, matrix, bias, weight, step, stiffness, y, z, timespans = inputs
        if _is_fused(x):
            drive = None
            outputs, last = cpu.forward(x, weight, step, stiffness, y, z, timespans, input_map=(matrix, bias))
        else:
            drive = product(x, matrix, bias, y.dtype)
            outputs, last = cpu.forward(drive, weight, step, stiffness, y, z, timespans)
        ctx.stiffness = stiffness
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, matrix, bias, weight, step, y, z, timespans, outputs, last, drive)
        return outputs, outputs[-1].clone(), last

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint and hand its gradient through the input map."""
        if torch.is_grad_enabled():
            return _recorded(ctx, arriving)
        from sostenuto.ops.oscillator.cpu import scan as cpu

        x, matrix, bias, weight, step, y, _, timespans, outputs, last, drive = ctx.saved_tensors
        wants_x, wants_matrix = ctx.needs_input_grad[:2]
        fused = _is_fused(x)

        def adjoint(d_outputs: Tensor | None, d_end: Tensor | None, d_last: Tensor | None) -> tuple[Any, ...]:
            gradients = cpu.backward(
                *(x if fused else drive, weight, step, ctx.stiffness, y, outputs, last, timespans, d_outputs, d_last),
                d_end=d_end,
                input_map=(matrix, bias) if fused else None,
                wants_x=wants_x or (wants_matrix and not fused),
                wants_bias=bias is not None,
            )
            d_matrix = gradients.weight_ih
            if wants_matrix and not fused and gradients.x is not None:
                d_matrix = gradients.x.flatten(0, 1).T @ x.to(y.dtype).reshape(-1, x.shape[2])
            d_x = (gradients.x @ matrix.to(y.dtype)).to(x.dtype) if wants_x and gradients.x is not None else None
            return d_x, d_matrix, gradients.bias, *gradients[1:3], None, *gradients[3:5], None

        return run_adjoint(adjoint, *arriving)


def _is_fused(x: Tensor) -> bool:
    return x.shape[2] <= FUSED_CHANNELS


def _recorded(ctx: Any, arriving: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Differentiate the reference, keeping the graph, so that the gradient can be differentiated again."""
    x, matrix, bias, weight, step, y, z, timespans, *_ = ctx.saved_tensors
    drive = F.linear(x.to(matrix.dtype), matrix, bias)
    results = oscillator_scan_reference(drive, weight, step, ctx.stiffness, y, z, timespans=timespans)
    inputs = (x, matrix, bias, weight, step, None, y, z, None)
    return tuple(recorded_gradients(results, inputs, arriving))


def oscillator_scan(
    x: Float[Tensor, "T B _"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    *,
    input_map: tuple[Float[Tensor, "H _"], Float[Tensor, " H"] | None] | None = None,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Run z ← z − g(tanh(w⊙y + x) + αy), y ← y + g⊙z over time.

    ``x`` is the drive, (T, B, H); or, with ``input_map`` = (V, b), the raw input (T, B, F), and the drive is V x + b.
    ``step`` is the effective step g of each unit and ``stiffness`` α ≥ 0. ``timespans`` multiplies g at each step; a
    span of 0 leaves the state as it is. Returns every y, then the last y and z. Reference: rusch2021, eq. (6).

    ``backend="auto"`` takes the compiled scan where there is one for the device. Forward-mode derivatives, those
    of torch.func (grad, jacrev, hessian) and gradients of ``timespans`` are the reference's; `torch.func.vmap` runs the
    kernels.

    >>> import torch
    >>> x, zero = torch.zeros(5, 1, 2), torch.zeros(1, 2)
    >>> ys, y, z = oscillator_scan(x, torch.ones(2), torch.full((2,), 0.1), 1.0, zero, zero)
    >>> ys.shape, float(y.abs().max())
    (torch.Size([5, 1, 2]), 0.0)
    """
    check_positive("stiffness", stiffness, zero=True)
    chosen = choose_backend(backend, y)
    differentiable_spans = timespans is not None and timespans.requires_grad
    slow = chosen == "reference" or differentiable_spans or needs_reference(x, weight, step, y, z, *(input_map or ()))
    if input_map is not None:
        matrix, bias = input_map
        if chosen == "cpu" and not slow and not _is_separate(x, matrix, bias, weight, step, y, z, timespans):
            return DrivenScan.apply(x, matrix, bias, weight, step, stiffness, y, z, timespans)  # pyright: ignore[reportReturnType]
        mixed = not x.is_meta and torch.is_autocast_enabled(x.device.type)  # torch knows no autocast on meta
        x = F.linear(x if mixed else x.to(matrix.dtype), matrix, bias)
    if slow:
        return oscillator_scan_reference(x, weight, step, stiffness, y, z, timespans=timespans)
    outputs, last = scan(x, weight, step, stiffness, y, z, timespans)
    return outputs, outputs[-1], last


def _is_separate(*tensors: Tensor | None) -> bool:
    """Whether product and scan are two operators: under mixed precision, and outside plain eager mode."""
    return torch.is_autocast_enabled("cpu") or not runs_eagerly(*tensors)


def scan_layers(
    below: Sequence[Float[Tensor, "T B _"]],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    skip: int = 0,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "L B H"], Float[Tensor, "L B H"]]:
    """Scan layer by layer, every state kept; the last of ``below`` is the input, those before it are skipped from.

    Returns the top layer's outputs, and the last y and z of all layers.
    """
    below, ends = list(below), []
    for cell, *start in zip(cells, y, z, strict=True):
        x, input_map = below[-1], (cell.weight_ih, cell.bias)
        if cell.weight_skip is not None:
            x, input_map = cell.drive(below, skip), None
        options: dict[str, Any] = {"input_map": input_map, "timespans": timespans, "backend": backend}
        outputs, *end = oscillator_scan(x, cell.weight_hh, cell.step, stiffness, *start, **options)
        ends.append(end)
        below.append(cell.upward(outputs))
    y_end, z_end = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return below[-1], y_end, z_end
