"""Copies of a sequence, moved a little or not, show nothing new."""

import pytest
import torch

from sostenuto.audits.batches import ClassificationBatch
from sostenuto.audits.generalization.gap import generalization_gap
from sostenuto.benchmarks._audited_models import Weighted


def sequences(seed=0, count=60):
    return torch.randn(count, 12, 2, generator=torch.Generator().manual_seed(seed))


def moved(x, size):
    return x + size * torch.randn(x.shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3])
def test_moved_copies_are_one_sequence(size):
    x = moved(sequences()[:5].repeat(12, 1, 1), size)
    batch = ClassificationBatch(x, None, torch.zeros(60, dtype=torch.long))
    assert batch.groups.max() == 4
    assert batch.groups.tolist() == [batch.groups[row % 5] for row in range(60)]


def test_sequences_of_one_parameter_stay_different():
    x = torch.linspace(-1, 1, 60)[:, None, None].expand(60, 12, 2)
    assert ClassificationBatch(x, None, torch.zeros(60, dtype=torch.long)).groups.max() > 30


@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3])
def test_copies_of_the_training_part_are_not_new(size):
    model, x = Weighted(torch.ones(12)), sequences()
    y = (x[:, :, 0].sum(1) > 0).long()
    assert generalization_gap(model, x, y, moved(x, size)[:20], y[:20]).shared == 20
    assert generalization_gap(model, x, y, sequences(1), y).shared == 0


def test_lines_of_other_slopes_are_new():
    model = Weighted(torch.ones(12))
    train, test = (
        torch.rand(60, 1, 1, generator=torch.Generator().manual_seed(seed)) * torch.linspace(0, 1, 12)[:, None]
        for seed in (1, 2)
    )
    assert generalization_gap(model, train, torch.arange(60) % 2, test, torch.arange(60) % 2).shared <= 3
