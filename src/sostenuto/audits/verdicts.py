"""Traffic lights: what a number of an audit means for someone who has not read the papers."""

from collections.abc import Callable
from typing import Any

from sostenuto.audits.curvature.hessian import HessianSpectrum
from sostenuto.audits.generalization.calibration import Calibration
from sostenuto.audits.gradients.flow import GradientFlow
from sostenuto.audits.memory.function import MemoryFunction
from sostenuto.audits.robustness.adversarial import AdversarialAccuracy
from sostenuto.audits.robustness.noise import NoiseAccuracy
from sostenuto.audits.stability.certified_stability import CertifiedStability
from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum
from sostenuto.audits.stability.perturbation import PerturbationError
from sostenuto.report.section import Outcome, Verdict

SMALL_LOSS, LARGE_LOSS = 0.05, 0.25
"""Accuracy lost, or promised in vain: up to the one a model is called steady, beyond the other broken."""


def verdict(name: str, result: Any) -> Verdict:
    """Judge one answer: its outcome, a label of one or two words, and the sentence with the number behind it."""
    outcome, label = _JUDGES[name](result)
    return Verdict(outcome, label, result.summary())


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
    return ("good", "Proved stable") if result.certified else ("unknown", "Not proved")


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


def _lost(clean: float, after: float) -> tuple[Outcome, str]:
    lost = clean - after
    if lost <= SMALL_LOSS:
        return "good", "Steady"
    return ("caution", "Wavers") if lost <= LARGE_LOSS else ("bad", "Breaks")


def _noise(result: NoiseAccuracy) -> tuple[Outcome, str]:
    """Look at noise of a fifth of a standard deviation, or the level nearest to it."""
    nearest = min(range(len(result.levels)), key=lambda index: abs(result.levels[index] - 0.2))
    return _lost(result.clean_accuracy, result.accuracy[nearest])


def _attack(result: AdversarialAccuracy) -> tuple[Outcome, str]:
    """Look at the second smallest change tried."""
    order = sorted(range(len(result.epsilons)), key=lambda index: result.epsilons[index])
    return _lost(result.clean_accuracy, result.accuracy[order[min(1, len(order) - 1)]])


def _perturbation(result: PerturbationError) -> tuple[Outcome, str]:
    """Ask whether the smallest change of the weights leaves the loss where it was."""
    least = min(range(len(result.betas)), key=lambda index: result.betas[index])
    rise = result.error[least] - result.start
    return ("good", "Robust weights") if rise <= 0.1 * max(result.start, 0.1) else ("caution", "Fragile weights")


def _curvature(result: HessianSpectrum) -> tuple[Outcome, str]:
    bent = result.bottom < -0.05 * abs(result.top[0])
    return ("caution", "Not a minimum") if bent else ("good", "A minimum")


_JUDGES: dict[str, Callable[[Any], tuple[Outcome, str]]] = {
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
