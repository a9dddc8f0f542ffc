"""One layer as a kind of certificate sees it: h′ = A h + B σ(W h + z), and the steps that are run of it."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates.certificate import Certificate, refused
from sostenuto.nn.certificates.spans import SpanCurve

Map = tuple[Float[Tensor, "S S"], Float[Tensor, "H S"], Float[Tensor, "S H"]]
"""F, W and Q of a step h ← F h + Q σ(W h + z)."""


@dataclass(frozen=True, eq=False)
class DenseUnit:
    """A dense layer's matrices A, W and B (the identity where None), its steps, and the time spans to be covered.

    ``step_size`` is None where a step is 1/T of each sequence, ``integrator`` the name of the method, ``fused`` whether
    a step is one map; ``step`` gives that map over a time span, and ``curve`` the maps of all spans.
    """

    name: str
    linear: Float[Tensor, "S S"]
    weight: Float[Tensor, "H S"]
    gain: Float[Tensor, "S H"] | None
    activation: str
    step_size: float | None
    integrator: str
    fused: bool
    spans: tuple[float, float]
    step: Callable[[float], Map]
    curve: Callable[[], SpanCurve]

    def without_step(self, kind: str, *, euler: bool = False) -> Certificate | None:
        """Refuse a discrete kind where a step is not one map of known size, or with ``euler`` no step of Euler's."""
        if self.step_size is None:
            return refused(kind, "a step_size", "1/T of each sequence")
        if not self.fused or (euler and self.integrator != "euler"):
            return refused(kind, "a step that is one fused map", f"the integrator {self.integrator!r}")
        return None
