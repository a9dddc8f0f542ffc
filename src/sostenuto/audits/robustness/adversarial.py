"""Can it be fooled: the score under the smallest changes that attacks can find."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sostenuto.audits.base import UNDECIDED, Check, Judged
from sostenuto.audits.batches import EvalBatch, eval_batch
from sostenuto.audits.context import AuditContext
from sostenuto.audits.intervals import lost_interval
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.recognize import BlackBox
from sostenuto.audits.robustness.attacks import (
    NORMS,
    Bounds,
    deepfool,
    input_gradient,
    project,
    projected_ascent,
    random_search,
    random_start,
    size,
    steepest,
)
from sostenuto.audits.robustness.masking import Evidence, masking
from sostenuto.audits.robustness.score_curve import ScoreCurve, judge_loss
from sostenuto.audits.robustness.surrogate import distilled
from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.report.numbers import counted, number
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

REPEATS = 8
"""Calls with one input whose answers must not differ."""
TRIED = 8
"""By what the smallest radius is divided for the step that tries whether gradients tell the truth."""
METHODS = {
    "pgd": "Projected gradient ascent on the loss, {steps} steps from {restarts}",
    "deepfool": "DeepFool, at most {steps} steps to the nearest boundary",
    "random-search": "Random search without gradients, {steps} tries",
    "transfer": "Projected gradient ascent on a small network that was taught the model's answers, {steps} steps",
    "best": (
        "The best of three attacks on each sequence: projected gradient ascent ({steps} steps from {restarts}), random "
        "search without gradients and transfer from a network taught the model's answers"
    ),
}
ATTACKS = tuple(METHODS)
MEASURE = {
    "linf": "in any one sample",
    "l2": "over the whole sequence (Euclidean)",
    "step-l2": "in any one step (Euclidean)",
}

_STEPS_AT_ONCE = 2**15
"""Steps, over all sequences, whose graph an audit's attack holds at a time."""
BEYOND = 0.25
"""The share of a check's time in which more sequences may be attacked than the budget's number."""


@dataclass(frozen=True, kw_only=True)
class AdversarialScores(ScoreCurve):
    """The score when an attacker may change a sequence by at most ε, for growing ε.

    ``relative`` says that ε counts in standard deviations of each channel. ``median_size`` is the median size of the
    changes DeepFool needed, over the sequences that were right and that it turned; None for other attacks, which use
    the whole ball, and where nothing was turned. ``by_attack`` are the scores each attack leaves alone, ``masked`` the
    signs that gradients do not show the way, empty where there are none. ``gradients`` is False of an estimator
    that has none, which attacks could ask for answers alone.
    """

    attack: str
    norm: str
    relative: bool
    epsilons: Numbers
    median_size: float | None
    by_attack: dict[str, tuple[float, ...]] = field(default_factory=dict)
    masked: str = ""
    gradients: bool = True

    @property
    def strengths(self) -> Numbers:
        """Give the radii."""
        return self.epsilons

    def summary(self) -> str:
        """Say what is left of the score under the strongest attack tried."""
        worst = self.strongest
        unit = " standard deviations of each channel" if self.relative else ""
        said = f"The {self.measure} is {self.words(self.clean_score)} on the data as they are and "
        said += f"{self.words(self.score[worst])} under the strongest attack tried, which may make changes of at most "
        said += f"{number(self.epsilons[worst], digits=3)}{unit} {MEASURE[self.norm]}"
        if self.measure == "error":
            said += f"; {self.guess_words}"
        if self.median_size is not None:
            said += f"; half of the sequences it turned needed {number(self.median_size, digits=3)} or less"
        if not self.gradients:
            return f"{said}. It has no gradients, so attacks asked for answers alone."
        return f"{said}. Gradients are masked: {self.masked}." if self.masked else f"{said}."

    def plot(self, ax: Any) -> None:
        """Draw the score over ε."""
        self.draw(ax, "under the best of all attacks" if self.attack == "best" else f"{self.attack}, {self.norm}")
        ax.set_xlabel("largest change allowed" + (", deviations of a channel" if self.relative else ""))


