"""All questions at once: what a model remembers, whether it is stable, whether it can be fooled."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from sostenuto.audits.base import AuditResult
from sostenuto.audits.curvature.hessian import HessianSpectrum
from sostenuto.audits.generalization.calibration import Calibration
from sostenuto.audits.generalization.error_gap import ErrorGap
from sostenuto.audits.generalization.gap import GeneralizationGap
from sostenuto.audits.gradients.flow import GradientFlow
from sostenuto.audits.memory.function import MemoryFunction
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.questions import BUDGETS, CHECKS, NEED_TARGETS, Asked
from sostenuto.audits.robustness.adversarial import AdversarialAccuracy
from sostenuto.audits.robustness.adversarial_error import AdversarialError
from sostenuto.audits.robustness.certified_accuracy import CertifiedAccuracy
from sostenuto.audits.robustness.measured import is_real, targeted_sequences
from sostenuto.audits.robustness.noise import NoiseAccuracy
from sostenuto.audits.robustness.noise_error import NoiseError
from sostenuto.audits.robustness.targeted import TargetedSequences
from sostenuto.audits.stability.certified_stability import CertifiedStability
from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum
from sostenuto.audits.stability.perturbation import PerturbationError
from sostenuto.checks import InputError, check_choice, check_count, require
from sostenuto.results import Record
from sostenuto.training.processes import environment

_OF_NUMBERS: dict[str, type[AuditResult]] = {
    "noise": NoiseError,
    "attack": AdversarialError,
    "generalization": ErrorGap,
}
"""Checks whose answer is another record where the targets are numbers."""


@dataclass(frozen=True, kw_only=True)
class AuditReport(Record):
    """What every check found; one that does not apply is None, and ``refused`` says why in a sentence.

    ``task`` is ``"classification"``, ``"regression"`` or, without targets, empty; ``data`` names the data where that is
    known, and ``checksum`` changes with them.
    """

    model: str
    num_parameters: int
    num_sequences: int
    num_steps: int
    budget: str
    seed: int
    seconds: float
    task: str = ""
    data: str = ""
    checksum: str = ""
    memory: MemoryFunction | None = None
    lyapunov: LyapunovSpectrum | None = None
    certificates: CertifiedStability | None = None
    gradients: GradientFlow | None = None
    calibration: Calibration | None = None
    generalization: GeneralizationGap | ErrorGap | None = None
    noise: NoiseAccuracy | NoiseError | None = None
    attack: AdversarialAccuracy | AdversarialError | None = None
    certified: CertifiedAccuracy | None = None
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
        for name, reason in self.refused.items():
            lines.append(
                f"{name}: {reason}" if reason.startswith("not applicable") else f"{name}: not measured: {reason}"
            )
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write the page to ``path``, whole or not at all, and return the path."""
        from sostenuto.audits.page import save

        return save(self, path)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AuditReport":
        """Rebuild a report from `to_dict`'s output."""
        kinds = _OF_NUMBERS if values.get("task") == "regression" else {}
        own = {name: kind.from_dict(values[name]) for name, kind in kinds.items() if values.get(name) is not None}
        rest = super().from_dict({name: value for name, value in values.items() if name not in own})
        return replace(rest, **own)  # pyright: ignore[reportReturnType]


