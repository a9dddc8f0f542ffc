"""Certificates side by side with measurement: what is proved of a recurrence, and what it does on the data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult, Check, Judged
from sostenuto.audits.clock import clock_of
from sostenuto.audits.context import AuditContext, seconds_of
from sostenuto.audits.model import still_copy
from sostenuto.audits.stability.judged_certificate import JudgedCertificate, described
from sostenuto.audits.stability.layer_fields import field_jacobians, own_places
from sostenuto.audits.stability.recurrence_trace import Recurrence, RecurrenceTrace, trace_recurrence
from sostenuto.audits.stability.state_map import find_recurrence, map_of_layer
from sostenuto.audits.stability.state_samples import StateSamples, sample_states
from sostenuto.checks import check_count
from sostenuto.nn.base import Contract
from sostenuto.nn.certificates import Certificate, MemoryCertificate, discrete, refused
from sostenuto.training.processes import environment

KINDS = ("contraction", "lure", "discrete")
METHOD = (
    "Certificates are proofs from the weights alone; beside each stands the slowest contraction (how fast nearby "
    "states approach each other) seen at steps of the data, in the certificate's own norm."
)


@dataclass(frozen=True, kw_only=True)
class CertifiedStability(AuditResult):
    """All certificates of all layers beside measurement; ``certified`` is whether the map that is run is proved."""

    judged: tuple[JudgedCertificate, ...]
    looked_at: int
    memory: MemoryCertificate | None = None

    @property
    def remembers(self) -> bool:
        """Say whether a memory of some steps is proved for every input."""
        return self.memory is not None and self.memory.remembers_at_least > 0

    @property
    def certified(self) -> bool:
        """Say whether every layer's discrete map provably forgets its start under every input."""
        steps = [one.certificate.holds for one in self.judged if one.certificate.kind == "discrete"]
        return bool(steps) and all(steps)

    @property
    def contradicted(self) -> bool:
        """Say whether any certificate is contradicted by the data."""
        return any(one.contradicted for one in self.judged)

    def summary(self) -> str:
        """Say what is proved and what was seen."""
        said = described(self.judged, self.looked_at)
        if self.memory is not None and self.memory.holds:
            said = f"{self.memory.summary()} {said.replace('No certificate applies', 'Nothing more is proved', 1)}"
        return f"{said} A certificate is contradicted, please report it." if self.contradicted else said

    def plot(self, ax: Any) -> None:
        """Draw the certified and the measured rate of each certificate; where none holds, the proved memory."""
        if self.memory is not None and self.remembers and not any(one.certificate.holds for one in self.judged):
            _draw_memory(ax, self.memory)
            return
        names = [f"{one.certificate.kind}, layer {one.layer + 1}" for one in self.judged]
        places = np.arange(len(names))
        proved = [one.certificate.rate or 0.0 if one.certificate.holds else 0.0 for one in self.judged]
        ax.bar(places - 0.2, proved, 0.4, label="certified (0: none)")
        ax.bar(places + 0.2, [one.measured or 0.0 for one in self.judged], 0.4, label="slowest measured")
        ax.axhline(0.0, color="gray")
        crowded = len(names) > 4
        ax.set_xticks(places, names, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        ax.set_xlabel("certificate")
        ax.set_ylabel("rate of contraction")
        # Bars of either sign fill the axes, so the names stand above them.
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def certified_stability(
    model: Recurrence,
    X: Any = None,  # noqa: N803
    *,
    points: int = 64,
    start: Any = None,
    steps: int | None = None,
    lengths: Any = None,
    seed: int = 0,
) -> CertifiedStability:
    """Ask every layer for its certificates and hold each against the Jacobians met along the data.

    A certificate with the norm |δ|_P = √(δᵀPδ) and rate r says of every Jacobian J of the vector field that
    PJ + JᵀP ≼ −2rP, and of every Jacobian of the step that JᵀPJ ≼ e^{−2r}P. The slowest rate measured is the largest r
    for which all steps looked at fulfill that. In a stack each layer is judged as it reads the one below. Reference:
    erichson2021, proposition 1, as corrected in ``docs/errata.md`` (erichson2021.1 and erichson2021.4).

    Args:
        model: a recurrent layer, a model that calls one once, or a function f(h, x) → h of one state and one input.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``; None for a
            function without input.
        points: steps of the data at which Jacobians are looked at.
        start: first state for a function, ``(state,)`` or ``(n, state)``.
        steps: how many steps a function without input takes.
        lengths: true length of each row of a padded array ``X``.
        seed: for a model that draws random numbers.

    >>> found = certified_stability(nn.GRU(1, 3), torch.zeros(1, 5, 1))
    >>> found.certified, found.judged[0].certificate.reason
    (False, 'not applicable: the form h ← Fh + Qσ(Wh + z) fails (GRU has another form)')
    """
    check_count("points", points)
    trace = trace_recurrence(model, X, lengths=lengths, start=start, steps=steps, seed=seed)
    seen = sample_states(trace, points)
    judged = [
        JudgedCertificate(level, _without_matrices(found), _measured(jacobians, found))
        for level, found, jacobians in _questions(trace, seen)
    ]
    return CertifiedStability(
        model=trace.model,
        method=METHOD,
        seed=seed,
        settings={},
        checksum=trace.checksum,
        environment=environment(trace.device),
        judged=tuple(judged),
        looked_at=len(seen.before),
        memory=still_copy(layer).memory_certificate() if isinstance(layer := trace.map.layer, Contract) else None,
    )


def _draw_memory(ax: Any, memory: MemoryCertificate) -> None:
    """Draw what is left of a difference at least, and at most where that is bounded, over five half-lives."""
    horizon = min(5 * memory.remembers_at_least, 1e5)
    lags = np.unique(np.linspace(0, max(horizon, 10.0), 200).round())
    low, high = memory.curves(lags)
    ax.plot(lags, 100 * low, label="proved: at least")
    if np.isfinite(high).all() and high.max() <= 10:
        ax.plot(lags, 100 * high, label="proved: at most")
    ax.axhline(50, color="gray", linewidth=0.8)
    ax.set_ylim(0, None)
    ax.set_xlabel("steps, whatever is read")
    ax.set_ylabel("left of what the state holds, %")
    ax.legend()


def _questions(trace: RecurrenceTrace, seen: StateSamples) -> list[tuple[int, Certificate, Tensor | None]]:
    """List every certificate with the Jacobians it speaks of."""
    # Certificates are reckoned on the CPU, whatever the layer's device.
    layer: Any = None if trace.map.layer is None else still_copy(trace.map.layer)
    parts = zip(seen.before.split(16), seen.inputs.split(16), strict=True)
    whole = torch.cat([trace.map.jacobian(h, x).detach() for h, x in parts])
    if not isinstance(layer, Contract):
        if not isinstance(layer, nn.RNN):
            why = refused("discrete", "the form h ← Fh + Qσ(Wh + z)", f"{trace.map.name} has another form")
            return [(0, why, whole)]
        hidden = layer.hidden_size
        places = [torch.arange(level * hidden, (level + 1) * hidden) for level in range(layer.num_layers)]
        return [(level, _plain_unit(layer, level), whole[:, own][:, :, own]) for level, own in enumerate(places)]
    fields = field_jacobians(cast(nn.Module, layer), seen)
    found = []
    for level in range(layer.num_layers):  # pyright: ignore[reportAttributeAccessIssue]
        own = own_places(layer, level)
        for kind in KINDS:
            certificate = layer.certificate(kind, layer=level)
            if kind == "discrete" and isinstance(layer, nn.RNN) and not certificate.holds:
                certificate = _plain_unit(layer, level)
            met = whole[:, own][:, :, own] if kind == "discrete" else fields.get(level)
            found.append((level, certificate, met))
    return found


def _plain_unit(layer: nn.RNN, level: int) -> Certificate:
    """Certify h ← σ(Wh + z): the map with F = 0 and Q = I."""
    weight = getattr(layer, f"weight_hh_l{level}").detach()
    return discrete(torch.zeros_like(weight), weight, str(layer.nonlinearity))


def _measured(jacobians: Float[Tensor, "point n n"] | None, certificate: Certificate) -> float | None:
    """Give the slowest contraction in the certificate's norm, or in the Euclidean one where it has none."""
    if jacobians is None:
        return None
    scaled = jacobians
    if certificate.metric:
        root = torch.linalg.cholesky(torch.tensor(certificate.metric, dtype=torch.float64)).mT
        scaled = torch.linalg.solve(root, root @ jacobians, left=False)
    if certificate.kind == "discrete":
        return -float(torch.linalg.matrix_norm(scaled, 2).max().clamp_min(1e-300).log())
    return -float(torch.linalg.eigvalsh((scaled + scaled.mT) / 2).max())


def _without_matrices(certificate: Certificate) -> Certificate:
    """Drop P and Λ from the record: a page needs the numbers, not the proof, which the layer gives again."""
    return replace(certificate, metric=(), multipliers=())


def _run(context: AuditContext) -> CertifiedStability:
    step_map = map_of_layer(find_recurrence(context.model), context.data.values.shape[1])
    h, x = (torch.zeros(1, size, dtype=torch.float64) for size in (step_map.state_size, step_map.input_size))
    clock = clock_of(context.model)
    each = min(seconds_of(lambda: step_map.jacobian(h, x), clock) for _ in range(3))  # the first call may compile
    points = min(max(int(context.share / (16 * each)), 1), 16)
    return certified_stability(context.model, **context.few(4), points=points, seed=context.seed)


def _judge(result: CertifiedStability, limits: Mapping[str, float]) -> Judged:  # noqa: ARG001 (a proof has none)
    if result.contradicted:
        return Judged("bad", "Contradicted")
    if result.certified:
        return Judged("good", "Proved stable")
    return Judged("good", "Memory proved") if result.remembers else Judged("unknown", "Not proved")


CHECK = Check(
    name="certificates",
    title="What is proved of its state?",
    caption="Guarantees from the weights alone, beside what the data show.",
    order=30,
    result=CertifiedStability,
    run=_run,
    judge=_judge,
    needs=("module", "state"),
)
