"""Linear damped oscillators as a layer: complex decay and rotation, exact for any time span."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_positive, require
from sostenuto.nn.base import Below, Lengths, Parts, Ran, Recipe, Spans
from sostenuto.nn.certificates import Certificate, MemoryCertificate, over_spans, refused, remembering
from sostenuto.nn.damped_memory import DampedUnits, damped_decay, promised_decay
from sostenuto.nn.fused import FusedLayer, check_backend
from sostenuto.ops.damped import damped_scan, held_coefficients, learned_coefficients


class DampedOscillators(FusedLayer):
    """A layer of linear damped oscillators: each unit decays and turns at its own pace, driven by the input.

    Differential equation, with a complex state s = y + iz per unit and κ = −γ + iω:

        s′ = κ ⊙ s + √(1 − e^{−2γ}) ⊙ (V u + b),    output c₀ ⊙ y + c₁ ⊙ z

    A step solves it exactly for an input that is held over the time span δ: s ← e^{κδ} s + (e^{κδ} − 1)/κ (…). γ = e^ν
    and ω = e^θ are above 0, so that every unit is stable whatever is learned; 1/γ is its time scale in steps. The
    factor of the drive lets white noise of variance 1 make states of variance about 1 at every time scale.
    The layer is linear; a nonlinearity belongs between layers, as in `Stack`. The second-order form is
    y″ + 2γ y′ + (γ² + ω²) y = force. Reference: Gu et al. 2022 (S4D) and Orvieto et al. 2023 (LRU) for diagonal linear
    recurrences, Rusch and Rus 2025 (LinOSS) for oscillators.

    `certificate`: ``contraction`` and ``discrete`` always hold, with the rate min γ.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        time_scales: the shortest and the longest 1/γ at the start, in steps; units are spaced evenly between their
            logarithms, and ω is drawn between 1/τ of a unit's time scale τ and π, evenly in its logarithm.
        half_life: steps n, or time, for which every unit keeps at least half of any difference:
            γ = 1/(e^{−ν} + n/ln 2), below ln 2/n whatever is learned; time scales then lie above n/ln 2.
        time_span: the shortest time span of a step that the promise is for, as each step rounds.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` ν and then θ (a vector), ``weight_hr_l{ℓ}`` c₀ and
    then c₁ (a vector), ``bias_ih_l{ℓ}`` b; per layer N(d + 5) numbers.

    >>> layer = DampedOscillators(2, 8, batch_first=True)
    >>> output, (y, z) = layer(torch.zeros(3, 50, 2), timespans=torch.rand(3, 50))
    >>> output.shape, y.shape, layer.certificate("discrete").holds
    (torch.Size([3, 50, 8]), torch.Size([1, 3, 8]), True)
    """

    state_names = ("y", "z")
    recipe = Recipe(promising={})

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        time_scales: tuple[float, float] = (1.0, 1000.0),
        half_life: float | None = None,
        time_span: float = 1.0,
        backend: str = "auto",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.time_scales, self.backend = check_time_scales(time_scales), check_backend(backend)
        self.half_life, self.time_span = half_life, time_span
        check_positive("time_span", time_span)
        if half_life is not None:
            check_positive("half_life", half_life)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, the poles, the read-out and b."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, 2 * self.hidden_size)
        self.new_parameter("weight_hr", layer, reverse, 2 * self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)

    def reset_parameters(self) -> None:
        """Draw V with variance 1/d, frequencies and phases at random; space time scales evenly; b = 0."""
        low, high = (math.log(scale) for scale in self.time_scales)
        with torch.no_grad():
            for layer, reverse in self.cells():
                bound = math.sqrt(3 / self.fan_in(layer))
                self.weight("weight_ih", layer, reverse).uniform_(-bound, bound)
                log_decay, log_frequency = self.weight("weight_hh", layer, reverse).chunk(2)
                log_decay.copy_(-torch.linspace(low, high, self.hidden_size))
                slowest = log_decay.clamp(max=math.log(math.pi))
                log_frequency.uniform_(0, 1).mul_(math.log(math.pi) - slowest).add_(slowest)
                cosine, sine = self.weight("weight_hr", layer, reverse).chunk(2)
                phase = torch.rand_like(cosine) * 2 * math.pi
                cosine.copy_(math.sqrt(2) * phase.cos())
                sine.copy_(math.sqrt(2) * phase.sin())
                if self.bias:
                    nn.init.zeros_(self.weight("bias_ih", layer, reverse))

    def decay(self, layer: int = 0, *, reverse: bool = False) -> Float[Tensor, " hidden"]:
        """Return each unit's γ, per unit of time; 1/γ is its time scale."""
        free = self.weight("weight_hh", layer, reverse)[: self.hidden_size]
        if self.half_life is None:
            return torch.exp(free)
        return 1 / (torch.exp(-free) + 1 / promised_decay(self.half_life, free.dtype, self.time_span))

    def frequency(self, layer: int = 0, *, reverse: bool = False) -> Float[Tensor, " hidden"]:
        """Return each unit's ω, in radians per unit of time."""
        return torch.exp(self.weight("weight_hh", layer, reverse)[self.hidden_size :])

    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B _"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Refuse: outputs are read inside the scan, see `run`."""
        raise NotImplementedError("DampedOscillators runs its scan in `run`")

    def rates(self, layer: int, reverse: bool) -> tuple[Float[Tensor, "2 1 1 H"], Float[Tensor, "1 1 1 H"]]:
        """Return the decays and frequencies of a layer, and the scales of what enters it."""
        decay = self.decay(layer, reverse=reverse)
        both = torch.stack([decay, self.frequency(layer, reverse=reverse)])
        return both[:, None, None], _drive_scale(decay)[None, None, None]

    def held(
        self, layer: int, reverse: bool, spans: Float[Tensor, "T B"] | None
    ) -> tuple[Float[Tensor, "2 T1 B1 H"], Float[Tensor, "2 T1 B1 H"]]:
        """Return the coefficients of a step, of the state and of V u + b; one for each span where there are spans."""
        if spans is None and type(self).decay is DampedOscillators.decay:
            free = self.weight("weight_hh", layer, reverse)
            promised = self.half_life and promised_decay(self.half_life, free.dtype, self.time_span)
            return learned_coefficients(free, 1 / promised if promised else 0.0)
        decay, frequency, scale = self.derived("units", layer, reverse, lambda: self._units(layer, reverse))
        return held_coefficients(decay, frequency, spans, scale)

    def _units(self, layer: int, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
        decay = self.decay(layer, reverse=reverse)
        return decay, self.frequency(layer, reverse=reverse), _drive_scale(decay)

    def run(self, layer: int, reverse: bool, below: Below, state: Parts, timespans: Spans, lengths: Lengths) -> Ran:
        """Project the input, solve over all time in one scan; time spans have coefficients of their own."""
        self.record("scan")
        spans = timespans if lengths is None else None  # lengths alone end each sequence inside the scan
        if spans is None:
            coefficients = self.derived("held", layer, reverse, lambda: self.held(layer, reverse, None))
        else:
            coefficients = self.held(layer, reverse, spans)
        outputs, last = damped_scan(
            self.drive(layer, reverse, below),
            torch.cat(state, dim=-1),
            *coefficients,
            self.weight("weight_hr", layer, reverse).view(2, -1),
            lengths=lengths,
            backend=self.backend,
        )
        real, imaginary = last.chunk(2, dim=-1)
        return outputs, (real, imaginary)

    def vector_field(
        self, h: Float[Tensor, "*batch state"], x: Float[Tensor, "*batch channel"], *, layer: int = 0
    ) -> Float[Tensor, "*batch state"]:
        """Return (dy/dt, dz/dt) at h = (y, z) side by side."""
        y, z = h.chunk(2, dim=-1)
        decay, frequency = self.decay(layer), self.frequency(layer)
        force = _drive_scale(decay) * self.drive(layer, False, [x])
        return torch.cat([force - decay * y - frequency * z, frequency * y - decay * z], dim=-1)

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:
        """Answer from the poles: the Euclidean distance of two states shrinks by e^{−γδ} in every unit."""
        if kind not in ("contraction", "discrete"):
            return refused(kind, "slopes σ(Wh + z)", "DampedOscillators is linear; ask for 'contraction' or 'discrete'")
        slowest, checked = float(self.decay(layer, reverse=reverse).double().min()), "min γ > 0"
        if not slowest > 0:
            return refused(kind, checked, slowest)
        certificate = Certificate(kind, True, "linear", checked, rate=slowest * (1 - 1e-6), overshoot=1.0)
        if kind == "contraction":
            return certificate
        return over_spans(replace(certificate, rate=slowest * (1 - 1e-6) * spans[0]), spans)

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        return self.memory_within(spans, [drive] * self.num_layers)

    def memory_within(
        self,
        spans: tuple[float, float],
        drives: Sequence[float | Float[np.ndarray, " hidden"] | None],
        passing: Sequence[tuple[float, float]] | None = None,
    ) -> MemoryCertificate:
        """Return every unit's own factor |λ| = e^{−γδ}, exactly but for the rounding of its coefficients.

        ``drives`` bound V u + b of each layer, of each unit or of all; without them states have no bound. Where a layer
        has a clock, ``passing`` are the least time and the most that pass for it per unit of time.
        """
        decays = []
        for layer, drive in enumerate(drives):
            units = [self._damped_unit(*cell) for cell in self.cells() if cell[0] == layer]
            least, most = passing[layer] if passing else (1.0, 1.0)
            level, lives = damped_decay(units, (spans[0] * least, spans[1] * most), drive)
            fast, slow = level.clock
            assert fast is not None
            assert slow is not None
            decays.append((replace(level, clock=(fast * most, slow * least)), lives))
        levels, checked = [level for level, _ in decays], "|λ|ⁿ of each unit, λ = e^{κδ}"
        return remembering(levels, decays[0][1], norm="Euclidean", checked=checked, spans=spans)

    def _damped_unit(self, layer: int, reverse: bool) -> DampedUnits:
        decay = self.decay(layer, reverse=reverse)
        entering, readout = (self.weight(name, layer, reverse) for name in ("weight_ih", "weight_hr"))
        return DampedUnits(decay, _drive_scale(decay), entering, readout.view(2, -1).norm(dim=0))

    def extra_repr(self) -> str:
        """Show the time scales too."""
        return f"{super().extra_repr()}, time_scales={self.time_scales}"


def check_time_scales(time_scales: Any) -> tuple[float, float]:
    """Refuse what is not a shortest and a longest time scale in steps."""
    pair: list[Any] = list(time_scales) if isinstance(time_scales, tuple | list) else []
    require(len(pair) == 2, "expected time_scales (shortest, longest) in steps", f"got {time_scales!r}")
    shortest, longest = pair
    check_positive("time_scales", shortest)
    check_positive("time_scales", longest)
    require(shortest <= longest, "expected time_scales from the shortest to the longest", f"got {time_scales!r}")
    return float(shortest), float(longest)


def _drive_scale(decay: Float[Tensor, " H"]) -> Float[Tensor, " H"]:
    return torch.sqrt(-torch.expm1(-2 * decay))
