"""The paper's protocol: cross-validate every σ and C, with one Gram matrix per σ shared by folds and costs."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int
from tqdm import tqdm

from sostenuto.estimators.kernel_base import grid_points
from sostenuto.estimators.support_vectors import SupportVectors

Fold = Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class GridScores:
    """Right answers for every point of a grid, ``(…one axis a parameter…, cost)``, as a share of the sequences."""

    axes: dict[str, tuple[Any, ...]]
    costs: tuple[float, ...]
    accuracy: Float64[np.ndarray, "..."]

    def best(self) -> tuple[dict[str, Any], float, float]:
        """Give the best parameters, cost and accuracy.

        Small training parts leave many points with the same score. Of these the one is taken whose neighborhood on the
        grid (one step each way in every parameter) does best on average, because a good point among bad ones is luck;
        of these the smallest cost, the smoothest machine; then the first.
        """
        around = _neighborhood(self.accuracy)
        order = np.lexsort(
            (
                np.arange(self.accuracy.size),
                np.broadcast_to(np.arange(len(self.costs)), self.accuracy.shape).ravel(),
                -np.round(around, 12).ravel(),
                -np.round(self.accuracy, 12).ravel(),
            )
        )
        where = np.unravel_index(order[0], self.accuracy.shape)
        chosen = {name: values[i] for (name, values), i in zip(self.axes.items(), where[:-1], strict=True)}
        return chosen, self.costs[where[-1]], float(self.accuracy[where])


def search_grid(
    gram_of: Callable[[dict[str, Any]], Float64[np.ndarray, "n n"]],
    axes: dict[str, tuple[Any, ...]],
    costs: Sequence[float],
    classes: Int[np.ndarray, " n"],
    folds: Fold,
    *,
    progress: bool = False,
) -> GridScores:
    """Cross-validate a C-SVM at every point of ``axes`` times ``costs``, on as many threads as torch uses."""
    points = grid_points(axes)

    def right(point: dict[str, Any]) -> np.ndarray:
        return right_answers(gram_of(point), classes, folds, costs)

    with ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="grid") as pool:
        rows = list(tqdm(pool.map(right, points), total=len(points), desc="σ", disable=not progress))
    shape = (*(len(values) for values in axes.values()), len(costs))
    return GridScores(axes, tuple(costs), np.asarray(rows).reshape(shape) / len(classes))


def right_answers(
    gram: Float64[np.ndarray, "n n"], classes: Int[np.ndarray, " n"], folds: Fold, costs: Sequence[float]
) -> Int[np.ndarray, " cost"]:
    """Count right answers over all folds for every cost.

    Costs are tried in rising order; once no coefficient of a machine reaches its cost, larger ones change nothing.
    """
    right = np.zeros(len(costs), dtype=np.int64)
    for fold in np.unique(folds):
        train, test = folds != fold, folds == fold
        inner, cross = gram[np.ix_(train, train)], gram[np.ix_(test, train)]
        present, labels = np.unique(classes[train], return_inverse=True)
        settled, answers = len(present) < 2, np.full(int(test.sum()), present[0])
        for position in np.argsort(costs, kind="stable"):
            cost = costs[position]
            if not settled:
                machine = SupportVectors.fit(inner, labels, cost)
                answers, settled = present[machine.scores(cross[:, machine.support]).argmax(1)], machine.is_free(cost)
            right[position] += int((answers == classes[test]).sum())
    return right


def out_of_fold_scores(
    gram: Float64[np.ndarray, "n n"], classes: Int[np.ndarray, " n"], folds: Fold, cost: float
) -> Float64[np.ndarray, "n class"]:
    """Score every sequence by the machine of the folds it is not in; a class such a machine never saw scores lowest."""
    found = np.zeros((len(classes), int(classes.max()) + 1))
    for fold in np.unique(folds):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        present, labels = np.unique(classes[train], return_inverse=True)
        if len(present) < 2:
            continue
        machine = SupportVectors.fit(gram[np.ix_(train, train)], labels, cost)
        scores = machine.scores(gram[np.ix_(test, train[machine.support])])
        found[test] = scores.min(axis=1, keepdims=True)
        found[np.ix_(test, present)] = scores
    return found


def _neighborhood(accuracy: np.ndarray) -> np.ndarray:
    """Average over the box of one step each way along every axis, less at the borders."""
    total, count = accuracy, np.ones_like(accuracy)
    for axis in range(accuracy.ndim):
        total, count = (_box(values, axis) for values in (total, count))
    return total / count


def _box(values: np.ndarray, axis: int) -> np.ndarray:
    moved = np.moveaxis(values, axis, 0)
    summed = moved.copy()
    summed[1:] += moved[:-1]
    summed[:-1] += moved[1:]
    return np.moveaxis(summed, 0, axis)
