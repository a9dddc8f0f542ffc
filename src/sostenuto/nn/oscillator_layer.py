"""What layers of undamped oscillators share: steps, field, energy, and what is proved of their memory."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.base import RecurrentLayer
from sostenuto.nn.certificates import Certificate, MemoryCertificate, refused
from sostenuto.nn.oscillator_energy import oscillator_energy
from sostenuto.nn.oscillator_memory import oscillator_memory


class OscillatorLayer(RecurrentLayer):
    """A recurrence z ← z − g ⊙ [tanh(w ⊙ y + V u + b) + α y], y ← y + g ⊙ z with g = Δt·σ̂(c)."""

    stiffness: float
    _steps: tuple[float, ...]

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

    def hamiltonian(
        self,
        state: Float[Tensor, "*batch state"] | tuple[Float[Tensor, "*batch hidden"], Float[Tensor, "*batch hidden"]],
        input: Float[Tensor, "*batch channel"],
        *,
        layer: int = 0,
    ) -> Float[Tensor, "*batch"]:
        """Give a layer's energy at a state, (y, z) or both side by side, while it reads ``input`` (rusch2021, eq. (4)).

        With a = V u + b: H = Σ α y²/2 + z²/2 + [log cosh(w y + a) − log cosh a]/w. The subtracted term does not depend
        on the state and makes H finite at w = 0, where the bracket over w becomes y·tanh a. The field is
        dy/dt = σ̂(c)·∂H/∂z, dz/dt = −σ̂(c)·∂H/∂y, so units with equal c keep H while the input is constant.

        >>> layer = UnICORNN(2, 8)
        >>> layer.hamiltonian((torch.zeros(3, 8), torch.ones(3, 8)), torch.zeros(3, 2)).tolist()
        [4.0, 4.0, 4.0]
        """
        y, z = state.chunk(2, dim=-1) if isinstance(state, Tensor) else state
        weight, drive = self.weight("weight_hh", layer, False), self._drive(layer, False, input)
        return oscillator_energy(y, z, weight, drive, self.stiffness)

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:  # noqa: ARG002
        return refused(kind, "damping", "oscillators without it keep differences; ask for memory_certificate")

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        return oscillator_memory(self, spans, drive)

    def _drive(self, layer: int, reverse: bool, below: Tensor) -> Tensor:
        return F.linear(below, *self._input_map(layer, reverse))

    def _input_map(self, layer: int, reverse: bool) -> tuple[Tensor, Tensor | None]:
        bias = self.weight("bias_ih", layer, reverse) if self.bias else None
        return self.weight("weight_ih", layer, reverse), bias
