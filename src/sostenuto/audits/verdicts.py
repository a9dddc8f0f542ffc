"""Traffic lights: what a number of an audit means for someone who has not read the papers."""

from collections.abc import Callable
from math import isfinite
from typing import Any

from sostenuto.audits.curvature.hessian import HessianSpectrum
from sostenuto.audits.generalization.calibration import Calibration
from sostenuto.audits.generalization.error_gap import ErrorGap
from sostenuto.audits.generalization.gap import GeneralizationGap
from sostenuto.audits.gradients.flow import GradientFlow
from sostenuto.audits.memory.function import MemoryFunction
from sostenuto.audits.robustness.adversarial import AdversarialAccuracy
from sostenuto.audits.robustness.adversarial_error import AdversarialError
from sostenuto.audits.robustness.certified_accuracy import CertifiedAccuracy
from sostenuto.audits.robustness.corruptions import CORRUPTIONS
from sostenuto.audits.robustness.noise import NoiseAccuracy
from sostenuto.audits.robustness.noise_error import NoiseError
from sostenuto.audits.stability.certified_stability import CertifiedStability
from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum
from sostenuto.audits.stability.perturbation import PerturbationError
from sostenuto.report.numbers import number, percent, with_unit
from sostenuto.report.section import Outcome, Verdict

SMALL_LOSS, LARGE_LOSS = 0.05, 0.25
"""Accuracy lost, or promised in vain: up to the one a model is called steady, beyond the other broken.

Errors of a regressor count as shares of the targets' standard deviation, the error of always answering their mean.
"""
NEAR = 0.01
"""A share of a sequence's own size: answers that are proved to withstand changes of it are called proved."""


def verdict(name: str, result: Any) -> Verdict:
    """Judge one answer: its outcome, a label of one or two words, and the sentences with the number behind it."""
    outcome, label = _JUDGES[name](result)
    basis = _BASES[name](result) if name in _BASES else ""
    return Verdict(outcome, label, f"{result.summary()} {basis}".rstrip())


def _memory(result: MemoryFunction) -> tuple[Outcome, str]:
    if result.half_life is None:
        return "good", "Remembers throughout"
    share = result.half_life / result.horizon
    if share >= 0.25:
        return "good", "Long memory"
    return ("caution", "Short memory") if share >= 0.05 else ("caution", "Forgets at once")


def _lyapunov(result: LyapunovSpectrum) -> tuple[Outcome, str]:
    kinds: dict[str, tuple[Outcome, str]] = {
        "contracting": ("good", "Settles"),
        "neutral": ("good", "Neutral"),
        "chaotic": ("caution", "Sensitive"),
    }
    return kinds[result.verdict]


def _certificates(result: CertifiedStability) -> tuple[Outcome, str]:
    if result.contradicted:
        return "bad", "Contradicted"
    if result.certified:
        return "good", "Proved stable"
    return ("good", "Memory proved") if result.remembers else ("unknown", "Not proved")


def _gradients(result: GradientFlow) -> tuple[Outcome, str]:
    return ("good", "Gradients live") if result.verdict == "healthy" else ("bad", f"Gradients {_ending(result)}")


def _ending(result: GradientFlow) -> str:
    return "vanish" if result.verdict == "vanishing" else "explode"


def _calibration(result: Calibration) -> tuple[Outcome, str]:
    """Forgive what chance explains; beyond that, look at how far confidence and accuracy are apart."""
    apart = result.measures.calibration_error
    if result.calibrated or apart <= SMALL_LOSS:
        return "good", "Honest confidence"
    label = "Overconfident" if result.overconfidence > 0 else "Underconfident"
    return ("caution", label) if apart <= LARGE_LOSS else ("bad", label)


def _generalization(result: GeneralizationGap | ErrorGap) -> tuple[Outcome, str]:
    """Forgive what chance explains, two standard errors of the gap; beyond that, look at its size."""
    if isinstance(result, ErrorGap):
        gap, error = (_share(value, result.test.deviation) for value in (result.gap, result.gap_error))
    else:
        gap, error = result.accuracy_gap, result.accuracy_gap_error
    if gap <= max(SMALL_LOSS, 2 * error):
        return "good", "Carries over"
    return ("caution", "Overfits a little") if gap <= LARGE_LOSS else ("bad", "Overfits")


