"""Gradients scaled down to a largest norm."""

from collections.abc import Iterable

import torch
from torch import nn


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> None:
    """Scale all gradients by min(1, limit/‖g‖), with g all of them as one vector.

    It is `torch.nn.utils.clip_grad_norm_` for parameters of one device, without the search for others, which takes
    longer than the norm of a small model.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], 1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        norms = torch._foreach_norm(gradients)  # pyright: ignore[reportPrivateImportUsage]
        factor = (limit / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factor)  # pyright: ignore[reportPrivateImportUsage]
