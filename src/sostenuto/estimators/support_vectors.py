"""A support-vector machine on a Gram matrix, kept as plain arrays: libsvm is needed to find it, not to use it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import sklearn
from jaxtyping import Float64, Int
from sklearn.svm import SVC


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
        """Say whether no coefficient has reached the cost: then every larger cost gives this machine again."""
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
        found = []
        for machine in machines:
            dual = np.zeros((len(machine.dual), len(union)))
            dual[:, [place[int(row)] for row in machine.support]] = machine.dual
            found.append(cls(union, counts, dual, machine.intercepts))
        return found

    def scores(self, gram: Float64[np.ndarray, "n support"]) -> Float64[np.ndarray, "n class"]:
        """Give a score for every class from k(x, x_s): pairs won, plus less than a half for by how much.

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