def _share(value: float, whole: float) -> float:
    """Give a share of the whole; all of it where the whole is nothing and the value is not."""
    return value / whole if whole > 0 else float(value > 0)


def _lost(lost: float) -> tuple[Outcome, str]:
    if lost <= SMALL_LOSS:
        return "good", "Steady"
    return ("caution", "Wavers") if lost <= LARGE_LOSS else ("bad", "Breaks")


def _usual_noise(result: NoiseAccuracy | NoiseError) -> int:
    """Choose the level that is judged: a fifth of a standard deviation, or the nearest to it."""
    return min(range(len(result.levels)), key=lambda index: abs(result.levels[index] - 0.2))


def _noise(result: NoiseAccuracy | NoiseError) -> tuple[Outcome, str]:
    nearest = _usual_noise(result)
    if isinstance(result, NoiseError):
        if result.undefined[nearest] > 0:
            return "bad", "Breaks"
        return _lost(_share(result.error[nearest] - result.clean_error, result.spread))
    return _lost(result.clean_accuracy - result.accuracy[nearest])


def _noise_basis(result: NoiseAccuracy | NoiseError) -> str:
    level = _usual_noise(result)
    told = CORRUPTIONS[result.kind].describe(result.levels[level])
    if isinstance(result, NoiseError):
        return f"Judged by {told}: {with_unit(result.error[level], result.unit)}."
    return f"Judged by {told}: {percent(result.accuracy[level])}."


def _usual_attack(result: AdversarialAccuracy | AdversarialError) -> int:
    """Choose the change that is judged: the second smallest tried."""
    order = sorted(range(len(result.epsilons)), key=lambda index: result.epsilons[index])
    return order[min(1, len(order) - 1)]


def _attack_basis(result: AdversarialAccuracy | AdversarialError) -> str:
    chosen = _usual_attack(result)
    if isinstance(result, AdversarialError):
        left = with_unit(result.error[chosen], result.unit)
    else:
        left = percent(result.accuracy[chosen])
    return f"Judged by changes of at most {number(result.epsilons[chosen], digits=3)}: {left}."


def _attack(result: AdversarialAccuracy | AdversarialError) -> tuple[Outcome, str]:
    second = _usual_attack(result)
    if isinstance(result, AdversarialError):
        return _lost(_share(result.error[second] - result.clean_error, result.deviation))
    return _lost(result.clean_accuracy - result.accuracy[second])


def _certified(result: CertifiedAccuracy) -> tuple[Outcome, str]:
    """Look at changes of a hundredth of a sequence's own size."""
    if result.contradicted:
        return "bad", "Contradicted"
    lost = result.clean_accuracy - result.certified(NEAR * result.median_norm)
    return ("good", "Proved safe nearby") if lost <= SMALL_LOSS else ("unknown", "Little proved")


def _least_change(result: PerturbationError) -> int:
    return min(range(len(result.betas)), key=lambda index: result.betas[index])


def _perturbation_basis(result: PerturbationError) -> str:
    least = _least_change(result)
    reached = result.error[least]
    left = with_unit(reached, result.unit) if isfinite(reached) else "no number at all"
    return f"Judged by changes of {number(result.betas[least])}: {left}."


def _perturbation(result: PerturbationError) -> tuple[Outcome, str]:
    """Ask whether the smallest change of the weights leaves the loss where it was."""
    least = _least_change(result)
    rise = result.error[least] - result.start
    # A loss near 0 has no share worth the name; a root mean square error has its own unit, and is compared with itself.
    floor = 0.1 if result.measure == "loss" else 0.0
    return ("good", "Robust weights") if rise <= 0.1 * max(result.start, floor) else ("caution", "Fragile weights")


def _curvature(result: HessianSpectrum) -> tuple[Outcome, str]:
    bent = result.bottom < -0.05 * abs(result.top[0])
    return ("caution", "Not a minimum") if bent else ("good", "A minimum")


_JUDGES: dict[str, Callable[[Any], tuple[Outcome, str]]] = {
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
_BASES: dict[str, Callable[[Any], str]] = {
    "noise": _noise_basis,
    "attack": _attack_basis,
    "perturbation": _perturbation_basis,
}
"""What the verdict looked at, where that is not what the summary tells."""
