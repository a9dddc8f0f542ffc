import pytest
import torch
from torch import nn

from sostenuto.training.state import WeightAverage, snapshot


def test_the_average_is_the_recursion_with_an_eased_decay():
    model = nn.Linear(2, 3)
    average = WeightAverage(model, decay=0.8)
    expected = model.weight.detach().clone()
    for step in range(1, 60):
        with torch.no_grad():
            model.weight.copy_(torch.randn(3, 2))
        average.update(model)
        decay = min(0.8, step / (step + 9))
        expected = decay * expected + (1 - decay) * model.weight.detach()
        torch.testing.assert_close(average.tensors["weight"], expected)


def test_counts_are_copied_not_averaged():
    model = nn.BatchNorm1d(2)
    average = WeightAverage(model, decay=0.9)
    model.num_batches_tracked += 5
    average.update(model)
    assert average.tensors["num_batches_tracked"].item() == 5


def test_trained_weights_come_back_after_evaluation_even_from_an_error():
    model = nn.Linear(2, 2)
    average = WeightAverage(model, decay=0.9)
    with torch.no_grad():
        model.weight.fill_(3.0)
    identity = id(model.weight)
    seen = []

    def evaluate() -> None:
        with average.in_place(model):
            seen.append(torch.equal(model.weight, average.tensors["weight"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate()
    assert seen == [True]
    assert torch.equal(model.weight, torch.full((2, 2), 3.0))
    assert id(model.weight) == identity


def test_a_snapshot_does_not_follow_the_model():
    model = nn.Linear(1, 1)
    taken = snapshot(model)
    with torch.no_grad():
        model.weight.add_(1)
    assert not torch.equal(taken["weight"], model.weight)
