import numpy as np
import pytest

from sostenuto.benchmarks import ucr_kernels
from sostenuto.kernels import Signature


def turning(count, seed):
    """Half circles run one way or the other, with noise: their areas tell the classes apart, their ends do not."""
    generator = np.random.default_rng(seed)
    angle = np.pi * np.linspace(0, 1, 12)
    labels = np.arange(count) % 2
    sequences = [
        np.stack([np.cos(angle), (1 if label else -1) * np.sin(angle)], axis=1) + 0.05 * generator.normal(size=(12, 2))
        for label in labels
    ]
    return sequences, labels.astype(str)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(ucr_kernels, "LEVELS", (2,))
    monkeypatch.setattr(ucr_kernels, "SCALES", (1.0,))


def test_measures_every_method_on_its_own_selection(quick):
    found = ucr_kernels.measure(*turning(20, 0), *turning(10, 1), search="evidence")
    assert found["size"] == {"train": 20, "test": 10, "steps": 12}
    assert found["signature"]["accuracy"] == 1.0
    assert {"rntk", "ntk", "rbf", "polynomial", "nearest_neighbor"} <= found.keys()


def test_selection_sees_the_training_part_alone():
    """A kernel that is right only about order beats one of level 1, which sees the ends alone."""
    train, labels = turning(20, 0)
    blind, seeing = Signature(1, time_augmentation=False), Signature(2, time_augmentation=False)
    kernel, _, score = ucr_kernels.select([blind, seeing], train, labels)
    assert kernel is seeing
    assert score == 1.0


def test_reports_the_mean_over_the_sets(monkeypatch):
    found = {"one": 0.5, "three": 1.0}
    monkeypatch.setattr(ucr_kernels, "_parts", lambda name, _: (name, None, None, None))
    monkeypatch.setattr(ucr_kernels, "measure", lambda name, *_, **__: {"size": {}, "rbf": {"accuracy": found[name]}})
    record = ucr_kernels.run(progress=False, sets=("one", "three"), search="evidence")
    assert set(record["sets"]) == {"one", "three"}
    assert record["mean_accuracy"] == {"rbf": pytest.approx(0.75)}
    assert record["rntk_search"] == "evidence"
