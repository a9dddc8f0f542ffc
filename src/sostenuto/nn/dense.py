"""Layers of the form h ← P h + Q σ(W h + z): what they share on top of the dense scan."""

import copy
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.base import Below, Lengths
from sostenuto.nn.certificates import KINDS, Certificate, DenseUnit, MemoryCertificate, not_provable, refused
from sostenuto.nn.certificates.spans import Derivative, SpanCurve
from sostenuto.nn.certificates.system import SectorSystem, bare, sector_system
from sostenuto.nn.certified import GATED
from sostenuto.nn.fused import FusedLayer
from sostenuto.nn.integrators import EXPLICIT
from sostenuto.nn.map_memory import CertifiedMap, Ends, map_memory
from sostenuto.ops.activation import SLOPES
from sostenuto.ops.dense import driven_scan
from sostenuto.ops.step import Step

Rate = Callable[[Float[Tensor, "*batch G"], Float[Tensor, "*batch S"]], Float[Tensor, "*batch S"]]


class DenseMap(NamedTuple):
    """The matrices of h ← P h + Q σ(W h + z); P and Q may be coefficients between components of the state."""

    weight: Float[Tensor, "H S"]
    linear: Float[Tensor, "P P"]
    gain: Float[Tensor, "S H"] | Float[Tensor, " k"]

    def full(self) -> tuple[Float[Tensor, "S S"], Float[Tensor, "H S"], Float[Tensor, "S H"]]:
        """Return P, W and Q as matrices."""
        units, states = self.weight.shape
        identity = torch.eye(units, dtype=self.weight.dtype, device=self.weight.device)
        linear = self.linear if self.linear.shape[0] == states else torch.kron(self.linear, identity)
        gain = self.gain if self.gain.ndim == 2 else torch.kron(self.gain[:, None], identity)
        return linear, self.weight, gain


class Sector(NamedTuple):
    """The matrices of h′ = A h + B σ(W h + z), B the identity where it is None."""

    linear: Float[Tensor, "S S"]
    weight: Float[Tensor, "H S"]
    gain: Float[Tensor, "S H"] | None = None


class SpanTerm(NamedTuple):
    """A term of the map's derivative by the time span, on a stretch of spans: at most ``size`` times ``part``.

    With a ``resolvent`` J the part is multiplied by (I − tJ)^{−power}, t in [0, 1].
    """

    size: float
    part: Sector
    resolvent: Float[Tensor, "S S"] | None = None
    power: int = 0


