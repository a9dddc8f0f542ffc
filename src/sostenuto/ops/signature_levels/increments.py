"""From points to the increments of the piecewise linear path through them, with a basepoint and with time."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.types import Lengths, Sequences


def path_increments(
    points: Sequences, lengths: Lengths | None = None, *, basepoint: bool = False, time_scale: float | Tensor = 0.0
) -> Float[Tensor, "batch time _"]:
    """Give the increments a_t = x_t − x_{t−1} of each path, one for every point, zero past its length.

    The first increment is 0, so that the path begins at its first point; with ``basepoint`` it is x_1, so that the path
    begins at the origin. A ``time_scale`` τ other than 0 appends the channel τ·t, where t runs evenly from 0 to 1 over
    the segments of each path; a path of one point without basepoint stands still for that time.

    An increment of 0 changes no signature, which is why padding needs nothing else.

    >>> points = torch.tensor([[[1.0], [3.0], [2.0]]])
    >>> path_increments(points).flatten().tolist()
    [0.0, 2.0, -1.0]
    >>> path_increments(points, basepoint=True, time_scale=0.3)[0].tolist()
    [[1.0, 0.10...], [2.0, 0.10...], [-1.0, 0.10...]]
    """
    steps = points.shape[1]
    first = points[:, :1] if basepoint else torch.zeros_like(points[:, :1])
    increments = torch.cat([first, points.diff(dim=1)], dim=1)
    count = lengths if lengths is not None else torch.full((len(points),), steps)
    count = count.to(points.device)[:, None]
    order = torch.arange(steps, device=points.device)[None]
    increments = torch.where((order < count)[..., None], increments, torch.zeros_like(increments))
    if isinstance(time_scale, float) and time_scale == 0:
        return increments
    segments = count if basepoint else (count - 1).clamp(min=1)
    moving = (order < count) & ((order > 0) | torch.tensor(basepoint) | (count == 1))
    time = moving.to(points.dtype) / segments * time_scale
    return torch.cat([increments, time[..., None]], dim=-1)
