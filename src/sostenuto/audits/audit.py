"""All questions at once: what a model remembers, whether it is stable, whether it can be fooled."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from sostenuto.audits.base import AuditResult
from sostenuto.audits.curvature.hessian import HessianSpectrum, hessian_spectrum
from sostenuto.audits.generalization.calibration import Calibration, calibration
from sostenuto.audits.gradients.flow import GradientFlow, gradient_flow
from sostenuto.audits.memory.function import MemoryFunction, memory_function
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.adversarial import AdversarialAccuracy, adversarial_accuracy
from sostenuto.audits.robustness.labeled import LabeledSequences, labeled_sequences
from sostenuto.audits.robustness.noise import NoiseAccuracy, noise_accuracy
from sostenuto.audits.stability.certified_stability import CertifiedStability, certified_stability
from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum, lyapunov_spectrum
from sostenuto.audits.stability.perturbation import PerturbationError, perturbation_error
from sostenuto.checks import InputError, check_choice, check_count, require
from sostenuto.results import Record
from sostenuto.training.environment import environment


class Budget(NamedTuple):
    """How much each check may do."""

    sequences: int
    horizon: int
    steps: int
    exponents: int
    noise_draws: int
    attack_steps: int
    probes: int
    weight_draws: int


BUDGETS = {
    "quick": Budget(128, 256, 256, 4, 2, 10, 4, 2),
    "full": Budget(1024, 2048, 2048, 32, 5, 40, 16, 5),
}


@dataclass(frozen=True, kw_only=True)
class AuditReport(Record):
    """What every check found; one that does not apply is None, and ``refused`` says why in a sentence."""

    model: str
    num_parameters: int
    num_sequences: int
    num_steps: int
    budget: str
    seed: int
    seconds: float
    memory: MemoryFunction | None = None
    lyapunov: LyapunovSpectrum | None = None
    certificates: CertifiedStability | None = None
    gradients: GradientFlow | None = None
    calibration: Calibration | None = None
    noise: NoiseAccuracy | None = None
    attack: AdversarialAccuracy | None = None
    perturbation: PerturbationError | None = None
    curvature: HessianSpectrum | None = None
    refused: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def results(self) -> dict[str, AuditResult]:
        """List the checks that answered."""
        found = {name: getattr(self, name) for name in CHECKS}
        return {name: result for name, result in found.items() if result is not None}

    def summary(self) -> str:
        """Say what every check found, a line each."""
        lines = [f"{name}: {result.summary()}" for name, result in self.results().items()]
        return "\n".join([*lines, *(f"{name}: not measured: {reason}" for name, reason in self.refused.items())])

    def save(self, path: str | Path) -> Path:
        """Write the page to ``path``, whole or not at all, and return the path."""
        from sostenuto.audits.page import save

        return save(self, path)


class _Asked(NamedTuple):
    """What the checks are asked about: the user's own arguments, checked, and a part of them that fits the budget."""

    model: nn.Module
    data: LabeledSequences
    has_targets: bool
    budget: Budget
    seed: int
    time_step: float
    time_unit: str

    @property
    def arguments(self) -> tuple[Any, Any]:
        return self.data.values, self.data.targets

    @property
    def lengths(self) -> Any:
        return self.data.lengths

    def size(self) -> float:
        """Give the size of a usual input: the standard deviation over all channels."""
        return max(float(self.data.true_steps().std(correction=0)), 1e-12)


def _memory(asked: _Asked) -> MemoryFunction:
    size = asked.size()
    horizon = min(asked.data.values.shape[1] - 1, asked.budget.horizon)
    return memory_function(
        asked.model,
        max(horizon, 4),
        input_size=asked.data.values.shape[2],
        amplitudes=(0.1 * size, size, 3 * size),
        search_steps=2 if asked.budget.steps <= 256 else 8,
        time_step=asked.time_step,
        time_unit=asked.time_unit,
        seed=asked.seed,
    )


def _few(asked: _Asked, most: int) -> dict[str, Any]:
    """Take a few sequences for what follows states step by step."""
    values = asked.data.values[:most]
    lengths = None if asked.lengths is None else asked.lengths[:most]
    return {"X": values, "lengths": lengths}


def _lyapunov(asked: _Asked) -> LyapunovSpectrum:
    return lyapunov_spectrum(asked.model, **_few(asked, 4), count=asked.budget.exponents, seed=asked.seed)


def _certificates(asked: _Asked) -> CertifiedStability:
    return certified_stability(asked.model, **_few(asked, 4), points=16, seed=asked.seed)


def _gradients(asked: _Asked) -> GradientFlow:
    return gradient_flow(asked.model, asked.data.values[:32], asked.data.targets[:32], seed=asked.seed)


def _calibration(asked: _Asked) -> Calibration:
    return calibration(asked.model, *asked.arguments, lengths=asked.lengths, seed=asked.seed)


def _noise(asked: _Asked) -> NoiseAccuracy:
    options = {"levels": (0, 0.1, 0.2, 0.5, 1.0), "repeats": asked.budget.noise_draws}
    return noise_accuracy(asked.model, *asked.arguments, lengths=asked.lengths, seed=asked.seed, **options)


