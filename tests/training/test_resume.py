"""A run that is stopped and taken up again ends where it would have ended: bit for bit."""

import json
from functools import cache
from pathlib import Path

import pytest

from sostenuto.checks import InputError
from sostenuto.training.checkpoint import CheckpointError
from sostenuto.training.trainer import Trainer
from tests.training.small import (
    BATCHES,
    Interruption,
    PowerCutError,
    make_data,
    make_model,
    make_trainer,
    noisy,
    same,
    settings,
    weights,
)

KINDS = {
    "adamw": {},
    "adam": {"optimizer": "adam", "weight_decay": 0.01, "schedule": "cosine"},
    "sgd": {"optimizer": "sgd", "schedule": "step", "step_epochs": (2,)},
    "average": {"ema_decay": 0.9},
    "average kept last": {"ema_decay": 0.9, "select": "last", "optimizer": "sgd"},
    "noise and subsampling": {"input_noise": 0.3, "subsample": 4},
    "early stopping": {"patience": 1, "learning_rate": 0.3, "epochs": 8},
    "truncated": {"gradient_window": 3},
    "muon": {"optimizer": "muon"},
}


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    """Let Muon take the small layers of these tests for large ones."""
    monkeypatch.setattr("sostenuto.training.optimizers._LEAST_SIDE", 4)


@pytest.fixture(autouse=True)
def every_epoch_is_kept(monkeypatch):
    """The epochs of these tests are short enough to share a checkpoint."""
    monkeypatch.setattr("sostenuto.training.trainer.EPOCH_SECONDS", 0.0)


def outcome(trainer: Trainer) -> tuple:
    progress = trainer.state.progress
    rows = [{k: v for k, v in row.items() if k not in ("seconds", "train_loss")} for row in progress.history]
    return progress.epoch, progress.step, progress.best_epoch, progress.best_score, progress.stale, rows


def log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@cache
def left_alone(kind: str = "adamw") -> Trainer:
    """Train without a stop, once for all the tests that compare with it."""
    whole = make_trainer(settings(**KINDS[kind]))
    whole.run()
    return whole


def assert_same_end(resumed: Trainer, whole: Trainer, folder: Path) -> None:
    assert same(weights(resumed), weights(whole))
    assert outcome(resumed) == outcome(whole)
    losses = [row["train_loss"] for row in whole.state.progress.history]
    assert [row["train_loss"] for row in resumed.state.progress.history] == pytest.approx(losses, rel=1e-12)
    assert [row["epoch"] for row in log(folder)] == list(range(1, whole.state.progress.epoch + 1))
    assert resumed.state.progress.finished


