"""Ridge regression with the penalty chosen by generalized cross-validation."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import require

_ROWS = 4096
_PENALTIES = torch.logspace(-6, 3, 37, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted ridge regression: ``prediction = (features − center) / scale @ weights + offset``."""

    center: Float[Tensor, " feature"]
    scale: Float[Tensor, " feature"]
    weights: Float[Tensor, "feature output"]
    offset: Float[Tensor, " output"]
    penalty: float

    @classmethod
    def fit(cls, features: Float[Tensor, "n feature"], targets: Float[Tensor, "n output"]) -> "Ridge":
        """Minimize ``‖Y − XB‖² + λ‖B‖²`` over standardized features, with λ from generalized cross-validation.

        With the singular value decomposition ``X = U S Vᵀ`` and ``z = UᵀY`` the score of λ is
        ``n·(‖Y‖² − ‖z‖² + Σ (λ/(s²+λ))² z²) / (n − 1 − Σ s²/(s²+λ))²``, summed over outputs, at the cost of one
        decomposition for all λ (Golub, Heath, Wahba, *Technometrics*, 1979; 1 is the intercept's degree of freedom).

        >>> x = torch.linspace(-1, 1, 50)[:, None]
        >>> Ridge.fit(x, 3 * x + 2).predict(torch.tensor([[0.5]])).round(decimals=3)
        tensor([[3.5000]], dtype=torch.float64)
        """
        count = len(features)
        require(count >= 2, "expected at least 2 rows to fit a ridge", f"got {count}")
        scale, center = torch.std_mean(features.double(), 0, correction=0)
        scale = torch.where(scale > 1e-12 * (1 + center.abs()), scale, 1.0)
        target_rows = targets.double()
        offset = target_rows.mean(0)
        response = target_rows - offset
        squares, vectors, projected = _decompose(features, response, center, scale)
        penalty = _choose(squares, projected, response.square().sum(), count)
        weights = vectors @ (squares.sqrt()[:, None] * projected / (squares + penalty)[:, None])
        return cls(center, scale, weights, offset, penalty)

    def predict(self, features: Float[Tensor, "row feature"]) -> Float[Tensor, "row output"]:
        """Predict in float64."""
        return (features.double() - self.center) / self.scale @ self.weights + self.offset


def _decompose(features: Tensor, response: Tensor, center: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give ``s²``, ``V`` and ``z = UᵀY`` of the standardized features, through the smaller of the two Gram matrices."""
    count, width = features.shape
    if count <= width:
        left, singular, right = torch.linalg.svd((features.double() - center) / scale, full_matrices=False)
        return singular.square(), right.T, left.T @ response
    gram, cross = response.new_zeros(width, width), response.new_zeros(width, response.shape[1])
    for start in range(0, count, _ROWS):
        rows = (features[start : start + _ROWS].double() - center) / scale
        gram.addmm_(rows.T, rows)
        cross.addmm_(rows.T, response[start : start + _ROWS])
    squares, vectors = torch.linalg.eigh(gram)
    seen = squares > 1e-12 * squares[-1]
    squares = torch.where(seen, squares, 0.0)
    singular = torch.where(seen, squares, 1.0).sqrt()
    return squares, vectors, seen[:, None] * (vectors.T @ cross) / singular[:, None]


def _choose(squares: Tensor, projected: Tensor, total: Tensor, count: int) -> float:
    energy = projected.square().sum(1)
    outside = total - energy.sum()
    # What rounding leaves of an exact fit would be blown up by the denominator below.
    outside = torch.where(outside > 1e-10 * total, outside, 0.0)
    penalties = (count * _PENALTIES)[:, None]
    kept = squares / (squares + penalties)
    residual = outside + ((1 - kept).square() * energy).sum(1)
    freedom = (count - 1 - kept.sum(1)).clamp(min=1e-9)
    return float(penalties[torch.argmin(residual / freedom.square()), 0])
