# ruff: noqa: N803, N806 (X is the name of the contract)

import copy
import math
import re

import pytest
import torch
from torch import nn

from sostenuto.audits import generalization_gap
from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import LSTM, ResidualRNN
from sostenuto.theory.generalization import generalization_bound
from tests.laws.audit_laws import AuditLaws


class TestGeneralizationGap(AuditLaws):
    def ask(self, model, X, y, **options):
        return generalization_gap(model, X, y, X[:12], y[:12], **options)


class Table(nn.Module):
    """Answer by the input's sign, right with a chance that the data decide."""

    def forward(self, x):
        return torch.cat([-x[:, -1], x[:, -1]], dim=-1)


def lines(count, seed=0, steps=20):
    """Lines of length at most 0.5 in random directions; the class is the half plane."""
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    time = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[1:]
    end = 0.5 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    return time[None, :, None] * end[:, None], (angle / math.pi).long().clamp(max=1)


def small_model(size=0.02, layer=ResidualRNN):
    torch.manual_seed(0)
    model = SequenceClassifier(layer(2, 6, batch_first=True), 2).double()
    with torch.no_grad():
        for parameter in model.layer.parameters():
            parameter *= size
    return model


def labels(count, wrong):
    X = torch.ones(count, 3, 1)
    return X, (torch.arange(count) >= wrong).long()


def test_the_gap_and_its_error_by_hand():
    found = generalization_gap(Table(), *labels(100, 10), *labels(50, 20))
    assert found.gap == pytest.approx(0.9 - 0.6)
    assert found.gap_error == pytest.approx(math.sqrt(0.9 * 0.1 / 99 + 0.6 * 0.4 / 49))
    # A wrong answer costs 2 nats more than a right one.
    assert found.loss_gap == pytest.approx(2 * 0.3, rel=1e-6)
    assert found.loss_gap_error == pytest.approx(2 * found.gap_error, rel=1e-6)
    assert "a gap of 30.0 ± 7.6 points" in found.summary()


def test_the_error_is_the_spread_over_data_sets():
    generator = torch.Generator().manual_seed(0)

    def drawn(count):
        return torch.ones(count, 3, 1), (torch.rand(count, generator=generator) < 0.8).long()

    found = [generalization_gap(Table(), *drawn(200), *drawn(60)) for _ in range(80)]
    gaps = torch.tensor([one.gap for one in found])
    assert abs(float(gaps.mean())) < 4 * float(gaps.std()) / math.sqrt(80)
    assert sum(one.gap_error for one in found) / 80 == pytest.approx(float(gaps.std()), rel=0.2)


def test_the_bound_is_the_theorys_and_above_what_is_measured():
    model, train, test = small_model(), lines(1000), lines(400, seed=1)
    before = copy.deepcopy(model.state_dict())
    found = generalization_gap(model, *train, *test)
    X, y = train
    theory = generalization_bound(model, SequenceBatch(X, torch.full((len(X),), X.shape[1]), y))
    assert found.bound == theory.value
    assert found.bound_terms == theory.terms
    assert found.bound >= 1 - found.test.score
    assert found.bound_reason == ""
    assert "fermanian2021" in found.summary()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Bent(SequenceClassifier):
    """Has layer and head, but puts something between them: nothing is proved of it."""

    def forward(self, values, lengths=None, timespans=None):
        return super().forward(values, lengths, timespans) ** 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: small_model(size=20.0), r"not applicable: .*fails \("),
        (lambda: small_model(layer=LSTM), "not applicable: it needs a SequenceClassifier on a ResidualRNN, .*LSTM"),
        (
            lambda: Bent(ResidualRNN(2, 3, batch_first=True), 2),
            "not applicable: .*this is a Bent on ResidualRNN",
        ),
        (
            lambda: SequenceClassifier(ResidualRNN(2, 3, num_layers=2, batch_first=True), 2),
            "not applicable: .*one layer",
        ),
    ],
)
def test_a_bound_that_does_not_apply_says_why(make, reason):
    found = generalization_gap(make(), *lines(60), *lines(40, seed=1))
    assert found.bound is None
    assert found.bound_terms == {}
    assert re.match(reason, found.bound_reason), found.bound_reason
    assert found.bound_reason.removeprefix("not applicable: ") in found.summary()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta"),
        ({"total_variation": 1.5}, "total_variation"),
        ({"test_lengths": [3]}, "test part: expected 40 lengths"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        generalization_gap(small_model(), *lines(60), *lines(40, seed=1), **options)
