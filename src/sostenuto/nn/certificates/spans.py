"""Both sides over an interval of time spans, for steps that move the map M(τ) along a curve."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from sostenuto.nn.certificates.certificate import Certificate
from sostenuto.nn.certificates.inequality import proved
from sostenuto.nn.certificates.system import SectorSystem

_STRETCHES = (4, 16, 64, 256)
_WORK = 3000
"""Stretches times states beyond which the interval is not cut finer."""
_NEAR = 0.8
"""What is proved of the interval ends the search where it is this share of what single spans prove."""

Metric = Float[np.ndarray, "state state"]


@dataclass(frozen=True, eq=False)
class Derivative:
    """One term of a map's derivative over a stretch of spans: at most ``size`` times A + B diag(k) C of ``part``.

    With a ``resolvent`` J the part is multiplied by (I − tJ)^{−power}, t in [0, 1].
    """

    size: float
    part: SectorSystem
    resolvent: Metric | None = None
    power: int = 0


@dataclass(frozen=True, eq=False)
class SpanCurve:
    """The maps M(τ) of all time spans between two, and the terms of their derivatives of order 1 and 2.

    On a stretch [a, b] a map leaves the chord between M(a) and M(b) by at most (b − a)²/8·max‖M″‖, and a norm is convex
    on a chord: that bounds growth. It differs from the map in the middle by at most (b − a)/2·max‖M′‖: that bounds
    decay. Both are for every choice of slopes, in the one norm √(δᵀPδ).
    """

    spans: tuple[float, float]
    at: Callable[[float], SectorSystem]
    derivative: Callable[[int, float, float], list[Derivative]] = field(repr=False)

    def slowest(self, metric: Metric, multipliers: Float[np.ndarray, " unit"]) -> float | None:
        """Return a rate above 0 at which every difference decays, in every span; multipliers are per unit of span."""
        best = 0.0
        for ends in self._cuts(len(metric)):
            rates = [self._rate(span, metric, multipliers, lower=False) for span in ends]
            kept = [np.exp(-rate) if rate is not None else np.inf for rate in rates]
            most = max(
                max(first, second) + (b - a) ** 2 / 8 * self._bound(2, a, b, metric)
                for (a, b), (first, second) in zip(itertools.pairwise(ends), itertools.pairwise(kept), strict=True)
            )
            best = max(best, -float(np.log(most)) * (1 - 1e-12)) if most < np.inf else best
            if max(kept) == np.inf or best >= -_NEAR * np.log(max(kept)):
                break
        return best if best > 0 else None

    def fastest(self, metric: Metric, multipliers: Float[np.ndarray, " unit"]) -> float | None:
        """Return a rate that no difference exceeds in any span; None where none is proved."""
        best = np.inf
        for ends in self._cuts(len(metric)):
            least, alone = np.inf, np.inf
            for a, b in itertools.pairwise(ends):
                rate = self._rate((a + b) / 2, metric, multipliers, lower=True)
                alone = min(alone, np.exp(-rate)) if rate is not None else 0.0
                least = min(least, alone - (b - a) / 2 * self._bound(1, a, b, metric))
            best = min(best, -float(np.log(least)) * (1 + 1e-12) + 1e-15) if least > 0 else best
            if alone == 0 or best * _NEAR <= -np.log(alone):
                break
        return best if best < np.inf else None

    def push(self, metric: Metric) -> float:
        """Bound what a drive of size 1 adds in one step, in any span."""
        root, most = np.linalg.cholesky(metric).T, 0.0
        for a, b in itertools.pairwise(self._ends(_STRETCHES[1])):
            terms = self.derivative(1, a, b)
            away = sum(term.size * np.linalg.norm(root @ term.part.input, 2) * _spread(term, root) for term in terms)
            middle = np.linalg.norm(root @ self.at((a + b) / 2).input, 2)
            most = max(most, float(middle + (b - a) / 2 * away))
        return most * _slack(metric)

    def _ends(self, count: int) -> list[float]:
        low, high = self.spans
        return [low, *(low * (high / low) ** (np.arange(1, count) / count)).tolist(), high]

    def _cuts(self, states: int) -> list[list[float]]:
        counts = [count for count in _STRETCHES if count == _STRETCHES[0] or count * states <= _WORK]
        return [self._ends(count) for count in counts]

    def _rate(self, span: float, metric: Metric, multipliers: np.ndarray, *, lower: bool) -> float | None:
        """Prove one span's rate with multipliers that grow like the step."""
        system = self.at(span)
        proofs = [
            proved(system, metric, multipliers * span * factor, discrete=True, lower=lower)
            for factor in ((0.5, 1.0, 2.0) if multipliers.any() else (1.0,))
        ]
        rates = [proof.rate for proof in proofs if proof is not None]
        return (min(rates) if lower else max(rates)) if rates else None

    def _bound(self, order: int, low: float, high: float, metric: Metric) -> float:
        """Bound the derivative's norm over a stretch and all slopes: its middle slopes, and half of what they span."""
        root, total = np.linalg.cholesky(metric).T, 0.0
        inverse = np.linalg.inv(root)
        for term in self.derivative(order, low, high):
            part, half = term.part, term.part.slope / 2
            middle = np.linalg.norm(root @ part.at(np.full(part.input.shape[1], half)) @ inverse, 2)
            around = half * np.linalg.norm(root @ part.input, 2) * np.linalg.norm(part.output @ inverse, 2)
            total += term.size * float(middle + around) * _spread(term, root)
        return total * _slack(metric)


def over_curve(curve: SpanCurve, prove: Callable[[float], Certificate]) -> Certificate | None:
    """Find one norm that proves a rate in every span: that of the shortest, where decay is least, or of the longest."""
    best = None
    for span in curve.spans:
        proof = prove(span)
        if not proof.holds:
            return None
        system = curve.at(span)
        metric, multipliers = np.array(proof.metric), np.array(proof.multipliers)
        if not proof.metric:
            metric, lean = np.eye(len(system.linear)), system.slope * np.linalg.norm(system.output, 2)
            multipliers = np.full(system.input.shape[1], np.linalg.norm(system.input, 2) / max(lean, 1e-300))
        rate = curve.slowest(metric, multipliers / span)
        if rate is not None and (best is None or rate > (best.rate or 0.0)):
            best = replace(proof, rate=rate)
        if best is not None and (best.rate or 0.0) >= _NEAR * (proof.rate or 0.0):
            break
    return best


def _spread(term: Derivative, root: np.ndarray) -> float:
    if term.resolvent is None:
        return 1.0
    size = float(np.linalg.norm(root @ term.resolvent @ np.linalg.inv(root), 2)) * (1 + 1e-9)
    return (1 - size) ** -term.power if size < 1 else np.inf


def _slack(metric: Metric) -> float:
    """Count the rounding of norms in other coordinates."""
    return 1 + 1e-12 + 64 * len(metric) * float(np.finfo(np.float64).eps) * float(np.linalg.cond(metric))
