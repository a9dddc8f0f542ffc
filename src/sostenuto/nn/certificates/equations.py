"""The two matrix equations of Lyapunov, solved by doubling."""

import numpy as np
from jaxtyping import Float

_DOUBLINGS = 60


def stein(
    F: Float[np.ndarray, "n n"],  # noqa: N803
    right: Float[np.ndarray, "n n"],
) -> Float[np.ndarray, "n n"] | None:
    """Solve P − FᵀPF = right for a matrix F with eigenvalues inside the unit circle; None where doubling does not end.

    P = Σ (Fᵏ)ᵀ right Fᵏ, summed by doubling: 2ᵏ terms after k products.

    >>> stein(np.array([[0.5]]), np.array([[3.0]]))
    array([[4.]])
    """
    total, power = right.astype(np.float64), F.astype(np.float64)
    for _ in range(_DOUBLINGS):
        with np.errstate(over="ignore", invalid="ignore"):
            added = power.T @ total @ power
            total = total + added
            power = power @ power
        if not np.isfinite(total).all():
            return None
        if np.abs(added).max(initial=0.0) <= np.finfo(np.float64).eps * np.abs(total).max(initial=0.0):
            return (total + total.T) / 2
    return None


def lyapunov_equation(
    A: Float[np.ndarray, "n n"],  # noqa: N803
    right: Float[np.ndarray, "n n"],
) -> Float[np.ndarray, "n n"] | None:
    """Solve AᵀP + PA = −right for a Hurwitz matrix A; None where there is no solution that can be reached.

    Cayley's transform F = (cI − A)⁻¹(cI + A) turns it into `stein`'s equation; one step of refinement follows.

    >>> lyapunov_equation(np.array([[-1.0, 10.0], [0.0, -1.0]]), np.eye(2)).round(6)
    array([[ 0.5,  2.5],
           [ 2.5, 25.5]])
    """
    size = len(A)
    scale = max(float(np.linalg.norm(A, 2)), float(np.finfo(np.float64).tiny)) if size else 1.0
    # The geometric mean of the largest and the least modulus balances how fast both ends of the spectrum decay.
    least = float(np.abs(np.linalg.eigvals(A)).min()) if size else 1.0
    shift = np.sqrt(scale * max(least, 1e-8 * scale))
    inverse = np.linalg.inv(shift * np.eye(size) - A)
    turned = inverse @ (shift * np.eye(size) + A)
    solution = stein(turned, 2 * shift * inverse.T @ right @ inverse)
    if solution is None:
        return None
    rest = A.T @ solution + solution @ A + right
    finer = stein(turned, 2 * shift * inverse.T @ rest @ inverse)
    return solution if finer is None else solution + finer
