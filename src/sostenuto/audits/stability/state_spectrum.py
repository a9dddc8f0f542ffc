"""The spectrum of the linear part: eigenvalues of the step's Jacobian at rest and along the data."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.audits.base import AuditResult
from sostenuto.audits.stability.layer_fields import field_jacobians
from sostenuto.audits.stability.recurrence_trace import Recurrence, RecurrenceTrace, trace_recurrence
from sostenuto.audits.stability.state_samples import sample_states
from sostenuto.checks import check_count
from sostenuto.report.numbers import counted, number
from sostenuto.results import Numbers
from sostenuto.theory.transient import norms_over_time, transient_growth
from sostenuto.training.processes import environment

METHOD = (
    "Eigenvalues and powers of the Jacobian of the step map at the zero state under the mean input, and eigenvalues at "
    "steps spread evenly over the data; for a layer with a vector field, the real parts of its Jacobian beside them."
)


@dataclass(frozen=True, kw_only=True)
class StateSpectrum(AuditResult):
    """Eigenvalues of the step's Jacobian at the zero state, and what they do not tell.

    ``radius`` is the largest modulus at the zero state and ``data_radius`` the largest along the data. ``norms`` are
    ‖Jᵏ‖₂ for the ``powers`` k; ``peak`` is the largest of all of them, at most ``peak_bound``, and ``kreiss`` a lower
    bound on Kreiss' constant: None where the radius is not below 1 and norms grow for ever. ``abscissa`` is the largest
    real part of the vector field's Jacobian along the data, None for a discrete map; ``steps_disagree`` says that
    the field is stable at every point looked at while its steps are not: the step is too long.
    """

    eigenvalues_real: Numbers
    eigenvalues_imaginary: Numbers
    radius: float
    data_radius: float
    looked_at: int
    powers: tuple[int, ...]
    norms: Numbers
    peak: float | None
    peak_bound: float | None
    kreiss: float | None
    abscissa: float | None
    steps_disagree: bool

    def summary(self) -> str:
        """Say how large eigenvalues are, how far norms rise, and whether the steps follow the equation."""
        said = (
            f"The step's Jacobian has spectral radius {number(self.radius)} at the zero state and up to "
            f"{number(self.data_radius)} at {counted(self.looked_at, 'step')} of the data"
        )
        if self.peak is not None and self.peak > 1.005:
            said += f"; before its powers decay their norm rises to {number(self.peak)}"
        elif self.peak is None:
            said += "; its powers do not decay"
        if self.abscissa is not None:
            said += f"; the vector field's largest real part is {number(self.abscissa)}"
        if self.steps_disagree:
            said += ", so the equation is stable there and its steps are not: the step is too long"
        return f"{said}."

    def plot(self, ax: Any) -> None:
        """Draw the norms of the Jacobian's powers beside the decay its eigenvalues promise."""
        ax.plot(self.powers, self.norms, label="norm of the k-th power")
        ax.plot(self.powers, np.float64(self.radius) ** np.asarray(self.powers), linestyle="--", label="radius^k")
        ax.set_yscale("symlog", linthresh=1e-6)
        ax.set_xlabel("k, steps")
        ax.set_ylabel("growth of a small change")
        ax.legend()


def state_spectrum(
    model: Recurrence,
    X: Any = None,  # noqa: N803
    *,
    points: int = 64,
    horizon: int = 100,
    start: Any = None,
    steps: int | None = None,
    lengths: Any = None,
    seed: int = 0,
) -> StateSpectrum:
    """Give the eigenvalues of J = ∂f/∂h at the zero state and along the data, and the transient growth sup_k ‖Jᵏ‖₂.

    Eigenvalues say what happens in the end; a Jacobian that is not normal can magnify a change many times before.
    Reference: wang2024, lemma A.8, as corrected in ``docs/errata.md`` (wang2024.1); for the steps against the equation,
    erichson2021 as corrected (erichson2021.4).

    Args:
        model: a recurrent layer, a model that calls one once, or a function f(h, x) → h of one state and one input.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``; None for a
            function without input.
        points: steps of the data at which the Jacobian is looked at.
        horizon: largest power whose norm is listed.
        start: first state for a function, ``(state,)`` or ``(n, state)``.
        steps: how many steps a function without input takes.
        lengths: true length of each row of a padded array ``X``.
        seed: for a model that draws random numbers.

    >>> matrix = torch.tensor([[0.9, 10.0], [0.0, 0.9]]).double()
    >>> found = state_spectrum(lambda h, x: matrix @ h, start=[1.0, 1.0], steps=3)
    >>> round(found.radius, 3), 35 < found.peak < 45
    (0.9, True)
    """
    check_count("points", points)
    check_count("horizon", horizon)
    trace = trace_recurrence(model, X, lengths=lengths, start=start, steps=steps, seed=seed)
    rest = torch.zeros(1, trace.map.state_size, dtype=torch.float64)
    jacobian = trace.map.jacobian(rest, trace.mean_input[None])[0].detach()
    values = torch.linalg.eigvals(jacobian)
    order = values.abs().argsort(descending=True)
    radius = float(values.abs().max())
    powers = torch.arange(horizon + 1, dtype=torch.float64)
    norms = norms_over_time(jacobian, powers, discrete=True).nan_to_num(posinf=1e300).clamp(max=1e300)
    growth = transient_growth(jacobian, discrete=True) if radius < 1 else None
    data_radius, abscissa, looked_at = _along_data(trace, points)
    return StateSpectrum(
        model=trace.model,
        method=METHOD,
        seed=seed,
        settings={},
        checksum=trace.checksum,
        environment=environment(trace.device),
        eigenvalues_real=tuple(values[order].real.tolist()),
        eigenvalues_imaginary=tuple(values[order].imag.tolist()),
        radius=radius,
        data_radius=data_radius,
        looked_at=looked_at,
        powers=tuple(range(horizon + 1)),
        norms=tuple(norms.tolist()),
        peak=None if growth is None else growth.peak,
        peak_bound=None if growth is None else growth.peak_bound,
        kreiss=None if growth is None else growth.kreiss,
        abscissa=abscissa,
        steps_disagree=abscissa is not None and abscissa < 0 and data_radius >= 1,
    )


def _along_data(trace: RecurrenceTrace, points: int) -> tuple[float, float | None, int]:
    """Give the largest modulus of the step's and the largest real part of the field's Jacobians, and how many."""
    seen = sample_states(trace, points)
    largest = 0.0
    for h, x in zip(seen.before.split(16), seen.inputs.split(16), strict=True):
        largest = max(largest, float(_eigenvalues(trace.map.jacobian(h, x)).abs().max()))
    fields = field_jacobians(trace.map.layer, seen)
    reals = [float(_eigenvalues(field).real.max()) for field in fields.values()]
    return largest, max(reals) if reals else None, len(seen.before)


def _eigenvalues(matrices: Float[Tensor, "point n n"]) -> Tensor:
    return torch.linalg.eigvals(matrices.detach())
