"""What layers of undamped oscillators share: steps, field, energy, and what is proved of their memory."""

import math
import warnings

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_positive, require
from sostenuto.constraints.between import Between
from sostenuto.nn.base import Recipe, RecurrentLayer, weight_name
from sostenuto.nn.certificates import Certificate, MemoryCertificate, refused
from sostenuto.nn.oscillator_memory import oscillator_memory, weight_limit


def oscillator_energy(
    y: Float[Tensor, "*batch hidden"],
    z: Float[Tensor, "*batch hidden"],
    weight: Float[Tensor, " hidden"],
    drive: Float[Tensor, "*batch hidden"],
    stiffness: float,
) -> Float[Tensor, "*batch"]:
    """Sum α y²/2 + z²/2 + [log cosh(w y + a) − log cosh a]/w over units, with a = ``drive`` and α = ``stiffness``.

    The last term is y times the average of tanh between a and a + w y; at w = 0 it is y·tanh a.

    >>> zero, one = torch.zeros(2), torch.ones(2)
    >>> float(oscillator_energy(one, one, zero, zero, 3.0))
    4.0
    """
    return (stiffness / 2 * y**2 + z**2 / 2 + y * _mean_tanh(drive, weight * y)).sum(-1)


def _mean_tanh(a: Float[Tensor, "*batch hidden"], d: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch hidden"]:
    """Average tanh between a and a + d: [log cosh(a + d) − log cosh a]/d, by its series where d is small."""
    small = d.abs() < (8 * torch.finfo(d.dtype).eps) ** 0.2  # where the series' error equals the difference's
    value = torch.tanh(a)
    slope = 1 - value**2
    near = torch.where(small, d, 0)
    series = value + slope * near * (1 / 2 + near * (-value / 3 + near * (3 * value**2 - 1) / 12))
    far = torch.where(small, 1, d)
    return torch.where(small, series, (_log_cosh(a + far) - _log_cosh(a)) / far)


def _log_cosh(x: Tensor) -> Tensor:
    """Compute log cosh x + log 2 without overflow."""
    return x.abs() + F.softplus(-2 * x.abs())


def warn_of_divergence(name: str, worst: float) -> None:
    """Warn where a step g√α is not inside the stability limit of symplectic Euler, 2; ``name`` says what was measured.

    >>> warn_of_divergence("step_size/2 · √stiffness", 0.5)
    """
    if worst >= 2:
        warnings.warn(
            f"expected {name} below 2, the stability limit of the oscillators, got {worst:.3g}: states grow "
            "exponentially; lower step_size or stiffness, or divide timespans by their median",
            stacklevel=3,
        )


MARGIN = 0.4
"""Share of the limit that is used. Uneven steps amplify an oscillation even inside the limit: with exponential gaps by
10²² in 1000 steps at a share of 0.9, by at most 5 at 0.4."""

_LARGEST_SHARE = 0.98
"""Of the step that a unit can start with, so that its c can still be learned."""


class OscillatorLayer(RecurrentLayer):
    """A recurrence z ← z − g ⊙ [tanh(w ⊙ y + V u + b) + α y], y ← y + g ⊙ z with g = Δt·σ̂(c)."""

    recipe = Recipe(
        {"hidden_size": 128, "num_layers": 3, "dropout": 0.1, "step_size": 0.78, "stiffness": 2.7},
        {"learning_rate": 0.02, "weight_decay": 0.01},
        {"classification": "max"},
        in_block={"step_size": 2.0},
        # With a promise they have to stay inside the limit of stability, 2, whatever c is learned.
        promising={"step_size": 1.9},
    )
    stiffness: float
    positive: bool
    half_life: float | None = None
    """Time that the layer is trained to remember, whatever it reads: steps where a step has no time span."""
    time_span: float = 1.0
    """The time span of a step that ``half_life`` is promised for."""
    _steps: tuple[float, ...]

    def effective_step(self, layer: int = 0, *, reverse: bool = False) -> Float[Tensor, " hidden"]:
        """Return each unit's own step g = Δt·σ̂(c)."""
        return self._steps[layer] * torch.sigmoid(self.weight("time_scale", layer, reverse))

    @torch.no_grad()
    def longest_span(self) -> Float[Tensor, ""]:
        """Return the longest time span that all units read stably, with the weights as they are.

        A step of h = timespan · Δt · σ̂(c) of y″ = −(α + w)y, the steepest that tanh(w y) can be, is stable where
        h²·(α + max(w, 0)) < 4 (symplectic Euler); the span is `MARGIN` of where equality holds for the fastest unit.

        >>> from sostenuto.nn import UnICORNN
        >>> layer = UnICORNN(1, 4, step_size=0.5, stiffness=3.0)
        >>> _ = torch.nn.init.zeros_(layer.time_scale_l0), torch.nn.init.ones_(layer.weight_hh_l0)
        >>> round(layer.longest_span().item(), 6)
        1.6
        """
        spans = []
        for layer, reverse in self.cells():
            stiffest = self.stiffness + self.weight("weight_hh", layer, reverse).clamp(min=0)
            spans.append(2 / (self.effective_step(layer, reverse=reverse) * stiffest.sqrt()))
        return MARGIN * torch.stack(spans).min()

    @torch.no_grad()
    def space_time_scales(self, layer: int, scales: Float[Tensor, " hidden"]) -> None:
        """Set c, so that a unit turns once in its time scale, at most 1 radian per step: well inside stability."""
        step = 2 * math.pi / scales.clamp(min=2 * math.pi)
        share = (step / self._steps[layer]).clamp(max=_LARGEST_SHARE)  # no unit is faster than the step allows
        self.weight("time_scale", layer, False).copy_(torch.logit(share))
        bound = math.sqrt(3 / self.fan_in(layer))
        self.weight("weight_ih", layer, False).uniform_(-bound, bound)

    def vector_field(
        self, h: Float[Tensor, "*batch state"], x: Float[Tensor, "*batch channel"], *, layer: int = 0
    ) -> Float[Tensor, "*batch state"]:
        """Return (dy/dt, dz/dt) at h = (y, z) side by side; one step of the map advances t by Δt."""
        y, z = h.chunk(2, dim=-1)
        rate = torch.sigmoid(self.weight("time_scale", layer, False))
        force = torch.tanh(self.weight("weight_hh", layer, False) * y + self._drive(layer, False, x))
        return torch.cat([rate * z, -rate * (force + self.stiffness * y)], dim=-1)

    def hamiltonian(
        self,
        state: Float[Tensor, "*batch state"] | tuple[Float[Tensor, "*batch hidden"], Float[Tensor, "*batch hidden"]],
        input: Float[Tensor, "*batch channel"],
        *,
        layer: int = 0,
    ) -> Float[Tensor, "*batch"]:
        """Return a layer's energy at a state, (y, z) or both side by side, as it reads ``input`` (rusch2021, eq. (4)).

        With a = V u + b: H = Σ α y²/2 + z²/2 + [log cosh(w y + a) − log cosh a]/w. The subtracted term does not depend
        on the state and makes H finite at w = 0, where the bracket over w becomes y·tanh a. The field is
        dy/dt = σ̂(c)·∂H/∂z, dz/dt = −σ̂(c)·∂H/∂y, so units with equal c keep H while the input is constant.

        >>> from sostenuto.nn import UnICORNN
        >>> layer = UnICORNN(2, 8)
        >>> layer.hamiltonian((torch.zeros(3, 8), torch.ones(3, 8)), torch.zeros(3, 2)).tolist()
        [4.0, 4.0, 4.0]
        """
        y, z = state.chunk(2, dim=-1) if isinstance(state, Tensor) else state
        weight, drive = self.weight("weight_hh", layer, False), self._drive(layer, False, input)
        return oscillator_energy(y, z, weight, drive, self.stiffness)

    def weight_limit(self, layer: int = 0, *, reverse: bool = False) -> Float[Tensor, " hidden"]:
        """Return the largest |w| of each unit that keeps ``half_life``, at the step that the unit has."""
        require(self.half_life is not None, "expected a layer made with half_life", "got one without a limit")
        step, steps = self.effective_step(layer, reverse=reverse), (self.half_life or 1.0) / self.time_span
        limit = weight_limit(step, self.stiffness, steps, time_span=self.time_span)
        return limit.clamp(max=self.stiffness) if self.positive else limit

    def related(self, name: str, constrained: property) -> property:
        """Let w be a share of what the half-life allows at the unit's own step, w = w_max(c)·tanh(v/2)."""
        if not name.startswith("weight_hh"):
            return constrained

        def limit(layer: "OscillatorLayer") -> Tensor | float:
            if layer.half_life is None:
                return 1.0
            return layer.weight_limit(int(name.split("_")[2][1:]), reverse=name.endswith("_reverse"))

        return property(
            lambda layer: constrained.fget(layer) * limit(layer),  # pyright: ignore[reportOptionalCall]
            lambda layer, value: constrained.fset(layer, value / limit(layer)),  # pyright: ignore[reportOptionalCall]
        )

    def _remember(self, half_life: float, time_span: float) -> None:
        """Constrain the weights so that the half-life holds for every parameter value."""
        check_positive("half_life", half_life)
        check_positive("time_span", time_span)
        worst = max(self._steps) * math.sqrt(self.stiffness) * time_span
        hint = "lower step_size or stiffness"
        expected = "expected 0 < step_size·√stiffness·time_span < 2 with half_life"
        require(0 < worst < 2, expected, f"got {worst:.4g}", hint)
        self.half_life, self.time_span = float(half_life), float(time_span)
        with torch.no_grad():
            for layer, reverse in self.cells():
                name = weight_name("weight_hh", layer, reverse)
                getattr(self, name).mul_(0.98).add_(0.01)
                self.constrain_parameter(name, Between(-1.0, 1.0))

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:  # noqa: ARG002
        return refused(kind, "damping", "oscillators without it keep differences; ask for memory_certificate")

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        return oscillator_memory(self, spans, drive)

    def _drive(self, layer: int, reverse: bool, below: Tensor) -> Tensor:
        return F.linear(below, *self._input_map(layer, reverse))

    def _input_map(self, layer: int, reverse: bool) -> tuple[Tensor, Tensor | None]:
        bias = self.weight("bias_ih", layer, reverse) if self.bias else None
        return self.weight("weight_ih", layer, reverse), bias
