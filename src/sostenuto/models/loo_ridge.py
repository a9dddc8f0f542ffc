"""Ridge regression on many features, with the penalty chosen by leave-one-out errors."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sostenuto.checks import require

PENALTIES = torch.logspace(-5, 2, 29, dtype=torch.float64)
"""Penalties to choose from, per feature: those of standardized features have a mean square of 1."""
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
        classes: Int[Tensor, " n"] | None = None,
    ) -> "LeaveOneOutRidge":
        """Minimize ``Σᵢ wᵢ‖yᵢ − xᵢB − b‖² + λ‖B‖²`` over standardized features, b free, weights of mean 1.

        With the rows scaled by √w, centered, and K = XXᵀ = VSVᵀ, the residual of row i when it is left out is
        cᵢ / dᵢ, c = (K + λ)⁻¹y and d the diagonal of the inverse of the system that has the intercept in it, so that
        one eigendecomposition serves every λ. The least sum of squares over the ``judged`` rows chooses, or, where the
        outputs are scores and ``classes`` says which of them is to be the highest, the greatest mean margin in
        deviations of the scores: a class of few rows is smaller still without one of them, which squares would answer
        with a strong penalty. Where no row is judged, λ is `FEW` per feature.

        >>> x = torch.linspace(-1, 1, 50)[:, None]
        >>> fitted = LeaveOneOutRidge.fit(x, 3 * x + 2)
        >>> fitted.predict(torch.tensor([[0.5]])).round(decimals=2)
        tensor([[3.5000]], dtype=torch.float64)
        """
        count, width = features.shape
        require(count >= 2, "expected at least 2 rows to fit a ridge", f"got {count}")
        weight = torch.ones(count, dtype=torch.float64) if sample_weight is None else sample_weight.double()
        require(bool((weight >= 0).all()) and float(weight.sum()) > 0, "expected weights of at least 0", "got others")
        present = weight > 0
        weight = weight / weight[present].mean()
        share = weight / weight.sum()
        center = share.to(features.dtype) @ features
        rows = features - center
        scale = features[present].std(0, correction=0)
        scale = torch.where(scale > 1e-6 * (1 + center.abs()), scale, torch.inf)
        rows /= scale
        offset = share @ targets.double()
        root = weight.sqrt()
        gram = (rows @ rows.T).double() * root[:, None] * root
        response = (targets.double() - offset) * root[:, None]
        values, vectors = torch.linalg.eigh(gram)
        solver = _Solver(values.clamp(min=0), vectors, response, root)
        wanted = torch.ones(count, dtype=torch.bool) if judged is None else judged
        wanted = wanted & present
        if not bool(wanted.any()):
            penalty = torch.tensor(width * FEW)
        elif classes is None:
            penalty = solver.least_squares(width * PENALTIES, wanted)
        else:
            penalty = solver.greatest_margin(width * PENALTIES, wanted, targets.double(), classes)
        dual, residual = solver.solve(penalty)
        weights = rows.T @ (dual * root[:, None]).to(rows.dtype)
        # A row of weight 0 is left out already.
        held_out = torch.where(present[:, None], targets.double() - residual, (rows @ weights).double() + offset)
        return cls(center, scale, weights, offset, float(penalty), held_out)

    def predict(self, features: Float[Tensor, "row feature"]) -> Float[Tensor, "row output"]:
        """Predict in float64."""
        slope, offset = self.line()
        return features.double() @ slope + offset

    def line(self) -> tuple[Float[Tensor, "feature output"], Float[Tensor, " output"]]:
        """Give slope and intercept for features as they are, in float64."""
        slope = self.weights.double() / self.scale.double()[:, None]
        return slope, self.offset - self.center.double() @ slope


@dataclass(frozen=True, eq=False)
class _Solver:
    """(K + λ)⁻¹ for every λ, from the eigenvalues and eigenvectors of K."""

    values: Tensor
    vectors: Tensor
    response: Tensor
    root: Tensor

    def solve(self, penalty: float | Tensor) -> tuple[Tensor, Tensor]:
        """Give c = (K + λ)⁻¹y and the leave-one-out residuals of the targets themselves."""
        inverse = 1 / (self.values + penalty)
        dual = self.vectors @ (inverse[:, None] * (self.vectors.T @ self.response))
        # The intercept takes away one direction, along √w: it is in the null space of the centered K, whose inverse
        # there is 1/λ.
        along = self.root / self.root.norm()
        diagonal = self.vectors.square() @ inverse - along.square() / penalty
        tiny = torch.finfo(torch.float64).tiny
        residual = dual / diagonal.clamp(min=1e-12 / float(penalty))[:, None] / self.root.clamp(min=tiny)[:, None]
        return dual, residual

    def least_squares(self, penalties: Tensor, judged: Tensor) -> Tensor:
        """Give the penalty of the least squared error of judged rows left out, weighted."""
        errors = [((self.solve(penalty)[1] * self.root[:, None])[judged]).square().sum() for penalty in penalties]
        return penalties[torch.stack(errors).argmin()]

    def greatest_margin(self, penalties: Tensor, judged: Tensor, targets: Tensor, classes: Tensor) -> Tensor:
        """Give the penalty under which the score of the true class leads most in judged rows left out, weighted."""
        weight = self.root[judged].square()
        true = torch.nn.functional.one_hot(classes[judged], targets.shape[1]).bool()
        margins = []
        for penalty in penalties:
            scores = (targets - self.solve(penalty)[1])[judged]
            lead = scores[true] - scores.masked_fill(true, -torch.inf).amax(1)
            margins.append((weight @ lead) / weight.sum() / scores.std(correction=0))
        return penalties[torch.stack(margins).argmax()]
