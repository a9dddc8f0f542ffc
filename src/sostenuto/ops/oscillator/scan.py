"""The scan of independent undamped oscillators (UnICORNN): check, choose a backend, apply."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_positive
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import needs_reference, runs_eagerly
from sostenuto.ops.oscillator.autograd import scan
from sostenuto.ops.oscillator.driven import DrivenScan
from sostenuto.ops.oscillator.reference import oscillator_scan_reference

BACKENDS = ("auto", "reference", "cpu", "gpu")


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
    chosen = choose_backend(backend, y, built=("cpu", "gpu"))
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