def adversarial_accuracy(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    attack: str = "pgd",
    norm: str = "linf",
    epsilons: Sequence[float] = (0.01, 0.03, 0.1, 0.3),
    relative: bool = False,
    steps: int = 40,
    step_size: float | None = None,
    restarts: int = 1,
    candidates: int = 10,
    overshoot: float = 0.02,
    bounds: Bounds = None,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    batch_size: int = 128,
) -> AdversarialScores:
    """Attack a model with changes of its input within a ball of radius ε, and score what is left.

    ``"pgd"`` climbs the loss by projected gradient steps from ``restarts`` random starts; a sequence that was wrong
    already, or was turned by one restart, counts as lost. ``"deepfool"`` walks to the nearest boundary; at each ε its
    change is shortened to ε where it is longer. ``"random-search"`` asks for answers alone, ``"transfer"`` climbs the
    loss of a small network that was taught the model's answers, and ``"best"`` counts the best of the last two and
    ``"pgd"``, and looks for masked gradients. Padding is not touched, and values are free unless ``bounds`` are given.
    Reference: erichson2021, section 6.4 and table 3; Athalye et al. 2018 on masking.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``.
        X: array ``(n, time, channel)`` or a list of ``(time, channel)``, as for `noise_accuracy`.
        y: class indices, or numbers, as for `noise_accuracy`; classes ``(n,)`` for DeepFool.
        attack: ``"pgd"``, ``"deepfool"``, ``"random-search"``, ``"transfer"`` or ``"best"``.
        norm: ``"linf"``, ``"l2"`` (Frobenius over the sequence) or, but for DeepFool, ``"step-l2"`` (each step).
        epsilons: radii, in the unit of ``X``.
        relative: radii count in standard deviations of each channel instead.
        steps: of the attack.
        step_size: of PGD; 2.5 ε / steps if left out.
        restarts: of PGD.
        candidates: classes whose boundaries DeepFool watches.
        overshoot: how far DeepFool goes beyond a boundary.
        bounds: least and largest value allowed.
        seed: of the random starts.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of numbers ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        batch_size: sequences attacked at once.

    >>> class Sign(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x.mean(1), x.mean(1)], dim=-1)
    >>> X = np.linspace(0.1, 1.0, 10)[:, None, None].repeat(4, axis=1)
    >>> adversarial_accuracy(Sign(), X, np.ones(10, int), epsilons=(0.25, 0.55)).score
    (0.8, 0.5)
    """
    check_choice("attack", attack, ATTACKS)
    check_choice("norm", norm, NORMS[:2] if attack == "deepfool" else NORMS)
    counts = (("steps", steps, 1), ("restarts", restarts, 1), ("candidates", candidates, 1), ("seed", seed, 0))
    for name, count, least in (*counts, ("batch_size", batch_size, 1)):
        check_count(name, count, least=least)
    radii = tuple(float(epsilon) for epsilon in epsilons)
    require(len(radii) > 0, "expected at least one epsilon", "got none")
    for radius in radii:
        check_positive("epsilon", radius, zero=True)
    if step_size is not None:
        check_positive("step_size", step_size)
    data = eval_batch(model, X, y, lengths, target_scale)
    require(
        attack != "deepfool" or not (data.has_step_targets or data.measure == "error"),
        "expected one class per sequence for DeepFool",
        "got a class for every step" if data.measure == "accuracy" else "got numbers",
        "use attack='pgd'",
    )
    require(attack != "deepfool" or not relative, "expected relative=False for DeepFool", "got True")
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        attacker = _Attacker(model, data, norm, relative, steps, step_size, restarts, bounds, seed, batch_size)
        median, masked, gradients = None, "", not isinstance(model, BlackBox)
        if attack == "deepfool":
            median, left = attacker.deepfool(radii, candidates, overshoot)
            marks = {attack: left}
        else:
            ways = attacker.ways()
            names = [name for name in ways if attack in (name, "best")]
            require(bool(names), f"expected one answer per sequence for attack={attack!r}", "got one per step")
            marks = {name: [attacker.left(ways[name], radius) for radius in radii] for name in names}
            if attack == "best" and gradients:
                masked = masking(attacker.evidence(radii, marks))
    best = [_worst_of(data, [left[place] for left in marks.values()]) for place in range(len(radii))]
    intervals = [lost_interval(data, attacker.clean, left, seed) for left in best]
    device, dtype = place_of(model)
    starts = ("the input and " if data.measure == "error" else "") + counted(restarts, "random start")
    method = METHODS[attack].format(steps=steps, restarts=starts)
    return AdversarialScores(
        model=type(model).__name__,
        method=f"{method}; the model in evaluation mode, in {str(dtype)[6:]}.",
        seed=seed,
        settings={"steps": steps, "step_size": step_size, "restarts": restarts, "bounds": bounds and list(bounds)},
        checksum=data.checksum(),
        environment=environment(str(device)),
        measure=data.measure,
        attack=attack,
        norm=norm,
        relative=relative,
        epsilons=radii,
        score=tuple(data.score(float(left.sum())) for left in best),
        clean_score=data.score(float(attacker.clean.sum())),
        guess=data.guess,
        lost_low=tuple(low for low, _ in intervals),
        lost_high=tuple(high for _, high in intervals),
        unit=target_unit,
        median_size=median,
        by_attack={name: tuple(data.score(float(part.sum())) for part in left) for name, left in marks.items()},
        masked=masked,
        gradients=gradients,
        count=data.count,
        marks=tuple((best[int(np.argmax(radii))] / data.answers_of).tolist()),
        most_lost=data.most_lost(attacker.clean, best[int(np.argmax(radii))]),
    )


