"""The spectrum of the Hessian: its largest eigenvalues, its trace, its density."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import nn

from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.batches import EvalBatch, eval_batch
from sostenuto.audits.context import AuditContext, seconds_of
from sostenuto.audits.curvature.operator import Hessian, Vector, saved_bytes, twice_differentiable, waiting_bytes
from sostenuto.audits.model import audited, place_of, widened
from sostenuto.checks import check_count, require
from sostenuto.report.numbers import count, duration, number, percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

LEAST_ROWS, LEAST_STEPS = 8, 6
"""What is left of a measurement that time runs short for: sequences, and steps of one Lanczos iteration."""
MOST_BYTES, MOST_WAITING = 2**30, 2**31
"""What the intermediate values of one product may take, and the parts of gradients that wait in it."""
NEWTON_STEPS = 6
SURPRISES, SURPRISE_STEP = 4, 0.01
"""Random steps that try whether the loss is as smooth as its Hessian says, as a share of each tensor's size."""
FEW_WEIGHTS = 300
"""Up to so many weights the whole matrix is formed, and every number is exact."""


@dataclass(frozen=True, kw_only=True)
class HessianSpectrum(AuditResult):
    """The largest and the least eigenvalues, the trace with its standard error, and where the eigenvalues lie.

    ``top`` are the largest eigenvalues, largest first; ``bottom`` the least. ``condition`` is the largest eigenvalue
    over the least in size among those asked for: a lower bound of the condition number. ``nodes`` and ``weights`` are
    eigenvalues of Lanczos' small matrices and the share of the spectrum each stands for. ``descent`` is the share of
    the loss that a step of Newton's method promises to take off, ½ gᵀH⁻¹g / L; ``surprise`` the share of the loss that
    random steps of a hundredth of each weight's size changed beyond what gradient and Hessian say, up or down.
    ``converged`` says whether the outermost eigenvalues settled, ``sequences`` how many the loss was taken over.
    """

    num_weights: int
    sequences: int
    surprise: float
    gradient_norm: float
    descent: float
    converged: bool
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
        said = f"Around its weights the loss curves by {number(self.top[0], digits=3)} where it curves most and by "
        said += f"{number(self.trace / self.num_weights, digits=3)} on average over {count(self.num_weights)} weights "
        said += "(eigenvalues of its second derivative)"
        if self.bottom < -0.01 * abs(self.top[0]):
            said += f"; it falls away along some directions (least eigenvalue {number(self.bottom, digits=3)}), "
            said += "so this is not a minimum"
        said += f"; a step downhill promises to take {percent(min(self.descent, 1.0))} off the loss"
        if not self.converged:
            said += "; time allowed for a rough estimate alone, and eigenvalues further out may have been missed"
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
    max_seconds: float | None = None,
) -> HessianSpectrum:
    """Find the spectrum of the Hessian of the mean loss in the weights, over ``X`` and ``y``.

    The loss is the cross-entropy, or the squared error where ``y`` are numbers. The largest and least eigenvalues come
    from Lanczos iteration (ARPACK), the trace from Hutch++, the density from stochastic Lanczos quadrature; up to
    300 weights the whole matrix is formed instead and all are exact. Reference: erichson2021, section 6.4 and table 3.

    Args:
        model: a classifier or regressor; the fused recurrent kernels of torch, which have no second
            derivative, are switched off meanwhile.
        X: sequences, as for `noise_accuracy`.
        y: class indices, or numbers, as for `noise_accuracy`.
        top: how many of the largest eigenvalues.
        probes: random vectors for trace and density.
        lanczos_steps: of the density.
        seed: of the random vectors.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of ``y`` is worth in the target's own unit, for numbers.
        batch_size: sequences in one product.
        max_seconds: what it may take, by an estimate; where that is short, fewer sequences and steps are used, and the
            result says so.

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
    data = eval_batch(model, X, y, lengths, target_scale)
    generator = np.random.default_rng(seed)
    with audited(model, seed), twice_differentiable():
        hessian = Hessian(model, data, batch_size)
        exact = hessian.size <= max(FEW_WEIGHTS, 2 * top)
        steps: int | None = None
        if max_seconds is not None:
            products = hessian.size if exact else 60 + probes * (3 + lanczos_steps)
            data, hessian, steps = _affordable(model, data, batch_size, products, max_seconds)
        if steps is not None:
            exact, spectrum = False, _rough(hessian, top, steps, generator)
        else:
            spectrum = _whole(hessian, top) if exact else _sampled(hessian, top, probes, lanczos_steps, generator)
        slope = hessian.gradient()
        gradient = float(np.linalg.norm(slope))
        promised = _promised(hessian, slope, max(abs(spectrum["top"][0]), abs(spectrum["bottom"])))
        surprise = _surprise(hessian, slope, generator)
        descent = promised / max(hessian.loss(), 1e-300) if promised > 0 else 0.0
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
        sequences=len(data.values),
        gradient_norm=gradient,
        descent=descent,
        surprise=surprise,
        converged=steps is None,
        exact=exact,
        **spectrum,
    )


def _affordable(
    model: nn.Module, data: EvalBatch, batch_size: int, products: int, seconds: float
) -> tuple[EvalBatch, Hessian, int | None]:
    """Choose sequences and their batches by time and memory; and where even few take long, steps of one iteration."""
    first = slice(0, min(LEAST_ROWS, len(data.values)))
    one = Hessian(model, data.take(slice(0, 1)), 1)
    needed = 2.5 * waiting_bytes(one, slice(0, 1))  # as measured of LSTMs
    require(
        needed <= MOST_WAITING,
        f"expected a product with the Hessian to need at most {MOST_WAITING / 2**30:.0f} GiB",
        f"got an estimate of {needed / 2**30:.1f} GiB",
        "ask so.audits.hessian_spectrum with shorter sequences",
    )
    each = saved_bytes(one, slice(0, 1)) * 4  # a second derivative keeps the first one's intermediate values too
    batch_size = max(min(batch_size, MOST_BYTES // max(each, 1)), 1)
    few = Hessian(model, data.take(first), batch_size)
    few.keeps &= len(data.values) <= batch_size  # what holds for these few must hold for all
    direction = np.ones(few.size) / np.sqrt(few.size)
    few.product(direction)
    of_few = seconds_of(lambda: few.product(direction), few.clock)
    by_row = of_few / len(few.data.values)
    count = int(seconds / max(products * by_row, 1e-9))
    if count >= len(few.data.values):
        kept = data if count >= len(data.values) else data.take(slice(0, count))
        return kept, _timed(Hessian(model, kept, batch_size), 4 * seconds), None
    steps = int(seconds / of_few)
    require(
        steps >= LEAST_STEPS,
        f"expected {LEAST_STEPS} products with the Hessian to take at most {duration(seconds)}",
        f"got an estimate of {duration(LEAST_STEPS * of_few)}",
        "allow more with max_seconds",
    )
    return data.take(first), _timed(few, 4 * seconds), min(steps, few.size)


def _promised(hessian: Hessian, slope: Vector, largest: float) -> float:
    """Estimate what Newton's method would take off the loss, ½ gᵀH⁻¹g, by a few Lanczos steps from the gradient.

    Directions that curve by less than a thousandth of the largest curvature, or fall away, count as curving so much.
    """
    length = float(np.linalg.norm(slope))
    if length == 0 or largest == 0:
        return 0.0
    nodes, weights = _lanczos(hessian.product, slope / length, min(NEWTON_STEPS, hessian.size))
    return float(0.5 * length**2 * np.sum(weights / np.maximum(nodes, 1e-3 * largest)))


def _surprise(hessian: Hessian, slope: Vector, generator: np.random.Generator) -> float:
    """Try random steps, each weight by about a hundredth of its tensor's size, and compare the loss with a parabola.

    A loss with jumps, as behind signs and roundings, has a gradient and a Hessian that know nothing of them.
    """
    start = [parameter.detach().clone() for parameter in hessian.parameters]
    sizes = np.concatenate([np.full(one.numel(), float(one.square().mean().sqrt())) for one in start])
    before, off = hessian.loss(), 0.0
    steps = [SURPRISE_STEP * sizes * generator.standard_normal(hessian.size) for _ in range(SURPRISES)]
    promised = [float(slope @ step + 0.5 * step @ hessian.product(step)) for step in steps]
    try:
        for step, expected in zip(steps, promised, strict=True):
            moved = torch.from_numpy(step)
            with torch.no_grad():
                places = moved.split([one.numel() for one in start])
                for parameter, kept, part in zip(hessian.parameters, start, places, strict=True):
                    parameter.copy_(kept + part.view_as(kept).to(kept))
            off = max(off, abs(hessian.loss() - before - expected))
    finally:
        with torch.no_grad():
            for parameter, kept in zip(hessian.parameters, start, strict=True):
                parameter.copy_(kept)
    return off / max(before, 1e-300)


def _timed(hessian: Hessian, seconds: float) -> Hessian:
    hessian.deadline = hessian.clock() + seconds
    return hessian


def _rough(hessian: Hessian, top: int, steps: int, generator: np.random.Generator) -> dict[str, Any]:
    """Run one short Lanczos iteration: its nodes lie within the spectrum, and estimate its ends from inside."""
    start = generator.choice([-1.0, 1.0], hessian.size) / np.sqrt(hessian.size)
    nodes, weights = _lanczos(hessian.product, start, steps)
    trace = float(hessian.size * (nodes @ weights))
    return _record(nodes[::-1][:top], float(nodes[0]), trace, abs(trace), nodes, weights)


def _whole(hessian: Hessian, top: int) -> dict[str, Any]:
    values = np.linalg.eigvalsh(hessian.dense())[::-1]
    share = np.full(len(values), 1 / len(values))
    return _record(values[:top], float(values[-1]), float(values.sum()), 0.0, values, share)


def _sampled(
    hessian: Hessian, top: int, probes: int, lanczos_steps: int, generator: np.random.Generator
) -> dict[str, Any]:
    size, product = hessian.size, hessian.product
    start = generator.standard_normal(size)
    ends, _ = hessian.extremes(top, start, both=True)
    trace, error = _trace(product, size, probes, generator)
    nodes, weights = [], []
    for _ in range(probes):
        node, weight = _lanczos(product, generator.choice([-1.0, 1.0], size) / np.sqrt(size), lanczos_steps)
        nodes.append(node)
        weights.append(weight / probes)
    return _record(ends[:top], float(ends[-1]), trace, error, np.concatenate(nodes), np.concatenate(weights))


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


def _run(context: AuditContext) -> HessianSpectrum:
    # A minimum is one of the loss that was trained on, where that part is known.
    data = (context.train or context.data).sample(max(context.budget.sequences // 4, 16), context.seed, balanced=True)
    return hessian_spectrum(
        context.model,
        data.values,
        data.targets,
        top=2,
        probes=context.budget.probes,
        lanczos_steps=3 * context.budget.probes,
        lengths=data.lengths,
        target_scale=context.target_scale,
        seed=context.seed,
        max_seconds=context.share,
    )


def _judge(result: HessianSpectrum, limits: Mapping[str, float]) -> Judged:
    """Call it a minimum where neither the slope nor a direction of negative curvature leads down."""
    falling = -result.bottom / abs(result.top[0]) if result.top[0] else 0.0
    descent = result.descent
    basis = (
        f"{result.summary()} A minimum needs a least eigenvalue above −{percent(limits['negative'])} of the largest, "
        f"and a step downhill that promises less than {percent(limits['descent'])} of the loss."
    )
    if falling > 2 * limits["negative"] or descent > 2 * limits["descent"]:
        return Judged("caution", "Not a minimum", basis)
    small = falling <= limits["negative"] / 2 and descent <= limits["descent"] / 2
    if result.surprise > limits["descent"]:
        told = f"Small random steps changed the loss by {percent(result.surprise)} more than its curvature explains."
        return Judged("unknown", UNDECIDED, f"{told} {basis}")
    if small and result.top[0] > 0 and result.converged:
        return Judged("good", "A minimum", basis)
    return Judged("unknown", UNDECIDED, basis)


CHECK = Check(
    name="curvature",
    title="How flat is the minimum?",
    caption="Where the eigenvalues of the loss's second derivative lie.",
    order=110,
    result=HessianSpectrum,
    needs=("y", "module"),
    run=_run,
    judge=_judge,
    thresholds={"negative": 0.05, "descent": 0.05},
    number=lambda result: result.top[0],
)
