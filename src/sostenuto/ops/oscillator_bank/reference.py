"""What the oscillator bank means, in plain torch: a loop over the steps of one sequence, all units at once."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops.oscillator_bank.bank import LANES, OscillatorBank


def bank_outputs_reference(
    values: Float[Tensor, "T C"], spans: Float[Tensor, " T"], bank: OscillatorBank
) -> Float[Tensor, "T U"]:
    """Return every unit's output at every step of one sequence, in float64.

    With the coefficients λ^δ and φ(δ) of the span δ before each step, u the unit's mix of differences:
    s ← λ^δ s + φ(δ) u, and then y = Re(p s) for a single oscillator; or the second oscillator is driven, by s in a
    cascade and by (1 − |λ|)·|s| in an envelope, v ← μ^δ v + φ_μ(δ)·(…), and y = Re(p v).
    """
    values, spans = values.double(), spans.double()
    drive = torch.stack([values, *slopes(values, spans)])
    lanes = torch.arange(bank.n_units) // LANES
    picked = drive[bank.order[lanes].long()[:, None], :, bank.channels[lanes].long()]  # (U, k, T)
    inputs = torch.einsum("uk,ukt->tu", bank.mix.double(), picked)
    readout, kind = bank.readout(), bank.kind[lanes]
    p = torch.complex(readout[:, 0], -readout[:, 1])
    first = second = torch.zeros(bank.n_units, dtype=torch.complex128)
    outputs = []
    for u, span in zip(inputs, spans, strict=True):
        a = torch.view_as_complex(bank.coefficients(span[None])[0].unflatten(1, (4, 2)).contiguous())
        first = a[:, 0] * first + a[:, 1] * u
        second = a[:, 2] * second + a[:, 3] * torch.where(kind == 1, first, first.abs() * readout[:, 2])
        outputs.append((p * torch.where(kind == 0, first, second)).real)
    return torch.stack(outputs)


def bank_shares_reference(
    values: Float[Tensor, "T C"], spans: Float[Tensor, " T"], bank: OscillatorBank
) -> Float[Tensor, "K U"]:
    """Return the share of the time that every unit's output is above each of its thresholds, for one sequence."""
    above = bank_outputs_reference(values, spans, bank)[:, None] > bank.thresholds.T
    return (above * spans.double()[:, None, None]).sum(0) / spans.double().sum()


def slopes(
    values: Float[Tensor, "S C"], spans: Float[Tensor, " S"], starts: Int[Tensor, " S"] | None = None
) -> tuple[Float[Tensor, "S C"], Float[Tensor, "S C"]]:
    """Return the slope over the span before each step, and the slope of the slopes; 0 where there is none yet.

    ``starts`` says of each step where its sequence begins; without it all steps are one sequence.

    >>> slopes(torch.tensor([[0.0], [1.0], [4.0]]), torch.ones(3))[1].flatten().tolist()
    [0.0, 0.0, 2.0]
    """
    first, second = torch.zeros_like(values), torch.zeros_like(values)
    place = torch.arange(len(values), device=values.device) - (0 if starts is None else starts)
    first[1:] = (values[1:] - values[:-1]) / spans[1:, None] * (place[1:, None] >= 1)
    second[1:] = (first[1:] - first[:-1]) / spans[1:, None] * (place[1:, None] >= 2)
    return first, second
