"""How an infinitely wide network trains: gradient flow of the squared error in closed form, from its tangent kernel."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from sostenuto.checks import check_choice, check_count, check_positive, require

Square = Float64[np.ndarray, "train train"]
Cross = Float64[np.ndarray, "test train"]


@dataclass(frozen=True)
class Drift:
    """How far a finite network's tangent kernel and weights moved in training, at every step."""

    kernel: Float64[np.ndarray, " step"]
    """‖Θ̂_s − Θ̂_0‖₂, the spectral norm."""
    relative: Float64[np.ndarray, " step"]
    """The same over ‖Θ̂_0‖₂."""
    weights: Float64[np.ndarray, " step"]
    """‖θ_s − θ_0‖₂; divided by √n it is the paper's other quantity."""
    loss: Float64[np.ndarray, " step"]


def mean_prediction(
    kernel: Square,
    targets: np.ndarray,
    time: float,
    *,
    cross: Cross | None = None,
    learning_rate: float = 1.0,
    loss: str = "mean",
) -> np.ndarray:
    """Return the mean prediction of networks that start at mean 0, after gradient flow for ``time``.

    f_s(x) = Θ(x, X) Θ⁻¹ (I − exp(−η Θ s / N)) y for the mean over N samples of ½(f − y)², or without N for the sum. It
    solves ∂f/∂s = −η Θ(x, X) ∇𝓛 with the constant kernel of Theorem 2 (alemohammad2021, eq. (4)); as s → ∞ it is kernel
    regression without a ridge. Directions in which Θ vanishes are not learned.

    Args:
        kernel: Θ(X, X), symmetric and positive semi-definite.
        targets: (N,) or (N, outputs).
        time: s ≥ 0; infinity is allowed.
        cross: Θ(x, X) for other inputs; without it the prediction is on the training inputs.
        learning_rate: η.
        loss: ``"mean"`` or ``"sum"`` over samples.

    >>> kernel, targets = np.diag([1.0, 4.0]), np.array([1.0, 1.0])
    >>> mean_prediction(kernel, targets, 1.0, loss="sum").round(4)  # 1 − exp(−λ)
    array([0.6321, 0.9817])
    """
    _check_kernel(kernel)
    check_choice("loss", loss, ("mean", "sum"))
    check_positive("learning_rate", learning_rate)
    require(bool(time >= 0), "expected time of at least 0", f"got {time}")
    require(len(targets) == len(kernel), f"expected {len(kernel)} targets", f"got {len(targets)}")
    values, vectors = np.linalg.eigh(kernel)
    values = np.where(values > len(kernel) * np.finfo(float).eps * values.max(), values, 0.0)
    rate = learning_rate / (len(kernel) if loss == "mean" else 1)
    with np.errstate(invalid="ignore"):
        learned = np.where(values > 0, -np.expm1(-rate * time * values), 0.0)
    coefficients = vectors.T @ targets
    if cross is None:
        return vectors @ (learned.reshape(-1, *[1] * (targets.ndim - 1)) * coefficients)
    weights = np.divide(learned, values, out=np.zeros_like(values), where=values > 0)
    return cross @ (vectors @ (weights.reshape(-1, *[1] * (targets.ndim - 1)) * coefficients))


def learning_rate_limit(kernel: Square) -> float:
    """Return η* = 2 / (λ_min + λ_max) of Θ(X, X), below which Theorem 2 of alemohammad2021 lets the learning rate lie.

    For the sum over samples of ½(f − y)² it is the step at which gradient descent contracts fastest in every direction;
    descent diverges from 2/λ_max on. For the mean over N samples both are N times as large.

    >>> learning_rate_limit(np.diag([1.0, 3.0]))
    0.5
    """
    _check_kernel(kernel)
    values = np.linalg.eigvalsh(kernel)
    require(
        bool(values[0] > 0),
        "expected a positive definite kernel",
        f"got the eigenvalue {values[0]:.3g}",
        "drop duplicate sequences",
    )
    return float(2 / (values[0] + values[-1]))


def kernel_drift(
    model: nn.Module, x: Float64[np.ndarray, "n time channel"], y: Float64[np.ndarray, " n"], *, steps: int = 100
) -> Drift:
    """Train a copy's weights by full-batch gradient descent at half of η* and return how far its tangent kernel moved.

    Theorem 2 of alemohammad2021: with NTK initialization and a Lipschitz φ′ (erf and tanh, not the rectifier:
    docs/errata.md, alemohammad2021.6) the drift falls at least as n^−½ with the width n; what is measured falls about
    as n^−1. The loss is the sum of ½(f − y)²; the model is left as it came.
    """
    from sostenuto.kernels import EmpiricalNTK  # brings scikit-learn, which nothing else here needs

    check_count("steps", steps)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    start = [parameter.detach().clone() for parameter in parameters]
    kernel = EmpiricalNTK(model)
    first = kernel(x)
    rate = 0.5 * learning_rate_limit(first)
    rows = []
    try:
        for _ in range(steps):
            error: Tensor = model(inputs).reshape(len(y)) - targets
            gradients = torch.autograd.grad(0.5 * (error**2).sum(), parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= rate * gradient
            moved = sum(float(((p.detach() - s) ** 2).sum()) for p, s in zip(parameters, start, strict=True))
            change = float(np.linalg.norm(kernel(x) - first, 2))
            rows.append(
                (change, change / float(np.linalg.norm(first, 2)), moved**0.5, float((error.detach() ** 2).sum()) / 2)
            )
    finally:
        model.load_state_dict(kept)
    return Drift(*(np.array(column) for column in zip(*rows, strict=True)))


def _check_kernel(kernel: Square) -> None:
    require(bool(np.isfinite(kernel).all()), "expected a finite kernel matrix", "got NaN or infinity")
    symmetric = np.allclose(kernel, kernel.T, rtol=1e-8, atol=1e-12 * np.abs(kernel).max())
    require(bool(symmetric), "expected a symmetric kernel matrix", "got one that is not")