def audit(
    model: nn.Module | Any,
    X: Any,  # noqa: N803
    y: Any = None,
    *,
    train: Any = None,
    checks: str | Sequence[str] = "all",
    budget: str = "quick",
    lengths: Any = None,
    time_step: float = 1.0,
    time_unit: str = "steps",
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    seed: int = 0,
    progress: bool = True,
) -> AuditReport:
    """Ask a trained model every question, and return one report: numbers, sentences, a page.

    Args:
        model: any module mapping ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; `adapt`
            brings others to that form. It is left as it was.
        X: array ``(n, time, channel)``, ``(n, time)``, or a list of ``(time, channel)``.
        y: class indices ``(n,)`` or ``(n, time)``; or, for a regression, floating-point numbers ``(n,)``, ``(n, out)``
            or ``(n, time, out)``. Without them only memory and stability can be asked about.
        train: the sequences the model was trained on, ``(X, y)`` or ``(X, y, lengths)``, for the generalization gap.
        checks: ``"all"``, or names of `CHECKS`.
        budget: ``"quick"`` (about a minute for a small model) or ``"full"``.
        lengths: true length of each row of a padded array ``X``.
        time_step: time between two steps, in ``time_unit``.
        time_unit: its name, in the plural.
        target_scale: of a regression, what one unit of ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name, for the page.
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
    require(
        isinstance(model, nn.Module),
        "expected a torch module",
        f"got {type(model).__name__}",
        "pass a fitted estimator's model_, with X and y as its encoding_ encodes them",
    )
    check_choice("budget", budget, BUDGETS)
    check_count("seed", seed, least=0)
    names = list(CHECKS) if checks == "all" else [checks] if isinstance(checks, str) else list(checks)
    require(len(names) > 0, "expected at least one check", "got none")
    for name in names:
        check_choice("check", name, CHECKS)
    started = time.perf_counter()
    targets = np.zeros(len(X), int) if y is None else y
    data = targeted_sequences(model, X, targets, lengths, target_scale)
    if y is not None:
        # A model that cannot answer at all is refused here, once, instead of by every check.
        with audited(model, seed):
            data.scores(model, slice(0, 1), data.values[:1])
    own, limits = None if y is None else _training_part(model, train, y, target_scale), BUDGETS[budget]
    asked = Asked(
        model=model,
        data=_part(data, limits.sequences),
        train=None if own is None else _part(own, limits.answers),
        test=_part(data, limits.answers),
        budget=limits,
        seed=seed,
        time_step=time_step,
        time_unit=time_unit,
        target_scale=target_scale,
        target_unit=target_unit,
    )
    found, refused = _ask(names, asked, y is not None, progress)
    device, _ = place_of(model)
    return AuditReport(
        model=type(model).__name__,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_sequences=len(asked.data.values),
        num_steps=int(data.values.shape[1]),
        budget=budget,
        seed=seed,
        seconds=time.perf_counter() - started,
        task="" if y is None else "regression" if asked.is_regression else "classification",
        checksum=data.checksum(),
        refused=refused,
        environment=environment(str(device)),
        **found,
    )


def _ask(names: list[str], asked: Asked, has_targets: bool, progress: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Put every question, and keep the answers and the refusals."""
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    bar = tqdm(names, desc="auditing", disable=not progress)
    for name in bar:
        bar.set_postfix_str(name)
        if name in NEED_TARGETS and not has_targets:
            refused[name] = "needs y, the true classes or numbers."
            continue
        try:
            found[name] = CHECKS[name](asked)
        except InputError as error:
            refused[name] = str(error)
    return found, refused


def _training_part(model: nn.Module, given: Any, y: Any, scale: Any) -> TargetedSequences | None:
    if given is None:
        return None
    good = isinstance(given, (tuple, list)) and len(given) in (2, 3)
    require(good, "expected train=(X, y) or (X, y, lengths)", f"got {type(given).__name__}")
    values, targets, *more = given
    same = is_real(targets) == is_real(y)
    require(
        same, "expected y of the training part to be of the kind of y", "got classes in one and numbers in the other"
    )
    try:
        return targeted_sequences(model, values, targets, more[0] if more else None, scale)
    except InputError as error:
        raise InputError(f"training part: {error}") from error


def _part(data: TargetedSequences, most: int) -> TargetedSequences:
    """Take as many sequences as the budget allows, spread evenly over the data, so that no class is left out."""
    count = len(data.values)
    if count <= most:
        return data
    chosen = torch.linspace(0, count - 1, most).round().long()
    lengths = None if data.lengths is None else data.lengths[chosen]
    return replace(data, values=data.values[chosen], lengths=lengths, targets=data.targets[chosen])
