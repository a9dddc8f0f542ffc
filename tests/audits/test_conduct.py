"""A model whose answers depend on more than the sequence gets no verdict."""

import pytest
import torch
from torch import nn

import sostenuto as so
from sostenuto.audits.batches import eval_batch
from sostenuto.audits.conduct import misconduct
from sostenuto.audits.model import forward_arguments
from sostenuto.benchmarks._audited_models import Carrying, Normalized, Recurrent, Weighted


class Placed(nn.Module):
    def forward(self, x):
        lead = (torch.arange(len(x)) % 2 - 0.5)[:, None] + 0 * x[:, 0]
        return torch.cat([-lead, lead], 1)


class Padded(nn.Module):
    """Reads the last step of the batch, which is padding where a sequence is shorter."""

    def forward(self, x, lengths=None):
        return torch.cat([-x[:, -1], x[:, -1]], 1)


class Answered(nn.Module):
    """Answers as another function of a linear model's scores says."""

    def __init__(self, given):
        super().__init__()
        self.model, self.given = Weighted(torch.ones(12)), given

    def forward(self, x):
        return self.given(self.model(x))


class InPlace(nn.Module):
    def forward(self, x):
        lead = x.sub_(x.mean(1, keepdim=True))[:, -1]
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
        (lambda: Answered(lambda scores: scores if len(scores) > 16 else -scores), "how many are asked about"),
        (lambda: Answered(lambda scores: scores if len(scores) > 1 else -scores), "how many are asked about"),
        (lambda: Answered(lambda scores: scores.round() if torch.is_grad_enabled() else scores), "where gradients"),
        (lambda: InPlace(), ""),
    ],
)
def test_each_sequence_must_be_answered_alone(model, told):
    torch.manual_seed(0)
    model = model()
    found = misconduct(model, eval_batch(model, *examples()), 0)
    assert told in found
    assert bool(told) == bool(found)


@pytest.mark.parametrize(("leaked", "told"), [(True, "padding"), (False, "")])
def test_padding_must_not_matter(leaked, told):
    """Padding that is the same everywhere may be read, since it says how long a sequence is and no more."""
    x, y = examples()
    lengths = torch.randint(6, 12, (40,), generator=torch.Generator().manual_seed(1))
    padding = torch.where(torch.tensor(leaked), 2.0 * y - 1, torch.zeros(40))
    x = torch.where((torch.arange(12) < lengths[:, None])[:, :, None], x, padding[:, None, None])
    found = misconduct(Padded(), eval_batch(Padded(), x, y, lengths), 0)
    assert told in found
    assert bool(told) == bool(found)


def test_data_are_left_as_they_are():
    x, y = examples()
    before = x.clone()
    report = so.audit(InPlace(), x, y, checks=["attack"], progress=False)
    assert report.attack is not None
    assert torch.equal(x, before)


def test_no_verdict_is_given():
    report = so.audit(Normalized(Weighted(torch.ones(12))), *examples(), checks=["noise"], progress=False)
    assert {verdict.label for verdict in report.verdicts.values()} == {"Undecided"}
    assert "batch" in report.verdicts["noise"].text
    assert any("No verdict is given" in note for note in report.notes)


@pytest.mark.filterwarnings("ignore")  # torch calls its own compiler deprecated
def test_a_compiled_model_is_read():
    x, y = examples()
    model = torch.jit.trace(Weighted(torch.ones(12)), x[:2])
    assert forward_arguments(model) == {"x": True}
    assert so.audit(model, x, y, checks=["skill"], progress=False).skill.score == 1.0
