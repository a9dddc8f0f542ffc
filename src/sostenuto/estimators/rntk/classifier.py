"""`RNTKClassifier`: classes by a kernel machine on the recurrent neural tangent kernel."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from sostenuto.checks import check_choice, check_count, require
from sostenuto.estimators.classes import (
    both_classes,
    deal_folds,
    inverse_diagonal,
    one_against_rest,
    softmax,
    temperature,
)
from sostenuto.estimators.rntk.base import KernelEstimator, grid_axis, grid_points, kernel_starts
from sostenuto.estimators.rntk.evidence import maximize_evidence, profile_likelihood
from sostenuto.estimators.rntk.search import SupportVectors, accuracies, out_of_fold_scores, search_grid
from sostenuto.kernels.gram import gram
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.kernels.recurrent_ntk import RecurrentNTK

PAPER_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)
PAPER_GRID: dict[str, tuple[Any, ...]] = {
    "num_layers": (1,),
    "sigma_w": (1.34, 1.35, 1.36, 1.37, 1.38, 1.39, 1.40, 1.41, 2**0.5, 1.42, 1.43, 1.44, 1.45, 1.46, 1.47),
    "sigma_u": (1.0,),
    "sigma_b": (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9, 1.0, 2.0),
    "sigma_h": (0.0, 0.01, 0.1, 0.5, 1.0),
}
"""The hyper-parameters of alemohammad2021, appendix A.1: 900 kernels, each with five costs."""
EVIDENCE_BOUNDS = {"sigma_w": (1.34, 1.47), "sigma_b": (1e-3, 2.0), "sigma_h": (1e-3, 1.0)}
"""Where a likelihood looks for a σ: the range of the paper's grid, 0 left out."""
REPEATS = 5
"""Deals of folds by which the last few points in question are told apart."""
CLIMBS = 2
"""Starts from which a likelihood is climbed; cross-validation chooses among the maxima."""
LIKELIHOOD = "leave-one-out"
"""What is climbed for the machines' kernels (see `sostenuto.estimators.rntk.evidence.leave_one_out_likelihood`)."""
NOISES = tuple(10.0**power for power in range(-8, 1))
"""Noise of a Gaussian process on a grid, as a share of the mean of k(x, x)."""


