"""What the scan of damped oscillators means, in plain torch: a loop whose gradients are autograd's."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops.step import over_time


def damped_scan_reference(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    power: Float[Tensor, "2 T1 B1 H"],
    gain: Float[Tensor, "2 T1 B1 H"],
    readout: Float[Tensor, "2 H"],
    *,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B S"]]:
    """Step s ← a⊙s + b⊙x_t, one time after the other; the state is kept in the dtype of ``start``."""
    x, (steps, batch) = inputs.to(start.dtype), inputs.shape[:2]
    everywhere = (2, steps, -1, -1)
    over = (x, *power.expand(everywhere).unbind(0), *gain.expand(everywhere).unbind(0))
    if lengths is not None:
        runs = torch.arange(steps, device=x.device)[:, None] < lengths
        over = (*over, runs.view(steps, batch, 1).to(x.dtype))

    def step(inputs: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        u, a_real, a_imaginary, b_real, b_imaginary, *running = inputs
        _, before = now
        real, imaginary = before.chunk(2, dim=-1)
        turned = (
            a_real * real - a_imaginary * imaginary + b_real * u,
            a_imaginary * real + a_real * imaginary + b_imaginary * u,
        )
        output, after = readout[0] * turned[0] + readout[1] * turned[1], torch.cat(turned, dim=-1)
        if running:
            output, after = output * running[0], torch.where(running[0] > 0, after, before)
        return output, after

    first = start.chunk(2, dim=-1)[0]
    outputs, (_, last) = over_time(step, over, (torch.zeros_like(first), start))
    return outputs, last
