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
    count: int

    def shortlist(
        self, most: int = 60, *, seed: int = 0, every_cost: bool = False
    ) -> list[tuple[dict[str, Any], float]]:
        """Give the kernels with the highest scores, at most ``most``, each with the smallest cost that reaches them.

        Of 900 kernels on a small training part the highest score is often shared, and partly luck: these are the ones
        to judge again. Where more share the last score than there is room for, they are drawn, so that no corner of the
        grid is preferred. Equal scores stand in the order of the grid. The smallest cost is the smoothest machine;
        with ``every_cost`` all that reach a kernel's highest score are given, in rising order.
        """
        scores = np.round(self.accuracy, 12).reshape(-1, len(self.costs))
        best = scores.max(1)
        drawn = np.lexsort((np.random.default_rng(seed).permutation(len(best)), -best))[:most]
        found = []
        for index in drawn[np.lexsort((drawn, -best[drawn]))]:
            place = np.unravel_index(index, self.accuracy.shape[:-1])
            point = {name: values[i] for (name, values), i in zip(self.axes.items(), place, strict=True)}
            rising = [column for column in np.argsort(self.costs) if scores[index, column] == best[index]]
            found += [(point, self.costs[column]) for column in (rising if every_cost else rising[:1])]
        return found


def judge_again(
    candidates: Sequence[tuple[Float64[np.ndarray, "n n"], float]],
    classes: Int[np.ndarray, " n"],
    deals: Sequence[Fold],
) -> tuple[int, float]:
    """Cross-validate Gram matrices, each with a cost, over several deals of folds; return the best and its accuracy.

    The first of equals wins; `accuracies` gives them all.
    """
    found = accuracies(candidates, classes, deals)
    best = int(np.argmax(found))
    return best, float(found[best])


def accuracies(
    candidates: Sequence[tuple[Float64[np.ndarray, "n n"], float]],
    classes: Int[np.ndarray, " n"],
    deals: Sequence[Fold],
) -> Float64[np.ndarray, " candidate"]:
    """Return the accuracy of each candidate over all deals; those with the same matrix share its machines."""
    scores = np.zeros(len(candidates), dtype=np.int64)
    for one in {id(matrix) for matrix, _ in candidates}:
        places = [place for place, (matrix, _) in enumerate(candidates) if id(matrix) == one]
        matrix, costs = candidates[places[0]][0], [candidates[place][1] for place in places]
        for folds in deals:
            scores[places] += right_answers(matrix, classes, folds, costs)
    return scores / (len(deals) * len(classes))


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
    return GridScores(axes, tuple(costs), np.asarray(rows).reshape(shape) / len(classes), len(classes))


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
