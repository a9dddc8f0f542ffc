# ruff: noqa: N803, N806 (X is the name of the contract)
"""Models and data at the edge: each check answers, says why it does not apply, or refuses in one sentence."""

import json
import re

import pytest
import torch
from torch import nn

from sostenuto.audits.audit import audit
from sostenuto.audits.checks import all_checks
from sostenuto.audits.page import render


class Last(nn.Module):
    def __init__(self, out=2, factor=1.0):
        super().__init__()
        self.layer, self.head, self.factor = nn.GRU(2, 4, batch_first=True), nn.Linear(4, out), factor

    def forward(self, x):
        return self.factor * self.head(self.layer(x)[0][:, -1])


class Free(nn.Module):
    """A model without parameters."""

    def forward(self, x):
        return torch.cat([x.mean((1, 2))[:, None], -x.mean((1, 2))[:, None]], -1)


def examples(count=12, steps=6, numbers=False):
    X = torch.randn(count, steps, 2, generator=torch.Generator().manual_seed(0))
    signal = X[:, :, 0].sum(1)
    return X, signal if numbers else (signal > 0).long()


def asked(model, X, y):
    """Audit, and check what every report keeps: each check is answered or refused in one plain sentence."""
    torch.manual_seed(0)
    found = audit(model, X, y, train=(X, y), progress=False)
    assert {*found.results, *found.refused} == set(all_checks())
    for result in found.results.values():
        assert not re.search(r"\b(nan|inf|None|tensor|n/a)\b", result.summary(), re.IGNORECASE), result.summary()
    for reason in found.refused.values():
        assert re.fullmatch(r"[a-z][^\n]{20,}\.", reason), reason
    json.loads(found.to_json())
    assert len(render(found)) > 10_000
    return found


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_answers_that_are_no_numbers(factor, numbers):
    found = asked(Last(1 if numbers else 2, factor), *examples(numbers=numbers))
    # What looks at the state alone does not see the broken read-out.
    assert {"lyapunov", "certificates"} <= set(found.results)
    assert {"memory", "gradients", "perturbation", "curvature", "generalization"} <= set(found.refused)
    assert "expected finite answers" in found.refused["memory"]
    if numbers:
        assert "expected finite answers from the model, got 12 of 12" in found.refused["noise"]
        assert "expected finite answers from the model, got 12 of 12" in found.refused["attack"]
    elif factor != factor:
        assert found.noise.clean_score == 0.0
        assert found.noise.undefined[0] == 1.0


@pytest.mark.parametrize("numbers", [False, True])
def test_a_model_without_parameters(numbers):
    X, y = examples(numbers=numbers)
    found = asked(Free(), X, torch.stack([y, -y], 1) if numbers else y)
    assert found.num_parameters == 0
    assert found.refused["perturbation"] == "expected a model with weights that learn, got none."
    assert found.refused["curvature"].startswith("expected a model with weights that learn")
    assert {"memory", "noise", "attack", "generalization"} <= set(found.results)


def test_one_class():
    X, y = examples()
    found = asked(Last(), X, torch.zeros_like(y))
    assert set(found.refused) == {"certified"}
    assert found.noise.guess == 1.0


def test_a_target_that_does_not_vary():
    X, _ = examples()
    found = asked(Last(1), X, torch.ones(len(X)))
    assert found.noise.guess == 0.0
    assert found.generalization.test.guess == 0.0


@pytest.mark.parametrize("numbers", [False, True])
def test_a_single_step(numbers):
    found = asked(Last(1 if numbers else 2), *examples(steps=1, numbers=numbers))
    assert found.refused["gradients"] == "expected sequences of at least 3 steps, got 1."
    assert found.memory.hidden == "brief"


@pytest.mark.parametrize(("count", "numbers"), [(1, False), (3, False), (3, True)])
def test_few_examples(count, numbers):
    found = asked(Last(1 if numbers else 2), *examples(count=count, numbers=numbers))
    alone = {"memory", "attribution"} if count == 1 else set()  # nothing else could replace its input
    assert set(found.refused) == ({"calibration", "certified"} if numbers else {"certified"}) | alone
    assert found.num_sequences == count


def test_inputs_that_do_not_vary():
    X, y = examples()
    found = asked(Last(), torch.zeros_like(X), y)
    assert found.refused["memory"] == "expected sequences that differ from each other, got equal ones."
    assert found.noise.score[-1] == found.noise.clean_score
