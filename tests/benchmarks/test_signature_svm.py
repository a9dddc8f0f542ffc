import numpy as np
import pytest

import sostenuto
from sostenuto.benchmarks import signature_svm
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
    monkeypatch.setattr(signature_svm, "LEVELS", (2,))
    monkeypatch.setattr(signature_svm, "SCALES", (1.0,))
    monkeypatch.setattr(sostenuto, "__all__", [name for name in sostenuto.__all__ if name != "RNTKClassifier"])


def test_measures_every_method_on_its_own_selection(quick):
    found = signature_svm.measure(*turning(20, 0), *turning(10, 1))
    assert found["size"] == {"train": 20, "test": 10, "steps": 12}
    assert found["signature"]["accuracy"] == 1.0
    assert {"rbf", "nearest_neighbor"} <= found.keys()
    assert "rntk" not in found


def test_selection_sees_the_training_part_alone():
    """A kernel that is right only about order beats one of level 1, which sees the ends alone."""
    train, labels = turning(20, 0)
    blind, seeing = Signature(1, time_augmentation=False), Signature(2, time_augmentation=False)
    kernel, _, score = signature_svm.select([blind, seeing], train, labels)
    assert kernel is seeing
    assert score == 1.0


def test_reports_the_mean_over_the_sets(monkeypatch, quick):
    monkeypatch.setattr(signature_svm, "SETS", ("one", "two"))
    monkeypatch.setattr(signature_svm, "_parts", lambda name: (*turning(10, len(name)), *turning(6, 9)))
    record = signature_svm.run(progress=False)
    assert set(record["sets"]) == {"one", "two"}
    expected = np.mean([found["rbf"]["accuracy"] for found in record["sets"].values()])
    assert record["mean_accuracy"]["rbf"] == pytest.approx(expected)
