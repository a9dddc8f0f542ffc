# ruff: noqa: N806 (X is the name of the contract)
import json
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import sostenuto
from sostenuto.audits import adapt
from sostenuto.audits.audit import AuditReport, CheckVerdict, audit
from sostenuto.audits.batches import eval_batch
from sostenuto.audits.checks import all_checks
from sostenuto.audits.context import measured_cost
from sostenuto.audits.page import judge, render
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import RNN


class Last(nn.Module):
    def __init__(self, layer=None, dropout=0.0):
        super().__init__()
        self.layer = layer if layer is not None else nn.GRU(2, 4, batch_first=True)
        self.head, self.dropout = nn.Linear(4, 2), nn.Dropout(dropout)

    def forward(self, x):
        return self.head(self.dropout(self.layer(x)[0][:, -1]))


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(24, 20, 2, generator=generator)
    return X, (X[:, :, 0].sum(1) > 0).long()


def certified_model():
    """A classifier on a layer that has a certificate, so that every check has an answer."""
    torch.manual_seed(0)
    model = SequenceClassifier(RNN(2, 4, batch_first=True), 2)
    with torch.no_grad():
        model.layer.weight_hh_l0 *= 0.5
    return model.train()


@pytest.fixture(scope="module")
def report(data):
    return audit(certified_model(), *data, train=data, progress=False)


def test_every_check_answers(report):
    assert report.refused == {}
    assert list(report.results) == list(all_checks()) == list(report.verdicts)
    assert report.memory.horizon == 19
    assert sostenuto.audit is audit


def test_the_report_survives_json(report):
    plain = json.loads(report.to_json())
    assert AuditReport.from_dict(plain) == report
    assert plain["results"]["memory"]["kind"] == report.memory.kind


def test_the_same_seed_gives_the_same_numbers(report, data):
    again = audit(certified_model(), *data, train=data, progress=False)
    assert {**again.to_dict(), "seconds": 0, "date": ""} == {**report.to_dict(), "seconds": 0, "date": ""}


def test_the_page_says_every_verdict_and_nothing_is_loaded_from_outside(report, tmp_path):
    page = report.save(tmp_path / "audit.html").read_text()
    for name in report.results:
        assert all_checks()[name].title in page
        assert report.verdicts[name].label in page
    assert "audit of a model" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert len(page) < 2_000_000
    assert render(report) == page


def test_two_models_side_by_side(report, data):
    torch.manual_seed(1)
    other = audit(Last(), *data, checks=["memory", "noise"], progress=False)
    page = render(report, against=other, name="first<run>", other="second&run")
    assert "Side by side" in page
    assert "first&lt;run&gt;" in page
    assert "second&amp;run" in page
    assert "not measured" in page


def test_without_classes_memory_and_stability_are_asked(data):
    found = audit(Last(), data[0], progress=False)
    assert set(found.refused) == {name for name, check in all_checks().items() if "y" in check.needs}
    assert found.memory is not None
    assert "Needs y" in render(found)


def test_a_model_without_a_state_keeps_the_other_checks(data):
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, x):
            return self.head(x.mean(1))

    found = audit(Mean(), *data, progress=False)
    stateful = ("lyapunov", "certificates", "gradients")
    assert set(found.refused) == {*stateful, "generalization", "certified"}
    assert all("expected a model with one recurrent layer" in found.refused[name] for name in stateful)
    assert found.refused["certified"].startswith(
        "not applicable: a radius needs a recurrence that is proved to contract"
    )
    assert found.refused["certified"].endswith("a SequenceClassifier fails (Mean is another model).")
    page = render(found)
    assert "Not measured" in page
    assert "Does not apply" in page


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_asked_everything(data, dtype):
    torch.manual_seed(0)
    model = Last(dropout=0.5)
    wide = audit(model, *data, checks=["memory", "curvature"], progress=False)
    found = audit(model.to(dtype), data[0].to(dtype), data[1], train=data, progress=False)
    assert set(found.refused) == {"certified"}
    # Rounding to 8 bits must pass neither for forgetting nor for curvature.
    assert found.memory.half_life == pytest.approx(wide.memory.half_life, rel=0.05)
    assert found.curvature.top[0] == pytest.approx(wide.curvature.top[0], rel=0.05)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_answers_of_automatic_mixed_precision_are_coarser_than_its_weights(data):
    class Mixed(Last):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x)

    torch.manual_seed(0)
    model = Mixed()
    found = audit(model, *data, checks=["memory", "noise", "attack", "perturbation", "gradients"], progress=False)
    assert found.refused == {}
    assert found.memory.half_life < 10


