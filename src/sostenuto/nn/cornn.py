"""The coupled oscillatory RNN: damped oscillators that drive each other (Rusch and Mishra 2021)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, check_positive
from sostenuto.nn.base import Recipe
from sostenuto.nn.dense import DenseLayer, DenseMap, Rate, Sector, SpanTerm
from sostenuto.nn.fused import check_backend
from sostenuto.ops.dense import PRECISIONS
from sostenuto.ops.step import Step

DAMPINGS = ("implicit", "explicit")


class CoRNN(DenseLayer):
    """Coupled, damped, driven oscillators; the state is (y, z), z = y′, and the output y.

    Vector field: dy/dt = z, dz/dt = tanh(W y + W̃ z + V u + b) − γ y − ε z.

    Discrete map, implicit-explicit with d = 1/(1 + Δt·ε): z ← d·(z + Δt·tanh(W y + W̃ z + V u_t + b) − Δt·γ y), then
    y ← y + Δt·z with the new z. ``damping="explicit"`` takes the damping at the old z instead, z ← z + Δt·(… − ε z), as
    the authors' release does. Reference: Rusch and Mishra 2021 (coRNN), eqs. (1) to (3), n̄ = n and n̄ = n − 1.

    `certificate`: the tests for a linear part plus slopes, on the state (y, z) with A = [[0, I], [−γI, −εI]].

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        step_size: Δt > 0; the defaults are those the authors found for pixel-by-pixel MNIST.
        gamma: γ ≥ 0, the square of the free frequency.
        epsilon: ε ≥ 0, the damping.
        damping: ``"implicit"`` or ``"explicit"``.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        precision: ``"exact"``, or ``"tf32"`` for rounded products on a GPU.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` W, ``weight_zh_l{ℓ}`` W̃, ``bias_ih_l{ℓ}`` b; per
    layer N(d + 2N + 1) numbers.

    >>> layer = CoRNN(2, 8, batch_first=True)
    >>> output, (y, z) = layer(torch.zeros(3, 50, 2))
    >>> output.shape, z.shape
    (torch.Size([3, 50, 8]), torch.Size([1, 3, 8]))
    """

    recipe = Recipe(in_block={"step_size": 0.3})

    state_names = ("y", "z")
    integrator = "imex"
    step_size: float

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
        step_size: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
        damping: str = "implicit",
        backend: str = "auto",
        precision: str = "exact",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive("step_size", step_size)
        check_positive("gamma", gamma, zero=True)
        check_positive("epsilon", epsilon, zero=True)
        check_choice("damping", damping, DAMPINGS)
        check_choice("precision", precision, PRECISIONS)
        self.step_size, self.gamma, self.epsilon = float(step_size), float(gamma), float(epsilon)
        self.damping, self.backend, self.precision = damping, check_backend(backend), precision
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, W, W̃ and b."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size, self.hidden_size)
        self.new_parameter("weight_zh", layer, reverse, self.hidden_size, self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)

    def reset_parameters(self) -> None:
        """Draw all from U(−k, k), k² = 1/(d + 2N): torch's rule for the one linear map of the authors' release."""
        with torch.no_grad():
            for layer, reverse in self.cells():
                bound = (self.fan_in(layer) + 2 * self.hidden_size) ** -0.5
                names = ("weight_ih", "weight_hh", "weight_zh", *(("bias_ih",) if self.bias else ()))
                for name in names:
                    self.weight(name, layer, reverse).uniform_(-bound, bound)

    def discrete_map(self, layer: int = 0, *, reverse: bool = False, span: float = 1.0) -> DenseMap:
        """Return coefficients between y and z, and (W, W̃) side by side."""
        weight = self._weights(layer, reverse)
        step = self.step_size * span
        old, new = self._damping(step)
        linear = (1 - step * step * new * self.gamma, step * new * old, -step * new * self.gamma, new * old)
        forced = (step * step * new, step * new)
        return DenseMap(weight, _constants(weight, *linear).view(2, 2), _constants(weight, *forced))

    def span_derivative(self, order: int, layer: int, reverse: bool, low: float, high: float) -> list[SpanTerm]:
        """Return the map's derivatives: it is affine in u = h/(1 + eh) and g = h²/(1 + eh), h = Δt·span, e = ε or 0."""
        weight, size = self._weights(layer, reverse), self.step_size
        e = self.epsilon if self.damping == "implicit" else 0.0
        first = torch.tensor([[0.0, 1.0], [-self.gamma, -self.epsilon]])
        second = torch.tensor([[-self.gamma, e - self.epsilon], [0.0, 0.0]])
        push, pull = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])

        def term(bound: float, linear: Tensor, gain: Tensor) -> SpanTerm:
            linear, _, full = DenseMap(weight, linear.to(weight), gain.to(weight)).full()
            return SpanTerm(bound, Sector(linear, weight, full))

        near, far = 1 + e * size * low, 1 + e * size * high
        if order == 2:
            return [term(2 * size**2 / near**3, second - e * first, pull - e * push)]
        swing = size**2 * high * (1 + far) / far**2
        return [term(size / near**2, first, push), term(swing, second, pull)]

    def sector(self, layer: int = 0, *, reverse: bool = False) -> Sector | str:
        """Return A = [[0, I], [−γI, −εI]], B = [0; I] and (W, W̃)."""
        weight = self._weights(layer, reverse)
        identity = torch.eye(self.hidden_size, dtype=weight.dtype, device=weight.device)
        linear = torch.kron(weight.new_tensor([[0.0, 1.0], [-self.gamma, -self.epsilon]]), identity)
        return Sector(linear, weight, torch.kron(weight.new_tensor([[0.0], [1.0]]), identity))

    def rate(self, layer: int, reverse: bool) -> Rate:
        """Return (z, tanh(Wy + W̃z + drive) − γy − εz)."""
        weight = self._weights(layer, reverse)

        def rate(drive: Tensor, h: Tensor) -> Float[Tensor, "*batch S"]:
            y, z = h.chunk(2, dim=-1)
            return torch.cat([z, torch.tanh(h @ weight.mT + drive) - self.gamma * y - self.epsilon * z], dim=-1)

        return rate

    def advance(self, layer: int, reverse: bool) -> Step:
        """Step z, then y with the new z, over each sequence's own span."""
        weight = self._weights(layer, reverse)

        def step(x_t: Tensor, now: tuple[Tensor, ...], span: Tensor | float) -> tuple[Tensor, ...]:
            y, z = now
            size = self.step_size * span
            old, new = self._damping(size)
            force = torch.tanh(torch.cat(now, dim=-1) @ weight.mT + x_t)
            z = new * (old * z + size * (force - self.gamma * y))
            return y + size * z, z

        return step

    def extra_repr(self) -> str:
        """Show the oscillators' settings too."""
        names = ("step_size", "gamma", "epsilon", "damping")
        return ", ".join([super().extra_repr(), *(f"{name}={getattr(self, name)}" for name in names)])

    def _damping(self, size: Tensor | float) -> tuple[Tensor | float, Tensor | float]:
        """Return the factors of the old z before, and of everything after, the push."""
        return (1.0, 1 / (1 + size * self.epsilon)) if self.damping == "implicit" else (1 - size * self.epsilon, 1.0)

    def _weights(self, layer: int, reverse: bool) -> Tensor:
        return torch.cat([self.weight("weight_hh", layer, reverse), self.weight("weight_zh", layer, reverse)], dim=1)


def _constants(like: Tensor, *values: Any) -> Float[Tensor, " n"]:
    """Write numbers on the device itself: a copy from the host cannot be recorded in a CUDA graph."""
    return torch.stack([like.new_full((), float(value)) for value in values])
