"""Checks of any trained sequence model, each answered by a frozen record of numbers; one method per file.

`audit` runs the checks of a report; the others stand alone. Records are found beside the functions that return them.
Names are imported when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sostenuto.audits.adapter import adapt
    from sostenuto.audits.audit import AuditReport
    from sostenuto.audits.base import AuditResult, Check
    from sostenuto.audits.curvature.hessian import hessian_spectrum
    from sostenuto.audits.curvature.surface import loss_surface
    from sostenuto.audits.generalization.calibration import calibration
    from sostenuto.audits.generalization.gap import generalization_gap
    from sostenuto.audits.generalization.skill import skill
    from sostenuto.audits.gradients.flow import gradient_flow
    from sostenuto.audits.gradients.oscillator_gradients import oscillator_gradient_bounds
    from sostenuto.audits.memory.attribution import attribution
    from sostenuto.audits.memory.data_memory import data_memory
    from sostenuto.audits.memory.exponential_sums import fit_exponential_sum, perturbed_sum_error
    from sostenuto.audits.memory.function import memory_function
    from sostenuto.audits.memory.tokens import token_memory
    from sostenuto.audits.robustness.adversarial import adversarial_accuracy
    from sostenuto.audits.robustness.certified_accuracy import certified_accuracy
    from sostenuto.audits.robustness.certified_radius import certified_radius
    from sostenuto.audits.robustness.noise import noise_accuracy
    from sostenuto.audits.stability.certified_stability import certified_stability
    from sostenuto.audits.stability.fixed_points import fixed_points
    from sostenuto.audits.stability.linearized_unit import linearized_gru, linearized_lstm
    from sostenuto.audits.stability.lyapunov_spectrum import lyapunov_spectrum
    from sostenuto.audits.stability.oscillator_saddles import oscillator_saddles
    from sostenuto.audits.stability.oscillator_states import oscillator_state_bound
    from sostenuto.audits.stability.perturbation import perturbation_error, stability_radius
    from sostenuto.audits.stability.state_spectrum import state_spectrum
    from sostenuto.audits.stability.teacher_filter import teacher_filter

_HOMES = {
    "adapter": ("adapt",),
    "audit": ("AuditReport",),
    "base": ("AuditResult", "Check"),
    "curvature.hessian": ("hessian_spectrum",),
    "curvature.surface": ("loss_surface",),
    "generalization.calibration": ("calibration",),
    "generalization.gap": ("generalization_gap",),
    "generalization.skill": ("skill",),
    "gradients.flow": ("gradient_flow",),
    "gradients.oscillator_gradients": ("oscillator_gradient_bounds",),
    "memory.attribution": ("attribution",),
    "memory.data_memory": ("data_memory",),
    "memory.exponential_sums": ("fit_exponential_sum", "perturbed_sum_error"),
    "memory.function": ("memory_function",),
    "memory.tokens": ("token_memory",),
    "robustness.adversarial": ("adversarial_accuracy",),
    "robustness.certified_accuracy": ("certified_accuracy",),
    "robustness.certified_radius": ("certified_radius",),
    "robustness.noise": ("noise_accuracy",),
    "stability.certified_stability": ("certified_stability",),
    "stability.fixed_points": ("fixed_points",),
    "stability.linearized_unit": ("linearized_gru", "linearized_lstm"),
    "stability.lyapunov_spectrum": ("lyapunov_spectrum",),
    "stability.oscillator_saddles": ("oscillator_saddles",),
    "stability.oscillator_states": ("oscillator_state_bound",),
    "stability.perturbation": ("perturbation_error", "stability_radius"),
    "stability.state_spectrum": ("state_spectrum",),
    "stability.teacher_filter": ("teacher_filter",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AuditReport",
    "AuditResult",
    "Check",
    "adapt",
    "adversarial_accuracy",
    "attribution",
    "calibration",
    "certified_accuracy",
    "certified_radius",
    "certified_stability",
    "data_memory",
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
    "oscillator_gradient_bounds",
    "oscillator_saddles",
    "oscillator_state_bound",
    "perturbation_error",
    "perturbed_sum_error",
    "skill",
    "stability_radius",
    "state_spectrum",
    "teacher_filter",
    "token_memory",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"sostenuto.audits.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'sostenuto.audits' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
