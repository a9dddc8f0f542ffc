"""Which units of a UnICORNN have a saddle at rest, and how fast the others can be driven into resonance."""

import hashlib
from dataclasses import dataclass
from typing import Any

from torch import nn

from sostenuto.audits.applicability import not_applicable
from sostenuto.audits.base import AuditResult
from sostenuto.audits.model import place_of
from sostenuto.audits.oscillators import Cell, cells, find_oscillators
from sostenuto.report.numbers import counted, number
from sostenuto.results import Numbers, Record
from sostenuto.theory.oscillator import resonance_growth, saddle_growth
from sostenuto.training.processes import environment


@dataclass(frozen=True)
class SaddleUnits(Record):
    """One layer and direction: the units with w < −α, and what a drive can do to the others.

    ``condition`` is empty where w ≥ −α holds for all units. ``saddles`` lists the others by index and ``saddle_growth``
    the logarithm by which their gradient grows per step at rest without drive. ``resonant`` counts the units *within*
    the condition whose gradient grows under some drive that switches to and fro, and ``resonance_growth`` is the
    largest logarithm per step found so: a lower bound on what inputs can do.
    """

    name: str
    units: int
    condition: str
    margin: float
    saddles: tuple[int, ...]
    saddle_growth: Numbers
    resonant: int
    resonance_growth: float


@dataclass(frozen=True, kw_only=True)
class OscillatorSaddles(AuditResult):
    """The condition w ≥ −α in every layer, and what it does not give."""

    layers: tuple[SaddleUnits, ...]

    @property
    def holds(self) -> bool:
        """Say whether no unit has a saddle at rest; gradients may explode all the same."""
        return not any(found.saddles for found in self.layers)

    def summary(self) -> str:
        """Say which units have a saddle, and that the others are not safe either."""
        said = "; ".join(_sentence(found) for found in self.layers)
        return f"{said[0].upper()}{said[1:]}. Keeping w ≥ −α removes saddles, no more: it does not bound gradients."

    def plot(self, ax: Any) -> None:
        """Draw the growth per step of each layer: at its worst saddle, and under the switching drive."""
        names = [found.name for found in self.layers]
        places = range(len(names))
        ax.bar([p - 0.2 for p in places], [max((0.0, *f.saddle_growth)) for f in self.layers], 0.4, label="saddle")
        ax.bar([p + 0.2 for p in places], [f.resonance_growth for f in self.layers], 0.4, label="resonance")
        ax.set_xticks(list(places), names)
        ax.set_xlabel("layer")
        ax.set_ylabel("growth of the gradient, logarithm per step")
        ax.legend()


def oscillator_saddles(model: nn.Module) -> OscillatorSaddles:
    """Check w ≥ −α for every unit of a UnICORNN, from its weights alone.

    A unit with w < −α has a saddle at rest without drive, and its gradient grows there by 2·asinh(h√(−α−w)/2) a step.
    A unit with w ≥ −α has none, yet its gradient can still grow exponentially: an input that moves its curvature
    between α and α + w in time with its oscillation drives Hill's equation into resonance. The growth under the worst
    of some such drives is reported, computed from the product of Jacobians over one period. Reference: rusch2021,
    proposition 3.1, as corrected in ``docs/errata.md`` (rusch2021.1).

    >>> from sostenuto.nn import UnICORNN
    >>> result = oscillator_saddles(UnICORNN(1, 4, stiffness=1.0, positive=True))
    >>> result.holds, result.layers[0].resonance_growth > 0
    (True, True)
    """
    layer = find_oscillators(model)
    parts = cells(layer)
    digest = hashlib.sha256(str(layer.stiffness).encode())
    for cell in parts:
        digest.update(cell.weight.numpy().tobytes() + cell.step.numpy().tobytes())
    return OscillatorSaddles(
        model=type(model).__name__,
        method="Read off the weights: the sign of w + α, and the product of Jacobians over a period of a drive.",
        seed=0,
        settings={"stiffness": layer.stiffness},
        checksum=digest.hexdigest()[:16],
        environment=environment(str(place_of(model)[0])),
        layers=tuple(_units(cell) for cell in parts),
    )


def _units(cell: Cell) -> SaddleUnits:
    margin = cell.weight + cell.stiffness
    fits = margin >= 0
    growth = saddle_growth(cell.step, cell.weight, cell.stiffness)
    swing = resonance_growth(cell.step, cell.weight, cell.stiffness).nan_to_num(nan=0.0) * fits
    return SaddleUnits(
        name=cell.name,
        units=len(margin),
        condition=not_applicable("w ≥ −α", cell.weight, fits),
        margin=float(margin.min()),
        saddles=tuple((~fits).nonzero().flatten().tolist()),
        saddle_growth=tuple(growth[~fits].tolist()),
        resonant=int((swing > 0).sum()),
        resonance_growth=float(swing.max()),
    )


def _sentence(found: SaddleUnits) -> str:
    if found.saddles:
        worst = max(found.saddle_growth)
        said = (
            f"{len(found.saddles)} of {counted(found.units, 'unit')} of {found.name} have a saddle at rest (w < −α, "
            f"growth e^{number(worst)} a step)"
        )
    else:
        said = f"no unit of {found.name} has a saddle at rest (w ≥ −α by {number(found.margin)})"
    if found.resonant:
        swing = number(found.resonance_growth)
        said += f", and a drive makes {found.resonant} of the units without one resonate, by up to e^{swing} a step"
    return said