def _worst_of(data: EvalBatch, marks: list[np.ndarray]) -> np.ndarray:
    worst = torch.from_numpy(marks[0])
    for other in marks[1:]:
        worst = data.worst(worst, torch.from_numpy(other))
    return worst.numpy()


Change = Callable[[slice, float, Tensor], list[Tensor]]
"""From rows, a radius and zeros of their shape to the changes an attack offers, in units of each channel's scale."""


class _Attacker:
    """Attacks of one model on one batch: how a change reaches the model, and what is left of each sequence's marks."""

    def __init__(
        self,
        model: nn.Module,
        data: EvalBatch,
        norm: str,
        relative: bool,
        steps: int,
        step_size: float | None,
        restarts: int,
        bounds: Bounds,
        seed: int,
        batch_size: int,
    ) -> None:
        self.model, self.data, self.norm, self.steps, self.step_size = model, data, norm, steps, step_size
        self.restarts, self.bounds, self.seed, self.batch_size = restarts, bounds, seed, batch_size
        scale = data.deviations if relative else torch.ones(data.values.shape[2], dtype=torch.float64)
        self.scale = scale.to(data.values.dtype)
        marks = data.all_marks(model, batch_size)
        lost = int(marks[:, 1].sum())
        require(
            data.measure == "accuracy" or lost == 0,
            "expected finite answers from the model",
            f"got {lost} of {data.count} that are not",
        )
        self.clean = marks[:, 0]

    def ways(self) -> dict[str, Change]:
        """Name the attacks that apply."""
        ways: dict[str, Change] = {"pgd": self._pgd, "random-search": self._random_search}
        return ways if self.data.has_step_targets else {**ways, "transfer": self._transfer}

    def left(self, change: Change, radius: float) -> np.ndarray:
        """Attack every batch, and give the worst marks of each sequence."""
        worst = torch.from_numpy(self.clean.copy())
        if radius == 0:
            return worst.numpy()
        for rows in self.data.batches(self.batch_size):
            for delta in change(rows, radius, torch.zeros_like(self.data.values[rows])):
                worst[rows] = self.data.worst(worst[rows], self._marks(rows, delta))
        return worst.numpy()

    def evidence(self, radii: Sequence[float], marks: Mapping[str, list[np.ndarray]]) -> Evidence:
        """Collect what tells masked gradients."""
        silent, misled, scattered = [], [], False
        smallest = min((radius for radius in radii if radius > 0), default=0.0)
        for rows in self.data.batches(self.batch_size):
            leaf = torch.zeros_like(self.data.values[rows]).requires_grad_()
            with torch.enable_grad():
                objective = self._objective(rows)(leaf)
                gradient = input_gradient(objective.sum(), leaf)
            silent.append(~(gradient.flatten(1).abs().amax(1) > 0))
            spread = float(objective.detach().abs().mean()) + 1e-12
            for _ in range(REPEATS):
                again = self._objective(rows)(leaf.detach())
                scattered |= bool(((again - objective.detach()).abs() > 1e-3 * spread).any())
            misled.append(self._misled(rows, gradient, smallest / TRIED, objective.detach().abs()))
        order = np.argsort(radii, kind="stable")
        scores = {name: [self.data.score(float(left[k].sum())) for k in order] for name, left in marks.items()}
        clean = self.data.score(float(self.clean.sum()))
        lost = {name: [self.data.lost(clean, score) for score in own] for name, own in scores.items()}
        shares = [float(torch.cat(parts).float().mean()) for parts in (silent, misled)]
        return Evidence(len(self.clean), shares[0], scattered, lost, shares[1])

    def _misled(self, rows: slice, gradient: Tensor, step: float, size: Tensor) -> Tensor:
        """Mark sequences in which a small step along the gradient changes much less, or more, than it promises."""
        direction = steepest(gradient, self.norm)
        promised = 2 * step * (gradient * direction).flatten(1).sum(1)
        objective = self._objective(rows)
        changed = objective(step * direction) - objective(-step * direction)
        rounding = 64 * torch.finfo(place_of(self.model)[1]).eps * (size + 1)
        off = (changed - promised).abs()
        # Where a promise is so small that rounding hides it, half of it may be missing for that alone.
        return (off > 0.5 * promised.abs() + rounding) & (promised.abs().maximum(changed.abs()) > 4 * rounding)

    def deepfool(
        self, radii: Sequence[float], candidates: int, overshoot: float
    ) -> tuple[float | None, list[np.ndarray]]:
        """Measure the median change that turned a right answer, and what stays right at every radius.

        At a radius smaller than the change, the change is shortened to it and tried: it may turn the answer all the
        same.
        """
        sizes, kept = [], [self.clean.copy() for _ in radii]
        device, _ = place_of(self.model)
        for rows in self.data.batches(self.batch_size):
            values = self.data.values[rows]
            moved = deepfool(
                lambda changed, rows=rows: self.data.scores(self.model, rows, changed),
                values.to(device),
                self.data.mask[rows][:, :, None].to(device),
                self.data.targets[rows].to(device),
                norm=self.norm,
                steps=self.steps,
                candidates=candidates,
                overshoot=overshoot,
                bounds=self.bounds,
            ).cpu()
            delta = moved - values
            turned = self._marks(rows, delta) == 0
            sizes.append(torch.where(turned, size(delta, self.norm).double(), torch.inf))
            for radius, left in zip(radii, kept, strict=True):
                left[rows] *= self._marks(rows, project(delta, self.norm, radius)).numpy()
        distances = torch.cat(sizes)
        turned = distances[torch.from_numpy(self.clean > 0) & distances.isfinite()]
        return (float(turned.median()) if len(turned) else None), kept

    def _moved(self, rows: slice, delta: Tensor) -> Tensor:
        values = self.data.values[rows]
        return torch.where(self.data.mask[rows][:, :, None], values + delta * self.scale, values)

    def _marks(self, rows: slice, delta: Tensor) -> Tensor:
        """Mark the answers to a changed batch; an answer that is no number is as wrong as can be."""
        scores = self.data.scores(self.model, rows, self._moved(rows, delta)).detach()
        marks = self.data.marks(scores, rows)
        return marks[:, 0] if self.data.measure == "accuracy" else torch.where(marks[:, 1] > 0, torch.inf, marks[:, 0])

    def _objective(self, rows: slice) -> Callable[[Tensor], Tensor]:
        def objective(delta: Tensor) -> Tensor:
            scores = self.data.scores(self.model, rows, self._moved(rows, delta))
            return self.data.objectives(scores, rows).to(delta.device)

        return objective

    def _generator(self, way: int, rows: slice) -> torch.Generator:
        return torch.Generator().manual_seed((self.seed * 4 + way) * 1_000_003 + rows.start)

    def _ascent(self, objective: Callable[[Tensor], Tensor], rows: slice, radius: float, start: Tensor) -> Tensor:
        values = self.data.values[rows]
        bounds: Any = None
        if self.bounds is not None:
            scale = self.scale.clamp(min=torch.finfo(values.dtype).tiny)
            bounds = tuple((bound - values) / scale for bound in self.bounds)
        return projected_ascent(
            objective,
            torch.zeros_like(values),
            self.data.mask[rows][:, :, None],
            start,
            norm=self.norm,
            epsilon=radius,
            steps=self.steps,
            step_size=self.step_size or 2.5 * radius / self.steps,
            bounds=bounds,
        )

    def _pgd(self, rows: slice, radius: float, zeros: Tensor) -> list[Tensor]:
        generator = self._generator(1, rows)
        starts = [random_start(zeros.shape, self.norm, radius, generator, zeros) for _ in range(self.restarts)]
        # The gradient of an error of either sign leads away from it: the input itself starts on the right side.
        starts = [zeros, *starts] if self.data.measure == "error" else starts
        return [self._ascent(self._objective(rows), rows, radius, start) for start in starts]

    def _random_search(self, rows: slice, radius: float, zeros: Tensor) -> list[Tensor]:
        values = self.data.values[rows]
        found = random_search(
            self._objective(rows),
            zeros,
            norm=self.norm,
            epsilon=radius,
            tries=self.steps,
            generator=self._generator(2, rows),
        )
        if self.bounds is not None:
            limits: Any = self.bounds
            found = ((values + found * self.scale).clamp(*limits) - values) / self.scale.clamp(min=1e-30)
        return [found]

    def _transfer(self, rows: slice, radius: float, zeros: Tensor) -> list[Tensor]:
        if not hasattr(self, "_surrogate"):
            self._surrogate = distilled(self.model, self.data, self.scale, self.seed)
        surrogate = self._surrogate

        def objective(delta: Tensor) -> Tensor:
            return self.data.objectives(surrogate(self._moved(rows, delta)), rows)

        return [self._ascent(objective, rows, radius, zeros)]


