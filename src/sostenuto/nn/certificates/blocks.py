"""Residual blocks around recurrences: what one block hands to the next, on the bounded set that a norm leaves.

A block reads u and gives u + (Mw + m) ⊙ σ̂(Nw + n), w = GELU(p ⊙ r + q ⊙ v), v = g ⊙ ν(u) + β, r what the recurrence
makes of v. ν has the Euclidean norm √H at most, entries up to √(H − 1), and slopes up to 1/√ε. So v is bounded
whatever is read, and r with it, as the recurrence forgets: |wᵢ| ≤ tᵢ = |pᵢ| sup|r| + |qᵢ|(|gᵢ|√(H − 1) + |βᵢ|), and
there the gated map moves by at most K = ‖M‖₂ + ¼‖diag(|M|t + |m|) N‖₂ times as much as w. With GELU's slopes below
1.13, a difference δ of the recurrence's output and one Δu of what is read move the output by at most

    |Δu| + 1.13 K (max|p| |δ| + max|q g| |Δu|/√ε),    and v by at most max|g| |Δu|/√ε.

These are ``leaving``, ``passing`` and ``entering`` of `LevelDecay`, from which rates of all blocks make one window.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates.memory import LevelDecay, MemoryCertificate, both_directions, remembering

GELU_SLOPE = 1.13
"""Above every slope of GELU in its tanh form."""
NORM_EPSILON = 1e-5
_MARGIN = 1 + 1e-9


class BlockMaps(NamedTuple):
    """A block's norm g and β, p and q, M over N, m over n."""

    norm: Float[Tensor, " H"]
    norm_bias: Float[Tensor, " H"]
    scale: Float[Tensor, " H"]
    direct: Float[Tensor, " H"]
    gate: Float[Tensor, "2H H"]
    gate_bias: Float[Tensor, " 2H"] | None

    def largest_drive(
        self, entering: Float[Tensor, "G H"], bias: Float[Tensor, " G"] | None
    ) -> Float[np.ndarray, " G"]:
        """Bound |V v + b| of each unit of the recurrence, whatever the block reads."""
        g, beta, v = _numbers(self.norm), _numbers(self.norm_bias), _numbers(entering)
        center = v @ beta + (0.0 if bias is None else _numbers(bias))
        return (math.sqrt(len(g)) * np.linalg.norm(v * g, axis=1) + np.abs(center)) * _MARGIN

    def around(self, level: LevelDecay) -> LevelDecay:
        """Return the rates of the recurrence with what passes through the block."""
        if level.reach is None or level.leaving is None:
            return replace(level, entering=None, leaving=None)
        g, beta, p, q, gate = map(_numbers, (self.norm, self.norm_bias, self.scale, self.direct, self.gate))
        size = len(g)
        largest = np.abs(p) * level.leaving * level.reach + np.abs(q) * (np.abs(g) * math.sqrt(size) + np.abs(beta))
        shift = np.zeros(size) if self.gate_bias is None else np.abs(_numbers(self.gate_bias)[:size])
        value = np.abs(gate[:size]) @ largest + shift
        mixing = np.linalg.norm(gate[:size], 2) + np.linalg.norm(value[:, None] * gate[size:], 2) / 4
        kept, steep = GELU_SLOPE * float(mixing) * _MARGIN, _MARGIN / math.sqrt(NORM_EPSILON)
        return replace(
            level,
            entering=None if level.entering is None else level.entering * float(np.abs(g).max()) * steep,
            leaving=level.leaving * kept * float(np.abs(p).max()),
            passing=(1 + kept * float(np.abs(q * g).max()) * steep) * _MARGIN,
        )


def block_memory(
    directions: Sequence[MemoryCertificate], blocks: Sequence[BlockMaps], spans: tuple[float, float]
) -> MemoryCertificate:
    """Certify residual blocks by the recurrences inside, which alone keep the past; there is one list per direction.

    They remember by the lowest recurrence, which nothing acts on but the input. They forget together where every
    recurrence forgets and has bounded states; in two directions, which read the future, only one block does.
    """
    first = min(directions, key=lambda certificate: certificate.remembers_at_least)
    if not any(certificate.holds for certificate in directions):
        return first
    levels = [both_directions(pair) for pair in zip(*(certificate.levels for certificate in directions), strict=True)]
    if len(directions) == 1:
        levels = [maps.around(level) for maps, level in zip(blocks, levels, strict=True)]
    return remembering(
        levels,
        np.concatenate([np.array(certificate.per_unit) for certificate in directions]),
        norm=first.norm,
        checked=first.checked,
        conditions=("the state of the recurrence in a block, which alone keeps the past",),
        reason=first.reason,
        spans=spans,
    )


def _numbers(values: Tensor) -> Float[np.ndarray, "..."]:
    return values.detach().double().cpu().numpy()
