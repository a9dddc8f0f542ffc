"""Checks of any trained sequence model, each answered by a frozen record of numbers; one method per file.

`audit` runs the checks of a report; the others stand alone. Records are found beside the functions that return them.
Names are imported when first used.
"""

from typing import TYPE_CHECKING

from sostenuto.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, __file__)
