"""The exponential RNN: an orthogonal recurrent matrix, by the exponential or by Cayley's map."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice
from sostenuto.constraints.orthogonal import MAPS, Orthogonal, rotation_blocks
from sostenuto.nn.base import Contract
from sostenuto.nn.certificates import Certificate, refused
from sostenuto.nn.dense import DenseLayer, DenseMap
from sostenuto.nn.fused import check_backend
from sostenuto.ops.dense import PRECISIONS

INITIALIZATIONS = ("cayley", "henaff")


class ExpRNN(DenseLayer):
    """A recurrent unit whose matrix is a rotation, so that its linear part keeps norms for ever.

    Discrete map: h ← modReLU_b(W h + V u_t), W orthogonal: e^A or (I + A)⁻¹(I − A) of a skew A, see `Orthogonal`, and
    modReLU_b(v) = sign(v)·max(|v| + b, 0). It is no step of a differential equation: there are no ``timespans``, no
    vector field. Without ``bias`` b = 0 and the unit is linear.
    Reference: Lezcano-Casado and Martínez-Rubio 2019 (ExpRNN); Helfrich et al. 2018 (scaled Cayley, here without
    the sign matrix). erichson2021 compares with both.

    `certificate`: ‖W‖₂ = 1, so ``discrete`` is never certified; it says so.

    W is computed anew in every call, in float64; a stream of `step` without gradients shares one.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        map: ``"exp"`` or ``"cayley"``.
        initialization: angles of the 2×2 blocks W starts from: ``"cayley"``, by t uniform on (0, π/2) (rotations by
            tan(t/2) under ``"exp"``, by t under ``"cayley"``), or ``"henaff"``, uniform on (−π, π).
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        precision: ``"exact"``, or ``"tf32"`` for rounded products on a GPU.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` W, ``bias_ih_l{ℓ}`` b of modReLU; per layer
    N(d + N + 1) numbers stored. Of the N² behind W the N(N−1)/2 above the diagonal are used.

    >>> layer = ExpRNN(2, 8, batch_first=True)
    >>> layer(torch.zeros(3, 50, 2))[0].shape
    torch.Size([3, 50, 8])
    """

    continuous = False
    activation = "modrelu"

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
        map: str = "exp",
        initialization: str = "cayley",
        backend: str = "auto",
        precision: str = "exact",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("map", map, MAPS)
        check_choice("initialization", initialization, INITIALIZATIONS)
        check_choice("precision", precision, PRECISIONS)
        self.map, self.initialization = map, initialization
        self.activation = "modrelu" if bias else "identity"
        self.backend, self.precision = check_backend(backend), precision
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, W and b."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size, self.hidden_size)
        self.constrain("weight_hh", layer, reverse, Orthogonal(self.map))
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)

    def reset_parameters(self) -> None:
        """Draw V Kaiming-normal, b from U(−.01, .01) and W from rotations in blocks, as the authors' release."""
        with torch.no_grad():
            for cell in self.cells():
                nn.init.kaiming_normal_(self.weight("weight_ih", *cell), nonlinearity="relu")
                free = self.free_weight("weight_hh", *cell)
                free.copy_(rotation_blocks(self._angles(free), self.hidden_size, self.map))
                if self.bias:
                    self.weight("bias_ih", *cell).uniform_(-0.01, 0.01)

    def input_map(self, layer: int, reverse: bool) -> tuple[Float[Tensor, "G _"], Float[Tensor, " G"] | None]:
        """Return V alone; b belongs to the activation."""
        return self.weight("weight_ih", layer, reverse), None

    def threshold(self, layer: int, reverse: bool) -> Float[Tensor, " H"] | None:
        """Return modReLU's b."""
        return self.weight("bias_ih", layer, reverse) if self.bias else None

    def discrete_map(
        self,
        layer: int = 0,
        *,
        reverse: bool = False,
        span: float = 1.0,  # noqa: ARG002
    ) -> DenseMap:
        """Return P = 0, Q = I and the rotation W."""
        weight = self.weight("weight_hh", layer, reverse)
        return DenseMap(weight, weight.new_zeros(1, 1), weight.new_ones(1))

    vector_field = Contract.vector_field

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:
        """Refuse every kind: there is no differential equation, and the map keeps distances where modReLU is open."""
        if kind != "discrete":
            return Contract._certify(self, kind, layer, reverse, spans)
        # What the stored matrix misses of norm 1 is rounding, and proves nothing.
        return refused(kind, "‖W‖₂ < 1", "1, W is orthogonal")

    def extra_repr(self) -> str:
        """Show the map too."""
        return f"{super().extra_repr()}, map={self.map}"

    def _angles(self, like: Tensor) -> Tensor:
        count = self.hidden_size // 2
        if self.initialization == "henaff":
            return like.new_empty(count).uniform_(-math.pi, math.pi)
        turns = like.new_empty(count).uniform_(0, math.pi / 2)
        return torch.tan(turns / 2) if self.map == "exp" else turns
