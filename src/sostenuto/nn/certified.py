"""What every layer can be asked to prove: that it forgets its start, and for how long it remembers."""

import math
from dataclasses import replace
from typing import ClassVar, cast

import torch
from torch import nn

from sostenuto.checks import check_choice, check_positive, require
from sostenuto.nn.certificates import KINDS, Certificate, MemoryCertificate, changed, not_provable, refused

GATED = "a gate can close, and then nothing of the state is left, or stay open, and then all of it"


class Certified:
    """The certificates of a layer; a subclass gives `_certify` and `_certify_memory`, or the reason why it has none."""

    continuous: ClassVar[bool] = True
    """Whether the recurrence is a step of a differential equation, so that ``timespans`` has a meaning."""
    no_memory_proof: ClassVar[str] = "the recurrence has no form that a proof is known for"
    """Why `memory_certificate` proves nothing, where it does not."""
    num_layers: int

    @torch.no_grad()
    def certificate(
        self,
        kind: str = "contraction",
        *,
        layer: int = 0,
        reverse: bool = False,
        spans: float | tuple[float, float] | None = None,
    ) -> Certificate:
        """Return whether one layer provably forgets its start, or which condition fails; see `nn.certificates`.

        Args:
            kind: ``contraction`` and ``lure`` for the differential equation, ``discrete`` for the map that is run;
                ``settling`` and ``discrete settling`` ask less, of units without a linear part: rest under a constant
                input.
            layer: which one of a stack; each is judged as it reads the one below. Layers that forget one by one forget
                together.
            reverse: whether the second direction is meant.
            spans: the time spans that a discrete kind has to cover: one, or the least and the largest. Without them the
                certificate is about calls without ``timespans``, and says nothing of others.

        Returns:
            The certificate; a subclass that changes a method of the recurrence gets none.
        """
        check_choice("kind", kind, tuple(KINDS))
        if spans is not None:
            hint = "spans are steps of the map that is run; ask for 'discrete'"
            require(kind.startswith("discrete"), f"expected no spans with {kind!r}", "got some", hint)
            self.refuse_timespans(None if self.continuous else spans)
        if why := self._unlike_the_library():
            return refused(kind, "a recurrence as the library defines it", why)
        return self._certify(kind, layer, reverse, _span_range(spans))

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:  # noqa: ARG002
        name = type(self).__name__.removeprefix("Parametrized")
        if not self.continuous and kind != "discrete":
            return refused(kind, "a differential equation", f"{name} is a discrete map")
        return refused(kind, "a linear part plus slopes, Ah + Bσ(Wh + z)", f"{name} has another form")

    @torch.no_grad()
    def memory_certificate(
        self, *, spans: float | tuple[float, float] | None = None, drive: float | None = None
    ) -> MemoryCertificate:
        """Say for how many steps the layer provably remembers, and after how many it has provably forgotten.

        The statement is about the difference of two states that read the same input, for every input; see
        ``docs/memory.md`` for the proofs.

        Args:
            spans: the time spans that it has to cover: one, or the least and the largest. Without them it is about
                calls without ``timespans``.
            drive: A, where every argument of the activation is known to stay between −A and A: then σ keeps a least
                slope, and more can be proved. Of linear units it is a bound on what they read, |Vu + b|.

        Returns:
            The certificate; a subclass that changes a method of the recurrence gets an empty one.
        """
        if spans is not None:
            self.refuse_timespans(None if self.continuous else spans)
        if drive is not None:
            check_positive("drive", drive, zero=True)
        if why := self._unlike_the_library():
            return not_provable(why, layers=self.num_layers)
        certificate = self._certify_memory(_span_range(spans), drive)
        if not certificate.holds:
            return certificate
        assumed = certificate.conditions
        if self.num_layers > 1 and getattr(self, "dropout", 0.0):
            assumed = ("eval mode: dropout, which acts between layers in training, enlarges what passes", *assumed)
        if drive is not None:
            assumed = (f"arguments of the activation between −{drive:g} and {drive:g}", *assumed)
        return replace(certificate, drive=drive, conditions=assumed)

    def _unlike_the_library(self) -> str:
        """Say why no theorem is about this layer: other code, or weights that are no numbers."""
        module = cast(nn.Module, self)
        if why := changed(module):
            return why
        broken = [name for name, value in module.named_parameters() if not bool(value.isfinite().all())]
        return f"{broken[0]} is not finite" if broken else ""

    def _certify_memory(
        self,
        spans: tuple[float, float],  # noqa: ARG002
        drive: float | None,  # noqa: ARG002
    ) -> MemoryCertificate:
        return not_provable(self.no_memory_proof, layers=self.num_layers)

    def refuse_timespans(self, timespans: object) -> None:
        """Refuse time spans where the recurrence is a discrete map."""
        name = type(self).__name__.removeprefix("Parametrized")
        hint = "use a continuous-time layer such as UnICORNN, LipschitzRNN or ResidualGRU for irregular sampling"
        require(timespans is None, f"expected no timespans: {name} is a discrete map", "got some", hint)


def _span_range(spans: float | tuple[float, float] | None) -> tuple[float, float]:
    both = (1.0, 1.0) if spans is None else spans if isinstance(spans, tuple) else (spans, spans)
    low, high = float(both[0]), float(both[-1])
    expected = "expected spans to be a finite number above 0, or the least and the largest"
    require(len(both) == 2 and 0 < low <= high < math.inf, expected, f"got {spans}")
    return low, high
