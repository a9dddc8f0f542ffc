"""How well support vector machines on five kernels do on sets of the UCR archive, beside the nearest neighbor.

Signature, RBF, polynomial and neural tangent kernels are selected, with C, by the same cross-validation on the training
part alone; the recurrent neural tangent kernel by its own classifier's search on the same part. The test part is looked
at once, by the one machine that was selected. Sequences are as they come; for the polynomial and tangent kernels each
is scaled to ‖x‖ = 1, as in alemohammad2021.
"""

import itertools
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from tqdm import tqdm

from sostenuto import datasets
from sostenuto.estimators import RNTKClassifier
from sostenuto.kernels import NTK, RBF, Polynomial, SequenceKernel, Signature

TITLE = (
    "support vector machines on RNTK, NTK, RBF, polynomial and signature kernels, and 1-NN, on sets of the UCR archive"
)
SETS = (
    "Coffee", "GunPoint", "ECG200", "Trace", "Plane", "OliveOil", "Lightning7", "SmoothSubspace", "SyntheticControl",
    "CBF", "ArrowHead", "PowerCons",
)  # fmt: skip
LEVELS = (2, 5, 8)
SCALES = (0.1, 0.5, 2.0, 8.0)
TIME_SCALES = (0.3, 2.0, 10.0)
LENGTHS = (0.1, 0.3, 1.0, 3.0)
DEPTHS = (1, 2, 4)
DEGREES = (1, 2, 3, 5)
OFFSETS = (0.0, 0.1, 1.0)
PENALTIES = (1.0, 100.0, 1e4, 1e6)
MOST_STEPS = 50_000
"""Steps after which a machine that has not converged is judged as it is, like any other candidate."""


def run(
    progress: bool = True, sets: tuple[str, ...] = SETS, search: str = "grid", data_dir: str | None = None
) -> dict[str, Any]:
    """Return the test accuracy of every method on every set, what was selected, and the seconds.

    ``search`` is the RNTK classifier's: ``"grid"``, the paper's, or ``"evidence"``, which is some ten times faster.
    """
    record: dict[str, Any] = {
        "selection": "stratified cross-validation on the training part, up to 5 folds",
        "rntk_search": search,
        "sets": {},
    }
    for name in tqdm(sets, desc="kernels on UCR", unit="set", disable=not progress):
        record["sets"][name] = measure(*_parts(name, data_dir), search=search)
    record["mean_accuracy"] = mean_accuracy(record["sets"])
    return record


def mean_accuracy(sets: dict[str, Any]) -> dict[str, float]:
    """Average the accuracy of each method over the sets."""
    methods = [method for method, row in next(iter(sets.values())).items() if "accuracy" in row]
    return {method: float(np.mean([row[method]["accuracy"] for row in sets.values()])) for method in methods}


def measure(
    train: list[np.ndarray],
    train_labels: np.ndarray,
    test: list[np.ndarray],
    test_labels: np.ndarray,
    search: str = "grid",
) -> dict[str, Any]:
    """Return accuracy, choice and seconds of each method on one set."""
    results: dict[str, Any] = {"size": {"train": len(train), "test": len(test), "steps": len(train[0])}}
    began = time.perf_counter()
    classifier = RNTKClassifier(search, random_state=0).fit(train, train_labels)
    results["rntk"] = {
        "accuracy": float(classifier.score(test, test_labels)),
        "cross_validation": float(classifier.best_score_),
        "seconds": time.perf_counter() - began,
    }
    scaled = [[x / max(float(np.linalg.norm(x)), 1e-300) for x in side] for side in (train, test)]
    candidates: dict[str, tuple[list[SequenceKernel], list[list[np.ndarray]]]] = {
        "signature": (signature_kernels(), [train, test]),
        "rbf": (rbf_kernels(train), [train, test]),
        "polynomial": ([Polynomial(d, r) for d in DEGREES for r in OFFSETS], scaled),
        "ntk": ([NTK(depth, sigma_b=b) for depth in DEPTHS for b in OFFSETS], scaled),
    }
    for method, (kernels, (known, new)) in candidates.items():
        began = time.perf_counter()
        kernel, penalty, score = select(kernels, known, train_labels)
        machine = _machine(kernel(known), train_labels, penalty)
        results[method] = {
            "accuracy": float(machine.score(kernel(new, known), test_labels)),
            "cross_validation": score,
            "kernel": repr(kernel),
            "C": penalty,
            "seconds": time.perf_counter() - began,
        }
    flat, other = (np.stack([x.ravel() for x in side]) for side in (train, test))
    nearest = KNeighborsClassifier(1).fit(flat, train_labels)
    results["nearest_neighbor"] = {"accuracy": float(nearest.score(other, test_labels))}
    return results


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
    machine = _machine(matrix[np.ix_(fit, fit)], labels[fit], penalty)
    return float(machine.score(matrix[np.ix_(held, fit)], labels[held]))


def _machine(matrix: np.ndarray, labels: np.ndarray, penalty: float) -> SVC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SVC(C=penalty, kernel="precomputed", max_iter=MOST_STEPS).fit(matrix, labels)


def _parts(name: str, data_dir: str | None) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    data = datasets.load(f"ucr/{name}", data_dir=data_dir)
    train, test = data.train, data.test
    assert test is not None, "the archive has a test part for every set"
    return list(train.sequences), np.asarray(train.targets), list(test.sequences), np.asarray(test.targets)
