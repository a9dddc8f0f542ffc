import copy
import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from sostenuto.checks import InputError
from sostenuto.models.base import SequenceModel
from sostenuto.training.objective import Objective
from sostenuto.training.probes import weight_norms
from sostenuto.training.trainer import DivergedError, Trainer
from tests.training.small import (
    BATCHES,
    CLASSES,
    NUMBERS,
    STEPS,
    make_data,
    make_model,
    make_trainer,
    same,
    settings,
    weights,
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "sgd"},
        {"optimizer": "adam", "weight_decay": 0.01},
        {"ema_decay": 0.9},
        {"subsample": 3},
        {"input_noise": 0.5},
        {"gradient_window": 2},
    ],
    ids=str,
)
def test_same_seed_same_weights_other_seed_other_weights(options):
    one, two = (make_trainer(settings(**options)) for _ in range(2))
    assert one.run().epoch == two.run().epoch == 4
    assert same(weights(one), weights(two))
    other = make_trainer(settings(**options, seed=1))
    other.run()
    assert not same(weights(one), weights(other))


@pytest.mark.parametrize("objective", [CLASSES, NUMBERS, STEPS], ids=["classes", "numbers", "steps"])
@pytest.mark.parametrize("ragged", [False, True])
def test_the_loss_goes_down(objective, ragged):
    data = make_data(40, ragged=ragged, objective=objective)
    model = make_model(objective, dropout=0.0)
    trainer = make_trainer(settings(epochs=12), model=model, train=data, objective=objective)
    history = trainer.run().history
    assert history[-1]["train_loss"] < 0.6 * history[0]["train_loss"]
    assert [row["epoch"] for row in history] == list(range(1, 13))


def test_training_leaves_the_callers_random_numbers_alone():
    trainer = make_trainer(settings(epochs=1))
    before = torch.get_rng_state()
    trainer.run()
    assert torch.equal(torch.get_rng_state(), before)


def true_loss(objective: Objective, model: SequenceModel, data) -> torch.Tensor:
    prediction = model(data.values, data.lengths)
    if objective.steps:
        return F.mse_loss(prediction[data.mask], data.targets[data.mask])
    return F.cross_entropy(prediction, data.targets) if objective.classes else F.mse_loss(prediction, data.targets)


@pytest.mark.parametrize("objective", [CLASSES, NUMBERS, STEPS], ids=["classes", "numbers", "steps"])
def test_a_step_is_plain_gradient_descent_on_the_mean_loss(objective):
    data = make_data(objective=objective)
    model = make_model(objective, dropout=0.0)
    expected = copy.deepcopy(model)
    loss = true_loss(objective, expected, data)
    loss.backward()
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter -= 0.1 * parameter.grad  # pyright: ignore[reportOptionalOperand]
    options = settings(
        epochs=1,
        batch_size=20,
        optimizer="sgd",
        momentum=0.0,
        schedule="constant",
        gradient_clip=0.0,
        learning_rate=0.1,
    )
    trainer = make_trainer(options, model=model, train=data, objective=objective, validation=None)
    row = trainer.run().history[0]
    assert row["train_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


def test_the_gradient_is_clipped():
    model = make_model(dropout=0.0)
    before = copy.deepcopy(model.state_dict())
    options = settings(
        epochs=1,
        batch_size=20,
        optimizer="sgd",
        momentum=0.0,
        schedule="constant",
        gradient_clip=1e-3,
        learning_rate=1.0,
    )
    make_trainer(options, model=model, validation=None).run()
    moved = torch.cat([(value - before[name]).flatten() for name, value in model.state_dict().items()])
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-3)


def test_validation_numbers_are_those_of_the_kept_model():
    data, model = make_data(9, seed=1), make_model()
    history = make_trainer(settings(select="last"), model=model).run().history
    assert not model.training
    with torch.no_grad():
        prediction = model(data.values, data.lengths)
    assert data.targets is not None
    assert history[-1]["validation_loss"] == pytest.approx(float(F.cross_entropy(prediction, data.targets)), rel=1e-5)
    right = (prediction.argmax(-1) == data.targets).float().mean()
    assert history[-1]["validation_accuracy"] == pytest.approx(float(right))


