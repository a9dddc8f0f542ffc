"""The scan of independent undamped oscillators (UnICORNN): check, choose a backend, apply."""

from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, check_positive
from sostenuto.ops.oscillator_scan.reference import oscillator_scan_reference

BACKENDS = ("auto", "reference")


def oscillator_scan(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    *,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Run z ← z − g(tanh(w⊙y + x) + αy), y ← y + g⊙z over time.

    ``x`` is the projected input, ``step`` the effective step g of each unit and ``stiffness`` α ≥ 0. ``timespans``
    multiplies g at each step; a span of 0 leaves the state as it is. Returns every y, then the last y and z.
    Reference: paper 002, eq. (6).

    >>> import torch
    >>> x, zero = torch.zeros(5, 1, 2), torch.zeros(1, 2)
    >>> ys, y, z = oscillator_scan(x, torch.ones(2), torch.full((2,), 0.1), 1.0, zero, zero)
    >>> ys.shape, float(y.abs().max())
    (torch.Size([5, 1, 2]), 0.0)
    """
    check_choice("backend", backend, BACKENDS)
    check_positive("stiffness", stiffness, zero=True)
    return oscillator_scan_reference(x, weight, step, stiffness, y, z, timespans=timespans)
