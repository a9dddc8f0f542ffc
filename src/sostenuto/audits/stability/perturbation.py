"""How much of a model survives a change of its weights: the perturbation error and the radius of stability."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.batches import EvalBatch, eval_batch, is_real
from sostenuto.audits.context import AuditContext
from sostenuto.audits.model import audited, call_model, place_of
from sostenuto.audits.stability.weight_ball import WeightBall
from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.report.numbers import number, percent, with_unit
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

NORMS = ("output", "sobolev", "loss")
_STEPS_AT_ONCE = 2**14
"""Steps, over all sequences, whose graph an audit holds at a time."""
Measure = Callable[[], Float[Tensor, ""]]


@dataclass(frozen=True, kw_only=True)
class PerturbationError(AuditResult):
    """E(β) for each β: the largest error found over all weights within β, by chance and by ascent.

    ``random`` and ``worst`` are the largest errors on the edge of each ball, by random draws and by climbing from them;
    ``error`` is E, the largest found up to that β, as balls lie within larger ones. All are lower bounds of the true
    supremum. ``start`` is the error without a change; ``measure`` names what is measured, in ``unit``; ``relative``
    says that β counts in the norm of each parameter.
    """

    norm: str
    betas: Numbers
    error: Numbers
    random: Numbers
    worst: Numbers
    start: float
    draws: int
    measure: str = "error"
    unit: str = ""
    relative: bool = False

    def summary(self) -> str:
        """Say how the error grows over the changes tried."""
        last = int(np.argmax(self.betas))
        reached = f"at least {with_unit(self.error[last], self.unit)}"
        by = f"{percent(self.betas[last])} of its size" if self.relative else number(self.betas[last])
        return (
            f"Changing every weight matrix by up to {by} takes the {self.measure} from "
            f"{with_unit(self.start, self.unit)} to {reached if np.isfinite(self.error[last]) else 'no number at all'}."
        )

    def plot(self, ax: Any) -> None:
        """Draw E(β), and what random changes alone would show."""
        order = np.argsort(self.betas, kind="stable")
        betas = np.asarray(self.betas)[order]
        for values, label in ((self.error, "worst found"), (self.random, "random changes")):
            ax.plot(betas, np.asarray(values)[order], marker="o", label=label)
        if (betas > 0).all():
            ax.set_xscale("log")
        ax.set_xlabel("largest change of a weight matrix" + (", as a share of its size" if self.relative else ""))
        ax.set_ylabel(f"{self.measure}, {self.unit}" if self.unit else self.measure)
        ax.legend()


def perturbation_error(
    model: nn.Module,
    betas: Sequence[float],
    X: Any,  # noqa: N803
    *,
    target: nn.Module | Any = None,
    y: Any = None,
    norm: str = "output",
    relative: bool = False,
    draws: int = 3,
    ascent_steps: int = 10,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    batch_size: int = 256,
) -> PerturbationError:
    """Measure E(β) = sup over weights within β of the model's, of the distance to the target.

    Weights are within β when every parameter has moved by at most β in the spectral norm. The distance is::

        output    sup over sequences and steps of ‖H_t(x) − Ĥ_t(x)‖_∞ / ‖x‖_∞           Definition 3.4
        sobolev   sup over steps of the sup of ‖H_t − Ĥ_t‖_∞ / ‖x‖_∞ over sequences plus
                  that of the difference from the step before                              Definition 3.7
        loss      the mean cross-entropy on classes ``y``, the root mean square error on numbers

    with the supremum over x taken over ``X``. Each ball is searched by ``draws`` random changes, and from each by
    ``ascent_steps`` projected gradient steps. Reference: wang2024, eqs. (9) and (11); docs/errata.md.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``.
        betas: radii.
        X: sequences, as for `noise_accuracy`.
        target: a module, or values of the model's output shape; the unperturbed model if left out.
        y: class indices, or numbers as for `noise_accuracy`, for the loss.
        norm: ``"output"``, ``"sobolev"`` or ``"loss"``.
        relative: radii count in the spectral norm of each parameter (of the median one where that is zero).
        draws: random changes at each radius.
        ascent_steps: gradient steps from each of them; 0 for random changes alone.
        seed: of the draws.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of numbers ``y`` is worth in ``target_unit``.
        target_unit: its name.
        batch_size: sequences asked about at once.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> found = perturbation_error(model, [0.1, 0.2], torch.ones(3, 4, 1))
    >>> [round(value, 4) for value in found.error]  # |ΔW x| / |x| is β itself
    [0.1, 0.2]
    """
    radii = _checked(betas, norm, y, draws, ascent_steps, seed, batch_size)
    search = _Search(model, X, target, y, norm, lengths, batch_size, seed, target_scale, relative=relative)
    generator = torch.Generator().manual_seed(seed)
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        start = search.prepare()
        pairs = [search.largest(radius, draws, ascent_steps, generator) for radius in radii]
    random = np.array(
        [max(pair[0], start) if radius == 0 else pair[0] for pair, radius in zip(pairs, radii, strict=True)]
    )
    worst = np.array([pair[1] for pair in pairs])
    order = np.argsort(radii, kind="stable")
    error = np.empty(len(radii))
    error[order] = np.maximum(np.maximum.accumulate(np.maximum(random, worst)[order]), start)
    device, dtype = place_of(model)
    return PerturbationError(
        model=type(model).__name__,
        method=(
            f"At each radius {draws} random changes of all weights and {ascent_steps} gradient steps from each, "
            f"every parameter within the radius in its spectral norm; in {str(dtype)[6:]}."
        ),
        seed=seed,
        settings={"ascent_steps": ascent_steps, "batch_size": batch_size},
        checksum=search.data.checksum(),
        environment=environment(str(device)),
        norm=norm,
        betas=radii,
        error=tuple(error.tolist()),
        random=tuple(random.tolist()),
        worst=tuple(worst.tolist()),
        start=start,
        draws=draws,
        measure=search.measure,
        unit=target_unit,
        relative=relative,
    )


@dataclass(frozen=True, kw_only=True)
class StabilityRadius(AuditResult):
    """The largest β found with E(β) ≤ ``tolerance``: no worse change was found within it, a larger one breaks it.

    ``radius`` is None where even no change is worse than the tolerance; ``limited`` says that the search ended at its
    largest β, so that the radius may be larger.
    """

    norm: str
    tolerance: float
    radius: float | None
    error: float
    limited: bool
    tried: Numbers
    errors: Numbers

    def summary(self) -> str:
        """Say how far the weights may move."""
        if self.radius is None:
            return f"The error is above {number(self.tolerance)} already, without any change of the weights."
        more = " or more" if self.limited else ""
        return (
            f"Every weight matrix may change by {number(self.radius, digits=3)}{more} before the error "
            f"exceeds {number(self.tolerance)}, as far as was found."
        )

    def plot(self, ax: Any) -> None:
        """Draw the errors found and the tolerance."""
        order = np.argsort(self.tried, kind="stable")
        ax.plot(np.asarray(self.tried)[order], np.asarray(self.errors)[order], marker="o", label="error found")
        ax.axhline(self.tolerance, linestyle="--", color="gray", label="tolerance")
        if len(self.tried) and min(self.tried) > 0:
            ax.set_xscale("log")
        ax.set_xlabel("largest change of a weight matrix")
        ax.set_ylabel("error")
        ax.legend()


def stability_radius(
    model: nn.Module,
    X: Any,  # noqa: N803
    tolerance: float,
    *,
    largest: float = 1.0,
    accuracy: float = 0.1,
    target: nn.Module | Any = None,
    y: Any = None,
    norm: str = "output",
    draws: int = 3,
    ascent_steps: int = 10,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    batch_size: int = 256,
) -> StabilityRadius:
    """Find the largest β up to ``largest`` with E(β) ≤ ``tolerance``, to a relative ``accuracy``, by bisection.

    Of one model; the β₀ of a family, which wang2024 asks about, is the trend of this number over widths. The other
    arguments are those of `perturbation_error`.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> found = stability_radius(model, torch.ones(3, 4, 1), 0.25, accuracy=0.01)
    >>> 0.247 < found.radius <= 0.25
    True
    """
    check_positive("tolerance", tolerance)
    check_positive("largest", largest)
    check_positive("accuracy", accuracy)
    _checked((largest,), norm, y, draws, ascent_steps, seed, batch_size)
    search = _Search(model, X, target, y, norm, lengths, batch_size, seed, target_scale)
    tried: dict[float, float] = {}
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        start = search.prepare()

        def error_at(radius: float) -> float:
            generator = torch.Generator().manual_seed(seed)
            tried[radius] = max(search.largest(radius, draws, ascent_steps, generator))
            return tried[radius]

        radius = _bisect(error_at, start, tolerance, largest, accuracy)
    device, _ = place_of(model)
    return StabilityRadius(
        model=type(model).__name__,
        method=f"Bisection over the radius; {draws} random changes at each, {ascent_steps} gradient steps from them.",
        seed=seed,
        settings={"largest": largest, "accuracy": accuracy, "draws": draws, "ascent_steps": ascent_steps},
        checksum=search.data.checksum(),
        environment=environment(str(device)),
        norm=norm,
        tolerance=tolerance,
        radius=radius,
        error=start if not radius else tried[radius],
        limited=radius == largest,
        tried=tuple(tried),
        errors=tuple(tried.values()),
    )


def _bisect(
    error_at: Callable[[float], float], start: float, tolerance: float, largest: float, accuracy: float
) -> float | None:
    """Bracket by factors of ten from above, then halve the logarithm of the bracket."""
    if start > tolerance:
        return None
    high = largest
    if error_at(high) <= tolerance:
        return high
    low = high
    for _ in range(12):
        low = high / 10
        if error_at(low) <= tolerance:
            break
        high = low
    else:
        return 0.0
    while high > low * (1 + accuracy):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if error_at(middle) <= tolerance else (low, middle)
    return low


class _Search:
    """The distance from the target as a function of the weights, and its largest values in a ball."""

    def __init__(
        self,
        model: nn.Module,
        sequences: Any,
        target: Any,
        y: Any,
        norm: str,
        lengths: Any,
        batch_size: int,
        seed: int,
        scale: float | Sequence[float],
        *,
        relative: bool = False,
    ) -> None:
        self.relative = relative
        self.model, self.norm, self.batch_size, self.target, self.seed = model, norm, batch_size, target, seed
        classes = np.zeros(len(sequences), int) if y is None else y
        self.data: EvalBatch = eval_batch(model, sequences, classes, lengths, scale)
        self.is_root = y is not None and is_real(y)
        self.measure = "error" if self.is_root or y is None else "loss"
        values = torch.where(self.data.mask[:, :, None], self.data.values, 0)
        self.scale = values.abs().amax((1, 2)).clamp(min=torch.finfo(values.dtype).tiny)
        self.wanted: Tensor | None = None

    def prepare(self) -> float:
        """Ask the target once, and give the distance without a change."""
        first = self._answers(self.model)
        if isinstance(self.target, nn.Module):
            with audited(self.target, self.seed):
                self.wanted = self._answers(self.target)
        else:
            self.wanted = first if self.target is None else torch.as_tensor(self.target).to(first)
        require(
            self.wanted.shape == first.shape,
            f"expected a target of the model's output shape {tuple(first.shape)}",
            f"got {tuple(self.wanted.shape)}",
        )
        self.ball = WeightBall(self.model, relative=self.relative)
        start = self.distance().item()
        require(math.isfinite(start), f"expected a finite {self.measure} of the model as it is", f"got {start}")
        return start

    def largest(self, radius: float, draws: int, steps: int, generator: torch.Generator) -> tuple[float, float]:
        """Search the ball; return the largest distance by chance and by ascent."""
        by_chance = by_ascent = 0.0
        for _ in range(draws):
            change = self.ball.draw(generator, radius)
            for step in range(steps + 1):
                with self.ball.moved(change), torch.set_grad_enabled(step < steps):
                    found, gradients = self.climbed() if step < steps else (self.distance(), ())
                # A model that no longer answers with numbers is as far away as can be.
                reached = found.item() if bool(found.isfinite()) else float("inf")
                by_ascent = max(by_ascent, reached)
                if step == 0:
                    by_chance = max(by_chance, reached)
                if not gradients or not all(bool(part.isfinite().all()) for part in gradients):
                    break
                # The last step leaps to where a linear error would be largest.
                stride = 2 * radius / steps if step + 1 < steps else 1e6 * radius
                change = self.ball.climb(change, gradients, stride, radius)
        return by_chance, by_ascent

    def climbed(self) -> tuple[Float[Tensor, ""], tuple[Tensor, ...]]:
        """Give the distance and its gradient, if a weight takes part; a loss keeps one batch's graph at a time."""
        if self.norm != "loss":
            found = self.distance()
            known = found.requires_grad
            return found, torch.autograd.grad(found, self.ball.parameters, materialize_grads=True) if known else ()
        total, gradients = torch.zeros(()), None
        for rows in self.data.batches(self.batch_size):
            part = self._loss(rows)
            if not part.requires_grad:
                return self.distance(), ()
            added = torch.autograd.grad(part, self.ball.parameters, materialize_grads=True)
            gradients = added if gradients is None else tuple(map(torch.add, gradients, added))
            total = total.to(part) + part.detach()
        mean = total / len(self.data.true_targets)
        found = mean.sqrt() if self.is_root else mean
        slope = (0.5 / found if self.is_root else 1.0) / len(self.data.true_targets)
        return found, tuple(slope * part for part in gradients or ())

    def distance(self) -> Float[Tensor, ""]:
        """Give the distance at the weights as they are."""
        if self.norm == "loss":
            parts = [self._loss(rows) for rows in self.data.batches(self.batch_size)]
            mean = torch.stack(parts).sum() / len(self.data.true_targets)
            return mean.sqrt() if self.is_root else mean
        gaps, changes = [], []
        for rows in self.data.batches(self.batch_size):
            found = self._ask(self.model, rows)
            assert self.wanted is not None
            gap = found - self.wanted[rows].to(found)
            gap = gap / self.scale[rows].to(found).reshape(-1, *[1] * (gap.ndim - 1))
            inside = self.data.mask[rows][:, :, None].to(gap.device) if gap.ndim == 3 else torch.ones_like(gap) > 0
            gaps.append(torch.where(inside, gap, 0).abs().amax((0, -1)))
            if self.norm == "sobolev" and gap.ndim == 3:
                change = torch.where(inside[:, 1:], torch.diff(gap, dim=1), 0).abs().amax((0, 2))
                changes.append(F.pad(change, (1, 0)))
        # Each supremum is taken over all sequences, at every step, before the two are added.
        largest = torch.stack(gaps).amax(0)
        return (largest + torch.stack(changes).amax(0) if changes else largest).max()

    def _loss(self, rows: slice) -> Tensor:
        scores = self.data.scores(self.model, rows, self.data.values[rows])
        return self.data.losses(scores, rows).sum()

    def _answers(self, model: nn.Module) -> Tensor:
        return torch.cat([self._ask(model, rows).detach() for rows in self.data.batches(self.batch_size)])

    def _ask(self, model: nn.Module, rows: slice) -> Tensor:
        device, dtype = place_of(model)
        lengths = None if self.data.lengths is None else self.data.lengths[rows].to(device)
        return call_model(model, self.data.values[rows].to(device, dtype), lengths)


