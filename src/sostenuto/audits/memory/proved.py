"""What is proved of a recurrence's memory, beside what is measured of the model's answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from sostenuto.audits.model import still_copy
from sostenuto.nn.certificates.memory import EVER, rounded
from sostenuto.nn.certified import Certified
from sostenuto.report.numbers import number
from sostenuto.results import Numbers, Record


@dataclass(frozen=True, kw_only=True)
class ProvedMemory(Record):
    """The least and the largest share of a difference of two states that is left at each lag, for every input.

    A side that is not proved is empty. ``told`` says it in a sentence, ``conditions`` what it assumes.
    """

    lags: tuple[int, ...]
    remembers_at_least: Numbers
    forgets_at_most: Numbers
    told: str
    norm: str
    conditions: tuple[str, ...]

    def draw(self, ax: Any, floor: float) -> None:
        """Add both curves to the figure of the measured ones."""
        lags = np.asarray(self.lags) + 1
        for values, label, style in ((self.remembers_at_least, "least", "-."), (self.forgets_at_most, "most", ":")):
            if values:
                ax.plot(lags, np.clip(values, floor, 10), linestyle=style, label=f"the state, proved: at {label}")


def proved_memory(model: nn.Module, lags: Sequence[int]) -> ProvedMemory | None:
    """Ask the model's recurrent layer for its certificate; None where there is none, several, or nothing is proved."""
    every = [module for module in model.modules() if isinstance(module, Certified)]
    inside = {part for module in every for part in module.modules() if part is not module}
    layers = [module for module in every if module not in inside]
    if len(layers) != 1:
        return None
    certificate = still_copy(layers[0]).memory_certificate()
    if not certificate.holds:
        return None
    low, high = certificate.curves(lags)
    forgets = certificate.forgets_at_most is not None and bool(np.isfinite(high).all())
    parts = []
    if certificate.remembers_at_least > 0:
        least = certificate.remembers_at_least
        later = "for ever" if least >= EVER else f"for at least {number(rounded(least, up=False))} steps"
        parts.append(f"half of what its state holds is kept {later}")
    if certificate.forgets_at_most is not None:
        most = rounded(certificate.forgets_at_most, up=True)
        parts.append(f"half of what its state holds is gone after {number(most)} steps at most")
    return ProvedMemory(
        lags=tuple(int(lag) for lag in lags),
        remembers_at_least=tuple(low.tolist()) if certificate.remembers_at_least > 0 else (),
        forgets_at_most=tuple(high.tolist()) if forgets else (),
        told=f"Proved for every input: {' and '.join(parts)}",
        norm=certificate.norm,
        conditions=certificate.conditions,
    )
