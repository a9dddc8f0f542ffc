"""`RNTKRegressor`: numbers by ridge regression or a Gaussian process on the recurrent neural tangent kernel."""

from typing import Any

import numpy as np
from jaxtyping import Float64
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length, validate_data

from sostenuto.checks import check_choice, require
from sostenuto.estimators.rntk.base import KernelEstimator, grid_axis, grid_points, kernel_starts
from sostenuto.estimators.rntk.evidence import maximize_evidence, profile_likelihood
from sostenuto.kernels.gram import gram
from sostenuto.kernels.gram.packed import PackedSequences

RIDGES = tuple(10.0**power for power in range(-10, 2))
"""Ridge terms to choose from, as a share of the mean of k(x, x)."""
GRID: dict[str, tuple[Any, ...]] = {
    "num_layers": (1,),
    "sigma_w": (1.34, 1.38, 2**0.5, 1.45),
    "sigma_u": (1.0,),
    "sigma_b": (0.0, 0.05, 0.2, 0.5),
    "sigma_h": (0.0, 0.1),
}
"""The paper's grid, thinned: leave-one-out needs an eigendecomposition for each of these 32 kernels."""
EVIDENCE_BOUNDS = {"sigma_w": (1.0, 1.8), "sigma_b": (1e-3, 2.0)}
"""Where marginal likelihood looks for a σ."""


