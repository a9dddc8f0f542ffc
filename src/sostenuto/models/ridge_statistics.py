"""Ridge regression from sums over rows: rows are read once, in any number of parts, and never kept."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import require


@dataclass(frozen=True, eq=False)
class RidgeStatistics:
    """All that a ridge needs of weighted rows x and targets y: their number, Σw, Σwx, Σwxxᵀ, Σwy and Σwxyᵀ.

    Statistics of parts are added: ``a + b`` are those of both, whoever computed them. Rows are taken from ``origin``
    first, a point near their middle, so that little is lost where a variance is a difference of two sums.
    """

    origin: Float[Tensor, " feature"]
    count: int
    weight: Float[Tensor, ""]
    first: Float[Tensor, " feature"]
    second: Float[Tensor, "feature feature"]
    target: Float[Tensor, " output"]
    cross: Float[Tensor, "feature output"]

    @classmethod
    def of(
        cls,
        features: Float[Tensor, "n feature"],
        targets: Float[Tensor, "n output"],
        origin: Float[Tensor, " feature"],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> "RidgeStatistics":
        """Sum up some rows.

        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> whole, origin = RidgeStatistics.of(x, y, torch.zeros(3)), torch.zeros(3)
        >>> both = RidgeStatistics.of(x[:7], y[:7], origin) + RidgeStatistics.of(x[7:], y[7:], origin)
        >>> bool(torch.allclose(both.second, whole.second, atol=1e-5)), both.count
        (True, 20)
        """
        weight = torch.ones(len(features), dtype=torch.float64) if sample_weight is None else sample_weight.double()
        rows = features - origin.to(features.dtype)
        weighted = rows * weight.to(rows.dtype)[:, None]
        answers = targets.double()
        return cls(
            origin.double(),
            int((weight > 0).sum()),
            weight.sum(),
            weighted.double().sum(0),
            (weighted.T @ rows).double(),
            weight @ answers,
            weighted.double().T @ answers,
        )

    def __add__(self, other: "RidgeStatistics") -> "RidgeStatistics":
        """Give the statistics of both parts."""
        require(torch.equal(self.origin, other.origin), "expected statistics with the same origin", "got another")
        return RidgeStatistics(
            self.origin,
            self.count + other.count,
            self.weight + other.weight,
            self.first + other.first,
            self.second + other.second,
            self.target + other.target,
            self.cross + other.cross,
        )

    def solve(self, penalty: float) -> tuple[Float[Tensor, "feature output"], Float[Tensor, " output"]]:
        """Give slope and intercept of the ridge over standardized features, weights of mean 1, in float64.

        The same minimum as that of `sostenuto.models.loo_ridge.LeaveOneOutRidge` with this penalty, where all weights
        are equal; else features are standardized by their weighted deviations.
        """
        unit = self.weight / self.count
        mean, offset = self.first / self.weight, self.target / self.weight
        covariance = (self.second - torch.outer(self.first, mean)) / unit
        scale = (covariance.diagonal() / self.count).clamp(min=0).sqrt()
        scale = torch.where(scale > 1e-6 * (1 + (mean + self.origin).abs()), scale, torch.inf)
        system = covariance / scale / scale[:, None]
        system.diagonal().add_(penalty)
        response = (self.cross - torch.outer(mean, self.target)) / unit / scale[:, None]
        factor = torch.linalg.cholesky(system)
        slope = torch.cholesky_solve(response, factor) / scale[:, None]
        return slope, offset - (mean + self.origin) @ slope
