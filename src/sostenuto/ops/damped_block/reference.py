"""What a residual block around damped oscillators means, in plain torch: its gradients are autograd's."""

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops.damped import damped_scan, held_coefficients

Widening = tuple[Float[Tensor, "H d"], Float[Tensor, " H"] | None]
"""The map before the first block, where its input has another width, and its bias."""


class BlockWeights(NamedTuple):
    """All weights of a block around damped oscillators; see `sostenuto.nn.Stack` for its equations.

    ``power`` and ``gain`` are the coefficients of every step, as `damped_scan` takes them. Where steps have time spans,
    ``power`` holds decays and frequencies and ``gain`` scales, of which `held_coefficients` makes those of each step.
    """

    power: Float[Tensor, "2 1 1 H"]
    gain: Float[Tensor, "_ 1 1 H"]
    readout: Float[Tensor, "2 H"]
    norm: Float[Tensor, " H"]
    norm_bias: Float[Tensor, " H"]
    enter: Float[Tensor, "H H"]
    enter_bias: Float[Tensor, " H"] | None
    scale: Float[Tensor, " H"]
    direct: Float[Tensor, " H"]
    gate: Float[Tensor, "G H"]
    gate_bias: Float[Tensor, " G"] | None
    spans: Float[Tensor, "T B"] | None = None


def mixed(
    stream: Tensor, past: Tensor, normed: Tensor, scale: Tensor, direct: Tensor, gate: Tensor, gate_bias: Tensor | None
) -> Tensor:
    """Give what leaves a block: the stream + GLU(M GELU(p ⊙ past + q ⊙ normed) + m), GELU in its tanh form."""
    entering = F.gelu(scale * past + direct * normed, approximate="tanh")
    return stream + F.glu(F.linear(entering, gate, gate_bias), -1)


def damped_block_reference(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weights: BlockWeights,
    lengths: Int[Tensor, " B"] | None = None,
    *,
    backend: str = "reference",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B S"]]:
    """Normalize, project, scan, mix, add; ``backend`` is that of the scan."""
    normed = F.layer_norm(inputs, inputs.shape[-1:], weights.norm, weights.norm_bias)
    drive = F.linear(normed, weights.enter, weights.enter_bias)
    coefficients = weights.power, weights.gain
    if weights.spans is not None:
        decay, frequency = weights.power.flatten(1)
        coefficients = held_coefficients(decay, frequency, weights.spans, weights.gain.flatten())
    past, last = damped_scan(drive, start, *coefficients, weights.readout, lengths=lengths, backend=backend)
    return mixed(inputs, past, normed, weights.scale, weights.direct, weights.gate, weights.gate_bias), last
