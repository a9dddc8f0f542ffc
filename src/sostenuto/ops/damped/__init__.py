"""The trainable scan of linear damped oscillators: check, choose a backend, apply."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops.backend import choose_backend
from sostenuto.ops.damped.autograd import scan
from sostenuto.ops.damped.reference import damped_scan_reference
from sostenuto.ops.dispatch import needs_reference

BACKENDS = ("auto", "reference", "cpu", "gpu")


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

    >>> turn = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)  # a quarter of a turn at each step
    >>> outputs, last = damped_scan(torch.zeros(4, 1, 1), torch.tensor([[1.0, 0.0]]), turn, turn, torch.eye(2)[:, :1])
    >>> outputs.flatten().tolist(), last.tolist()
    ([0.0, -1.0, 0.0, 1.0], [[1.0, 0.0]])
    """
    chosen = choose_backend(backend, start, built=BACKENDS[2:])
    if chosen != "reference" and not needs_reference(inputs, start, power, gain, readout):
        return scan(inputs, start, power, gain, readout, lengths)
    return damped_scan_reference(inputs, start, power, gain, readout, lengths=lengths)


def held_coefficients(
    decay: Float[Tensor, " H"], frequency: Float[Tensor, " H"], spans: Float[Tensor, "T B"] | None = None
) -> tuple[Float[Tensor, "2 T1 B1 H"], Float[Tensor, "2 T1 B1 H"]]:
    """Give a = e^{κδ} and b = (e^{κδ} − 1)/κ, κ = −decay + i·frequency, of s′ = κ s + x with x held over a span δ.

    Without ``spans`` δ = 1. Decays must be above 0; b is exact for small spans too.

    >>> power, gain = held_coefficients(torch.tensor([0.5]), torch.tensor([0.0]))
    >>> [round(float(value), 4) for value in (power[0], gain[0])]
    [0.6065, 0.7869]
    """
    if spans is None:
        turned, faded = frequency.view(1, 1, -1), decay.view(1, 1, -1)
    else:
        turned, faded = spans[..., None] * frequency, spans[..., None] * decay
    size, cosine, sine = torch.exp(-faded), torch.cos(turned), torch.sin(turned)
    real, imaginary = size * cosine, size * sine
    # e^{κδ} − 1 without cancellation: its real part is expm1(−γδ) cos − 2 sin²(ωδ/2).
    lost = torch.expm1(-faded) * cosine - 2 * torch.sin(turned / 2) ** 2
    square = decay * decay + frequency * frequency
    held_real = (imaginary * frequency - lost * decay) / square
    held_imaginary = -(imaginary * decay + lost * frequency) / square
    return torch.stack([real, imaginary]), torch.stack([held_real, held_imaginary])
