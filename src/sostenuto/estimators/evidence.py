"""Hyper-parameters by marginal likelihood: one climb instead of a grid."""

from collections.abc import Sequence
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
) -> list[Evidence]:
    """Maximize log p(y | X) over the free parameters of a kernel and the noise; return the maxima, the highest first.

    With S = K + ρI and k columns in y, the best amplitude is a = Σ_k y_kᵀS⁻¹y_k / nk, and with it
    log p = −½ (nk log 2πa + k log|S| + nk). Its derivative by a parameter is ½ (Σ_k α_kᵀ ∂S α_k / a − k tr S⁻¹∂S) with
    α = S⁻¹y (Rasmussen & Williams, eq. (5.9)). The likeliest ``climbs`` of ``kernels``, each at the best of a few
    noises, are where L-BFGS starts to climb, in logarithms, for at most ``most`` steps.
    """
    starts = []
    for kernel in kernels:
        matrix = np.asarray(kernel.gram(sequences, sequences))
        noises = [share * _unit(matrix) for share in START_NOISES]
        values = [profile_likelihood(matrix, noise, targets)[0] for noise in noises]
        best = int(np.argmax(values))
        starts.append((values[best], noises[best], kernel))
    starts.sort(key=lambda start: -start[0])
    found = [_climb(kernel, noise, sequences, targets, most) for _, noise, kernel in starts[:climbs]]
    return sorted(found, key=lambda each: -each.log_likelihood)


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


def _climb(kernel: Any, noise: float, sequences: list[np.ndarray], targets: np.ndarray, most: int) -> Evidence:
    unit = _unit(kernel.diagonal(sequences))
    low, high = np.log(np.asarray(NOISE_BOUNDS) * unit)
    bounds = np.array([*np.asarray(kernel.bounds).reshape(-1, 2).tolist(), [low, high]])
    calls = 0

    def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        try:
            matrix, slopes = gram_slopes(kernel.clone_with_theta(theta[:-1]), sequences)
            value, amplitude, weights, factor = profile_likelihood(matrix, float(np.exp(theta[-1])), targets)
        except (np.linalg.LinAlgError, InputError):
            # A point where K is not positive definite within rounding, or beyond float64, is no place to go.
            return 1e25, np.zeros(len(theta))
        inverse = cho_solve(factor, np.eye(len(targets)))
        weighting = weights @ weights.T / amplitude - targets.shape[1] * inverse
        slope = 0.5 * np.einsum("ij,ijp->p", weighting, slopes)
        return -value, -np.append(slope, 0.5 * np.trace(weighting) * np.exp(theta[-1]))

    start = np.clip(np.append(kernel.theta, np.log(noise)), *bounds.T)
    ended = minimize(descend, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": most})
    best: Any = kernel.clone_with_theta(ended.x[:-1]) if kernel.n_dims else clone(kernel)
    noise = float(np.exp(ended.x[-1]))
    value, amplitude = profile_likelihood(np.asarray(best.gram(sequences, sequences)), noise, targets)[:2]
    return Evidence(best, amplitude, noise, value, calls)


def _unit(matrix: np.ndarray) -> float:
    """Return the mean of k(x, x), from a matrix or its diagonal, above 0 so that it has a logarithm."""
    own = matrix if matrix.ndim == 1 else np.diag(matrix)
    return max(float(np.mean(own)), np.finfo(float).tiny)
