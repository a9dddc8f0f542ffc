"""Questions put to any trained sequence model, each answered by a frozen record of numbers: a method a file.

Names are imported when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sostenuto.audits.adapter import Adapted, adapt
    from sostenuto.audits.audit import AuditReport
    from sostenuto.audits.base import AuditResult
    from sostenuto.audits.curvature.hessian import HessianSpectrum, hessian_spectrum
    from sostenuto.audits.curvature.surface import LossSurface, loss_surface
    from sostenuto.audits.generalization.calibration import Calibration, calibration
    from sostenuto.audits.generalization.error_gap import ErrorGap, error_gap
    from sostenuto.audits.generalization.gap import GeneralizationGap, generalization_gap
    from sostenuto.audits.gradients.flow import GradientFlow, gradient_flow
    from sostenuto.audits.gradients.oscillator_gradients import OscillatorGradients, oscillator_gradient_bounds
    from sostenuto.audits.memory.exponential_sums import ExponentialSum, fit_exponential_sum, perturbed_sum_error
    from sostenuto.audits.memory.function import MemoryFunction, memory_function
    from sostenuto.audits.memory.tokens import RepeatedTokens, token_memory
    from sostenuto.audits.robustness.adversarial import AdversarialAccuracy, adversarial_accuracy
    from sostenuto.audits.robustness.adversarial_error import AdversarialError, adversarial_error
    from sostenuto.audits.robustness.certified_accuracy import CertifiedAccuracy, certified_accuracy
    from sostenuto.audits.robustness.certified_radius import CertifiedRadius, certified_radius
    from sostenuto.audits.robustness.noise import NoiseAccuracy, noise_accuracy
    from sostenuto.audits.robustness.noise_error import NoiseError, noise_error
    from sostenuto.audits.stability.certified_stability import CertifiedStability, certified_stability
    from sostenuto.audits.stability.fixed_points import FixedPoints, fixed_points
    from sostenuto.audits.stability.linearized_gru import LinearizedGRU, linearized_gru
    from sostenuto.audits.stability.linearized_lstm import LinearizedLSTM, linearized_lstm
    from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum, lyapunov_spectrum
    from sostenuto.audits.stability.oscillator_saddles import OscillatorSaddles, oscillator_saddles
    from sostenuto.audits.stability.oscillator_states import OscillatorStates, oscillator_state_bound
    from sostenuto.audits.stability.perturbation import (
        PerturbationError,
        StabilityRadius,
        perturbation_error,
        stability_radius,
    )
    from sostenuto.audits.stability.state_spectrum import StateSpectrum, state_spectrum
    from sostenuto.audits.stability.teacher_filter import TeacherFilter, teacher_filter

__all__ = [
    "Adapted",
    "AdversarialAccuracy",
    "AdversarialError",
    "AuditReport",
    "AuditResult",
    "Calibration",
    "CertifiedAccuracy",
    "CertifiedRadius",
    "CertifiedStability",
    "ErrorGap",
    "ExponentialSum",
    "FixedPoints",
    "GeneralizationGap",
    "GradientFlow",
    "HessianSpectrum",
    "LinearizedGRU",
    "LinearizedLSTM",
    "LossSurface",
    "LyapunovSpectrum",
    "MemoryFunction",
    "NoiseAccuracy",
    "NoiseError",
    "OscillatorGradients",
    "OscillatorSaddles",
    "OscillatorStates",
    "PerturbationError",
    "RepeatedTokens",
    "StabilityRadius",
    "StateSpectrum",
    "TeacherFilter",
    "adapt",
    "adversarial_accuracy",
    "adversarial_error",
    "calibration",
    "certified_accuracy",
    "certified_radius",
    "certified_stability",
    "error_gap",
    "fit_exponential_sum",
    "fixed_points",
    "generalization_gap",
    "gradient_flow",
    "hessian_spectrum",
    "linearized_gru",
    "linearized_lstm",
    "loss_surface",
    "lyapunov_spectrum",
    "memory_function",
    "noise_accuracy",
    "noise_error",
    "oscillator_gradient_bounds",
    "oscillator_saddles",
    "oscillator_state_bound",
    "perturbation_error",
    "perturbed_sum_error",
    "stability_radius",
    "state_spectrum",
    "teacher_filter",
    "token_memory",
]

_HOMES = {
    "teacher_filter": "stability.teacher_filter",
    "TeacherFilter": "stability.teacher_filter",
    "noise_error": "robustness.noise_error",
    "NoiseError": "robustness.noise_error",
    "error_gap": "generalization.error_gap",
    "ErrorGap": "generalization.error_gap",
    "certified_accuracy": "robustness.certified_accuracy",
    "CertifiedAccuracy": "robustness.certified_accuracy",
    "AdversarialError": "robustness.adversarial_error",
    "adversarial_error": "robustness.adversarial_error",
    "Adapted": "adapter",
    "AuditReport": "audit",
    "adapt": "adapter",
    "PerturbationError": "stability.perturbation",
    "StabilityRadius": "stability.perturbation",
    "perturbation_error": "stability.perturbation",
    "stability_radius": "stability.perturbation",
    "GradientFlow": "gradients.flow",
    "gradient_flow": "gradients.flow",
    "HessianSpectrum": "curvature.hessian",
    "LossSurface": "curvature.surface",
    "hessian_spectrum": "curvature.hessian",
    "loss_surface": "curvature.surface",
    "AdversarialAccuracy": "robustness.adversarial",
    "AuditResult": "base",
    "Calibration": "generalization.calibration",
    "GeneralizationGap": "generalization.gap",
    "calibration": "generalization.calibration",
    "generalization_gap": "generalization.gap",
    "CertifiedRadius": "robustness.certified_radius",
    "certified_radius": "robustness.certified_radius",
    "CertifiedStability": "stability.certified_stability",
    "FixedPoints": "stability.fixed_points",
    "LinearizedGRU": "stability.linearized_gru",
    "linearized_gru": "stability.linearized_gru",
    "LinearizedLSTM": "stability.linearized_lstm",
    "linearized_lstm": "stability.linearized_lstm",
    "LyapunovSpectrum": "stability.lyapunov_spectrum",
    "ExponentialSum": "memory.exponential_sums",
    "fit_exponential_sum": "memory.exponential_sums",
    "perturbed_sum_error": "memory.exponential_sums",
    "MemoryFunction": "memory.function",
    "NoiseAccuracy": "robustness.noise",
    "OscillatorGradients": "gradients.oscillator_gradients",
    "OscillatorSaddles": "stability.oscillator_saddles",
    "OscillatorStates": "stability.oscillator_states",
    "RepeatedTokens": "memory.tokens",
    "StateSpectrum": "stability.state_spectrum",
    "certified_stability": "stability.certified_stability",
    "fixed_points": "stability.fixed_points",
    "lyapunov_spectrum": "stability.lyapunov_spectrum",
    "adversarial_accuracy": "robustness.adversarial",
    "memory_function": "memory.function",
    "noise_accuracy": "robustness.noise",
    "oscillator_gradient_bounds": "gradients.oscillator_gradients",
    "oscillator_saddles": "stability.oscillator_saddles",
    "oscillator_state_bound": "stability.oscillator_states",
    "state_spectrum": "stability.state_spectrum",
    "token_memory": "memory.tokens",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"sostenuto.audits.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sostenuto.audits' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
