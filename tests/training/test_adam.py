"""The quick Adam is torch's, number for number."""

import copy

import pytest
import torch
from torch import nn

from sostenuto.training.adam import QuickAdam

OPTIONS = {"lr": 0.01, "weight_decay": 0.1, "fused": True}


@pytest.mark.parametrize("decoupled", [True, False])
def test_equals_torchs_also_where_a_gradient_is_missing_and_after_another_state(decoupled):
    ours = [nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(7))]
    theirs = copy.deepcopy(ours)
    quick = QuickAdam(ours, decoupled_weight_decay=decoupled, **OPTIONS)
    plain = (torch.optim.AdamW if decoupled else torch.optim.Adam)(theirs, **OPTIONS)
    for step in range(8):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        if step == 3:
            ours[0].grad = theirs[0].grad = None
        quick.step()
        plain.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), step
        if step == 5:
            quick.load_state_dict(copy.deepcopy(plain.state_dict()))
    mine, torchs = quick.state_dict(), plain.state_dict()
    assert mine["param_groups"] == torchs["param_groups"]
    assert all(torch.equal(mine["state"][i][key], torchs["state"][i][key]) for i in (0, 1) for key in mine["state"][i])


def test_asks_a_closure_for_the_loss():
    weight = nn.Parameter(torch.ones(2))
    optimizer = QuickAdam([weight], **OPTIONS)

    def loss():
        weight.grad = torch.ones(2)
        return torch.tensor(3.0)

    assert optimizer.step(loss) == 3.0
    assert bool((weight < 1).all())
