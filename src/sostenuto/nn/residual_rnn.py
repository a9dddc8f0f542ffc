"""The residual RNN: Euler steps of h′ = σ(W h + U u + b), the papers' neural-ODE RNN."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_choice, check_positive
from sostenuto.nn.base import Below, LayerState, Lengths, Parts, Ran, Recipe, Spans, uniform_by_width
from sostenuto.nn.dense import DenseLayer, DenseMap, Rate
from sostenuto.nn.fused import check_backend
from sostenuto.ops.activation import SLOPES, activate
from sostenuto.ops.dense import PRECISIONS


class ResidualRNN(DenseLayer):
    """A plain recurrent unit as a residual network, so that T steps of 1/T follow one vector field over unit time.

    Vector field: dh/dt = σ(W h + U u + b). Discrete map, Euler: h ← h + ε σ(W h + U u_t + b), with ε = ``step_size`` or
    1/T of each sequence. Reference: fermanian2021, eq. (3); the neural-ODE RNN that erichson2021 compares with (α = 0
    there).

    `certificate`: no unit without a linear part contracts under every input; ``settling`` tests that states come to
    rest under a constant one.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        activation: σ: ``"tanh"``, ``"relu"``, ``"hardtanh"``, ``"logistic"`` or ``"identity"``.
        step_size: ε > 0, or None: 1/T, T being each sequence's own length; then nothing can be streamed. Packed
            sequences of unequal length have steps of their own and take the loop.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        precision: ``"exact"``, or ``"tf32"`` for rounded products on a GPU.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` U, ``weight_hh_l{ℓ}`` W, ``bias_ih_l{ℓ}`` b; per layer N(d + N + 1)
    numbers.

    >>> layer = ResidualRNN(2, 8, batch_first=True)
    >>> layer(torch.zeros(3, 50, 2))[0].shape
    torch.Size([3, 50, 8])
    """

    recipe = Recipe(in_block={"step_size": 0.3})

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
        activation: str = "tanh",
        step_size: float | None = None,
        backend: str = "auto",
        precision: str = "exact",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("activation", activation, SLOPES)
        check_choice("precision", precision, PRECISIONS)
        if step_size is not None:
            check_positive("step_size", step_size)
        self.activation, self.step_size = activation, None if step_size is None else float(step_size)
        self.backend, self.precision = check_backend(backend), precision
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create U, W and b."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size, self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)

    def reset_parameters(self) -> None:
        """Draw as torch's recurrent layers do."""
        uniform_by_width(self)

    def discrete_map(
        self, layer: int = 0, *, reverse: bool = False, span: float = 1.0, steps: int | None = None
    ) -> DenseMap:
        """Return the residual step: P = I, Q = εI; ε = 1/``steps`` where the layer has no step size."""
        if self.step_size is None and steps is None:
            raise InputError("expected a step_size, got None (1/T of a whole sequence); pass steps=T.")
        weight = self.weight("weight_hh", layer, reverse)
        size = self.step_size if self.step_size is not None else 1 / (steps or 1)
        return DenseMap(weight, weight.new_ones(1, 1), weight.new_ones(1) * (size * span))

    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B d"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Run the dense scan, with 1/T for a step where none is set."""
        steps = entering.shape[0] if self.step_size is None else None
        matrices = self.discrete_map(layer, reverse=reverse, steps=steps)
        return self.scan_map(layer, reverse, entering, start, matrices)

    def run(self, layer: int, reverse: bool, below: Below, state: Parts, timespans: Spans, lengths: Lengths) -> Ran:
        """Give each sequence its own step 1/T where there is no step size: spans, and so the loop, unless all agree."""
        if self.step_size is None and timespans is not None:
            counts = (timespans > 0).sum(0).clamp(min=1) if lengths is None else lengths
            if lengths is not None and bool((counts == timespans.shape[0]).all()):
                return super().run(layer, reverse, below, state, None, None)
            return super().run(layer, reverse, below, state, timespans / counts, None)
        return super().run(layer, reverse, below, state, timespans, lengths)

    def step(
        self, input_t: Float[Tensor, "*batch channel"], state: LayerState | None = None
    ) -> tuple[Tensor, LayerState]:
        """Advance one time step; needs a ``step_size``, since 1/T is not known before the sequence ends."""
        if self.step_size is None:
            raise InputError(
                "expected a step_size for streaming, got None (1/T of a whole sequence); pass step_size=…."
            )
        return super().step(input_t, state)

    def rate(self, layer: int, reverse: bool) -> Rate:
        """Return σ(Wh + z)."""
        weight = self.weight("weight_hh", layer, reverse)
        return lambda drive, h: activate(h @ weight.mT + drive, self.activation)

    def extra_repr(self) -> str:
        """Show the unit's settings too."""
        return f"{super().extra_repr()}, activation={self.activation}, step_size={self.step_size}"
