"""The spectrum of the Hessian: its largest eigenvalues, its trace, its density."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from torch import nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.curvature.operator import Hessian, Vector, twice_differentiable
from sostenuto.audits.model import audited, place_of, widened
from sostenuto.audits.robustness.measured import targeted_sequences
from sostenuto.checks import check_count
from sostenuto.report.numbers import count, number
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

FEW_WEIGHTS = 300
"""Up to so many weights the whole matrix is formed, and every number is exact."""


@dataclass(frozen=True, kw_only=True)
class HessianSpectrum(AuditResult):
    """The largest and the least eigenvalues, the trace with its standard error, and where the eigenvalues lie.

    ``top`` are the largest eigenvalues, largest first; ``bottom`` the least. ``condition`` is the largest eigenvalue
    over the least in size among those asked for: a lower bound of the condition number. ``nodes`` and ``weights`` are
    eigenvalues of Lanczos' small matrices and the share of the spectrum each stands for.
    """

    num_weights: int
    top: Numbers
    bottom: float
    condition: float | None
    trace: float
    trace_error: float
    nodes: Numbers
    weights: Numbers
    exact: bool

    def summary(self) -> str:
        """Say how curved the loss is, along the steepest direction and on average."""
        said = f"The loss curves most by {number(self.top[0], digits=3)} and on average by "
        said += f"{number(self.trace / self.num_weights, digits=3)} over {count(self.num_weights)} weights"
        if self.bottom < -0.01 * abs(self.top[0]):
            said += f"; it falls away along some directions (least eigenvalue {number(self.bottom, digits=3)}), "
            said += "so this is not a minimum"
        return said + "."

    def plot(self, ax: Any) -> None:
        """Draw the density of the eigenvalues on a logarithmic scale."""
        nodes, weights = np.asarray(self.nodes), np.asarray(self.weights)
        low, high = nodes.min(), nodes.max()
        width = max(high - low, 1e-12) / 60
        grid = np.linspace(low - 3 * width, high + 3 * width, 400)
        bells = np.exp(-0.5 * ((grid[:, None] - nodes) / width) ** 2) / (width * np.sqrt(2 * np.pi))
        ax.semilogy(grid, np.maximum(bells @ weights, 1e-8), label="density")
        ax.axvline(self.top[0], linestyle="--", color="gray", label="largest")
        ax.set_xlabel("eigenvalue of the Hessian")
        ax.set_ylabel("density")
        ax.legend()


def hessian_spectrum(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    top: int = 5,
    probes: int = 16,
    lanczos_steps: int = 40,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    batch_size: int = 256,
) -> HessianSpectrum:
    """Find the spectrum of the Hessian of the mean loss in the weights, over ``X`` and ``y``.

    The loss is the cross-entropy, or the squared error where ``y`` are numbers. The largest and least eigenvalues come
    from Lanczos iteration (ARPACK), the trace from Hutch++, the density from stochastic Lanczos quadrature; up to
    300 weights the whole matrix is formed instead and all are exact. Reference: paper 001, section 6.4 and table 3.

    Args:
        model: a classifier or regressor; the fused recurrent kernels of torch, which have no second
            derivative, are switched off meanwhile.
        X: sequences, as for `noise_accuracy`.
        y: class indices, or numbers, as for `adversarial_error`.
        top: how many of the largest eigenvalues.
        probes: random vectors for trace and density.
        lanczos_steps: of the density.
        seed: of the random vectors.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of ``y`` is worth in the target's own unit, for numbers.
        batch_size: sequences in one product.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(6, 2))
    >>> found = hessian_spectrum(model, torch.randn(50, 3, 2), torch.arange(50) % 2)
    >>> found.exact, found.num_weights, found.top[0] > found.bottom > -1e-6
    (True, 14, True)
    """
    for name, value in (("top", top), ("probes", probes), ("lanczos_steps", lanczos_steps), ("batch_size", batch_size)):
        check_count(name, value, least=2 if name in ("probes", "lanczos_steps") else 1)
    check_count("seed", seed, least=0)
    model = widened(model)
    data = targeted_sequences(model, X, y, lengths, target_scale)
    generator = np.random.default_rng(seed)
    with audited(model, seed), twice_differentiable():
        hessian = Hessian(model, data, batch_size)
        exact = hessian.size <= max(FEW_WEIGHTS, top + 1)
        found = _whole(hessian, top) if exact else _sampled(hessian, top, probes, lanczos_steps, generator)
    device, dtype = place_of(model)
    how = (
        "The whole matrix was formed" if exact else f"Lanczos iteration, {probes} random vectors for trace and density"
    )
    return HessianSpectrum(
        model=type(model).__name__,
        method=f"{how}; Hessian of the mean {data.loss_name}, products by two backward passes, in {str(dtype)[6:]}.",
        seed=seed,
        settings={"top": top, "probes": probes, "lanczos_steps": lanczos_steps, "batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        num_weights=hessian.size,
        exact=exact,
        **found,
    )


def _whole(hessian: Hessian, top: int) -> dict[str, Any]:
    values = np.linalg.eigvalsh(hessian.dense())[::-1]
    share = np.full(len(values), 1 / len(values))
    return _record(values[:top], float(values[-1]), float(values.sum()), 0.0, values, share)


def _sampled(
    hessian: Hessian, top: int, probes: int, lanczos_steps: int, generator: np.random.Generator
) -> dict[str, Any]:
    size, product = hessian.size, hessian.product
    start = generator.standard_normal(size)
    values, _ = hessian.extremes(top, start)
    least = hessian.extremes(1, start, least=True)[0][0]
    trace, error = _trace(product, size, probes, generator)
    nodes, weights = [], []
    for _ in range(probes):
        node, weight = _lanczos(product, generator.choice([-1.0, 1.0], size) / np.sqrt(size), lanczos_steps)
        nodes.append(node)
        weights.append(weight / probes)
    return _record(values, float(least), trace, error, np.concatenate(nodes), np.concatenate(weights))


def _trace(product: Any, size: int, probes: int, generator: np.random.Generator) -> tuple[float, float]:
    """Estimate the trace by Hutch++ (Meyer et al., 2021): exact on a sketch of the range, by random signs beside it."""
    sketch = np.stack([product(generator.choice([-1.0, 1.0], size)) for _ in range(min(probes, size))], axis=1)
    basis, _ = np.linalg.qr(sketch)
    within = sum(float(column @ product(column)) for column in basis.T)
    samples = []
    for _ in range(probes):
        signs = generator.choice([-1.0, 1.0], size)
        rest = signs - basis @ (basis.T @ signs)
        samples.append(float(rest @ product(rest)))
    return within + float(np.mean(samples)), float(np.std(samples, ddof=1) / np.sqrt(probes))


def _record(
    top: np.ndarray, bottom: float, trace: float, error: float, nodes: np.ndarray, weights: np.ndarray
) -> dict[str, Any]:
    sizes = np.abs([*top, bottom])
    return {
        "top": tuple(float(value) for value in top),
        "bottom": bottom,
        "condition": float(sizes.max() / sizes.min()) if sizes.min() > 0 else None,
        "trace": trace,
        "trace_error": error,
        "nodes": tuple(nodes.tolist()),
        "weights": tuple(weights.tolist()),
    }


def _lanczos(product: Any, start: Vector, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Run Lanczos with full reorthogonalization; return nodes and weights of the quadrature of the density."""
    steps = min(steps, len(start))
    basis = np.zeros((steps, len(start)))
    diagonal, beside = np.zeros(steps), np.zeros(steps - 1)
    vector = start
    for step in range(steps):
        basis[step] = vector
        image = product(vector)
        diagonal[step] = vector @ image
        image = image - basis[: step + 1].T @ (basis[: step + 1] @ image)
        image = image - basis[: step + 1].T @ (basis[: step + 1] @ image)
        length = float(np.linalg.norm(image))
        if step + 1 == steps:
            break
        if length < 1e-10 * max(abs(diagonal[: step + 1]).max(), 1e-300):
            diagonal, beside = diagonal[: step + 1], beside[:step]
            break
        beside[step], vector = length, image / length
    values, vectors = eigh_tridiagonal(diagonal, beside)
    return values, vectors[0] ** 2
