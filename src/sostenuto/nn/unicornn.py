"""UnICORNN: undamped independent controlled oscillators, symplectic in time (paper 002)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.constraints.at_least import AtLeast
from sostenuto.nn.base import RecurrentLayer, weight_name
from sostenuto.ops.oscillator_scan import BACKENDS, oscillator_scan


class UnICORNN(RecurrentLayer):
    """A stack of independent, undamped, driven oscillators that keeps what it hears for thousands of steps.

    Vector field of a layer, with state (y, z), input u and σ̂ the logistic function:

        dy/dt = σ̂(c) ⊙ z,    dz/dt = −σ̂(c) ⊙ [tanh(w ⊙ y + V u + b) + α y]

    Discrete map, symplectic Euler with g = Δt·σ̂(c): z ← z − g ⊙ [tanh(w ⊙ y + V u_n + b) + α y], y ← y + g ⊙ z.
    The output is y. Reference: paper 002, eqs. (2), (6) and, for ``skip``, (75).

    Args:
        input_size: channels of the input.
        hidden_size: oscillators of a layer.
        num_layers: layers stacked; three serve most tasks.
        bias: whether b exists.
        batch_first: as in torch.
        dropout: variational dropout between layers.
        bidirectional: as in torch.
        step_size: Δt > 0, or one for each layer.
        stiffness: α ≥ 0, the square of the free frequency (not a damping).
        skip: S ≥ 2 lets layer ℓ > S also read the output of layer ℓ − S − 1 (residual stacking).
        learn_step: whether c is trained; if not it keeps its initial value.
        positive: keep w ≥ −α, which removes the saddle at the origin (but not resonance with a varying input).
        backend: ``"auto"`` or ``"reference"``.
        device: as in torch.
        dtype: as in torch.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` w (a vector), ``time_scale_l{ℓ}`` c,
    ``bias_ih_l{ℓ}`` b and, with ``skip``, ``weight_skip_l{ℓ}``; per layer m(d + 3) numbers.

    >>> layer = UnICORNN(2, 8, num_layers=2, batch_first=True)
    >>> output, (y, z) = layer(torch.zeros(3, 50, 2))
    >>> output.shape, y.shape
    (torch.Size([3, 50, 8]), torch.Size([2, 3, 8]))
    """

    state_names = ("y", "z")

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
        step_size: float | Sequence[float] = 0.1,
        stiffness: float = 1.0,
        skip: int | None = None,
        learn_step: bool = True,
        positive: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        steps = [step_size] * num_layers if isinstance(step_size, (int, float)) else list(step_size)
        require(len(steps) == num_layers, f"expected one step_size or {num_layers}", f"got {len(steps)}")
        for size in steps:
            check_positive("step_size", size)
        check_positive("stiffness", stiffness, zero=True)
        check_choice("backend", backend, BACKENDS)
        if skip is not None:
            check_count("skip", skip, least=2)
        self._steps, self._skip = tuple(float(size) for size in steps), skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )
        self.step_size, self.stiffness, self.skip = self._steps, float(stiffness), skip
        self.learn_step, self.positive, self.backend = learn_step, positive, backend
        for layer, reverse in self._cells():
            self.weight("time_scale", layer, reverse).requires_grad_(learn_step)
            if positive:
                name = weight_name("weight_hh", layer, reverse)
                parametrize.register_parametrization(self, name, AtLeast(-self.stiffness))

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, w, c, b and the skip matrix of one layer."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size)
        self.new_parameter("time_scale", layer, reverse, self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)
        if self._skips(layer):
            self.new_parameter("weight_skip", layer, reverse, self.hidden_size, self.fan_in(layer - (self._skip or 0)))

    def reset_parameters(self) -> None:
        """Draw w ~ U(0, 1), c ~ U(−.1, .1), V Kaiming-uniform with a = 8, b = 0 (paper 002, appendix A)."""
        with torch.no_grad():
            for layer, reverse in self._cells():
                nn.init.kaiming_uniform_(self.weight("weight_ih", layer, reverse), a=8)
                self._assign("weight_hh", layer, reverse, torch.rand_like(self.weight("weight_hh", layer, reverse)))
                self.weight("time_scale", layer, reverse).uniform_(-0.1, 0.1)
                if self.bias:
                    self.weight("bias_ih", layer, reverse).zero_()
                if self._skips(layer):
                    nn.init.kaiming_uniform_(self.weight("weight_skip", layer, reverse), a=8)

    def scan(
        self,
        layer: int,
        reverse: bool,
        below: list[Float[Tensor, "T B _"]],
        state: tuple[Float[Tensor, "B H"], ...],
        timespans: Float[Tensor, "T B"] | None,
    ) -> tuple[Float[Tensor, "T B H"], tuple[Float[Tensor, "B H"], ...]]:
        """Project the input in one product over all time, then run the oscillators."""
        drive = self._drive(layer, reverse, below[-1])
        if self._skips(layer):
            drive = drive + F.linear(below[layer - (self._skip or 0)], self.weight("weight_skip", layer, reverse))
        output, y, z = oscillator_scan(
            drive,
            self.weight("weight_hh", layer, reverse),
            self.effective_step(layer, reverse=reverse),
            self.stiffness,
            *state,
            timespans=timespans,
            backend=self.backend,
        )
        return output, (y, z)

    def effective_step(self, layer: int = 0, *, reverse: bool = False) -> Float[Tensor, " hidden"]:
        """Give each unit's own step g = Δt·σ̂(c)."""
        return self._steps[layer] * torch.sigmoid(self.weight("time_scale", layer, reverse))

    def vector_field(
        self, h: Float[Tensor, "*batch state"], x: Float[Tensor, "*batch channel"], *, layer: int = 0
    ) -> Float[Tensor, "*batch state"]:
        """Give (dy/dt, dz/dt) at h = (y, z) side by side; one step of the map advances t by Δt."""
        y, z = h.chunk(2, dim=-1)
        rate = torch.sigmoid(self.weight("time_scale", layer, False))
        force = torch.tanh(self.weight("weight_hh", layer, False) * y + self._drive(layer, False, x))
        return torch.cat([rate * z, -rate * (force + self.stiffness * y)], dim=-1)

    def extra_repr(self) -> str:
        """Show the oscillators' settings too."""
        steps = self._steps[0] if len(set(self._steps)) == 1 else list(self._steps)
        return f"{super().extra_repr()}, step_size={steps}, stiffness={self.stiffness}"

    def _drive(self, layer: int, reverse: bool, below: Tensor) -> Tensor:
        bias = self.weight("bias_ih", layer, reverse) if self.bias else None
        return F.linear(below, self.weight("weight_ih", layer, reverse), bias)

    def _skips(self, layer: int) -> bool:
        return self._skip is not None and layer >= self._skip

    def _assign(self, name: str, layer: int, reverse: bool, value: Tensor) -> None:
        full = weight_name(name, layer, reverse)
        if parametrize.is_parametrized(self, full):
            setattr(self, full, value.clamp(min=torch.finfo(value.dtype).eps))
        else:
            getattr(self, full).copy_(value)

    def _cells(self) -> list[tuple[int, bool]]:
        return [(layer, bool(d)) for layer in range(self.num_layers) for d in range(self.num_directions)]
