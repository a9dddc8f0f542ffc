"""The energy of driven oscillators (rusch2021, eq. (4)), finite for every weight."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def oscillator_energy(
    y: Float[Tensor, "*batch hidden"],
    z: Float[Tensor, "*batch hidden"],
    weight: Float[Tensor, " hidden"],
    drive: Float[Tensor, "*batch hidden"],
    stiffness: float,
) -> Float[Tensor, "*batch"]:
    """Sum α y²/2 + z²/2 + [log cosh(w y + a) − log cosh a]/w over units, with a = ``drive`` and α = ``stiffness``.

    The last term is y times the average of tanh between a and a + w y; at w = 0 it is y·tanh a.

    >>> zero, one = torch.zeros(2), torch.ones(2)
    >>> float(oscillator_energy(one, one, zero, zero, 3.0))
    4.0
    """
    return (stiffness / 2 * y**2 + z**2 / 2 + y * _mean_tanh(drive, weight * y)).sum(-1)


def _mean_tanh(a: Float[Tensor, "*batch hidden"], d: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch hidden"]:
    """Average tanh between a and a + d: [log cosh(a + d) − log cosh a]/d, by its series where d is small."""
    small = d.abs() < (8 * torch.finfo(d.dtype).eps) ** 0.2  # where the series' error equals the difference's
    value = torch.tanh(a)
    slope = 1 - value**2
    near = torch.where(small, d, 0)
    series = value + slope * near * (1 / 2 + near * (-value / 3 + near * (3 * value**2 - 1) / 12))
    far = torch.where(small, 1, d)
    return torch.where(small, series, (_log_cosh(a + far) - _log_cosh(a)) / far)


def _log_cosh(x: Tensor) -> Tensor:
    """Compute log cosh x + log 2 without overflow."""
    return x.abs() + F.softplus(-2 * x.abs())
