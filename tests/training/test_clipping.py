"""Clipped gradients are torch's."""

import pytest
import torch
from torch import nn

from sostenuto.training.optimizers import clip_gradients


@pytest.mark.parametrize("limit", [0.1, 1e6])
def test_equals_torchs_clipping(limit):
    ours, theirs = (
        [nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(2))] for _ in "ab"
    )
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        one.grad = torch.randn_like(one)
        other.grad = one.grad.clone()
    clip_gradients(ours, limit)
    nn.utils.clip_grad_norm_(theirs, limit)
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(ours[:2], theirs[:2], strict=True))
    assert ours[2].grad is None


def test_nothing_to_clip_is_no_error():
    clip_gradients([nn.Parameter(torch.zeros(2))], 1.0)
