"""The scans of independent units, with a nonlinearity or a gate: check, choose a backend, apply."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.activation import check_activation
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.diagonal.autograd import scan
from sostenuto.ops.diagonal.reference import diagonal_scan_reference, gated_scan_reference
from sostenuto.ops.dispatch import needs_reference


def diagonal_scan(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, " H"],
    linear: Float[Tensor, " H"],
    gain: Float[Tensor, " H"],
    *,
    activation: str = "tanh",
    threshold: Float[Tensor, " H"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Run h ← p⊙h + q⊙σ(w⊙h + z_t) over time; return every h, then the last.

    ``inputs`` holds the projected inputs z_t, ``start`` the state before the first step; ``weight`` w, ``linear`` p and
    ``gain`` q are one number per unit. p = 0, q = 1 is IndRNN; p = 1, q = Δt a diagonal StableRNN (wang2024,
    eq. (2)); the identity with w = 0 a diagonal linear recurrence. Every tensor is differentiable; ``activation`` and
    ``threshold`` are those of `dense_scan`.

    >>> one = torch.ones(2)
    >>> states, last = diagonal_scan(torch.zeros(5, 1, 2), torch.ones(1, 2), one, 0.5 * one, 0.0 * one)
    >>> states.shape, last.tolist()
    (torch.Size([5, 1, 2]), [[0.03125, 0.03125]])
    """
    check_activation(activation, threshold)
    chosen = choose_backend(backend, start)
    if chosen != "reference" and not needs_reference(inputs, start, weight, linear, gain, threshold):
        bend = torch.zeros_like(weight) if threshold is None else threshold
        return scan(inputs, None, start, torch.stack([weight, linear, gain, bend]), activation)
    return diagonal_scan_reference(inputs, start, weight, linear, gain, activation=activation, threshold=threshold)


def gated_scan(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"],
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, " H"],
    *,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Run f = logistic(w⊙c + a_t), c ← f⊙c + (1 − f)⊙x̃_t over time; return every c, then the last.

    ``inputs`` holds the gates' projected inputs a_t and ``candidates`` the values x̃_t. This is the state of the simple
    recurrent unit (Lei et al. 2018, eqs. (1) and (2)).

    >>> zero = torch.zeros(3, 1, 1)
    >>> gated_scan(zero, zero, torch.ones(1, 1), torch.zeros(1))[0].flatten().tolist()
    [0.5, 0.25, 0.125]
    """
    chosen = choose_backend(backend, start)
    if chosen != "reference" and not needs_reference(inputs, candidates, start, weight):
        zero = torch.zeros_like(weight)
        return scan(inputs, candidates, start, torch.stack([weight, zero, zero, zero]), "logistic")
    return gated_scan_reference(inputs, candidates, start, weight)
