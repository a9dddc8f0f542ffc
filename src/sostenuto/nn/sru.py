"""The simple recurrent unit: gates that read the input and each unit's own past (Lei et al. 2018)."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.base import Below, Lengths, Recipe
from sostenuto.nn.certified import GATED
from sostenuto.nn.fused import FusedLayer, check_backend
from sostenuto.ops.diagonal import gated_scan


class SRU(FusedLayer):
    """A gated unit without a recurrent matrix; the state is c, and the output adds the input on a highway.

    Discrete map, with x̃ = W u_t:

        f = σ̂(W_f u_t + v_f ⊙ c + b_f),    r = σ̂(W_r u_t + v_r ⊙ c + b_r),    c ← f ⊙ c + (1 − f) ⊙ x̃

    and the output r ⊙ c + (1 − r) ⊙ α u_t with the new c, or c itself without ``highway``. Where the input is not as
    wide as the layer, W_s u_t takes the place of u_t. α = √(1 + 2e^b), b = ``highway_bias``, keeps the variance through
    a stack. It is no step of a differential equation: there are no ``timespans``, no vector field.
    Reference: Lei et al. 2018, eqs. (1) to (4) and section 3.3.

    `certificate`: none: a gate multiplies the state.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        highway: whether the output mixes the state with the input.
        highway_bias: what b_r starts from; below 0 a layer starts by passing its input on.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` W, W_f and W_r one above the other, ``weight_hh_l{ℓ}`` v_f, v_r (a
    vector), ``bias_ih_l{ℓ}`` b_f, b_r and, where widths differ, ``weight_skip_l{ℓ}`` W_s; per layer N(3d + 4) numbers
    and Nd more for W_s; without highway N(2d + 2).

    >>> layer = SRU(2, 8, batch_first=True)
    >>> output, c = layer(torch.zeros(3, 50, 2))
    >>> output.shape, c.shape
    (torch.Size([3, 50, 8]), torch.Size([1, 3, 8]))
    """

    state_names = ("c",)
    continuous = False
    recipe = Recipe(in_block={"highway": False})
    no_memory_proof = GATED

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
        highway: bool = True,
        highway_bias: float = 0.0,
        backend: str = "auto",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.highway, self.highway_bias = highway, float(highway_bias)
        self.backend = check_backend(backend)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create the input maps, the gates' own weights, their biases and the highway's map."""
        gates = 2 if self.highway else 1
        self.new_parameter("weight_ih", layer, reverse, (1 + gates) * self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, gates * self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, gates * self.hidden_size)
        if self._has_map(layer):
            self.new_parameter("weight_skip", layer, reverse, self.hidden_size, self.fan_in(layer))

    def reset_parameters(self) -> None:
        """Draw input maps with variance 1/d and v with variance 1, gates' at half of it, b_f = 0, b_r as asked for."""
        with torch.no_grad():
            for layer, reverse in self.cells():
                bound = math.sqrt(3 / self.fan_in(layer))
                weight = self.weight("weight_ih", layer, reverse).uniform_(-bound, bound)
                weight[self.hidden_size :].mul_(math.sqrt(0.5))
                self.weight("weight_hh", layer, reverse).uniform_(-math.sqrt(1.5), math.sqrt(1.5))
                if self._has_map(layer):
                    self.weight("weight_skip", layer, reverse).uniform_(-bound, bound)
                if self.bias:
                    bias = self.weight("bias_ih", layer, reverse).zero_()
                    bias[self.hidden_size :].fill_(self.highway_bias)

    def drive(
        self,
        layer: int,
        reverse: bool,
        below: list[Float[Tensor, "*batch _"]],
        lengths: Lengths = None,  # noqa: ARG002
    ) -> Float[Tensor, "*batch G"]:
        """Project the input to x̃ and the forget gate; the other gate comes after the scan."""
        weight = self.weight("weight_ih", layer, reverse)[: 2 * self.hidden_size]
        if not self.bias:
            return F.linear(below[-1], weight)
        return F.linear(
            below[-1], weight, self.derived("bias", layer, reverse, lambda: self._drive_bias(layer, reverse))
        )

    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B G"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Run the gated scan of c."""
        values, gates = entering.chunk(2, dim=-1)
        own = self.weight("weight_hh", layer, reverse)[: self.hidden_size]
        return gated_scan(gates.contiguous(), values.contiguous(), start, own, backend=self.backend)[0]

    def emit(
        self, layer: int, reverse: bool, below: Below, states: Float[Tensor, "T B S"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B H"]:
        """Mix the new state with the input by the second gate, which reads the old one."""
        if not self.highway:
            return states
        size = self.hidden_size
        bias = self.weight("bias_ih", layer, reverse)[size:] if self.bias else None
        # Cut after joining: an exporter would have to know that states[:-1] holds more than one step.
        before = start[None] if self._step_cache.running else torch.cat([start[None], states])[:-1]
        read = F.linear(below[-1], self.weight("weight_ih", layer, reverse)[2 * size :], bias)
        gate = torch.sigmoid(read + self.weight("weight_hh", layer, reverse)[size:] * before)
        through = F.linear(below[-1], self.weight("weight_skip", layer, reverse)) if self._has_map(layer) else below[-1]
        scale = math.sqrt(1 + 2 * math.exp(self.highway_bias))
        return torch.lerp((scale * through).to(states.dtype), states, gate.to(states.dtype))

    @torch.no_grad()
    def space_time_scales(self, layer: int, scales: Float[Tensor, " H"]) -> None:
        """Set the forget gates' bias, so that a unit without input keeps what its time scale says."""
        if self.bias:
            self.weight("bias_ih", layer, False)[: self.hidden_size].copy_(torch.logit(torch.exp(-1 / scales)))

    def extra_repr(self) -> str:
        """Show the highway too."""
        return f"{super().extra_repr()}, highway={self.highway}"

    def _drive_bias(self, layer: int, reverse: bool) -> Tensor:
        return F.pad(self.weight("bias_ih", layer, reverse)[: self.hidden_size], (self.hidden_size, 0))

    def _has_map(self, layer: int) -> bool:
        return self.highway and self.fan_in(layer) != self.hidden_size