class DenseLayer(FusedLayer):
    """A recurrence on `ops.dense`. A subclass gives `discrete_map`, `rate` and, for certificates, `sector`."""

    activation: str = "tanh"
    integrator: str = "euler"
    precision: str = "exact"
    step_size: Any
    """The step of the integrator, a number; None where it is 1/T of each sequence. A discrete map has none."""

    @abstractmethod
    def discrete_map(self, layer: int = 0, *, reverse: bool = False, span: float = 1.0) -> DenseMap:
        """Return P, Q and W of the map that is really run, over a time span."""

    def span_derivative(self, order: int, layer: int, reverse: bool, low: float, high: float) -> list[SpanTerm]:
        """Return terms that bound the first or second derivative of P + QKW by the span, from ``low`` to ``high``."""
        raise NotImplementedError(f"steps of {type(self).__name__} by {self.integrator!r} lie on no curve")

    def sector(self, layer: int = 0, *, reverse: bool = False) -> Sector | str:
        """Return A, B and W of the differential equation, or why there are none."""
        weight = self.weight("weight_hh", layer, reverse)
        return Sector(torch.zeros_like(weight), weight)

    def rate(self, layer: int, reverse: bool) -> Rate:
        """Return dh/dt as a function of drive and state, with the weights read once."""
        raise NotImplementedError(f"layer {layer} ({reverse=}) of {type(self).__name__} is a discrete map")

    def threshold(self, layer: int, reverse: bool) -> Float[Tensor, " H"] | None:  # noqa: ARG002
        """Return the threshold of modReLU; other activations have none."""
        return None

    def enter(
        self,
        layer: int,  # noqa: ARG002
        reverse: bool,  # noqa: ARG002
        below: Below,
        lengths: Lengths,  # noqa: ARG002
    ) -> Float[Tensor, "T B _"]:
        """Return the input as it is: the scan projects it."""
        return below[-1]

    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B d"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Run the dense scan."""
        matrices = self.derived("map", layer, reverse, lambda: self.discrete_map(layer, reverse=reverse))
        return self.scan_map(layer, reverse, entering, start, matrices)

    def scan_map(
        self,
        layer: int,
        reverse: bool,
        entering: Float[Tensor, "T B d"],
        start: Float[Tensor, "B S"],
        matrices: DenseMap,
    ) -> Float[Tensor, "T B S"]:
        """Run the dense scan with given matrices."""
        options = {"backend": self.backend, "precision": self.precision, "threshold": self.threshold(layer, reverse)}
        inputs = (entering, *self.input_map(layer, reverse), start, *matrices)
        return driven_scan(*inputs, activation=self.activation, **options)

    def advance(self, layer: int, reverse: bool) -> Step:
        """Step the vector field by the integrator, the input held through the step."""
        rate, method = self.rate(layer, reverse), EXPLICIT[self.integrator]
        scale = 1.0 if self.step_size is None else self.step_size

        def step(x_t: Tensor, now: tuple[Tensor, ...], span: Tensor | float) -> tuple[Tensor, ...]:
            return (method(lambda h, _: rate(x_t, h), now[0], scale * span),)

        return step

    def vector_field(
        self, h: Float[Tensor, "*batch state"], x: Float[Tensor, "*batch channel"], *, layer: int = 0
    ) -> Float[Tensor, "*batch state"]:
        """Return dh/dt at state ``h`` and input ``x``; one step of the map advances t by the step size."""
        return self.rate(layer, False)(self.drive(layer, False, [x]), h)

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:
        """Test one layer by `nn.certificates`.

        Reference: erichson2021, proposition 1, as corrected in ``docs/errata.md`` (erichson2021.1, erichson2021.4).
        """
        form = self.sector(layer, reverse=reverse)
        if isinstance(form, str):
            return refused(kind, "a linear part plus slopes, Ah + Bσ(Wh + z)", form)
        step_size = getattr(self, "step_size", 1.0)
        name = type(self).__name__.removeprefix("Parametrized")
        unit = DenseUnit(
            name,
            form.linear,
            form.weight,
            form.gain,
            self.activation,
            step_size,
            self.integrator,
            self.fused,
            spans,
            lambda span: self.discrete_map(layer, reverse=reverse, span=span).full(),
            lambda: self._curve(layer, reverse, spans, SLOPES[self.activation]),
        )
        return KINDS[kind](unit)

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        """Bound both sides of the map that is run."""
        if not self.fused or self._has_no_step() or self.activation not in SLOPES:
            return not_provable(self._no_map(), layers=self.num_layers)
        curved = spans[0] != spans[1] and self.integrator not in ("euler", "exact")
        maps: list[list[Ends]] = [[] for _ in range(self.num_layers)]
        for layer, reverse in self.cells():
            ends = [self._certified_map(layer, reverse, span) for span in dict.fromkeys(spans)]
            curve = partial(self._curve, layer, reverse, spans) if curved else None
            maps[layer].append(Ends(ends[0], ends[-1], curve))
        return map_memory(maps, spans, drive, passes=True, clock=self.integrator in ("euler", "exact"))

    def _curve(self, layer: int, reverse: bool, spans: tuple[float, float], slopes: tuple[float, float]) -> SpanCurve:
        """Return the maps of all time spans, in float64."""
        still = copy.deepcopy(self).double()

        def at(span: float) -> SectorSystem:
            linear, weight, gain = still.discrete_map(layer, reverse=reverse, span=span).full()
            return bare(sector_system(linear, weight, gain, slopes))

        def derivative(order: int, low: float, high: float) -> list[Derivative]:
            derivatives = []
            for size, part, resolvent, power in still.span_derivative(order, layer, reverse, low, high):
                matrices = sector_system(part.linear, part.weight, part.gain, slopes)
                turned = None if resolvent is None else resolvent.detach().cpu().numpy()
                derivatives.append(Derivative(size, matrices, turned, power))
            return derivatives

        return SpanCurve(spans, at, derivative)

    def _certified_map(self, layer: int, reverse: bool, span: float) -> CertifiedMap:
        linear, weight, gain = self.discrete_map(layer, reverse=reverse, span=span).full()
        entering = self.weight("weight_ih", layer, reverse)
        return CertifiedMap(linear, weight, gain, entering, self.activation, self.hidden_size)

    def _has_no_step(self) -> bool:
        return getattr(self, "step_size", 1.0) is None

    def _no_map(self) -> str:
        if self._has_no_step():
            return "a step is 1/T of each sequence; pass step_size"
        if self.activation not in SLOPES:
            return f"{self.activation} closes, and jumps where its threshold is above 0"
        return GATED if getattr(self, "gated", False) else f"a step by {self.integrator!r} is not one map of this form"
