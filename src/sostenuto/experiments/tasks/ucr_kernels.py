"""One cell of alemohammad2021's Table 2: kernel machines on a data set, chosen by cross-validation, tested once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sostenuto.data.dataset import Dataset
from sostenuto.estimators.classes import deal_folds
from sostenuto.estimators.rntk.base import grid_points, unit_norm
from sostenuto.estimators.rntk.classifier import PAPER_COSTS, PAPER_GRID, REPEATS
from sostenuto.estimators.rntk.search import GridScores, SupportVectors, accuracies, search_grid
from sostenuto.kernels import NTK, RBF, Polynomial, RecurrentNTK
from sostenuto.kernels.base import SequenceKernel

Axes = dict[str, tuple[Any, ...]]

KERNELS = ("RNTK", "NTK", "RBF", "Polynomial")
GRIDS: dict[str, Axes] = {
    "RNTK": {name: values for name, values in PAPER_GRID.items() if len(values) > 1},
    "NTK": {
        "num_layers": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        "sigma_w": (0.5, 1.0, 2**0.5, 2.0, 2.5, 3.0),
        "sigma_b": (0.0, 0.01, 0.1, 0.2, 0.5, 0.8, 1.0, 2.0, 5.0),
    },
    "RBF": {"alpha": (0.01, 0.05, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 1, 2, 3, 4, 5, 10, 20, 30, 40, 100)},
    "Polynomial": {"degree": (1, 2, 3, 4, 5), "offset": (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)},
}


def grid_of(column: str, every: int = 1) -> Axes:
    """Return the axes of a kernel's grid; ``every`` thins the two large ones, those of RNTK and NTK, axis by axis.

    >>> from sostenuto.estimators.rntk.base import grid_points
    >>> [len(grid_points(grid_of(column))) for column in KERNELS], len(grid_points(grid_of("RNTK", 2)))
    ([900, 540, 18, 30], 144)
    """
    large = column in ("RNTK", "NTK")
    return {name: values[::every] if large else values for name, values in GRIDS[column].items()}


def kernel_of(column: str, point: dict[str, Any]) -> SequenceKernel:
    """Build the kernel of a grid's point; the paper writes the RBF as exp(−α‖x − y‖²).

    >>> kernel_of("RBF", {"alpha": 0.5})
    RBF(length_scale=1)
    """
    if column == "RNTK":
        return RecurrentNTK(**point)
    if column == "NTK":
        return NTK(**point)
    return RBF((2 * point["alpha"]) ** -0.5) if column == "RBF" else Polynomial(**point)


RULES = {
    "first": "the highest accuracy over one deal of folds, the first of equals",
    "best": "the sixty best again over five deals, the first of equals",
    "average": "the sixty best again over five deals, the scores of equals averaged",
}
"""What is done among thousands of points that cross-validation hardly tells apart; the paper does not say."""
Chosen = tuple[dict[str, Any], float]
"""A point of a kernel's grid and a cost."""


def kernel_accuracy(dataset: Dataset, column: str, *, folds: int, every: int, seed: int) -> dict[str, Any]:
    """Return accuracies in percent, cross-validated and on the test part, and what was chosen, by each of `RULES`.

    Appendix A.1: sequences scaled to ‖x‖ = 1, a C-SVM, hyper-parameters and C by ``folds`` folds of the training part.
    The rules are those of `RNTKClassifier`, for every kernel alike, and share everything up to the choice.
    """
    train, indices, test, answers = unit_parts(dataset)
    classes = np.unique(np.asarray(dataset.train.targets))
    choices = _choices(column, train, indices, folds, every, seed)
    totals = {rule: np.zeros((len(test), len(classes))) for rule in choices}
    for point in _distinct([choice for _, chosen in choices.values() for choice in chosen]):
        kernel = kernel_of(column, point)
        matrix, values = kernel.gram(train, train), kernel.gram(test, train)
        for rule, (_, chosen) in choices.items():
            for cost in (cost for other, cost in chosen if other == point):
                machine = SupportVectors.fit(matrix, indices, cost)
                totals[rule] += machine.scores(values[:, machine.support])
    right = {rule: 100 * float(np.mean(classes[total.argmax(1)] == answers)) for rule, total in totals.items()}
    return {
        "test": right,
        "validated": {rule: 100 * validated for rule, (validated, _) in choices.items()},
        "chosen": {rule: [{**point, "C": cost} for point, cost in chosen] for rule, (_, chosen) in choices.items()},
    }


def unit_parts(dataset: Dataset) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    """Return training sequences scaled to ‖x‖ = 1 with numbers of classes, test sequences with labels."""
    assert dataset.test is not None
    train, test = (
        [unit_norm(np.asarray(each, dtype=np.float64)) for each in part.sequences]
        for part in (dataset.train, dataset.test)
    )
    indices = np.unique(np.asarray(dataset.train.targets), return_inverse=True)[1]
    return train, indices, test, np.asarray(dataset.test.targets)


def _choices(
    column: str, train: list[np.ndarray], indices: np.ndarray, folds: int, every: int, seed: int
) -> dict[str, tuple[float, list[Chosen]]]:
    """Cross-validate the grid; give by each rule the accuracy on folds held out and the points of its machines."""
    deals = [deal_folds(indices, folds, seed + extra) for extra in range(REPEATS)]

    def matrix(point: dict[str, Any]) -> np.ndarray:
        return kernel_of(column, point).gram(train, train)

    results = search_grid(matrix, grid_of(column, every), PAPER_COSTS, indices, deals[0])
    shortlist = results.shortlist(seed=seed, every_cost=True)
    matrices = [(point, matrix(point)) for point in _distinct(shortlist)]
    candidates = [(next(each for other, each in matrices if other == point), cost) for point, cost in shortlist]
    again = accuracies(candidates, indices, deals)
    # Of a kernel's equal costs the first is the smallest: one machine a kernel, as `RNTKClassifier` has it.
    alone = [place for place, (point, _) in enumerate(shortlist) if place == 0 or shortlist[place - 1][0] != point]
    best = alone[int(np.argmax(again[alone]))]
    tied = np.flatnonzero(again == again.max())
    return {
        "first": (float(results.accuracy.max()), [_first(results)]),
        "best": (float(again[best]), [shortlist[best]]),
        "average": (float(again.max()), [shortlist[place] for place in tied]),
    }


def _first(results: GridScores) -> Chosen:
    """Return the first point of the grid, and its smallest cost, with the highest accuracy."""
    place, cost = divmod(int(np.argmax(np.round(results.accuracy, 12))), len(results.costs))
    return grid_points(results.axes)[place], results.costs[cost]


def _distinct(chosen: Sequence[Chosen]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for point, _ in chosen:
        if point not in points:
            points.append(point)
    return points