def test_the_average_is_what_is_kept():
    trainer = make_trainer(settings(ema_decay=0.9, select="last"), validation=None)
    trainer.run()
    assert trainer.state.average is not None
    assert same(weights(trainer), trainer.state.average.tensors)
    plain = make_trainer(settings(select="last"), validation=None)
    plain.run()
    assert not same(weights(trainer), weights(plain))


class ScriptedTrainer(Trainer):
    """Says of each epoch what it is told to, and remembers the weights."""

    def script(self, rows: list[tuple[float, float]]) -> "ScriptedTrainer":
        self.rows, self.seen = rows, []
        return self

    def _evaluate(self, source):
        self.seen.append(weights(self))
        return self.rows[len(self.seen) - 1]


def scripted(rows: list[tuple[float, float]], objective: Objective = CLASSES, **options) -> ScriptedTrainer:
    config = settings(epochs=len(rows), schedule="constant", **options)
    data = make_data(objective=objective)
    trainer = ScriptedTrainer(make_model(objective), objective, config, data, data, device="cpu", progress=False)
    return trainer.script(rows)


@pytest.mark.parametrize(
    ("rows", "objective", "best"),
    [
        ([(1.0, 0.5), (0.9, 0.7), (0.1, 0.6)], CLASSES, 2),
        ([(1.0, 0.5), (0.9, 0.7), (0.8, 0.7)], CLASSES, 3),
        ([(0.8, 0.7), (900.0, 0.7001), (0.1, 0.7)], CLASSES, 2),
        ([(1.0, 5.0), (0.9, 3.0), (0.8, 4.0)], NUMBERS, 2),
        ([(2.0, 1e-9), (3.0, 2e-9), (1.0, 3e-9)], NUMBERS, 1),
        ([(1.0, 0.5), (0.9, 0.7), (math.nan, 0.9)], CLASSES, 2),
        ([(1.0, 0.5), (math.inf, math.inf), (math.nan, math.nan)], NUMBERS, 1),
        ([(math.nan, math.nan), (0.9, 0.7), (1.0, 0.7)], CLASSES, 2),
    ],
)
def test_the_best_epoch_is_kept(rows, objective, best):
    trainer = scripted(rows, objective)
    assert trainer.run().best_epoch == best
    assert same(weights(trainer), trainer.seen[best - 1])


def test_the_last_epoch_is_kept_when_asked():
    trainer = scripted([(1.0, 0.5), (0.9, 0.7), (0.8, 0.6)], select="last")
    assert trainer.run().best_epoch == 2
    assert same(weights(trainer), trainer.seen[-1])


def test_never_a_finite_score_keeps_the_last_weights():
    trainer = scripted([(math.nan, 0.5)] * 3)
    assert trainer.run().best_epoch is None
    assert same(weights(trainer), trainer.seen[-1])


@pytest.mark.parametrize(("patience", "epochs"), [(0, 6), (1, 3), (2, 4), (3, 6)])
def test_patience(patience, epochs):
    rows = [(1.0, 0.5), (1.0, 0.8), (1.0, 0.6), (1.0, 0.7), (0.9, 0.8), (1.0, 0.5)]
    progress = scripted(rows, patience=patience).run()
    assert progress.epoch == epochs
    assert progress.finished


def test_a_loss_that_is_not_finite_is_an_error():
    config = settings(optimizer="sgd", learning_rate=1e30, schedule="constant", gradient_clip=0.0)
    with pytest.raises(DivergedError, match=r"expected a finite loss, got (nan|inf) in epoch 1; lower learning_rate"):
        make_trainer(config, objective=NUMBERS).run()


def test_a_training_that_diverges_keeps_the_best_weights_from_before():
    config = settings(optimizer="sgd", learning_rate=1e30, schedule="step", step_epochs=(1,), gradient_clip=0.0)
    trainer = make_trainer(config, objective=NUMBERS)
    with pytest.raises(DivergedError) as caught:
        trainer.run()
    assert trainer.state.progress.diverged == str(caught.value)
    assert all(bool(weight.isfinite().all()) for weight in trainer.plain_model.state_dict().values())


