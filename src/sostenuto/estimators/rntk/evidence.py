"""Hyper-parameters by the likelihood of a Gaussian process, marginal or leave-one-out: one climb, not a grid."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.base import clone

from sostenuto.checks import InputError

NOISE_BOUNDS = (1e-8, 1e1)
"""Lowest and highest noise, as a share of the mean of k(x, x)."""
START_NOISES = (1e-4, 1e-3, 1e-2, 1e-1)
_STEP = 1e-4
Likelihood = tuple[float, float, Callable[[], Float64[np.ndarray, "n n"]]]
"""A logarithm of a likelihood, the amplitude, and a function that gives its derivative by the matrix."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A kernel with its fitted parameters: y ~ N(0, amplitude · (K + noise · I)), one draw for each column of y."""

    kernel: Any
    amplitude: float
    noise: float
    log_likelihood: float
    evaluations: int


def maximize_evidence(
    kernels: Sequence[Any],
    sequences: list[np.ndarray],
    targets: Float64[np.ndarray, "n output"],
    *,
    climbs: int = 1,
    most: int = 8,
    objective: str = "marginal",
) -> list[Evidence]:
    """Maximize log p(y | X) over the free parameters of a kernel and the noise; return the maxima, the highest first.

    With S = K + ρI and k columns in y, the best amplitude is a = Σ_k y_kᵀS⁻¹y_k / nk, and with it
    log p = −½ (nk log 2πa + k log|S| + nk). Its derivative by a parameter is ½ (Σ_k α_kᵀ ∂S α_k / a − k tr S⁻¹∂S) with
    α = S⁻¹y (Rasmussen & Williams, eq. (5.9)). The likeliest ``climbs`` of ``kernels``, each at the best of a few
    noises, are where L-BFGS starts to climb, in logarithms, for at most ``most`` steps.

    With ``objective="leave-one-out"`` it is Σ_i log p(y_i | X, y_−i) that is maximized: `leave_one_out_likelihood`.
    """
    likelihood = OBJECTIVES[objective]
    starts = []
    for kernel in kernels:
        matrix = np.asarray(kernel.gram(sequences, sequences))
        noises = [share * _unit(matrix) for share in START_NOISES]
        values = [likelihood(matrix, noise, targets)[0] for noise in noises]
        best = int(np.argmax(values))
        starts.append((values[best], noises[best], kernel))
    starts.sort(key=lambda start: -start[0])
    climbed = [_climb(kernel, noise, sequences, targets, most, likelihood) for _, noise, kernel in starts[:climbs]]
    return sorted(climbed, key=lambda each: -each.log_likelihood)


def gram_slopes(
    kernel: Any, sequences: list[np.ndarray]
) -> tuple[Float64[np.ndarray, "n n"], Float64[np.ndarray, "n n parameter"]]:
    """Return K and its derivatives by the kernel's ``theta``, from K itself a step of 1e-4 to either side.

    They agree with ``kernel(X, eval_gradient=True)`` to about 1e-7 of the largest entry, and cost two matrices of
    compiled code a parameter, where the exact forward-mode derivative takes the reference's time. All matrices are
    computed on as many threads as torch uses.
    """
    theta = np.asarray(kernel.theta, dtype=np.float64)
    points = [theta, *(theta + side * _STEP * row for row in np.eye(len(theta)) for side in (1.0, -1.0))]

    def matrix(point: np.ndarray) -> np.ndarray:
        return np.asarray(kernel.clone_with_theta(point).gram(sequences, sequences))

    with ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="evidence") as pool:
        center, *around = pool.map(matrix, points)
    slopes = [(above - below) / (2 * _STEP) for above, below in zip(around[::2], around[1::2], strict=True)]
    return center, np.stack(slopes, axis=2) if slopes else np.empty((*center.shape, 0))


def profile_likelihood(
    gram: Float64[np.ndarray, "n n"], noise: float, targets: Float64[np.ndarray, "n output"]
) -> tuple[float, float, Float64[np.ndarray, "n output"], Any]:
    """Return log p at its best amplitude, that amplitude, α = S⁻¹y, and the Cholesky factor of S."""
    count, outputs = targets.shape
    factor = cho_factor(gram + noise * np.eye(count), lower=True)
    weights = cho_solve(factor, targets)
    amplitude = max(float((targets * weights).sum()) / targets.size, np.finfo(float).tiny)
    determinant = 2 * float(np.log(np.diag(factor[0])).sum())
    value = -0.5 * (targets.size * (np.log(2 * np.pi * amplitude) + 1) + outputs * determinant)
    return value, amplitude, weights, factor