def _checked(
    betas: Sequence[float], norm: str, y: Any, draws: int, ascent_steps: int, seed: int, batch_size: int
) -> Numbers:
    radii = tuple(float(beta) for beta in betas)
    require(len(radii) > 0, "expected at least one beta", "got none")
    for radius in radii:
        check_positive("beta", radius, zero=True)
    check_choice("norm", norm, NORMS)
    require((norm == "loss") == (y is not None), "expected y with norm='loss', and only there", f"got norm={norm!r}")
    for name, count, least in (("draws", draws, 1), ("ascent_steps", ascent_steps, 0), ("seed", seed, 0)):
        check_count(name, count, least=least)
    check_count("batch_size", batch_size)
    return radii


def _run(context: AuditContext) -> PerturbationError:
    largest = context.thresholds["perturbation"]["share"]
    draws, ascent_steps = context.budget.weight_draws, 5
    data = context.affordable(backward=3 * draws * (ascent_steps + 1))
    rows = max(1, _STEPS_AT_ONCE // data.values.shape[1])
    return perturbation_error(
        context.model,
        (largest / 10, largest / 3, largest),
        data.values,
        y=data.targets,
        norm="loss",
        relative=True,
        draws=draws,
        ascent_steps=ascent_steps,
        lengths=data.lengths,
        seed=context.seed,
        batch_size=min(rows, 256),
        **context.unit,
    )


def _judge(result: PerturbationError, limits: Mapping[str, float]) -> Judged:
    """Ask whether the largest change tried leaves the loss where it was."""
    worst = int(np.argmax(result.betas))
    # A loss near 0 has no share worth the name; a root mean square error has its own unit, and is compared with itself.
    floor = 0.1 if result.measure == "loss" else 0.0
    rise = (result.error[worst] - result.start) / (max(result.start, floor) or 1.0)
    basis = (
        f"{result.summary()} Robust up to a rise of {percent(limits['robust'])}, fragile beyond "
        f"{percent(limits['fragile'])}."
    )
    if rise <= limits["robust"]:
        return Judged("good", "Robust weights", basis)
    return (
        Judged("caution", "Fragile weights", basis) if rise > limits["fragile"] else Judged("unknown", UNDECIDED, basis)
    )


CHECK = Check(
    name="perturbation",
    title="How firm are its weights?",
    caption="The loss while the weights are changed, by chance and on purpose.",
    order=100,
    result=PerturbationError,
    needs=("y", "module"),
    run=_run,
    judge=_judge,
    thresholds={"share": 0.01, "robust": 0.1, "fragile": 0.15},
    number=lambda result: result.error[-1],
)