def test_a_loss_that_grows_without_end_is_divergence():
    trainer = make_trainer(settings(), objective=NUMBERS)
    trainer.state.progress.history.append({"train_loss": 3.0})
    with pytest.raises(DivergedError, match="expected a loss that falls, or stays below 10000, got 2e"):
        trainer._check_convergence(2e4)
    trainer._check_convergence(9e3)
    trainer.state.progress.history[-1] = {"train_loss": 5e4}
    trainer._check_convergence(4e4)


@pytest.mark.parametrize(("weights", "best"), [(None, 1), (torch.tensor([1e-4, 1e3]), 2)])
def test_weights_of_classes_count_when_the_epoch_is_chosen(weights, best):
    """The epoch before the weights took effect has the better plain accuracy."""
    trainer = make_trainer(settings(), objective=replace(CLASSES, class_weights=weights))
    for epoch, (loss, accuracy) in enumerate([(1.0, 0.9), (0.5, 0.1)], start=1):
        trainer.state.progress.epoch = epoch
        trainer._keep_best(loss, accuracy)
    assert trainer.state.progress.best_epoch == best


def test_the_log_is_strict_json_with_the_numbers_of_probes(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 99}\n')
    trainer = make_trainer(settings(), tmp_path, probes={"norms": weight_norms, "odd": lambda *_: {"x": math.nan}})
    history = trainer.run().history

    def refuse(text: str) -> None:
        raise AssertionError(text)

    rows = [json.loads(line, parse_constant=refuse) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert [row["train_loss"] for row in rows] == [row["train_loss"] for row in history]
    assert rows[0]["odd/x"] is None
    assert rows[0]["norms/norm/head.weight"] > 0
    assert {"validation_loss", "validation_accuracy", "learning_rate", "seconds"} <= rows[0].keys()


def test_bf16_trains_on_a_cpu_and_answers_in_float32():
    trainer = make_trainer(
        settings(epochs=15, precision="bf16"), objective=NUMBERS, model=make_model(NUMBERS, dropout=0.0)
    )
    history = trainer.run().history
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    fresh = make_model(NUMBERS, dropout=0.0)
    fresh.load_state_dict(weights(trainer))
    data = make_data(objective=NUMBERS)
    assert torch.equal(fresh.eval()(data.values, data.lengths), trainer.plain_model(data.values, data.lengths))
    exact = make_trainer(settings(epochs=15), objective=NUMBERS, model=make_model(NUMBERS, dropout=0.0))
    exact.run()
    assert not same(weights(trainer), weights(exact))


def test_every_step_counts_once_whatever_the_number_of_batches(monkeypatch):
    seen = []
    monkeypatch.setattr("sostenuto.training.trainer.learning_rate", lambda _, *place: seen.append(place) or 0.01)
    progress = make_trainer(settings(epochs=2)).run()
    assert progress.step == 2 * BATCHES
    assert {batches for _, batches in seen} == {BATCHES}
    assert sorted({step for step, _ in seen}) == list(range(2 * BATCHES))


def test_noise_stays_out_of_the_padding_and_off_the_tokens():
    trainer = make_trainer(settings(input_noise=1.0))
    data = make_data()
    noisy = trainer.step.varied(data)
    assert noisy.values[~data.mask].count_nonzero() == 0
    assert bool((noisy.values != data.values)[data.mask].all())


def test_gradient_window_needs_a_sequence_model():
    with pytest.raises(InputError, match="expected a SequenceModel"):
        make_trainer(settings(gradient_window=2), model=torch.nn.Linear(2, 2))


@pytest.mark.parametrize("device", ["banana", "cuda:99", "meta"])
def test_a_device_that_is_not_here_is_refused(device):
    from sostenuto.training.processes import make_accelerator

    with pytest.raises(InputError, match=f"expected a device .*got '{device}'"):
        make_accelerator(device)