def _run(context: AuditContext) -> AdversarialScores:
    largest = context.thresholds["attack"]["epsilon"]
    steps = context.budget.attack_steps
    # Three radii: an ascent from each start, a random search, and a few more calls that look for masked gradients.
    starts = context.budget.restarts + context.is_regression
    calls = {"backward": 3 * steps * starts + 1, "forward": 3 * steps + 2 * REPEATS}
    data = context.affordable(**calls, data=context.test, beyond=BEYOND)
    return adversarial_accuracy(
        context.model,
        data.values,
        data.targets,
        attack="best",
        epsilons=(largest / 4, largest / 2, largest),
        relative=True,
        steps=steps,
        restarts=context.budget.restarts,
        lengths=data.lengths,
        seed=context.seed,
        batch_size=min(max(1, _STEPS_AT_ONCE // data.values.shape[1]), 256),
        **context.unit,
    )


def _judge(result: AdversarialScores, limits: Mapping[str, float]) -> Judged:
    judged = judge_loss(result, limits)
    if not result.gradients and judged.outcome != "bad":
        return Judged("unknown", UNDECIDED, judged.basis)
    if result.masked and judged.outcome != "bad":
        # What gradients do not find may still be there, so nothing good can be said.
        return Judged("caution", "Masked", judged.basis)
    return judged


CHECK = Check(
    name="attack",
    title="Can it be fooled?",
    caption="How good its answers stay while an attacker may change the input more and more.",
    order=80,
    result=AdversarialScores,
    needs=("y",),
    run=_run,
    judge=_judge,
    thresholds={"epsilon": 0.1, "steady": 0.05, "broken": 0.25},
    number=lambda result: result.lost,
)
