"""Columns beside alemohammad2021's Table 2: a kernel chosen from a wider family by cross-validation."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sostenuto.data.dataset import Dataset
from sostenuto.estimators.classes import deal_folds
from sostenuto.estimators.rntk.base import grid_points
from sostenuto.estimators.rntk.search import SupportVectors, right_answers
from sostenuto.experiments.tasks.ucr_kernels import kernel_of, unit_parts
from sostenuto.kernels import RecurrentNTK
from sostenuto.kernels.base import SequenceKernel

BIASES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
FAMILIES: dict[str, dict[str, tuple[Any, ...]]] = {
    "RNTK": {
        "kind": ("ntk", "nngp"),
        "num_layers": (1, 2),
        "growth": (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0),
        "sigma_b": BIASES,
        "sigma_h": (0.0, 0.3),
    },
    "NTK": {
        "kind": ("ntk", "nngp"),
        "num_layers": (1, 2, 4, 8),
        "sigma_w": (1.0, 2**0.5, 2.0),
        "sigma_b": BIASES,
    },
    "RBF": {"alpha": tuple(float(10 ** (third / 3)) for third in range(-12, 10))},
    "Polynomial": {"degree": tuple(range(1, 11)), "offset": (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)},
}
"""Axes by kernel. growth = T log(σ_w²/2) is by how much a state of the recurrent network grows over a sequence."""
THINNED = ("growth", "sigma_b", "alpha", "degree")
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "RNTK": {"RNTK (wide)": ("ntk", "nngp"), "RNTK (wide, Θ)": ("ntk",)},
    "NTK": {"NTK (wide)": ("ntk", "nngp")},
    "RBF": {"RBF (wide)": ()},
    "Polynomial": {"Polynomial (wide)": ()},
}
"""Columns by kernel, and among which kinds each chooses: both, Θ alone, as the paper does, or there are none."""


def family_points(family: str, every: int = 1) -> list[dict[str, Any]]:
    """List a family; ``every`` thins `THINNED`, and an initial state is tried beside small biases alone.

    >>> [len(family_points(family)) for family in FAMILIES], len(family_points("RNTK", 2))
    ([224, 144, 22, 70], 48)
    """
    axes = {
        name: values[every - 1 :: every] if name in THINNED else values for name, values in FAMILIES[family].items()
    }
    return [point for point in grid_points(axes) if not point.get("sigma_h") or point["sigma_b"] < 0.3]


def kernel_at(family: str, point: dict[str, Any], steps: int) -> SequenceKernel:
    """Build the kernel of a point for sequences of ``steps`` steps; the RNTK has σ_w = √2 exp(growth / 2T).

    >>> kernel_at("RNTK", {"growth": 0.0, "kind": "nngp", "sigma_b": 3.0}, 100).sigma_w == 2**0.5
    True
    """
    if family != "RNTK":
        return kernel_of(family, point)
    rest = {name: value for name, value in point.items() if name != "growth"}
    return RecurrentNTK(sigma_w=2**0.5 * float(np.exp(point["growth"] / (2 * steps))), **rest)


COSTS = (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
"""Costs on matrices whose mean squared distance of two sequences is 2."""
DEALS = 3
SHORTLIST = 60
MANY = 110
"""Training sequences above which half of the folds serve."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A point, its kernel, the matrix over the training part, centered and of one size, and right answers by cost.

    ``matrix`` is K/unit − m_i − m_j + mean(m), where m, ``means``, are those of the rows of K/unit. A machine does not
    change by what is added to a row and a column, as its coefficients sum to 0 for every pair of classes; but with
    σ_b = 10 the mean is 10⁵ to 10⁹ times what tells sequences apart, and libsvm hardly ends.
    """

    point: dict[str, Any]
    kernel: SequenceKernel
    unit: float
    means: np.ndarray
    matrix: np.ndarray
    right: np.ndarray

    @property
    def cost(self) -> float:
        """The smallest cost with the most right answers."""
        return COSTS[int(np.argmax(self.right))]

    def scores(self, train: list[np.ndarray], indices: np.ndarray, new: list[np.ndarray]) -> np.ndarray:
        """Fit the machine to the training part and score ``new`` for every class."""
        machine = SupportVectors.fit(self.matrix, indices, self.cost)
        values = self.kernel.gram(new, [train[row] for row in machine.support]) / self.unit
        values -= self.means[machine.support]
        return machine.scores(values - values.mean(axis=1, keepdims=True))


def wide_choice_accuracy(dataset: Dataset, family: str, *, folds: int, every: int, seed: int) -> dict[str, Any]:
    """Return accuracies in percent, cross-validated and on the test part, and what was chosen, for each of its columns.

    Sequences are scaled to ‖x‖ = 1, and machines are C-SVMs, as in appendix A.1. Every kernel of the family and every
    cost is judged by one deal of folds of the training part, the best `SHORTLIST` by `DEALS`; the scores of the kernels
    that then have the most right answers, each at its smallest such cost, are averaged. The test part is seen by their
    machines alone.
    """
    train, indices, test, answers = unit_parts(dataset)
    classes = np.unique(np.asarray(dataset.train.targets))
    results: dict[str, Any] = {"test": {}, "validated": {}, "chosen": {}}
    for column, chosen in choices(train, indices, family, folds=folds, every=every, seed=seed).items():
        total = np.sum([each.scores(train, indices, test) for each in chosen], axis=0)
        results["test"][column] = 100 * float(np.mean(classes[total.argmax(1)] == answers))
        results["validated"][column] = 100 * float(chosen[0].right.max()) / (DEALS * len(indices))
        results["chosen"][column] = [{**each.point, "C": each.cost} for each in chosen]
    return results


def choices(
    train: list[np.ndarray], indices: np.ndarray, family: str, *, folds: int, every: int, seed: int
) -> dict[str, list[Judged]]:
    """Return for each column of a family the kernels whose machines are averaged, judged on the training part alone."""
    folds = folds if len(indices) <= MANY else max(2, folds // 2)
    deals = [deal_folds(indices, folds, seed + extra) for extra in range(DEALS)]
    tried = family_points(family, every)
    # In a drawn order, so that of more equals than there is room for no corner of the family is preferred.
    drawn = [tried[place] for place in np.random.default_rng(seed).permutation(len(tried))]
    first = [_judged(point, kernel_at(family, point, len(train[0])), train, indices, deals[:1]) for point in drawn]
    first.sort(key=lambda each: -each.right.max())
    results = {}
    for column, kinds in COLUMNS[family].items():
        shortlist = [each for each in first if not kinds or each.point["kind"] in kinds][:SHORTLIST]
        again = [replace(each, right=each.right + _right(each.matrix, indices, deals[1:])) for each in shortlist]
        most = max(each.right.max() for each in again)
        results[column] = [each for each in again if each.right.max() == most]
    return results


def _judged(
    point: dict[str, Any],
    kernel: SequenceKernel,
    train: list[np.ndarray],
    indices: np.ndarray,
    deals: list[np.ndarray],
) -> Judged:
    matrix = kernel.gram(train, train)
    # Half the mean squared distance in feature space: what a cost means is then the same for every kernel.
    unit = max(float(np.mean(np.diag(matrix)) - matrix.mean()), np.finfo(float).tiny)
    scaled = matrix / unit
    means = scaled.mean(axis=0)
    centered = scaled - means - means[:, None] + means.mean()
    return Judged(point, kernel, unit, means, centered, _right(centered, indices, deals))


def _right(matrix: np.ndarray, indices: np.ndarray, deals: list[np.ndarray]) -> np.ndarray:
    return np.sum([right_answers(matrix, indices, deal, COSTS) for deal in deals], axis=0)
