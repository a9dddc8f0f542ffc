"""The questions of an audit: what each check asks of a model, within a budget."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.curvature.hessian import HessianSpectrum, hessian_spectrum
from sostenuto.audits.generalization.calibration import Calibration, calibration
from sostenuto.audits.generalization.error_gap import ErrorGap, error_gap
from sostenuto.audits.generalization.gap import GeneralizationGap, generalization_gap
from sostenuto.audits.gradients.flow import GradientFlow, gradient_flow
from sostenuto.audits.memory.function import MemoryFunction, memory_function
from sostenuto.audits.robustness.adversarial import AdversarialAccuracy, adversarial_accuracy
from sostenuto.audits.robustness.adversarial_error import AdversarialError, adversarial_error
from sostenuto.audits.robustness.certified_accuracy import CertifiedAccuracy, certified_accuracy
from sostenuto.audits.robustness.measured import MeasuredSequences
from sostenuto.audits.robustness.noise import NoiseAccuracy, noise_accuracy
from sostenuto.audits.robustness.noise_error import NoiseError, noise_error
from sostenuto.audits.robustness.targeted import TargetedSequences
from sostenuto.audits.stability.certified_stability import CertifiedStability, certified_stability
from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum, lyapunov_spectrum
from sostenuto.audits.stability.perturbation import PerturbationError, perturbation_error
from sostenuto.audits.stability.state_map import find_recurrence, map_of_layer
from sostenuto.checks import InputError


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
    answers: int
    """Sequences of each part that the generalization gap is measured on."""


BUDGETS = {
    "quick": Budget(128, 256, 256, 4, 2, 10, 4, 2, 1024),
    "full": Budget(1024, 2048, 2048, 32, 5, 40, 16, 5, 16384),
}


class Asked(NamedTuple):
    """What the checks are asked about: the user's own arguments, checked, and a part of them that fits the budget.

    ``train`` and ``test`` are the parts that the generalization gap is measured on; the first is None where the
    training part was not given.
    """

    model: nn.Module
    data: TargetedSequences
    train: TargetedSequences | None
    test: TargetedSequences
    budget: Budget
    seed: int
    time_step: float
    time_unit: str
    target_scale: float | Sequence[float]
    target_unit: str

    @property
    def is_regression(self) -> bool:
        """Say whether the model answers with numbers."""
        return isinstance(self.data, MeasuredSequences)

    @property
    def arguments(self) -> tuple[Any, Any]:
        """Give the sequences and their targets."""
        return self.data.values, self.data.targets

    @property
    def lengths(self) -> Any:
        """Give the true lengths, None where all fill the batch."""
        return self.data.lengths

    @property
    def unit(self) -> dict[str, Any]:
        """Give the target's own unit, for checks of a regressor."""
        return {"target_scale": self.target_scale, "target_unit": self.target_unit}

    def size(self) -> float:
        """Give the size of a usual input: the standard deviation over all channels, or 1 where inputs do not vary."""
        spread = float(self.data.true_steps().std(correction=0))
        return spread if spread > 0 else 1.0

    def few(self, most: int) -> dict[str, Any]:
        """Take a few sequences for what follows states step by step."""
        lengths = None if self.lengths is None else self.lengths[:most]
        return {"X": self.data.values[:most], "lengths": lengths}

    def equal(self, most: int) -> tuple[Any, Any]:
        """Take sequences of one length: the longest ones, cut to the shortest of them where they differ."""
        values, targets = self.arguments
        if self.lengths is None:
            return values[:most], targets[:most]
        chosen = self.lengths.argsort(descending=True, stable=True)[:most]
        steps = int(self.lengths[chosen].min())
        return values[chosen, :steps], targets[chosen, :steps] if self.data.has_step_targets else targets[chosen]


def _memory(asked: Asked) -> MemoryFunction:
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


def _lyapunov(asked: Asked) -> LyapunovSpectrum:
    steps = None if asked.lengths is not None else asked.data.values.shape[1]
    dimensions = map_of_layer(find_recurrence(asked.model), steps).state_size
    count = min(asked.budget.exponents, dimensions)
    return lyapunov_spectrum(asked.model, **asked.few(4), count=count, seed=asked.seed)


