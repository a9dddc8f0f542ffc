"""Grid search over Gram matrices with support vector machines, each matrix computed once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import sklearn
import torch
from jaxtyping import Float64, Int
from sklearn.svm import SVC
from tqdm import tqdm

from sostenuto.estimators.rntk.base import grid_points


@dataclass(frozen=True, eq=False)
class SupportVectors:
    """One machine for every pair of classes: f_ij(x) = Σ_s c_s k(x, x_s) + b_ij, positive for class i.

    ``support`` are the rows of the training matrix that count, class by class, ``counts`` how many each class has,
    ``dual`` (classes − 1, support) libsvm's coefficients and ``intercepts`` the b_ij for (0, 1), (0, 2), …, (1, 2), ….
    """

    support: Int[np.ndarray, " support"]
    counts: Int[np.ndarray, " class"]
    dual: Float64[np.ndarray, "other support"]
    intercepts: Float64[np.ndarray, " pair"]

    @classmethod
    def fit(cls, gram: Float64[np.ndarray, "n n"], classes: Int[np.ndarray, " n"], cost: float) -> "SupportVectors":
        """Fit on the Gram matrix of the training part; ``classes`` are 0, 1, … of which there are at least two.

        >>> machine = SupportVectors.fit(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([0, 1]), 1.0)
        >>> machine.scores(np.array([[1.0, -1.0], [-1.0, 1.0]])).argmax(1)
        array([0, 1])
        """
        # The matrix is ours and finite: looking at it again takes as long as fitting it.
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            machine = SVC(C=cost, kernel="precomputed").fit(gram, classes)
        # For two classes scikit-learn turns the sign round, so that the second is positive.
        sign = -1.0 if len(machine.classes_) == 2 else 1.0
        return cls(
            np.asarray(machine.support_, dtype=np.int64),
            np.asarray(machine.n_support_, dtype=np.int64),
            sign * np.asarray(machine.dual_coef_, dtype=np.float64),
            sign * np.asarray(machine.intercept_, dtype=np.float64),
        )

    def is_free(self, cost: float) -> bool:
        """Return whether no coefficient has reached the cost: then every larger cost gives this machine again."""
        return bool(np.abs(self.dual).max(initial=0.0) < cost * (1 - 1e-9))

    @classmethod
    def together(cls, machines: Sequence["SupportVectors"], classes: Int[np.ndarray, " n"]) -> list["SupportVectors"]:
        """Write several machines on the same training part over the support vectors of all, class by class.

        >>> K, classes = np.diag([1.0, 1.0, 2.0, 2.0]), np.array([0, 0, 1, 1])
        >>> one, two = (SupportVectors.fit(K, classes, cost) for cost in (0.1, 10.0))
        >>> [machine.dual.shape for machine in SupportVectors.together([one, two], classes)]
        [(1, 4), (1, 4)]
        """
        union = np.unique(np.concatenate([machine.support for machine in machines]))
        union = union[np.argsort(classes[union], kind="stable")]
        counts = np.bincount(classes[union], minlength=len(machines[0].counts))
        place = {int(row): column for column, row in enumerate(union)}
        joined = []
        for machine in machines:
            dual = np.zeros((len(machine.dual), len(union)))
            dual[:, [place[int(row)] for row in machine.support]] = machine.dual
            joined.append(cls(union, counts, dual, machine.intercepts))
        return joined

    def scores(self, gram: Float64[np.ndarray, "n support"]) -> Float64[np.ndarray, "n class"]:
        """Return a score for every class from k(x, x_s): pairs won, plus less than a half for by how much.

        Two classes have ∓f. What is largest is the answer, so ties of pairs won are broken by confidence.
        """
        pairs = self._decisions(gram)
        if len(self.counts) == 2:
            return np.stack([pairs[:, 0], -pairs[:, 0]], axis=1)
        votes, confidence = np.zeros((2, len(gram), len(self.counts)))
        for position, (i, j) in enumerate(combinations(range(len(self.counts)), 2)):
            decision = pairs[:, position]
            confidence[:, i] += decision
            confidence[:, j] -= decision
            votes[:, i] += decision > 0
            votes[:, j] += decision <= 0
        return votes + confidence / (3 * (np.abs(confidence) + 1))

    def _decisions(self, gram: Float64[np.ndarray, "n support"]) -> Float64[np.ndarray, "n pair"]:
        ends = np.cumsum([0, *self.counts])
        own = [slice(ends[i], ends[i + 1]) for i in range(len(self.counts))]
        columns = [
            gram[:, own[i]] @ self.dual[j - 1, own[i]] + gram[:, own[j]] @ self.dual[i, own[j]]
            for i, j in combinations(range(len(self.counts)), 2)
        ]
        return np.stack(columns, axis=1) + self.intercepts


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
        """Return the kernels with the highest scores, at most ``most``, each with the smallest cost that reaches them.

        Of 900 kernels on a small training part the highest score is often shared, and partly luck: these are the ones
        to judge again. Where more share the last score than there is room for, they are drawn, so that no corner of the
        grid is preferred. Equal scores stand in the order of the grid. The smallest cost is the smoothest machine;
        with ``every_cost`` all that reach a kernel's highest score are given, in rising order.
        """
        scores = np.round(self.accuracy, 12).reshape(-1, len(self.costs))
        best = scores.max(1)
        drawn = np.lexsort((np.random.default_rng(seed).permutation(len(best)), -best))[:most]
        candidates = []
        for index in drawn[np.lexsort((drawn, -best[drawn]))]:
            place = np.unravel_index(index, self.accuracy.shape[:-1])
            point = {name: values[i] for (name, values), i in zip(self.axes.items(), place, strict=True)}
            rising = [column for column in np.argsort(self.costs) if scores[index, column] == best[index]]
            candidates += [(point, self.costs[column]) for column in (rising if every_cost else rising[:1])]
        return candidates


def accuracies(
    candidates: Sequence[tuple[Float64[np.ndarray, "n n"], float]],
    classes: Int[np.ndarray, " n"],
    deals: Sequence[Fold],
) -> Float64[np.ndarray, " candidate"]:
    """Return the accuracy of each candidate over all deals; those with the same matrix share its machines."""
    scores = np.zeros(len(candidates), dtype=np.int64)
    for matrix_id in {id(matrix) for matrix, _ in candidates}:
        places = [place for place, (matrix, _) in enumerate(candidates) if id(matrix) == matrix_id]
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
    votes = np.zeros((len(classes), int(classes.max()) + 1))
    for fold in np.unique(folds):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        present, labels = np.unique(classes[train], return_inverse=True)
        if len(present) < 2:
            continue
        machine = SupportVectors.fit(gram[np.ix_(train, train)], labels, cost)
        scores = machine.scores(gram[np.ix_(test, train[machine.support])])
        votes[test] = scores.min(axis=1, keepdims=True)
        votes[np.ix_(test, present)] = scores
    return votes