class RNTKRegressor(RegressorMixin, KernelEstimator):
    """Predict one or several numbers from sequences of any lengths with the recurrent NTK (alemohammad2021, section 4).

    Sequences are those of `RNTKClassifier`.

    Args:
        model: ``"ridge"``: kernel ridge regression, σ and ridge term chosen by the exact leave-one-out error. ``"gp"``:
            a Gaussian process, σ, amplitude and noise by marginal likelihood, with ``predict(X, return_std=True)``.
        num_layers: L; for ``"ridge"`` one number or several to try.
        activation: ``"relu"``, ``"erf"``, or a function such as ``torch.tanh``.
        sigma_w: σ of the recurrent weights. For ``"ridge"``: one number or several to try, None for a thinned grid of
            the paper's. For ``"gp"``: a number is kept as it is, two are bounds, None is free (σ_w, σ_b) or 1 and 0.
        sigma_u: σ of the input weights, likewise.
        sigma_b: σ of the biases, likewise.
        sigma_h: σ of the initial state, likewise.
        alpha: ridge terms to choose from, as shares of the mean of k(x, x); for ``"gp"`` the noise is fitted.
        kind, pooling, normalize, layout, random_state, verbose: as in `RNTKClassifier`.
        unit_norm: scale each sequence to ‖x‖ = 1. Off by default: numbers often depend on size.
        scaling: ``"standard"``, ``"minmax"`` or ``"none"``, per channel, learned in `fit`.

    Fitted attributes: ``alpha_`` (ridge term or noise), ``amplitude_`` and ``log_likelihood_`` (``"gp"``),
    ``best_score_`` (root mean square of the leave-one-out errors, over targets of unit variance), and those of
    `KernelEstimator`.

    >>> slopes = np.linspace(-1, 1, 30)
    >>> X = slopes[:, None] * np.linspace(0, 1, 8)
    >>> regressor = RNTKRegressor("gp", sigma_w=1.4).fit(X, slopes)
    >>> mean, deviation = regressor.predict(X[:2] + 0.01, return_std=True)
    >>> bool(np.abs(mean - slopes[:2]).max() < 0.1), deviation.shape
    (True, (2,))
    """

    alpha_: float
    best_score_: float

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        model="ridge",
        *,
        num_layers=None,
        activation="relu",
        sigma_w=None,
        sigma_u=None,
        sigma_b=None,
        sigma_h=None,
        alpha=None,
        kind="ntk",
        pooling="last",
        normalize=False,
        unit_norm=False,
        scaling="standard",
        layout="btc",
        random_state=None,
        verbose=0,
    ) -> None:
        self.model = model
        self.num_layers = num_layers
        self.activation = activation
        self.sigma_w = sigma_w
        self.sigma_u = sigma_u
        self.sigma_b = sigma_b
        self.sigma_h = sigma_h
        self.alpha = alpha
        self.kind = kind
        self.pooling = pooling
        self.normalize = normalize
        self.unit_norm = unit_norm
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, **unsupported: Any) -> "RNTKRegressor":  # noqa: N803
        """Learn to predict ``y``, ``(n,)`` or ``(n, targets)``, from ``X``."""
        self._refuse_arguments(unsupported)
        check_choice("model", self.model, ("ridge", "gp"))
        numbers = np.asarray(validate_data(self, y=y, multi_output=True, y_numeric=True), dtype=np.float64)
        check_consistent_length(X, numbers)
        require(len(numbers) > 1, "expected at least 2 sequences to fit", "got 1 sample", "bring more")
        sequences = self._learn_sequences(X)
        for name in ("amplitude_", "log_likelihood_"):
            vars(self).pop(name, None)
        self.has_columns_ = numbers.ndim > 1
        columns = numbers.reshape(len(numbers), -1)
        self.target_center_ = columns.mean(axis=0)
        spread = columns.std(axis=0)
        self.target_scale_ = np.where(spread > 0, spread, 1.0)
        targets = (columns - self.target_center_) / self.target_scale_
        if self.model == "ridge":
            self._fit_ridge(sequences, targets)
        else:
            self._fit_process(sequences, targets)
        self.sequences_ = PackedSequences.pack(sequences)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """Return the predicted numbers in the shape of the ``y`` of `fit`; with ``return_std`` also their deviation.

        The standard deviation is that of a new observation, noise included, under the Gaussian process.
        """
        require(
            not return_std or self.model == "gp",
            "expected model='gp' with return_std=True",
            f"got model={self.model!r}",
            "fit a Gaussian process",
        )
        sequences = self._new_sequences(X)
        values = gram(self.kernel_, sequences, self.sequences_.cut(0, len(self.sequences_)), progress=False)
        mean = self._in_unit(values @ self.weights_, self.target_center_)
        if not return_std:
            return mean
        own = self.kernel_.diag(sequences)
        explained = ((values @ self.inverse_root_) ** 2).sum(axis=1)
        variance = self.amplitude_ * np.clip(own - explained + self.alpha_, 0.0, None)
        return mean, self._in_unit(np.sqrt(variance)[:, None] * np.ones(len(self.target_scale_)), 0.0)

    def _fit_ridge(self, sequences: list[np.ndarray], targets: np.ndarray) -> None:
        axes = {name: grid_axis(name, getattr(self, name), default) for name, default in GRID.items()}
        shares = grid_axis("alpha", self.alpha, RIDGES)
        best: tuple[float, Any] = (np.inf, None)
        for point in grid_points(axes):
            kernel = self._kernel(point)
            error, ridge, weights = leave_one_out(kernel.gram(sequences, sequences), targets, shares)
            if best[1] is None or error < best[0] * (1 - 1e-9):
                best = (error, (kernel, ridge, weights))
        self.best_score_, (self.kernel_, self.alpha_, self.weights_) = best

    def _fit_process(self, sequences: list[np.ndarray], targets: np.ndarray) -> None:
        best = maximize_evidence(kernel_starts(self, EVIDENCE_BOUNDS), sequences, targets, climbs=2)[0]
        self.kernel_, self.alpha_ = best.kernel, best.noise
        self.amplitude_, self.log_likelihood_ = best.amplitude, best.log_likelihood
        matrix = gram(self.kernel_, sequences, progress=False)
        _, _, self.weights_, factor = profile_likelihood(matrix, self.alpha_, targets)
        # S⁻¹ = R Rᵀ with R = L⁻ᵀ, so that the variance is a sum of squares and cannot turn negative by much.
        self.inverse_root_ = np.linalg.inv(np.tril(factor[0])).T
        inverse = (self.inverse_root_**2).sum(axis=1)
        self.best_score_ = float(np.sqrt(np.mean((self.weights_ / inverse[:, None]) ** 2)))

    def _in_unit(self, values: np.ndarray, center: Any) -> np.ndarray:
        numbers = values * self.target_scale_ + center
        return numbers if self.has_columns_ else numbers[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def leave_one_out(
    matrix: Float64[np.ndarray, "n n"], targets: Float64[np.ndarray, "n output"], shares: tuple[float, ...]
) -> tuple[float, float, Float64[np.ndarray, "n output"]]:
    """Return the least leave-one-out error over ridge terms, that term, and the weights (K + λI)⁻¹y it gives.

    With one eigendecomposition, (K + λI)⁻¹ is cheap for every λ, and the error of y_i without itself is
    [(K + λI)⁻¹y]_i / [(K + λI)⁻¹]_ii.

    >>> leave_one_out(np.eye(3), np.array([[1.0], [2.0], [3.0]]), (1e-3,))[0].round(3)
    np.float64(2.16)
    """
    values, vectors = np.linalg.eigh(matrix)
    unit = max(float(np.trace(matrix)) / len(matrix), np.finfo(float).tiny)
    turned = vectors.T @ targets
    best: tuple[float, float, np.ndarray] | None = None
    for share in shares:
        inverse = 1 / (np.clip(values, 0.0, None) + share * unit)
        weights = vectors @ (inverse[:, None] * turned)
        error = np.sqrt(np.mean((weights / ((vectors**2) @ inverse)[:, None]) ** 2))
        if best is None or error < best[0]:
            best = (error, share * unit, weights)
    assert best is not None
    return best