def _certificates(asked: Asked) -> CertifiedStability:
    return certified_stability(asked.model, **asked.few(4), points=16, seed=asked.seed)


def _gradients(asked: Asked) -> GradientFlow:
    return gradient_flow(asked.model, *asked.equal(32), seed=asked.seed)


def _calibration(asked: Asked) -> Calibration:
    if asked.is_regression:
        raise InputError("not applicable: confidence belongs to classes, and this model answers with numbers.")
    return calibration(asked.model, *asked.arguments, lengths=asked.lengths, seed=asked.seed)


def _generalization(asked: Asked) -> GeneralizationGap | ErrorGap:
    if asked.train is None:
        raise InputError("needs the sequences the model was trained on: pass train=(X, y).")
    parts = (asked.train.values, asked.train.targets, asked.test.values, asked.test.targets)
    lengths: dict[str, Any] = {"train_lengths": asked.train.lengths, "test_lengths": asked.test.lengths}
    if asked.is_regression:
        return error_gap(asked.model, *parts, **lengths, **asked.unit, seed=asked.seed)
    return generalization_gap(asked.model, *parts, **lengths, seed=asked.seed)


def _noise(asked: Asked) -> NoiseAccuracy | NoiseError:
    options = {"levels": (0, 0.1, 0.2, 0.5, 1.0), "repeats": asked.budget.noise_draws}
    options |= {"lengths": asked.lengths, "seed": asked.seed}
    if asked.is_regression:
        return noise_error(asked.model, *asked.arguments, **options, **asked.unit)
    return noise_accuracy(asked.model, *asked.arguments, **options)


def _attack(asked: Asked) -> AdversarialAccuracy | AdversarialError:
    size = asked.size()
    options: dict[str, Any] = {
        "epsilons": tuple(round(share * size, 12) for share in (0.02, 0.05, 0.1, 0.2)),
        "steps": asked.budget.attack_steps,
        "lengths": asked.lengths,
        "seed": asked.seed,
    }
    if asked.is_regression:
        return adversarial_error(asked.model, *asked.arguments, **options, **asked.unit)
    return adversarial_accuracy(asked.model, *asked.arguments, **options)


def _certified(asked: Asked) -> CertifiedAccuracy:
    if asked.is_regression:
        raise InputError("not applicable: a radius is proved for classes, and this model answers with numbers.")
    found = certified_accuracy(
        asked.model, *asked.arguments, steps=asked.budget.attack_steps, lengths=asked.lengths, seed=asked.seed
    )
    if found.reason:
        why = found.reason.removeprefix("not applicable: ").removesuffix(".")
        raise InputError(f"not applicable: a radius needs a recurrence that is proved to contract, and {why}.")
    return found


def _perturbation(asked: Asked) -> PerturbationError:
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
        **asked.unit,
    )


def _curvature(asked: Asked) -> HessianSpectrum:
    few = slice(0, max(asked.budget.sequences // 4, 16))
    return hessian_spectrum(
        asked.model,
        asked.data.values[few],
        asked.data.targets[few],
        top=2,
        probes=asked.budget.probes,
        lanczos_steps=3 * asked.budget.probes,
        lengths=None if asked.lengths is None else asked.lengths[few],
        target_scale=asked.target_scale,
        seed=asked.seed,
    )


CHECKS: dict[str, Callable[[Asked], AuditResult]] = {
    "memory": _memory,
    "lyapunov": _lyapunov,
    "certificates": _certificates,
    "gradients": _gradients,
    "calibration": _calibration,
    "generalization": _generalization,
    "noise": _noise,
    "attack": _attack,
    "certified": _certified,
    "perturbation": _perturbation,
    "curvature": _curvature,
}
"""What can be asked, in the order of the page."""
NEED_TARGETS = tuple(name for name in CHECKS if name not in ("memory", "lyapunov", "certificates"))