class RNTKClassifier(ClassifierMixin, KernelEstimator):
    """Classify sequences of any lengths by a kernel machine on the recurrent NTK (alemohammad2021, section 4).

    ``X`` is ``(n, time)`` with one channel, ``(n, time, channel)`` as ``layout`` says, or a list of ``(time, channel)``
    or ``(time,)`` arrays of any lengths. Cost: n² values of the kernel for every σ tried, n³ for the machines; some
    thousands of sequences. For more, take `NystroemRNTK` and a linear classifier.

    Args:
        search: how the σ are found. ``"grid"``: the paper's protocol, every σ of the grid and every C judged by
            cross-validation, with one Gram matrix per σ; the sixty best are judged again by four more deals of folds.
            ``"evidence"``: σ by the leave-one-out likelihood of a Gaussian process on the one-against-rest labels (the
            marginal likelihood for ``model="gp"``), climbed from the likeliest two of nine starts; cross-validation
            chooses among the maxima, the starts, and C. It takes a small part of the grid's time.
            ``"none"``: the σ as given.
        choose: among kernels and costs that cross-validation does not tell apart, those of the same highest accuracy
            over all deals. ``"average"``: the mean of the scores of all their machines, of at most sixty kernels.
            ``"best"``: the paper's rule, one machine, the first of them.
        model: ``"svm"``, a C-SVM for every pair of classes; or ``"gp"``, a Gaussian process regressing the
            one-against-rest labels (Rasmussen & Williams, section 6.5), whose noise is found by marginal likelihood.
        num_layers: L; in a grid one number or several. None here and for the σ is the paper's grid
            (`sostenuto.estimators.rntk.classifier.PAPER_GRID`: one layer).
        activation: ``"relu"``, ``"erf"``, or a function such as ``torch.tanh``.
        sigma_w: σ of the recurrent weights. In a grid: one number or several to try. With ``"evidence"``: a number is
            kept as it is, two are bounds. With ``"none"``: a number; None is √2, and 1, 0.1 and 0 for those below.
        sigma_u: σ of the input weights, likewise.
        sigma_b: σ of the biases, likewise.
        sigma_h: σ of the initial state, likewise.
        C: cost of the SVM, one number or several to choose from; None is the paper's five.
        folds: of the cross-validation. Classes with fewer members are spread over as many folds as they fill.
        kind: ``"ntk"`` or ``"nngp"``.
        pooling: ``"last"`` or ``"mean"``.
        normalize: divide the kernel by √(k(x,x) k(y,y)); needed for sequences of many thousand steps.
        unit_norm: scale each sequence to ‖x‖ = 1 over steps and channels, as the paper does. Switch it off where the
            size of a sequence tells its class.
        scaling: ``"standard"``, ``"minmax"`` or ``"none"``, per channel, learned in `fit`, before ``unit_norm``.
        layout: ``"btc"`` or ``"bct"``: which axis of a 3-D array (and of the items of a list) is time.
        random_state: of the folds. A whole number makes `fit` repeatable.
        verbose: 0 is silent, 1 shows a progress bar.

    `predict_proba` is the softmax of the scores over one temperature, fitted by likelihood on scores of sequences that
    the machine had not seen (out of fold, or leave-one-out for ``"gp"``); it never disagrees with `predict`.

    Fitted attributes: ``classes_``, ``kernels_``, of each machine its kernel's place there, ``kernel_of_``, and its
    cost in ``costs_`` (``kernel_`` and ``C_`` are the first machine's), ``best_score_`` (accuracy over five deals of
    folds; leave-one-out for ``"gp"``), ``grid_`` and ``cv_accuracy_`` (``"grid"`` with ``"svm"``: the axes, and the
    accuracy at every point, the last axis being C), ``temperature_``, and those of `KernelEstimator`.

    >>> rising = np.linspace(0, 1, 12)
    >>> X = np.stack([rising, rising[::-1]] * 6) + 0.01 * np.arange(12)[:, None]
    >>> classifier = RNTKClassifier(sigma_w=[1.4, 1.45], sigma_b=0.1, sigma_h=0.0, folds=3, random_state=0)
    >>> classifier.fit(X, ["up", "down"] * 6).predict([rising[:9], rising[::-1]])
    array(['up', 'down'], dtype='<U4')
    """

    classes_: np.ndarray
    C_: float
    kernels_: list[RecurrentNTK]
    best_score_: float
    temperature_: float

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        search="grid",
        *,
        choose="average",
        model="svm",
        num_layers=None,
        activation="relu",
        sigma_w=None,
        sigma_u=None,
        sigma_b=None,
        sigma_h=None,
        C=None,  # noqa: N803
        folds=10,
        kind="ntk",
        pooling="last",
        normalize=False,
        unit_norm=True,
        scaling="none",
        layout="btc",
        random_state=None,
        verbose=0,
    ) -> None:
        self.search = search
        self.choose = choose
        self.model = model
        self.num_layers = num_layers
        self.activation = activation
        self.sigma_w = sigma_w
        self.sigma_u = sigma_u
        self.sigma_b = sigma_b
        self.sigma_h = sigma_h
        self.C = C
        self.folds = folds
        self.kind = kind
        self.pooling = pooling
        self.normalize = normalize
        self.unit_norm = unit_norm
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, **unsupported: Any) -> "RNTKClassifier":  # noqa: N803
        """Learn to tell the classes ``y`` (n labels of any kind) of ``X``."""
        self._refuse_arguments(unsupported)
        check_choice("search", self.search, ("grid", "evidence", "none"))
        check_choice("choose", self.choose, ("average", "best"))
        check_choice("model", self.model, ("svm", "gp"))
        check_count("folds", self.folds, least=2)
        labels = validate_data(self, y=y)
        check_classification_targets(labels)
        check_consistent_length(X, labels)
        classes, indices = np.unique(labels, return_inverse=True)
        got = f"got 1 class, {str(classes[0])!r}" if len(classes) else "got no labels"
        require(len(classes) > 1, "expected at least 2 classes", got, "check y")
        sequences = self._learn_sequences(X)
        self._forget()
        if self.model == "svm":
            self._fit_machine(sequences, indices)
        else:
            self._fit_process(sequences, indices)
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> Float64[np.ndarray, "n ..."]:  # noqa: N803
        """Return one score per class, ``(n, classes)``; for two classes how much the second leads, ``(n,)``."""
        scores = self._scores(X)
        return (scores[:, 1] - scores[:, 0]) / 2 if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "n class"]:  # noqa: N803
        """Return the probability of every class, in the order of ``classes_``."""
        return softmax(self._scores(X) / self.temperature_)

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:  # noqa: N803
        """Return the class with the highest score for every sequence."""
        best = self._scores(X).argmax(1)
        return self.classes_[best]

    def _scores(self, raw: Any) -> Float64[np.ndarray, "n class"]:
        sequences = self._new_sequences(raw)
        known = self.sequences_.cut(0, len(self.sequences_))
        if self.model == "gp":
            return both_classes(gram(self.kernel_, sequences, known, progress=False) @ self.weights_ + self.offset_)
        support, total = np.arange(len(known)), np.zeros((len(sequences), len(self.counts_)))
        for place, kernel in enumerate(self.kernels_):
            values = gram(kernel, sequences, known, progress=False)
            for member in np.flatnonzero(self.kernel_of_ == place):
                machine = SupportVectors(support, self.counts_, self.dual_coef_[member], self.intercept_[member])
                total += machine.scores(values)
        return total / len(self.kernel_of_)

    def _fit_machine(self, sequences: list[np.ndarray], indices: np.ndarray) -> None:
        folds = deal_folds(indices, self.folds, self.seed_)
        costs = grid_axis("C", self.C, PAPER_COSTS)
        if self.search == "grid":
            shortlist = self._grid_shortlist(sequences, indices, folds, costs)
        else:
            shortlist = [(kernel, cost) for kernel in self._kernels(sequences, indices) for cost in sorted(costs)]
        matrices = {id(kernel): gram(kernel, sequences, progress=False) for kernel, _ in shortlist}
        deals = [folds, *(deal_folds(indices, self.folds, self.seed_ + extra) for extra in range(1, REPEATS))]
        candidates = [(matrices[id(kernel)], cost) for kernel, cost in shortlist]
        accuracy = accuracies(candidates, indices, deals)
        self.best_score_ = float(accuracy.max())
        tied = np.flatnonzero(accuracy == accuracy.max())
        chosen = [shortlist[place] for place in (tied if self.choose == "average" else tied[:1])]
        self._keep(chosen, [matrices[id(kernel)] for kernel, _ in chosen], sequences, indices, folds)

    def _keep(
        self,
        chosen: list[tuple[Any, float]],
        matrices: list[np.ndarray],
        sequences: list[np.ndarray],
        indices: np.ndarray,
        folds: np.ndarray,
    ) -> None:
        """Fit the machines of the chosen kernels and costs, and keep them over the support vectors of all."""
        self.costs_ = [cost for _, cost in chosen]
        pairs = list(zip(matrices, self.costs_, strict=True))
        machines = SupportVectors.together([SupportVectors.fit(each, indices, cost) for each, cost in pairs], indices)
        distinct = {id(kernel): kernel for kernel, _ in chosen}
        self.kernels_, places = list(distinct.values()), list(distinct)
        self.kernel_of_ = np.array([places.index(id(kernel)) for kernel, _ in chosen])
        self.kernel_, self.C_ = chosen[0]
        self.support_, self.counts_ = machines[0].support, machines[0].counts
        self.dual_coef_ = np.stack([machine.dual for machine in machines])
        self.intercept_ = np.stack([machine.intercepts for machine in machines])
        self.sequences_ = PackedSequences.pack([sequences[index] for index in self.support_])
        unseen = [out_of_fold_scores(each, indices, folds, cost) for each, cost in pairs]
        self.temperature_ = temperature(np.mean(unseen, axis=0), indices)

    def _grid_shortlist(
        self, sequences: list[np.ndarray], indices: np.ndarray, folds: np.ndarray, costs: tuple[float, ...]
    ) -> list[tuple[Any, float]]:
        axes = self._axes()

        def gram_of(point: dict[str, Any]) -> np.ndarray:
            return self._kernel(point).gram(sequences, sequences)

        best = search_grid(gram_of, axes, costs, indices, folds, progress=bool(self.verbose))
        self.grid_ = {**{name: list(values) for name, values in axes.items()}, "C": list(costs)}
        self.cv_accuracy_ = best.accuracy
        points = best.shortlist(seed=self.seed_, every_cost=self.choose == "average")
        kernels = {tuple(point.values()): self._kernel(point) for point, _ in points}
        return [(kernels[tuple(point.values())], cost) for point, cost in points]

    def _fit_process(self, sequences: list[np.ndarray], indices: np.ndarray) -> None:
        targets = one_against_rest(indices)
        self.offset_ = targets.mean(axis=0)
        centered = targets - self.offset_
        if self.search == "grid":
            self.kernel_, self.noise_ = self._most_likely(sequences, centered)
        else:
            evidence = maximize_evidence(self._starts(), sequences, centered, climbs=CLIMBS)[0]
            self.kernel_, self.noise_ = evidence.kernel, evidence.noise
        matrix = gram(self.kernel_, sequences, progress=False)
        _, _, self.weights_, factor = profile_likelihood(matrix, self.noise_, centered)
        self.sequences_ = PackedSequences.pack(sequences)
        alone = both_classes(targets - self.weights_ / inverse_diagonal(factor)[:, None])
        self.best_score_ = float(np.mean(alone.argmax(1) == indices))
        self.temperature_ = temperature(alone, indices)

    def _most_likely(self, sequences: list[np.ndarray], targets: np.ndarray) -> tuple[Any, float]:
        """Choose the point of the grid, and the noise, of the highest marginal likelihood."""
        best: tuple[float, Any, float] = (-np.inf, None, 0.0)
        for point in grid_points(self._axes()):
            kernel = self._kernel(point)
            matrix = kernel.gram(sequences, sequences)
            for share in NOISES:
                noise = share * float(np.mean(np.diag(matrix)))
                value = profile_likelihood(matrix, noise, targets)[0]
                best = max(best, (value, kernel, noise), key=lambda each: each[0])
        return best[1:]

    def _axes(self) -> dict[str, tuple[Any, ...]]:
        return {name: grid_axis(name, getattr(self, name), default) for name, default in PAPER_GRID.items()}

    def _kernels(self, sequences: list[np.ndarray], indices: np.ndarray) -> list[Any]:
        if self.search == "none":
            return self._starts()
        targets = one_against_rest(indices)
        starts = self._starts()
        centered = targets - targets.mean(axis=0)
        maxima = maximize_evidence(starts, sequences, centered, climbs=CLIMBS, objective=LIKELIHOOD)
        # Squared errors of labels are not what a machine is judged by: the starts may still do better.
        return [*(maximum.kernel for maximum in maxima), *starts]

    def _starts(self) -> list[Any]:
        return kernel_starts(self, EVIDENCE_BOUNDS if self.search == "evidence" else {})

    def _forget(self) -> None:
        """Drop what only another search or model leaves behind."""
        kept = ("grid_", "cv_accuracy_", "C_", "noise_", "weights_", "offset_", "support_", "counts_")
        for name in (*kept, "dual_coef_", "intercept_", "kernels_", "kernel_of_", "costs_"):
            vars(self).pop(name, None)
