"""The step recorded as a CUDA graph moves the weights as the plain one does; what cannot be recorded is refused."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import GRU, UnICORNN
from sostenuto.training.batches import BatchSource
from sostenuto.training.optimizers import make_optimizer, make_state, set_learning_rate
from sostenuto.training.processes import make_accelerator
from sostenuto.training.state import Progress, TrainingState
from sostenuto.training.step import GraphStep, Step
from tests.training.small import CLASSES, NUMBERS, STEPS, make_data, make_model, make_trainer, noisy, settings

SETTINGS = {"epochs": 3, "graph": True, "buckets": (4,), "learning_rate": 0.02}
KINDS = {
    "adamw": {"weight_decay": 0.1, "decayed": "matrices"},
    "adam": {"optimizer": "adam", "gradient_clip": 0.0},
    "muon": {"optimizer": "muon"},
    "average": {"ema_decay": 0.9},
    "whole batches": {"drop_last": True},
    "window": {"gradient_window": 3},
}


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    monkeypatch.setattr("sostenuto.training.optimizers._LEAST_SIDE", 4)


@pytest.mark.gpu(interpreted=False)
@pytest.mark.parametrize("objective", [CLASSES, NUMBERS, STEPS], ids=["classes", "numbers", "steps"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_step_is_the_plain_one(kind, objective, monkeypatch):
    """Both run on the device, from the same weights, without dropout; batches of three lengths, whole and not."""
    trained = []
    for graph in (True, False):
        config = settings(**SETTINGS | KINDS[kind] | {"graph": graph})
        model = make_model(objective, dropout=0.0)
        trainer = make_trainer(config, objective=objective, model=model, device="cuda")
        assert isinstance(trainer.step, GraphStep) == graph
        history = trainer.run().history
        trained.append((history, {name: value.cpu() for name, value in model.state_dict().items()}))
    (recorded, ours), (plain, theirs) = trained
    for one, other in zip(recorded, plain, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
        assert one["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-3)
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-4)


class Unrecorded(GraphStep):
    """Take the steps of a graph, with its batches and buffers, by calling instead of recording them."""

    def _recorded(self, shape, index):
        self._indices[shape], self._counts[shape] = index.clone(), torch.ones(len(index))
        return SimpleNamespace(replay=partial(self._gathered_step, shape))

    def _keep_pace(self):
        pass


@pytest.mark.parametrize("objective", [CLASSES, NUMBERS, STEPS], ids=["classes", "numbers", "steps"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_graph_records_is_the_plain_step(kind, objective, monkeypatch):
    """A graph pads each batch to the end of its bucket, and a plain step to its longest sequence."""
    trained = []
    for kind_of_step in (Unrecorded, Step):
        monkeypatch.setattr("sostenuto.training.trainer.Step", kind_of_step)
        config = settings(**SETTINGS | KINDS[kind] | {"epochs": 2})
        trainer = make_trainer(config, objective=objective, model=make_model(objective, dropout=0.0))
        assert type(trainer.step) is kind_of_step
        trainer.run()
        trained.append(trainer.plain_model.state_dict())
    for name, value in trained[1].items():
        torch.testing.assert_close(trained[0][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu(interpreted=False)
def test_a_recorded_training_goes_on_where_it_stopped(tmp_path):
    """With dropout, noise and an average: the generator's state and the optimizer's come back."""
    from tests.training.small import Interruption, PowerCutError

    config = settings(**SETTINGS | {"input_noise": 0.1, "ema_decay": 0.9, "checkpoint_seconds": 0.0})

    def make(folder=None, **options):
        model = make_model(dropout=0.3)
        return make_trainer(config, folder, model=model, device="cuda", resume=folder is not None, **options)

    whole = make(batch_transform=noisy_without_reading)
    whole.run()
    cut = make(tmp_path, batch_transform=noisy_without_reading, probes={"stop": Interruption(2).probe})
    with pytest.raises(PowerCutError):
        cut.run()
    later = make(tmp_path, batch_transform=noisy_without_reading)
    later.run()
    for name, value in whole.plain_model.state_dict().items():
        torch.testing.assert_close(later.plain_model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def noisy_without_reading(batch: SequenceBatch) -> SequenceBatch:
    return batch.replaced(values=batch.values + 0.1 * torch.randn_like(batch.values) * batch.mask[..., None])


def test_graphs_are_for_cuda_alone():
    """On a CPU the same settings run plainly, and batches are those of a graph."""
    trainer = make_trainer(settings(**SETTINGS, drop_last=True))
    assert not isinstance(trainer.step, GraphStep)
    assert not trainer.plain_model.packs
    assert trainer.run().step == 3 * len(trainer.train_source)
    assert noisy(make_data()).values.shape == noisy_without_reading(make_data()).values.shape


@pytest.mark.parametrize(
    ("config", "data", "expected"),
    [
        ({"precision": "bf16"}, {}, "expected float32 or tf32 for a graph, got bf16; set graph = false"),
        ({}, {"bidirectional": True}, "expected one direction, or sequences of one length, for a graph"),
        ({}, {"timespans": True}, "expected sequences sampled at even times for a graph, got timespans"),
    ],
    ids=["bf16", "two directions", "timespans"],
)
def test_what_cannot_be_recorded_is_refused(config, data, expected):
    model = SequenceClassifier(GRU(2, 4, batch_first=True, bidirectional=data.get("bidirectional", False)), 2)
    batch = make_data()
    if "timespans" in data:
        batch = batch.replaced(timespans=torch.ones(batch.values.shape[:2]))
    settings_ = settings(graph=True, **config)
    state = TrainingState(model, make_optimizer(model, settings_), None, Progress())
    source = BatchSource(batch, 6, torch.device("cpu"))
    with pytest.raises(InputError, match=expected):
        GraphStep(model, state, CLASSES, settings_, source, make_accelerator("cpu"))


def test_sgd_has_no_graph():
    with pytest.raises(InputError, match="expected adamw, adam or muon for a graph, got sgd; set graph = false"):
        make_optimizer(make_model(), settings(optimizer="sgd"), graph=True)


@pytest.mark.parametrize("options", [{}, {"even_words": True}, {"optimizer": "muon"}, {"optimizer": "adam"}], ids=str)
def test_an_optimizer_begins_with_an_empty_state(options):
    torch.manual_seed(0)
    model = SequenceClassifier(UnICORNN(1, 4, 2, batch_first=True), 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = settings(weight_decay=0.5, decayed="matrices", **options)
    optimizer = make_optimizer(model, config)
    make_state(optimizer)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert len(optimizer.state) == len(list(model.parameters()))
    assert all(not value.any() for state in optimizer.state.values() for value in state.values())
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.5, 0.0}
    assert all(weight.ndim > 1 for weight in optimizer.param_groups[0]["params"])
    assert {group["lr"] for group in optimizer.param_groups} == {config.learning_rate}
    made, plain = optimizer, make_optimizer(model, config)
    torch.manual_seed(1)
    gradients = [torch.randn_like(weight) for weight in model.parameters()]
    after = []
    for one in (made, plain):
        model.load_state_dict(before)
        for weight, gradient in zip(model.parameters(), gradients, strict=True):
            weight.grad = gradient.clone()
        set_learning_rate(one, 0.1)
        one.step()
        after.append({name: value.clone() for name, value in model.state_dict().items()})
    for name in before:
        torch.testing.assert_close(after[0][name], after[1][name])


def test_muon_takes_the_matrices_between_layers_at_their_own_rate():
    model = SequenceClassifier(UnICORNN(1, 16, 3, batch_first=True), 10)
    optimizer = make_optimizer(model, settings(optimizer="muon", matrix_rate=3.0))
    matrices = [weight for weight in model.layer.parameters() if weight.shape == (16, 16)]
    assert len(matrices) == 2
    assert all(weight in set(optimizer.param_groups[0]["params"]) for weight in matrices)
    before = [weight.detach().clone() for weight in matrices]
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    set_learning_rate(optimizer, 0.01)
    optimizer.step()
    for weight, was in zip(matrices, before, strict=True):
        assert 0.4 < (weight - was).square().mean().sqrt() / (0.01 * 3.0) < 0.8