def test_a_model_that_returns_a_tuple_is_refused_in_a_sentence_and_adapted(data):
    tuples = nn.GRU(2, 2, batch_first=True)
    with pytest.raises(InputError, match="expected the model to return one tensor, got tuple; wrap it"):
        audit(tuples, *data, progress=False)
    found = audit(adapt(tuples), data[0], data[1], checks="noise", progress=False)
    assert found.noise is not None


def test_a_model_that_raises_is_refused_in_a_sentence(data):
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("no\nway")

    with pytest.raises(InputError, match="got RuntimeError: no; call the model on such a tensor") as caught:
        audit(Broken(), *data, progress=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", ["btc", "tbc", "bct"])
def test_adapters_turn_layouts(layout):
    class Sum(nn.Module):
        def forward(self, x):
            assert tuple(x.shape) == {"btc": (5, 7, 2), "tbc": (7, 5, 2), "bct": (5, 2, 7)}[layout]
            return {"scores": x * 2}

    x = torch.randn(5, 7, 2)
    adapted = adapt(Sum(), layout=layout, output=lambda found: found["scores"])
    torch.testing.assert_close(adapted(x), 2 * x)


def test_lengths_reach_a_model_that_names_them_otherwise(data):
    class Needs(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, x, seq_len):
            return self.head(x[torch.arange(len(x)), seq_len - 1])

    ragged = [row[: 5 + index % 4] for index, row in enumerate(data[0])]
    found = audit(adapt(Needs(), lengths="seq_len"), ragged, data[1], checks="noise", progress=False)
    assert found.noise.count == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "huge"}, "expected budget to be one of 'quick', 'full', got 'huge'"),
        ({"checks": ["mood"]}, "expected check to be one of 'skill', 'memory', .* got 'mood'"),
        ({"checks": []}, "expected at least one check, got none"),
    ],
)
def test_bad_options_are_refused(data, options, message):
    with pytest.raises(InputError, match=message):
        audit(Last(), *data, **options)


def test_nothing_is_sound_that_was_not_asked_for_skill():
    """One good answer about a model of which nobody knows whether it is any good does not make it so."""
    good = CheckVerdict("good", "Long memory", "It lasts.")
    known = AuditReport(model="M", num_parameters=1, num_sequences=40, num_steps=9, budget="quick", seed=0, seconds=1.0)
    alone = judge(replace(known, verdicts={"memory": good}))
    assert (alone.outcome, alone.label) == ("unknown", "In part")
    assert alone.sentence.startswith("1 check was made")
    assert judge(replace(known, verdicts={"skill": good, "memory": good})).label == "Sound"


class Waiting(Last):
    """A model that is fast on a machine that does much else."""

    def forward(self, x):
        time.sleep(0.05)
        return super().forward(x)


def test_what_else_the_machine_does_costs_no_time(data):
    model, (X, y) = Waiting(), data
    cost = measured_cost(model, eval_batch(model, X, y), seed=0)
    assert cost.forward < cost.backward < 0.05 / 8


class Damped(nn.Module):
    """A linear recurrence that fades slowly, and a read-out of its last state."""

    def __init__(self):
        super().__init__()
        self.layer = sostenuto.nn.DampedOscillators(1, 6, batch_first=True, time_scales=(300, 400))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def test_a_slow_decay_settles_where_it_is_proved():
    torch.manual_seed(0)
    model, X = Damped(), torch.randn(140, 40, 1)
    with torch.no_grad():
        model.head.bias.sub_(model(X).median(0).values)
        y = model(X).argmax(1)
    alone = audit(model, X, y, checks="lyapunov", progress=False)
    assert alone.verdicts["lyapunov"].label == "Undecided"
    assert alone.num_sequences == 140
    beside = audit(model, X, y, checks=["lyapunov", "certificates"], progress=False)
    assert beside.verdicts["lyapunov"].label == "Settles"
    assert beside.verdicts["lyapunov"].text.endswith("That they fade for good is proved for every input.")