def marginal_likelihood(
    gram: Float64[np.ndarray, "n n"], noise: float, targets: Float64[np.ndarray, "n output"]
) -> Likelihood:
    """Return log p(y | X) at its best amplitude, that amplitude, and W such that d log p = ½ tr(W dS)."""
    value, amplitude, weights, factor = profile_likelihood(gram, noise, targets)

    def weighting() -> np.ndarray:
        inverse = cho_solve(factor, np.eye(len(targets)))
        return weights @ weights.T / amplitude - targets.shape[1] * inverse

    return value, amplitude, weighting


def leave_one_out_likelihood(
    gram: Float64[np.ndarray, "n n"], noise: float, targets: Float64[np.ndarray, "n output"]
) -> Likelihood:
    """Return Σ_i log p(y_i | X, y_−i) at its best amplitude, that amplitude, and W such that d log p = ½ tr(W dS).

    With D_i = [S⁻¹]_ii the others predict y_i − α_i/D_i with variance a/D_i, the best amplitude a is the mean of
    α_i²/D_i, and log p = −½ (nk log 2πa − k Σ log D_i + nk); with u = α/D and c = Σ_k u²

        W = (1/a) Σ_k (α_k (S⁻¹u_k)ᵀ + (S⁻¹u_k) α_kᵀ) − S⁻¹ (diag(c)/a + k diag(1/D)) S⁻¹

    (Rasmussen & Williams, section 5.4.2, eqs. (5.10)–(5.13)). It asks for good predictions of labels that were not
    seen, and less for the model to be right: labels ±1 are no Gaussian draw.
    """
    count, outputs = targets.shape
    factor = cho_factor(gram + noise * np.eye(count), lower=True)
    inverse = cho_solve(factor, np.eye(count))
    weights, own = inverse @ targets, np.diag(inverse)
    errors = weights / own[:, None]
    amplitude = max(float((weights * errors).sum()) / targets.size, np.finfo(float).tiny)
    value = -0.5 * (targets.size * (np.log(2 * np.pi * amplitude) + 1) - outputs * float(np.log(own).sum()))

    def weighting() -> np.ndarray:
        outer = weights @ (inverse @ errors).T
        middle = (errors**2).sum(axis=1) / amplitude + outputs / own
        return (outer + outer.T) / amplitude - (inverse * middle) @ inverse

    return value, amplitude, weighting


OBJECTIVES: dict[str, Callable[[np.ndarray, float, np.ndarray], Likelihood]] = {
    "marginal": marginal_likelihood,
    "leave-one-out": leave_one_out_likelihood,
}


def _climb(
    kernel: Any,
    noise: float,
    sequences: list[np.ndarray],
    targets: np.ndarray,
    most: int,
    likelihood: Callable[[np.ndarray, float, np.ndarray], Likelihood],
) -> Evidence:
    unit = _unit(kernel.diagonal(sequences))
    low, high = np.log(np.asarray(NOISE_BOUNDS) * unit)
    bounds = np.array([*np.asarray(kernel.bounds).reshape(-1, 2).tolist(), [low, high]])
    calls = 0

    def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        try:
            matrix, slopes = gram_slopes(kernel.clone_with_theta(theta[:-1]), sequences)
            value, _, derivative = likelihood(matrix, float(np.exp(theta[-1])), targets)
        except (np.linalg.LinAlgError, InputError):
            # A point where K is not positive definite within rounding, or beyond float64, is no place to go.
            return 1e25, np.zeros(len(theta))
        weighting = derivative()
        slope = 0.5 * np.einsum("ij,ijp->p", weighting, slopes)
        return -value, -np.append(slope, 0.5 * np.trace(weighting) * np.exp(theta[-1]))

    start = np.clip(np.append(kernel.theta, np.log(noise)), *bounds.T)
    ended = minimize(descend, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": most})
    best: Any = kernel.clone_with_theta(ended.x[:-1]) if kernel.n_dims else clone(kernel)
    noise = float(np.exp(ended.x[-1]))
    value, amplitude = likelihood(np.asarray(best.gram(sequences, sequences)), noise, targets)[:2]
    return Evidence(best, amplitude, noise, value, calls)


def _unit(matrix: np.ndarray) -> float:
    """Return the mean of k(x, x), from a matrix or its diagonal, above 0 so that it has a logarithm."""
    own = matrix if matrix.ndim == 1 else np.diag(matrix)
    return max(float(np.mean(own)), np.finfo(float).tiny)