def interrupt(trainer: Trainer) -> None:
    with pytest.raises(PowerCutError):
        trainer.run()


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_between_epochs(tmp_path, kind, at):
    config, whole = settings(**KINDS[kind]), left_alone(kind)
    if at > whole.state.progress.epoch:
        pytest.skip("stopped early by itself")
    interrupt(make_trainer(config, tmp_path, probes={"stop": Interruption(at).probe}))
    resumed = make_trainer(config, tmp_path, resume=True)
    resumed.run()
    assert_same_end(resumed, whole, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_inside_an_epoch_again_and_again(tmp_path, kind):
    """Every call of the transform draws random numbers, so that one call too many would be seen."""
    config = settings(**KINDS[kind], checkpoint_seconds=0.0)
    whole = make_trainer(config, batch_transform=noisy)
    whole.run()
    interrupt(make_trainer(config, tmp_path, batch_transform=Interruption(3).transform))
    for at in (4, 2, 5):
        if len(log(tmp_path)) < whole.state.progress.epoch - 1:
            interrupt(make_trainer(config, tmp_path, resume=True, batch_transform=Interruption(at).transform))
    resumed = make_trainer(config, tmp_path, resume=True, batch_transform=noisy)
    resumed.run()
    assert_same_end(resumed, whole, tmp_path)


def test_checkpoints_inside_an_epoch_change_nothing(tmp_path):
    often, seldom = (make_trainer(settings(checkpoint_seconds=s), tmp_path / str(s)) for s in (0.0, 1e9))
    often.run()
    seldom.run()
    assert same(weights(often), weights(seldom))
    assert outcome(often) == outcome(seldom)


def test_stopped_before_the_first_checkpoint(tmp_path):
    """The epoch is in the log but in no checkpoint: it is trained, and logged, again."""
    whole = left_alone()
    cut = make_trainer(settings(), tmp_path)
    cut._save = lambda: (_ for _ in ()).throw(PowerCutError())  # pyright: ignore[reportAttributeAccessIssue]
    interrupt(cut)
    assert [row["epoch"] for row in log(tmp_path)] == [1]
    resumed = make_trainer(settings(), tmp_path, resume=True)
    resumed.run()
    assert_same_end(resumed, whole, tmp_path)


def test_short_epochs_share_a_checkpoint_and_the_last_one_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("sostenuto.training.trainer.EPOCH_SECONDS", 1e9)
    whole = left_alone()
    interrupt(make_trainer(settings(), tmp_path, probes={"stop": Interruption(3).probe}))
    assert not list((tmp_path / "checkpoints").glob("*.json"))
    resumed = make_trainer(settings(), tmp_path, resume=True)
    resumed.run()
    assert_same_end(resumed, whole, tmp_path)
    kept = [one.name for one in (tmp_path / "checkpoints").glob("*.json")]
    assert kept == [f"{whole.state.progress.epoch:06}-000000.json"]


def test_a_finished_run_stays_finished(tmp_path):
    whole = make_trainer(settings(), tmp_path)
    whole.run()
    again = make_trainer(settings(), tmp_path, resume=True, batch_transform=Interruption(1).transform)
    again.run()
    assert_same_end(again, whole, tmp_path)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_checkpoint_costs_an_epoch_and_nothing_else(tmp_path, suffix):
    whole = left_alone()
    interrupt(make_trainer(settings(), tmp_path, probes={"stop": Interruption(4).probe}))
    newest = sorted((tmp_path / "checkpoints").glob(f"*{suffix}"))[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    resumed = make_trainer(settings(), tmp_path, resume=True)
    with pytest.warns(UserWarning, match=r"000003-000000\.json.*Resuming from 000002-000000\.json instead"):
        resumed.run()
    assert_same_end(resumed, whole, tmp_path)


def test_all_damaged_is_refused(tmp_path):
    interrupt(make_trainer(settings(), tmp_path, probes={"stop": Interruption(4).probe}))
    for path in (tmp_path / "checkpoints").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="No other checkpoint is whole"):
        make_trainer(settings(), tmp_path, resume=True).run()


@pytest.mark.parametrize(
    "changed",
    [
        {"config": settings(learning_rate=0.01)},
        {"config": settings(epochs=9)},
        {"train": make_data(seed=7)},
        {"train": make_data(ragged=False)},
        {"validation": make_data(9, seed=8)},
        {"validation": None},
        {"step_size": 0.25},
    ],
    ids=["rate", "epochs", "data", "lengths", "validation", "no validation", "option of the layer"],
)
def test_other_settings_data_or_model_are_refused(tmp_path, changed):
    interrupt(make_trainer(settings(), tmp_path, probes={"stop": Interruption(2).probe}))
    options = dict(changed)
    config, step_size = options.pop("config", settings()), options.pop("step_size", 0.5)
    other = make_trainer(config, tmp_path, resume=True, model=make_model(step_size=step_size), **options)
    with pytest.raises(InputError, match="expected the settings and data the run was started with, got others"):
        other.run()


def test_how_often_to_save_may_change(tmp_path):
    whole = left_alone()
    interrupt(make_trainer(settings(), tmp_path, probes={"stop": Interruption(2).probe}))
    resumed = make_trainer(settings(checkpoint_seconds=0.0), tmp_path, resume=True)
    resumed.run()
    assert_same_end(resumed, whole, tmp_path)


def test_a_new_run_is_not_misled_by_old_checkpoints(tmp_path):
    make_trainer(settings(epochs=9), tmp_path).run()
    interrupt(make_trainer(settings(), tmp_path, probes={"stop": Interruption(3).probe}))
    resumed = make_trainer(settings(), tmp_path, resume=True)
    resumed.run()
    assert_same_end(resumed, left_alone(), tmp_path)


def test_two_checkpoints_are_kept(tmp_path):
    make_trainer(settings(checkpoint_seconds=0.0), tmp_path).run()
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("*.json"))
    assert kept == [f"000003-{BATCHES:06d}.json", "000004-000000.json"]
