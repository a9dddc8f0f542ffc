"""What models read and return in many forms is recognized, or refused with the line to write."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import sostenuto as so
from sostenuto.checks import InputError

X = torch.randn(60, 12, 1, generator=torch.Generator().manual_seed(0))
Y = (X.mean((1, 2)) > 0).long()


class Model(nn.Module):
    """Answers with a function of the logit that is right for `Y`, as one kind of model would."""

    def __init__(self, answer, last=None):
        super().__init__()
        self.weight, self.answer = nn.Parameter(torch.tensor(20.0)), answer
        self.last = nn.Identity() if last is None else last

    def forward(self, x):
        return self.last(self.answer(self.weight * x.mean((1, 2))[:, None]))


class WithLengths(Model):
    def forward(self, x, seq_len):
        assert seq_len.tolist() == [x.shape[1]] * len(x)
        return super().forward(x)


class EveryStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(20.0))

    def forward(self, x):
        return self.weight * x[:, :, 0]


def both(logit):
    return torch.cat([-logit, logit], -1)


FORMS = {
    "two scores": (Model(both), ""),
    "one logit": (Model(lambda logit: logit), "one logit"),
    "squeezed": (Model(lambda logit: logit[:, 0]), "one logit"),
    "one probability": (Model(lambda logit: logit, nn.Sigmoid()), "one probability"),
    "probabilities": (Model(lambda logit: both(logit).softmax(-1)), "without another softmax"),
    "a dict": (Model(lambda logit: {"logits": both(logit)}), "output 'logits'"),
    "a record": (Model(lambda logit: SimpleNamespace(logits=both(logit))), "output .logits"),
    "lengths": (WithLengths(both), "seq_len"),
}


def skill_of(model, inputs, targets):
    return so.audit(model, inputs, targets, checks="skill", progress=False)


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_read_in_every_form(form):
    model, note = FORMS[form]
    report = skill_of(model, X, Y)
    assert report.skill.score == 1.0
    assert report.verdicts["skill"].label == "Better than guessing"
    assert note in " ".join(report.notes)
    assert bool(note) == bool(report.notes)


def test_one_number_between_0_and_1_could_be_either():
    with pytest.raises(InputError, match=r"write so\.audits\.adapt\(model, output=lambda p: torch\.cat"):
        skill_of(Model(lambda logit: logit.sigmoid()), X, Y)
    with pytest.raises(InputError, match=r"got hidden; write so\.audits\.adapt\(model, output=lambda output"):
        skill_of(Model(lambda logit: {"hidden": logit}), X, Y)


def test_squeezed_answers_at_every_step():
    every, steps = EveryStep(), (X[:, :, 0] > 0).long()
    assert skill_of(every, X, steps).skill.score == 1.0
    assert skill_of(every, X, 20 * X[:, :, 0]).skill.score == pytest.approx(0.0, abs=1e-6)


def test_names_of_classes():
    report = skill_of(Model(both), X, np.where(Y.numpy() > 0, "up", "down"))
    assert report.skill.score == 1.0
    assert report.classes == ("down", "up")


def test_token_ids_go_through_the_embedding():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, ids):
            assert ids.dtype == torch.long
            return self.head(self.embedding(ids)[:, -1])

    model, ids = Tokens(), torch.randint(0, 10, (60, 7), generator=torch.Generator().manual_seed(0))
    report = so.audit(model, ids, model(ids).argmax(-1), checks=["attack", "curvature"], progress=False)
    assert report.skill.score == 1.0
    assert report.refused == {}
    assert "embedded" in report.notes[0]


def test_fitted_estimators_are_opened_or_asked_for_answers():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((48, 16, 1))
    labels = np.where(inputs.mean((1, 2)) > 0, "up", "down")
    network = so.RecurrentClassifier(layer="gru", epochs=1, hidden_size=4).fit(inputs, labels)
    report = skill_of(network, inputs, labels)
    assert report.skill.score == pytest.approx(np.mean(network.predict(inputs) == labels))
    features = so.OscillatorClassifier(n_units=20).fit(inputs, labels)
    report = so.audit(features, inputs, labels, checks=["attack", "perturbation"], progress=False)
    assert report.skill.score == pytest.approx(np.mean(features.predict(inputs) == labels))
    assert report.attack.masked == ""
    assert "It has no gradients, so attacks asked for answers alone." in report.verdicts["attack"].text
    assert report.verdicts["attack"].label in ("Undecided", "Breaks")
    assert set(report.refused) == {"perturbation"}
