"""Hyper-parameters by marginal likelihood: one climb along the kernel's gradient instead of a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.base import clone

from sostenuto.checks import InputError

NOISE_BOUNDS = (1e-8, 1e1)
"""Lowest and highest noise, as a share of the mean of k(x, x)."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A kernel with its fitted parameters: y ~ N(0, amplitude · (K + noise · I)), one draw for each column of y."""

    kernel: Any
    amplitude: float
    noise: float
    log_likelihood: float
    evaluations: int


def maximize_evidence(
    kernels: Sequence[Any], sequences: list[np.ndarray], targets: Float64[np.ndarray, "n output"], *, most: int = 40
) -> Evidence:
    """Maximize log p(y | X) over the free parameters of a kernel and the noise, from each of ``kernels`` as a start.

    With S = K + ρI and k columns in y, the best amplitude is a = Σ_k y_kᵀS⁻¹y_k / nk, and with it
    log p = −½ (nk log 2πa + k log|S| + nk). Its derivative by a parameter is ½ (Σ_k α_kᵀ ∂S α_k / a − k tr S⁻¹∂S) with
    α = S⁻¹y (Rasmussen & Williams, eq. (5.9)); L-BFGS climbs in logarithms. ``most`` limits the steps of a start.
    """
    found = [_climb(kernel, sequences, targets, most) for kernel in kernels]
    return max(found, key=lambda each: each.log_likelihood)


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


def _climb(kernel: Any, sequences: list[np.ndarray], targets: np.ndarray, most: int) -> Evidence:
    unit = float(np.mean(kernel.diag(sequences)))
    low, high = np.log(np.asarray(NOISE_BOUNDS) * max(unit, np.finfo(float).tiny))
    bounds = [*np.asarray(kernel.bounds).reshape(-1, 2).tolist(), [low, high]]
    calls = 0

    def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        try:
            matrix, slopes = kernel.clone_with_theta(theta[:-1])(sequences, eval_gradient=True)
            value, amplitude, weights, factor = profile_likelihood(matrix, float(np.exp(theta[-1])), targets)
        except (np.linalg.LinAlgError, InputError):
            # A point where K is not positive definite within rounding, or beyond float64, is no place to go.
            return 1e25, np.zeros(len(theta))
        inverse = cho_solve(factor, np.eye(len(targets)))
        weighting = weights @ weights.T / amplitude - targets.shape[1] * inverse
        slope = 0.5 * np.einsum("ij,ijp->p", weighting, slopes)
        noise = 0.5 * np.trace(weighting) * np.exp(theta[-1])
        return -value, -np.append(slope, noise)

    start = np.append(kernel.theta, np.log(1e-2 * max(unit, np.finfo(float).tiny)))
    start = np.clip(start, *np.asarray(bounds).T)
    ended = minimize(descend, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": most})
    best = kernel.clone_with_theta(ended.x[:-1]) if kernel.n_dims else clone(kernel)
    noise = float(np.exp(ended.x[-1]))
    value, amplitude = profile_likelihood(best(sequences), noise, targets)[:2]
    return Evidence(best, amplitude, noise, value, calls)
