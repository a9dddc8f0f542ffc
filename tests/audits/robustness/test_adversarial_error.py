# ruff: noqa: N806 (X is the name of the contract)
import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits import adversarial_accuracy
from sostenuto.checks import InputError


class Linear(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x, lengths=None):
        return (x * self.weight).sum((1, 2))[:, None]


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
def test_the_error_of_a_linear_model_is_known(norm, dual):
    """|w·δ| ≤ ε ‖w‖ in the dual norm, and the attack reaches it on the side of the error."""
    torch.manual_seed(0)
    weight, X = torch.randn(5, 2, dtype=torch.float64), torch.randn(12, 5, 2, dtype=torch.float64)
    noise = torch.randn(12, dtype=torch.float64)
    found = adversarial_accuracy(Linear(weight), X, (X * weight).sum((1, 2)) + noise, norm=norm, epsilons=(0.0, 0.5))
    reach = 0.5 * float(weight.flatten().norm(dual))
    expected = float((noise.abs() + reach).square().mean().sqrt())
    assert found.clean_score == pytest.approx(float(noise.square().mean().sqrt()))
    assert found.score[0] == found.clean_score
    assert 0.98 * expected <= found.score[1] <= expected * (1 + 1e-9)
    assert type(found).from_dict(found.to_dict()) == found


def test_padding_is_never_touched_and_the_last_true_step_answers():
    class Steps(nn.Module):
        def forward(self, x, lengths):
            assert torch.equal(x[1, 2:], torch.full((2, 1), 9.0))
            return x

    X = torch.zeros(2, 4, 1)
    X[1, 2:] = 9.0
    found = adversarial_accuracy(Steps(), X, [0.0, 0.0], lengths=[4, 2], epsilons=(0.5,), steps=4)
    assert found.clean_score == 0.0
    assert found.score[0] == pytest.approx(0.5)
    assert "always answering the mean gives 0" in found.summary()


def test_it_repeats_and_leaves_the_model_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 2), nn.Dropout(0.5)).train()
    X, y = torch.randn(8, 3, 2), torch.randn(8, 2)
    found = adversarial_accuracy(model, X, y, steps=3)
    assert adversarial_accuracy(model, X, y, steps=3) == found
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert np.all(np.diff(found.score) >= 0)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([1.0], {}, r"expected y of shape \(3,\) or \(3, out\), or \(3, 2, out\) .* got \(1,\)"),
        ([1.0, float("nan"), 0.0], {}, "expected finite numbers in y"),
        (np.zeros((3, 2)), {}, r"expected answers of shape \(3, 2\), as y has 2 number\(s\) a sequence, got \(3, 1\)"),
        ([0.0] * 3, {"norm": "l1"}, "expected norm to be one of 'linf', 'l2', 'step-l2'"),
    ],
)
def test_bad_input_is_refused(y, options, message):
    with pytest.raises(InputError, match=message):
        adversarial_accuracy(Linear(torch.ones(2, 1)), torch.ones(3, 2, 1), y, **options)
