"""One cell of paper 004's Table 2: a kernel machine on a data set, chosen by cross-validation, tested once."""

from typing import Any

import numpy as np

from sostenuto.data.dataset import Dataset
from sostenuto.estimators import RNTKClassifier
from sostenuto.estimators.folds import deal_folds
from sostenuto.estimators.grid_search import judge_again, search_grid
from sostenuto.estimators.kernel_base import unit_norm
from sostenuto.estimators.rntk_classifier import PAPER_COSTS, REPEATS
from sostenuto.estimators.support_vectors import SupportVectors
from sostenuto.experiments.tasks.paper_grids import grid_of, kernel_of

RULE = "best"
"""The paper's: one machine, the first of those that no other surpasses in cross-validation."""


def kernel_accuracy(dataset: Dataset, column: str, *, folds: int, every: int, seed: int) -> dict[str, Any]:
    """Return accuracies in percent, cross-validated and on the test part, and the point that was chosen.

    Appendix A.1: sequences scaled to ‖x‖ = 1, a C-SVM, hyper-parameters and C by ``folds`` folds of the training part.
    RNTK is `RNTKClassifier` itself. The other kernels are chosen by the same rule: every point by one deal of folds,
    then the sixty best again over four more deals.
    """
    assert dataset.test is not None
    labels, answers = (np.asarray(part.targets) for part in (dataset.train, dataset.test))
    if column == "RNTK":
        axes: dict[str, Any] = grid_of(column, every)
        machine = RNTKClassifier(choose=RULE, folds=folds, random_state=seed, **axes).fit(
            dataset.train.sequences, labels
        )
        predicted = machine.predict(dataset.test.sequences)
        chosen = {name: float(np.ravel(getattr(machine.kernel_, name))[0]) for name in axes} | {"C": machine.C_}
        validated = machine.best_score_
    else:
        train, test = (
            [unit_norm(np.asarray(each, dtype=np.float64)) for each in part.sequences]
            for part in (dataset.train, dataset.test)
        )
        predicted, chosen, validated = _machine(column, train, labels, test, folds, every, seed)
    return {"test": 100 * float(np.mean(predicted == answers)), "validated": 100 * validated, "chosen": chosen}


def _machine(
    column: str, train: list[np.ndarray], labels: np.ndarray, test: list[np.ndarray], folds: int, every: int, seed: int
) -> tuple[np.ndarray, dict[str, Any], float]:
    """Choose a kernel and a cost, fit on the whole training part and label the test part."""
    classes, indices = np.unique(labels, return_inverse=True)
    deals = [deal_folds(indices, folds, seed + extra) for extra in range(REPEATS)]

    def matrix(point: dict[str, Any]) -> np.ndarray:
        return kernel_of(column, point).gram(train, train)

    found = search_grid(matrix, grid_of(column, every), PAPER_COSTS, indices, deals[0])
    shortlist = found.shortlist(seed=seed)
    candidates = [(matrix(point), cost) for point, cost in shortlist]
    best, validated = judge_again(candidates, indices, deals)
    point, cost = shortlist[best]
    machine = SupportVectors.fit(candidates[best][0], indices, cost)
    support = [train[index] for index in machine.support]
    scores = machine.scores(kernel_of(column, point).gram(test, support))
    return classes[scores.argmax(1)], {**point, "C": cost}, validated
