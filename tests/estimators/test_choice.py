"""The choice among models: what is compared, on what, in what time."""

import numpy as np
import pytest

from sostenuto.data.config import DataConfig
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.estimators.runs import choice
from sostenuto.estimators.runs.choice import FOLDS, LEAD, choose_model, paired_lead
from sostenuto.report.contents.comparison import choice_reason
from sostenuto.training import recipes


def waves(count, targets=None):
    generator = np.random.default_rng(0)
    kinds = np.arange(count) % 2
    values = np.sin(np.outer(0.3 + 0.3 * kinds, np.arange(20))) + generator.normal(size=(count, 20))
    return Dataset("waves", SequenceSet(list(values[:, :, None]), kinds.astype(str) if targets is None else targets))


class Scripted:
    """Models of known errors and known speed: every fit advances the clock."""

    def __init__(self, monkeypatch, shares, seconds, epoch):
        self.now, self.shares, self.seconds, self.epoch, self.trained = 0.0, shares, seconds, epoch, []
        monkeypatch.setattr(choice._Trial, "_errors", lambda _, *given: self.errors(*given))
        monkeypatch.setattr(choice._Trial, "_timed_epoch", lambda *given: self.advance(len(given[2]) * epoch))
        monkeypatch.setattr(choice, "kernel_seconds", lambda *_: 1e9)

    def clock(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds
        return seconds

    def errors(self, config, parts):
        name, held_out = config.model.layer, len(parts.validation)
        if name == "stack":
            self.trained.append(config.training.epochs)
            self.advance(self.epoch * config.training.epochs * len(parts.train))
        else:
            self.advance(self.seconds)
        return (np.arange(held_out) < round(self.shares[name] * held_out)).astype(float)


def test_a_network_that_does_not_fit_whole_is_tried_for_fewer_epochs_on_one_part(monkeypatch):
    dataset, data = waves(300), DataConfig(validation=0.0, test_fraction=0.0)
    recipe = choice.candidate_configs(dataset, data)["stack"].training.epochs
    # One training on two thirds takes two thirds of the budget.
    script = Scripted(monkeypatch, {"oscillators": 0.2, "stack": 0.02}, 1.0, 40 / recipe / 200)
    found = choose_model(dataset, data, budget=60.0, clock=script.clock)
    assert script.trained == [recipe]
    assert [one.name for one in found.candidates if one.score is None] == ["rntk"]
    assert found.name == "stack"
    assert recipe - found.config.training.epochs in (0, 1)  # 60 s for 300 sequences: just what fits
    assert script.now < 60 + script.epoch * 64  # compiling is not counted
    script = Scripted(monkeypatch, {"oscillators": 0.2, "stack": 0.02}, 1.0, 160 / recipe / 200)
    found = choose_model(dataset, data, budget=60.0, clock=script.clock)
    (epochs,) = script.trained
    assert 0.2 * recipe < epochs < 0.4 * recipe
    assert f"1 of {FOLDS} parts held out, {epochs} of {recipe} epochs" in found.candidates[-1].note
    assert found.config.training.epochs == int(60 / (script.epoch * 300)) < recipe
    assert script.now < 62


def test_one_with_time_for_all_parts_is_scored_on_all(monkeypatch):
    dataset, data = waves(300), DataConfig(validation=0.0, test_fraction=0.0)
    recipe = choice.candidate_configs(dataset, data)["stack"].training.epochs
    script = Scripted(monkeypatch, {"oscillators": 0.2, "stack": 0.2}, 1.0, 10 / recipe / 200)
    found = choose_model(dataset, data, budget=60.0, clock=script.clock)
    assert script.trained == [recipe] * FOLDS
    assert found.name == "oscillators"  # equal is not better
    assert "no other model is shown to be better" in choice_reason(
        found.candidates, found.name, is_accuracy=True, budget=60.0
    )
    script = Scripted(monkeypatch, {"oscillators": 0.2, "stack": 0.0}, 1.0, 1.0)
    found = choose_model(dataset, data, budget=60.0, clock=script.clock)
    assert (found.name, script.trained) == ("oscillators", [])
    assert "would take about" in found.candidates[-1].note


def test_few_sequences_show_nothing(monkeypatch):
    data = DataConfig(validation=0.0, test_fraction=0.0)
    # Of 30 sequences three more are right.
    script = Scripted(monkeypatch, {"oscillators": 0.6, "stack": 0.5}, 1.0, 1e-6)
    found = choose_model(waves(30), data, budget=60.0, clock=script.clock)
    assert found.candidates[-1].lead == pytest.approx(0.1)
    assert found.name == "oscillators"
    script = Scripted(monkeypatch, {"oscillators": 0.6, "stack": 0.0}, 1.0, 1e-6)
    assert choose_model(waves(30), data, budget=60.0, clock=script.clock).name == "stack"


def test_too_few_sequences_to_hold_any_out_get_the_default():
    found = choose_model(waves(4), DataConfig(validation=0.0, test_fraction=0.0))
    assert found.name == "oscillators"
    assert all("expected at least 6 sequences to choose on, got 4" in one.note for one in found.candidates)


def test_pairs_are_compared_on_what_both_have_and_chance_alone_seldom_leads():
    generator = np.random.default_rng(0)
    first, second = generator.uniform(size=(2, 40)) < 0.3
    parts = tuple(np.split(first.astype(float), 2)), (second[:20].astype(float),)
    assert paired_lead(*parts)[0] == pytest.approx(first[:20].mean() - second[:20].mean())
    assert paired_lead((), (first.astype(float),)) == (0.0, 0.0)
    assert paired_lead((first.astype(float),), (first.astype(float),)) == (0.0, 0.0)
    for count in (12, 50, 400):
        wrong = generator.uniform(size=(2000, 2, count)) < 0.3
        leads = [paired_lead((a.astype(float),), (b.astype(float),)) for a, b in wrong]
        assert np.mean([lead > LEAD * error for lead, error in leads]) < 0.05, count


@pytest.mark.parametrize("kind", ["numbers", "steps"])
def test_every_model_is_scored_in_one_unit(kind, monkeypatch):
    monkeypatch.setattr(recipes, "LEAST_EPOCHS", 2)
    monkeypatch.setattr(recipes, "MOST_EPOCHS", 2)
    generator = np.random.default_rng(1)
    plain = waves(36)
    values = [np.asarray(sequence) for sequence in plain.train.sequences]
    targets = np.array([1e3 + 50 * each.mean() for each in values]) if kind == "numbers" else None
    if kind == "steps":
        values = [each[: 10 + index % 5] for index, each in enumerate(values)]
        targets = [np.where(each[:, 0] > generator.normal(), "up", "down") for each in values]
        targets[0][:2] = "rare"  # held out with its only sequence: no model of that part has seen it
    task = "regression" if kind == "numbers" else "sequence"
    found = choose_model(
        Dataset("given", SequenceSet(values, targets, task)),
        DataConfig(validation=0.0, test_fraction=0.0, split="random"),
        budget=600.0,
        clock=lambda: 0.0,
    )
    assert [one.name for one in found.candidates] == ["oscillators", *(["rntk"] if kind == "numbers" else []), "stack"]
    for one in found.candidates:
        assert one.score is not None, one.note
        assert -1 < one.score < 1
        assert found.candidates[0].score is not None
        assert one.lead == pytest.approx(one.score - found.candidates[0].score)
