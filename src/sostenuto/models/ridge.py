"""Ridge regression in float64: by cross-validation or leave-one-out, whole or from sums over parts."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sostenuto.checks import require

_ROWS, _BLOCK = 4096, 512
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
    """Return ``s²``, ``V`` and ``z = UᵀY`` of the standardized features, by the smaller of the two Gram matrices."""
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
        """Return the statistics of both parts."""
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

    def solve(
        self, penalty: float, within: Float[Tensor, " feature"] | float = 0.0
    ) -> tuple[Float[Tensor, "feature output"], Float[Tensor, " output"]]:
        """Return slope and intercept of the ridge over standardized features, weights of mean 1, in float64.

        The same minimum as that of `sostenuto.models.ridge.LeaveOneOutRidge` with this penalty and ``within``, where
        all weights are equal; else features are standardized by their weighted deviations. A penalty below what
        rounding of features in single precision leaves is raised to that.
        """
        unit = self.weight / self.count
        mean, offset = self.first / self.weight, self.target / self.weight
        covariance = (self.second - torch.outer(self.first, mean)) / unit
        variance = (covariance.diagonal() / self.count).clamp(min=0)
        scale = _standard(variance.sqrt(), mean + self.origin, within)
        system = covariance / scale / scale[:, None]
        system.diagonal().add_(penalty)
        response = (self.cross - torch.outer(mean, self.target)) / unit / scale[:, None]
        factor, failed = torch.linalg.cholesky_ex(system)
        if failed:
            # Products of rows in single precision leave eigenvalues below 0, which no weaker penalty would lift.
            system.diagonal().add_(torch.finfo(torch.float32).eps * float(system.trace()))
            factor = torch.linalg.cholesky(system)
        slope = torch.cholesky_solve(response, factor) / scale[:, None]
        return slope, offset - (mean + self.origin) @ slope


def _standard(deviation: Tensor, mean: Tensor, within: Tensor | float) -> Tensor:
    """Return what features are divided by; infinite for one that does not vary."""
    scale = (deviation.square() + within).sqrt()
    return torch.where(deviation > 1e-6 * (1 + mean.abs()), scale, torch.inf)


PENALTIES = torch.logspace(-5, 2, 29, dtype=torch.float64)
"""Penalties to choose from, in units of the mean square of a row: one per standardized feature."""
CHOOSING_ROWS = 2000
"""Rows that the penalty is chosen on, drawn from more."""
FEW = 0.05
"""The penalty where no row can be left out: its class has no other member."""


@dataclass(frozen=True, eq=False)
class LeaveOneOutRidge:
    """A fitted ridge regression, ``prediction = (features − center) / scale @ weights + offset``.

    ``held_out`` (n, output) are the predictions for the rows of `fit`, each made without the row itself.
    """

    center: Float[Tensor, " feature"]
    scale: Float[Tensor, " feature"]
    weights: Float[Tensor, "feature output"]
    offset: Float[Tensor, " output"]
    penalty: float
    held_out: Float[Tensor, "n output"]

    @classmethod
    def fit(
        cls,
        features: Float[Tensor, "n feature"],
        targets: Float[Tensor, "n output"],
        *,
        sample_weight: Float[Tensor, " n"] | None = None,
        judged: Bool[Tensor, " n"] | None = None,
        slack: float = 0.0,
        within: Float[Tensor, " feature"] | float = 0.0,
    ) -> "LeaveOneOutRidge":
        """Minimize ``Σᵢ wᵢ‖yᵢ − xᵢB − b‖² + λ‖B‖²`` over standardized features, b free, weights of mean 1.

        Features are divided by √(s² + ``within``), s their deviation: what is known to vary without meaning anything
        counts less.

        With the rows scaled by √w, centered, and K = XXᵀ = VSVᵀ, the residual of row i when it is left out is
        cᵢ / dᵢ, c = (K + λ)⁻¹y and d the diagonal of the inverse of the system that has the intercept in it, so that
        one eigendecomposition serves every λ. The least sum of squares over the ``judged`` rows chooses, or, with
        ``slack``, the least λ whose sum exceeds it by no more than this share: a class of few rows is smaller still
        without one of them, and squares ask for too strong a penalty then. Where no row is judged, λ is `FEW` mean
        squares of a row. Of more than `CHOOSING_ROWS` rows that many choose, and a Cholesky factor serves the one λ.

        >>> x = torch.linspace(-1, 1, 50)[:, None]
        >>> fitted = LeaveOneOutRidge.fit(x, 3 * x + 2)
        >>> fitted.predict(torch.tensor([[0.5]])).round(decimals=2)
        tensor([[3.5000]], dtype=torch.float64)
        """
        count = len(features)
        require(count >= 2, "expected at least 2 rows to fit a ridge", f"got {count}")
        weight = torch.ones(count, dtype=torch.float64) if sample_weight is None else sample_weight.double()
        require(bool((weight >= 0).all()) and float(weight.sum()) > 0, "expected weights of at least 0", "got others")
        present = weight > 0
        weight = weight / weight[present].mean()
        share = weight / weight.sum()
        center = share.to(features.dtype) @ features
        rows = features - center
        scale = _standard(features[present].std(0, correction=0), center, within)
        rows /= scale
        offset = share @ targets.double()
        gram, truth = _products(rows).double(), targets.double()
        wanted = present if judged is None else present & judged
        drawn = torch.arange(count)
        if count > CHOOSING_ROWS:
            drawn = drawn[present]
            drawn = drawn[torch.randperm(len(drawn), generator=torch.Generator().manual_seed(0))[:CHOOSING_ROWS]]
        solver = _Solver.of(gram[drawn][:, drawn], truth[drawn], weight[drawn])
        penalty = solver.choose(wanted[drawn], slack)
        if count <= CHOOSING_ROWS:
            dual, residual = solver.solve(penalty)
        else:
            # Rounding leaves eigenvalues below 0, which no weaker penalty would lift.
            penalty = max(penalty, torch.finfo(rows.dtype).eps * float(gram.trace()))
            dual, residual = _solve_one(gram, truth - offset, weight.sqrt(), penalty)
        weights = rows.T @ (dual * weight.sqrt()[:, None]).to(rows.dtype)
        # A row of weight 0 is left out already.
        held_out = torch.where(present[:, None], truth - residual, (rows @ weights).double() + offset)
        return cls(center, scale, weights, offset, float(penalty), held_out)

    def predict(self, features: Float[Tensor, "row feature"]) -> Float[Tensor, "row output"]:
        """Predict in float64."""
        slope, offset = self.line()
        return features.double() @ slope + offset

    def line(self) -> tuple[Float[Tensor, "feature output"], Float[Tensor, " output"]]:
        """Return slope and intercept for features as they are, in float64."""
        slope = self.weights.double() / self.scale.double()[:, None]
        return slope, self.offset - self.center.double() @ slope


def _products(rows: Tensor) -> Tensor:
    """Return XXᵀ, of which one half is computed, block by block."""
    gram = rows.new_empty(len(rows), len(rows))
    for low in range(0, len(rows), _BLOCK):
        high = low + _BLOCK
        torch.mm(rows[low:high], rows[:high].T, out=gram[low:high, :high])
        gram[:low, low:high] = gram[low:high, :low].T
    return gram


def _left_out(dual: Tensor, diagonal: Tensor, penalty: float, root: Tensor) -> Tensor:
    """Return the residuals of rows left out, from c = (K + λ)⁻¹y and the diagonal of (K + λ)⁻¹."""
    # The intercept takes away one direction, along √w: it is in the null space of the centered K, whose inverse
    # there is 1/λ.
    along = root / root.norm()
    kept = (diagonal - along.square() / penalty).clamp(min=1e-12 / penalty)
    return dual / (kept * root.clamp(min=torch.finfo(torch.float64).tiny))[:, None]


def _solve_one(gram: Tensor, response: Tensor, root: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Return c and the leave-one-out residuals for one λ."""
    system = gram.mul_(root[:, None]).mul_(root)
    system.diagonal().add_(penalty)
    factor = torch.linalg.cholesky(system)
    dual = torch.cholesky_solve(response * root[:, None], factor)
    return dual, _left_out(dual, torch.cholesky_inverse(factor).diagonal(), penalty, root)


