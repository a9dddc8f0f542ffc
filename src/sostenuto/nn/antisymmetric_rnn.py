"""The antisymmetric RNN: a residual unit whose matrix only turns the state (Chang et al. 2019)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice, check_flag, check_positive
from sostenuto.constraints.skew import Skew
from sostenuto.nn.base import Recipe
from sostenuto.nn.dense import DenseLayer, DenseMap, Rate, Sector
from sostenuto.nn.fused import check_backend
from sostenuto.ops.dense import PRECISIONS


class AntisymmetricRNN(DenseLayer):
    """A residual unit with a skew matrix, moved to the left by γ: its Jacobian neither grows nor shrinks by much.

    Vector field, with W = M − Mᵀ − γI: dh/dt = tanh(W h + V u + b); with ``gated``,
    dh/dt = σ̂(W h + V_g u + b_g) ⊙ tanh(W h + V u + b).

    Discrete map, Euler: h ← h + ε tanh(W h + V u_t + b). Reference: Chang et al. 2019, eqs. (10) to (12); erichson2021
    compares with it.

    `certificate`: no unit without a linear part contracts under every input; ``settling`` tests that states come to
    rest under a constant one, for the differential equation (γ > 0) and for the map run.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        step_size: ε > 0.
        gamma: γ ≥ 0, diffusion against Euler's growth of a turning state.
        gated: whether a gate multiplies the field; it shares W.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        precision: ``"exact"``, or ``"tf32"`` for rounded products on a GPU.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` W, ``bias_ih_l{ℓ}`` b; per layer N(d + N + 1)
    numbers, gated N(2d + N + 2). Of the N² of M the N(N−1)/2 above the diagonal would do.

    >>> layer = AntisymmetricRNN(2, 8, batch_first=True)
    >>> layer(torch.zeros(3, 50, 2))[0].shape, layer.certificate("settling").holds
    (torch.Size([3, 50, 8]), True)
    """

    recipe = Recipe(in_block={"step_size": 0.5})

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
        step_size: float = 0.1,
        gamma: float = 0.01,
        gated: bool = False,
        backend: str = "auto",
        precision: str = "exact",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive("step_size", step_size)
        check_choice("precision", precision, PRECISIONS)
        check_flag("gated", gated)
        self.step_size, self.gamma, self.gated = float(step_size), gamma, gated
        self.backend, self.precision, self.fused = check_backend(backend), precision, not gated
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, W and b; the gate's rows of V and b come first."""
        rows = (2 if self.gated else 1) * self.hidden_size
        self.new_parameter("weight_ih", layer, reverse, rows, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size, self.hidden_size)
        self.constrain("weight_hh", layer, reverse, Skew(self.gamma))
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, rows)

    def reset_parameters(self) -> None:
        """Draw M normal with variance 1/N, V Xavier-normal, b = 0."""
        with torch.no_grad():
            for cell in self.cells():
                for rows in self.weight("weight_ih", *cell).split(self.hidden_size):
                    nn.init.xavier_normal_(rows)
                self.free_weight("weight_hh", *cell).normal_(std=self.hidden_size**-0.5)
                if self.bias:
                    self.weight("bias_ih", *cell).zero_()

    def discrete_map(self, layer: int = 0, *, reverse: bool = False, span: float = 1.0) -> DenseMap:
        """Return the residual step: P = I, Q = εI."""
        weight = self.weight("weight_hh", layer, reverse)
        return DenseMap(weight, weight.new_ones(1, 1), weight.new_full((1,), self.step_size * span))

    def sector(self, layer: int = 0, *, reverse: bool = False) -> Sector | str:
        """Return A = 0 and W; a gated unit has no such form."""
        return "a gate multiplies the field" if self.gated else super().sector(layer, reverse=reverse)

    def rate(self, layer: int, reverse: bool) -> Rate:
        """Return tanh(Wh + z), times the gate where there is one."""
        weight = self.weight("weight_hh", layer, reverse)

        def rate(drive: Tensor, h: Tensor) -> Float[Tensor, "*batch S"]:
            turned = h @ weight.mT
            if not self.gated:
                return torch.tanh(turned + drive)
            gate, value = drive.chunk(2, dim=-1)
            return torch.sigmoid(turned + gate) * torch.tanh(turned + value)

        return rate

    def extra_repr(self) -> str:
        """Show the unit's settings too."""
        gated = ", gated=True" if self.gated else ""
        return f"{super().extra_repr()}, step_size={self.step_size}, gamma={self.gamma}{gated}"
