"""A model whose answers depend on more than the sequence gets no verdict."""

import pytest
import torch
from torch import nn

import sostenuto as so
from sostenuto.audits.batches import eval_batch
from sostenuto.audits.conduct import misconduct
from sostenuto.benchmarks._audited_models import Carrying, Normalized, Recurrent, Weighted


class Placed(nn.Module):
    def forward(self, x):
        lead = (torch.arange(len(x)) % 2 - 0.5)[:, None] + 0 * x[:, 0]
        return torch.cat([-lead, lead], 1)


def examples():
    x = torch.randn(40, 12, 1, generator=torch.Generator().manual_seed(0))
    return x, (x.sum((1, 2)) > 0).long()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: Weighted(torch.ones(12)), ""),
        (lambda: nn.Sequential(nn.Dropout(0.5), Weighted(torch.ones(12))).train(), ""),
        (lambda: Recurrent(nn.LSTM(1, 4, batch_first=True)), ""),
        (lambda: Normalized(Weighted(torch.ones(12))), "the others of the batch"),
        (lambda: Carrying(Weighted(torch.ones(12))), "from call to call"),
        (lambda: Placed(), "its place in the batch"),
    ],
)
def test_each_sequence_must_be_answered_alone(model, told):
    torch.manual_seed(0)
    model = model()
    found = misconduct(model, eval_batch(model, *examples()), 0)
    assert told in found
    assert bool(told) == bool(found)


def test_no_verdict_is_given():
    report = so.audit(Normalized(Weighted(torch.ones(12))), *examples(), checks=["noise"], progress=False)
    assert {verdict.label for verdict in report.verdicts.values()} == {"Undecided"}
    assert "batch" in report.verdicts["noise"].text
    assert any("No verdict is given" in note for note in report.notes)