def _attack(asked: _Asked) -> AdversarialAccuracy:
    size = asked.size()
    return adversarial_accuracy(
        asked.model,
        *asked.arguments,
        epsilons=tuple(round(share * size, 12) for share in (0.02, 0.05, 0.1, 0.2)),
        steps=asked.budget.attack_steps,
        lengths=asked.lengths,
        seed=asked.seed,
    )


def _perturbation(asked: _Asked) -> PerturbationError:
    return perturbation_error(
        asked.model,
        (1e-3, 1e-2, 1e-1),
        asked.data.values,
        y=asked.data.targets,
        norm="loss",
        draws=asked.budget.weight_draws,
        ascent_steps=5,
        lengths=asked.lengths,
        seed=asked.seed,
    )


def _curvature(asked: _Asked) -> HessianSpectrum:
    few = slice(0, max(asked.budget.sequences // 4, 16))
    return hessian_spectrum(
        asked.model,
        asked.data.values[few],
        asked.data.targets[few],
        top=2,
        probes=asked.budget.probes,
        lanczos_steps=3 * asked.budget.probes,
        lengths=None if asked.lengths is None else asked.lengths[few],
        seed=asked.seed,
    )


CHECKS: dict[str, Callable[[_Asked], AuditResult]] = {
    "memory": _memory,
    "lyapunov": _lyapunov,
    "certificates": _certificates,
    "gradients": _gradients,
    "calibration": _calibration,
    "noise": _noise,
    "attack": _attack,
    "perturbation": _perturbation,
    "curvature": _curvature,
}
"""What can be asked, in the order of the page."""
NEED_TARGETS = ("gradients", "calibration", "noise", "attack", "perturbation", "curvature")


def audit(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any = None,
    *,
    checks: str | Sequence[str] = "all",
    budget: str = "quick",
    lengths: Any = None,
    time_step: float = 1.0,
    time_unit: str = "steps",
    seed: int = 0,
    progress: bool = True,
) -> AuditReport:
    """Ask a trained model every question, and return one report: numbers, sentences, a page.

    Args:
        model: any module mapping ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; `adapt`
            brings others to that form. It is left as it was.
        X: array ``(n, time, channel)``, ``(n, time)``, or a list of ``(time, channel)``.
        y: class indices ``(n,)`` or ``(n, time)``; without them only memory and stability can be asked about.
        checks: ``"all"``, or names of `CHECKS`.
        budget: ``"quick"`` (about a minute for a small model) or ``"full"``.
        lengths: true length of each row of a padded array ``X``.
        time_step: time between two steps, in ``time_unit``.
        time_unit: its name, in the plural.
        seed: of every draw; the same seed gives the same numbers.
        progress: whether to show a progress bar.

    A check that cannot be asked of this model is left out, and the report says why.

    >>> class Last(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.rnn, self.head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.head(self.rnn(x)[0][:, -1])
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(20, 30, 1)
    >>> report = audit(Last(), X, (X.mean((1, 2)) > 0).long(), checks=["memory", "gradients"], progress=False)
    >>> report.memory.half_life < 5, report.gradients.verdict
    (True, 'vanishing')
    """
    check_choice("budget", budget, BUDGETS)
    check_count("seed", seed, least=0)
    names = list(CHECKS) if checks == "all" else [checks] if isinstance(checks, str) else list(checks)
    require(len(names) > 0, "expected at least one check", "got none")
    for name in names:
        check_choice("check", name, CHECKS)
    started = time.perf_counter()
    targets = np.zeros(len(X), int) if y is None else y
    data = labeled_sequences(model, X, targets, lengths)
    asked = _Asked(model, _part(data, BUDGETS[budget]), y is not None, BUDGETS[budget], seed, time_step, time_unit)
    if y is not None:
        # A model that cannot answer at all is refused here, once, instead of by every check.
        with audited(model, seed):
            data.scores(model, slice(0, 1), data.values[:1])
    found, refused = {}, {}
    bar = tqdm(names, desc="auditing", disable=not progress)
    for name in bar:
        bar.set_postfix_str(name)
        if name in NEED_TARGETS and y is None:
            refused[name] = "needs y, the true classes."
            continue
        try:
            found[name] = CHECKS[name](asked)
        except InputError as error:
            refused[name] = str(error)
    device, _ = place_of(model)
    return AuditReport(
        model=type(model).__name__,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_sequences=len(asked.data.values),
        num_steps=int(data.values.shape[1]),
        budget=budget,
        seed=seed,
        seconds=time.perf_counter() - started,
        refused=refused,
        environment=environment(str(device)),
        **found,
    )


def _part(data: LabeledSequences, budget: Budget) -> LabeledSequences:
    """Take as many sequences as the budget allows, spread evenly over the data, so that no class is left out."""
    count = len(data.values)
    chosen = torch.linspace(0, count - 1, min(count, budget.sequences)).round().long()
    lengths = None if data.lengths is None else data.lengths[chosen]
    return LabeledSequences(data.values[chosen], lengths, data.targets[chosen])