@dataclass(frozen=True, eq=False)
class _Solver:
    """(K + λ)⁻¹ for every λ, from the eigenvalues and eigenvectors of K."""

    values: Tensor
    vectors: Tensor
    squares: Tensor
    projected: Tensor
    root: Tensor

    @classmethod
    def of(cls, gram: Tensor, targets: Tensor, weight: Tensor) -> "_Solver":
        """Center and decompose."""
        share, root = weight / weight.sum(), weight.sqrt()
        mean = gram @ share
        values, vectors = torch.linalg.eigh((gram - mean[:, None] - mean + share @ mean) * root[:, None] * root)
        projected = vectors.T @ ((targets - share @ targets) * root[:, None])
        return cls(values.clamp(min=0), vectors, vectors.square(), projected, root)

    def solve(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Return c = (K + λ)⁻¹y and the leave-one-out residuals of the targets themselves."""
        inverse = 1 / (self.values + penalty)
        dual = self.vectors @ (inverse[:, None] * self.projected)
        return dual, _left_out(dual, self.squares @ inverse, penalty, self.root)

    def choose(self, judged: Tensor, slack: float) -> float:
        """Return the least penalty with at most 1 + ``slack`` times the least squared error on judged rows left out."""
        size = float(self.values.sum()) / int((self.root > 0).sum()) or 1.0
        if not bool(judged.any()):
            return size * FEW
        penalties = (size * PENALTIES).tolist()
        errors = [((self.solve(penalty)[1] * self.root[:, None])[judged]).square().sum() for penalty in penalties]
        sums = torch.stack(errors)
        return penalties[int(torch.nonzero(sums <= (1 + slack) * sums.min())[0])]
