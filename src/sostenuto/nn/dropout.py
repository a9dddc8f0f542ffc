"""What dropout between layers keeps: one mask for all time steps of a sequence."""

import torch
from jaxtyping import Float
from torch import Tensor


def dropout_mask(like: Tensor, share: float) -> Tensor:
    """Draw zeros, with the probability ``share``, and 1/(1 − share) elsewhere; no gradient flows.

    On the CPU it is `torch.nn.functional.dropout` of ones, number for number, in two passes instead of four.

    >>> mask = dropout_mask(torch.empty(1000), 0.5)
    >>> sorted(set(mask.tolist())), 400 < int(mask.count_nonzero()) < 600
    ([0.0, 2.0], True)
    """
    mask = torch.empty_like(like, requires_grad=False).bernoulli_(1 - share)
    return mask.div_(1 - share) if share < 1 else mask


def dropout_masks(like: Float[Tensor, "M B H"], share: float) -> Float[Tensor, "M B H"]:
    """Draw `dropout_mask` for each of several layers, number for number, into one tensor.

    >>> masks = dropout_masks(torch.empty(2, 30, 40), 0.5)
    >>> masks.shape, sorted(set(masks.flatten().tolist()))
    (torch.Size([2, 30, 40]), [0.0, 2.0])
    """
    masks = torch.empty_like(like, requires_grad=False)
    for mask in masks.unbind(0):
        mask.bernoulli_(1 - share)
    return masks.div_(1 - share) if share < 1 else masks
