"""What answers rest on is found where it is known: steps, channels, and nothing."""

# ruff: noqa: N803 (X is the name of the contract)

import pytest
import torch
from torch import nn

from sostenuto.audits.memory.attribution import attribution
from tests.laws.audit_laws import AuditLaws


class TestAttribution(AuditLaws):
    def ask(self, model, X, y, **options):
        return attribution(model, X, **options)


class Looking(nn.Module):
    """Two scores ±Σ w[t, c] x[t, c]."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, x):
        lead = (x * self.weights).sum((1, 2))[:, None]
        return torch.cat([-lead, lead], 1)


def signals(count=64, steps=24, channels=3):
    return torch.randn(count, steps, channels, generator=torch.Generator().manual_seed(0))


def test_shares_of_a_linear_model_are_those_of_its_weights():
    weights = torch.zeros(24, 3)
    weights[4:6, 0], weights[20:22, 2] = 3.0, 4.0
    found = attribution(Looking(weights), signals())
    assert [one.name for one in found.steps][:2] == ["steps 1–2", "steps 3–4"]
    share = {one.name: one for one in (*found.steps, *found.channels)}
    for name, expected in (("steps 5–6", 0.6), ("steps 21–22", 0.8), ("channel 1", 0.6), ("channel 3", 0.8)):
        assert share[name].low - 0.05 <= expected <= share[name].high + 0.05
    assert max(share[name].share for name in ("steps 1–2", "steps 11–12", "channel 2")) < 1e-3
    assert "channel 3" in found.summary()


def test_unequal_lengths_count_from_the_end():
    class Last(nn.Module):
        def forward(self, x, lengths):
            last = x[torch.arange(len(x)), lengths - 1, :1]
            return torch.cat([-last, last], 1)

    lengths = torch.arange(64) % 12 + 12
    found = attribution(Last(), signals(), lengths=lengths)
    assert found.steps[-1].name == "steps −1–−0"
    assert found.steps[-1].share == pytest.approx(1.0, abs=0.02)
    assert max(one.share for one in found.steps[:-1]) < 1e-3


def test_numbers_have_no_decisions():
    class Sum(nn.Module):
        def forward(self, x):
            return x.sum((1, 2))[:, None]

    found = attribution(Sum(), signals(), classes=False)
    assert found.steps[0].turned is None
    assert not found.hidden


def test_a_constant_rests_on_nothing():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, 1.0]).expand(len(x), 2)

    found = attribution(Constant(), signals())
    assert found.hidden
    assert "not told" in found.summary()
