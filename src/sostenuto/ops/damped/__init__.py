"""The trainable scan of linear damped oscillators: check, choose a backend, apply."""

from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops.backend import choose_backend
from sostenuto.ops.damped.autograd import scan
from sostenuto.ops.damped.coefficients import held_coefficients, learned_coefficients
from sostenuto.ops.damped.reference import damped_scan_reference
from sostenuto.ops.dispatch import needs_reference

__all__ = ["damped_scan", "held_coefficients", "learned_coefficients"]


def damped_scan(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    power: Float[Tensor, "2 T1 B1 H"],
    gain: Float[Tensor, "2 T1 B1 H"],
    readout: Float[Tensor, "2 H"],
    *,
    lengths: Int[Tensor, " B"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B S"]]:
    """Run s ← a⊙s + b⊙x_t over time, s complex; return c₀ Re s + c₁ Im s at every step, then the last s.

    ``power`` a and ``gain`` b are complex, real parts first; their time and batch axes are 1 where all steps share
    them. ``start`` and the last state hold real parts and then imaginary parts, S = 2H. With ``lengths`` each sequence
    stops at its own end: its state stays, its outputs are 0. `held_coefficients` gives the a and b of an oscillator
    whose input is held over a time span. Every tensor but ``lengths`` is differentiable.

    >>> import torch
    >>> turn = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)  # a quarter of a turn at each step
    >>> outputs, last = damped_scan(torch.zeros(4, 1, 1), torch.tensor([[1.0, 0.0]]), turn, turn, torch.eye(2)[:, :1])
    >>> outputs.flatten().tolist(), last.tolist()
    ([0.0, -1.0, 0.0, 1.0], [[1.0, 0.0]])
    """
    chosen = choose_backend(backend, start)
    if chosen != "reference" and not needs_reference(inputs, start, power, gain, readout):
        return scan(inputs, start, power, gain, readout, lengths)
    return damped_scan_reference(inputs, start, power, gain, readout, lengths=lengths)
