"""How well a support vector machine on signature kernels does on sets of the UCR archive, beside other kernels.

Everything is selected by cross-validation on the training part alone; the test part is looked at once, by the one
machine that was selected. The recurrent neural tangent kernel runs by its own classifier's search on the same parts.
"""

import itertools
import time
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from tqdm import tqdm

import sostenuto
from sostenuto.kernels import RBF, SequenceKernel, Signature

TITLE = "support vector machines on signature kernels beside RBF, RNTK and 1-NN on sets of the UCR archive"
SETS = (
    "Coffee", "GunPoint", "ECG200", "Trace", "Plane", "OliveOil", "Lightning7", "SmoothSubspace", "SyntheticControl",
    "CBF", "ArrowHead", "PowerCons",
)  # fmt: skip
LEVELS = (2, 5, 8)
SCALES = (0.1, 0.5, 2.0, 8.0)
TIME_SCALES = (0.3, 2.0, 10.0)
LENGTHS = (0.1, 0.3, 1.0, 3.0)
PENALTIES = (1.0, 100.0, 1e4, 1e6)


def run(progress: bool = True) -> dict[str, Any]:
    """Return the test accuracy of every method on every set that is here, what was selected, and the seconds."""
    record: dict[str, Any] = {
        "selection": "stratified cross-validation on the training part, up to 5 folds",
        "sets": {},
    }
    for name in tqdm(SETS, desc="signature SVM", unit="set", disable=not progress):
        record["sets"][name] = measure(*_parts(name))
    methods = sorted({method for found in record["sets"].values() for method in found if "accuracy" in found[method]})
    record["mean_accuracy"] = {
        method: float(np.mean([found[method]["accuracy"] for found in record["sets"].values() if method in found]))
        for method in methods
    }
    return record


def measure(
    train: list[np.ndarray], train_labels: np.ndarray, test: list[np.ndarray], test_labels: np.ndarray
) -> dict[str, Any]:
    """Return accuracy, choice and seconds of each method on one set."""
    found: dict[str, Any] = {"train": len(train), "test": len(test), "steps": len(train[0])}
    found = {"size": found}
    for method, kernels in (("signature", signature_kernels()), ("rbf", rbf_kernels(train))):
        began = time.perf_counter()
        kernel, penalty, score = select(kernels, train, train_labels)
        machine = SVC(C=penalty, kernel="precomputed").fit(kernel(train), train_labels)
        accuracy = float(machine.score(kernel(test, train), test_labels))
        found[method] = {
            "accuracy": accuracy,
            "cross_validation": score,
            "kernel": repr(kernel),
            "C": penalty,
            "seconds": time.perf_counter() - began,
        }
    flat, other = (np.stack([x.ravel() for x in side]) for side in (train, test))
    nearest = KNeighborsClassifier(1).fit(flat, train_labels)
    found["nearest_neighbor"] = {"accuracy": float(nearest.score(other, test_labels))}
    if "RNTKClassifier" in sostenuto.__all__:
        began = time.perf_counter()
        classifier = sostenuto.RNTKClassifier().fit(np.stack(train), train_labels)
        accuracy = float(classifier.score(np.stack(test), test_labels))
        found["rntk"] = {"accuracy": accuracy, "seconds": time.perf_counter() - began}
    return found


def signature_kernels() -> list[SequenceKernel]:
    """List the candidates: levels, both normalizations, the size of the data and of time against each other."""
    grid = itertools.product(LEVELS, ("factorial", "none"), SCALES, TIME_SCALES)
    return [
        Signature(level, normalization, scale=scale, time_scale=time_scale, basepoint=True, normalize=True)
        for level, normalization, scale, time_scale in grid
    ]


def rbf_kernels(train: list[np.ndarray]) -> list[SequenceKernel]:
    """List the candidates around √(time · channel), the right size for standardized sequences."""
    return [RBF(length * train[0].size ** 0.5) for length in LENGTHS]


def select(
    kernels: list[SequenceKernel], train: list[np.ndarray], labels: np.ndarray
) -> tuple[SequenceKernel, float, float]:
    """Return the kernel and the penalty C of the best mean accuracy over the folds; the first of equals."""
    folds = min(5, int(np.unique(labels, return_counts=True)[1].min()))
    splits = list(StratifiedKFold(max(folds, 2), shuffle=True, random_state=0).split(np.zeros(len(train)), labels))
    best: tuple[SequenceKernel, float, float] = (kernels[0], PENALTIES[0], -1.0)
    for kernel in kernels:
        matrix = kernel(train)
        for penalty in PENALTIES:
            score = float(np.mean([_fold(matrix, labels, penalty, fit, held) for fit, held in splits]))
            if score > best[2]:
                best = (kernel, penalty, score)
    return best


def _fold(matrix: np.ndarray, labels: np.ndarray, penalty: float, fit: np.ndarray, held: np.ndarray) -> float:
    machine = SVC(C=penalty, kernel="precomputed").fit(matrix[np.ix_(fit, fit)], labels[fit])
    return float(machine.score(matrix[np.ix_(held, fit)], labels[held]))


def _parts(name: str) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    data = sostenuto.datasets.load(f"ucr/{name}")
    train, test = data.train, data.test
    assert test is not None, "the archive has a test part for every set"
    return list(train.sequences), np.asarray(train.targets), list(test.sequences), np.asarray(test.targets)
