"""The Lipschitz RNN: a linear part plus a Lipschitz nonlinearity (erichson2021)."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice, check_flag, check_fraction, check_positive, is_number, require
from sostenuto.constraints.linear_algebra import solve
from sostenuto.constraints.symmetric_skew import SymmetricSkew
from sostenuto.nn.base import Recipe
from sostenuto.nn.dense import DenseLayer, DenseMap, Rate, Sector, SpanTerm
from sostenuto.nn.fused import check_backend
from sostenuto.nn.integrators import INTEGRATORS, imex
from sostenuto.ops.dense import PRECISIONS
from sostenuto.ops.step import Step

PerMatrix = float | Sequence[float]


class LipschitzRNN(DenseLayer):
    """A unit whose state follows a linear part plus a Lipschitz nonlinearity.

    Vector field, with input u and A, W in the symmetric-skew form of `SymmetricSkew`:

        dh/dt = α A h + tanh(W h + U u + b)

    Discrete maps of a step ε: Euler h ← (I + εαA) h + ε tanh(W h + U u_t + b); IMEX, with the linear part taken at the
    end by the share ρ, h ← (I − ρεαA)⁻¹[(I + (1−ρ)εαA) h + ε tanh(W h + U u_t + b)], one factorization per call;
    midpoint and RK4 with the input held through the step. ``gated`` multiplies the field by a gate
    σ̂(W h + U_g u + b_g). Reference: erichson2021, eqs. (1), (9), (14), (15) and, for α, (16).

    `certificate`: contraction where αμ₂(A) + ‖W‖₂ < 0, the Lur'e inequality, and the discrete test of the map run.
    Negative eigenvalues of A alone prove nothing (``docs/errata.md``, erichson2021.1).

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        step_size: ε > 0.
        beta: β ∈ [0, 1], the share of the skew part; a number, or one for A and one for W.
        gamma: γ ≥ 0, moves the spectra to the left; a number, or one for A and one for W.
        alpha: α ≥ 0, weighs the linear part; 0 leaves a residual unit.
        gated: whether a gate multiplies the field (in the authors' release, not in the paper).
        integrator: ``"euler"``, ``"imex"``, ``"midpoint"`` or ``"rk4"``.
        implicitness: ρ ∈ [0, 1] of IMEX; 0 is Euler.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        precision: ``"exact"``, or ``"tf32"`` for rounded products on a GPU.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` U, ``weight_hh_l{ℓ}`` W, ``weight_linear_l{ℓ}`` A, ``bias_ih_l{ℓ}`` b; per
    layer N(d + 2N + 1) numbers, gated N(2d + 2N + 2).

    >>> layer = LipschitzRNN(2, 8, batch_first=True)
    >>> layer(torch.zeros(3, 50, 2))[0].shape, layer.certificate("contraction").holds
    (torch.Size([3, 50, 8]), False)
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
        step_size: float = 0.03,
        beta: PerMatrix = 0.75,
        gamma: PerMatrix = 0.001,
        alpha: float = 1.0,
        gated: bool = False,
        integrator: str = "euler",
        implicitness: float = 1.0,
        backend: str = "auto",
        precision: str = "exact",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive("step_size", step_size)
        check_positive("alpha", alpha, zero=True)
        check_choice("integrator", integrator, INTEGRATORS)
        check_fraction("implicitness", implicitness, one=True)
        check_choice("precision", precision, PRECISIONS)
        check_flag("gated", gated)
        hint = "the gate multiplies the linear part too, so it cannot be solved for"
        require(not (gated and integrator == "imex"), "expected an explicit integrator with gated=True", "imex", hint)
        self.beta, self.gamma = _pair("beta", beta), _pair("gamma", gamma)
        self.step_size, self.alpha, self.gated = float(step_size), float(alpha), gated
        self.integrator, self.implicitness = integrator, float(implicitness)
        self.backend, self.precision = check_backend(backend), precision
        self.fused = not gated and integrator in ("euler", "imex")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create U, W, A and b; the gate's rows of U and b come first."""
        rows = (2 if self.gated else 1) * self.hidden_size
        self.new_parameter("weight_ih", layer, reverse, rows, self.fan_in(layer))
        for name, beta, gamma in zip(("weight_linear", "weight_hh"), self.beta, self.gamma, strict=True):
            self.new_parameter(name, layer, reverse, self.hidden_size, self.hidden_size)
            self.constrain(name, layer, reverse, SymmetricSkew(beta, gamma))
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, rows)

    def reset_parameters(self) -> None:
        """Draw the free matrices normal with standard deviation .1/N, U Xavier-normal, b = 0, as the last release."""
        with torch.no_grad():
            for cell in self.cells():
                for rows in self.weight("weight_ih", *cell).split(self.hidden_size):
                    nn.init.xavier_normal_(rows)
                for name in ("weight_linear", "weight_hh"):
                    self.free_weight(name, *cell).normal_(std=0.1 / self.hidden_size)
                if self.bias:
                    self.weight("bias_ih", *cell).zero_()

    def discrete_map(self, layer: int = 0, *, reverse: bool = False, span: float = 1.0) -> DenseMap:
        """Return P, Q and W of an Euler or IMEX step."""
        weight, step = self.weight("weight_hh", layer, reverse), self.step_size * span
        gain = weight.new_full((1,), step)
        if self.alpha == 0:
            return DenseMap(weight, weight.new_ones(1, 1), gain)
        identity = torch.eye(self.hidden_size, dtype=weight.dtype, device=weight.device)
        moved = step * self.alpha * self.weight("weight_linear", layer, reverse)
        if self.integrator != "imex" or self.implicitness == 0:
            return DenseMap(weight, identity + moved, gain)
        share = self.implicitness
        sides = torch.cat([identity + (1 - share) * moved, step * identity], dim=1)
        linear, gain = solve(identity - share * moved, sides).chunk(2, dim=1)
        return DenseMap(weight, linear.contiguous(), gain.contiguous())

    def span_derivative(self, order: int, layer: int, reverse: bool, low: float, high: float) -> list[SpanTerm]:
        """Return derivatives of an IMEX step I + hG(αA + KW), h = ε·span, G = (I − hραA)⁻¹: G² and 2ραA G³ times it.

        On a stretch G(h) = G(h₀)(I − (h − h₀)ραA G(h₀))⁻¹.
        """
        moved = self.alpha * self.weight("weight_linear", layer, reverse)
        weight, size, share = self.weight("weight_hh", layer, reverse), self.step_size, self.implicitness
        eye = torch.eye(self.hidden_size, dtype=weight.dtype, device=weight.device)
        inverse = torch.linalg.inv(eye - size * low * share * moved)
        spread = size * (high - low) * share * moved @ inverse
        left = inverse @ inverse if order == 1 else moved @ inverse @ inverse @ inverse
        bound = size if order == 1 else 2 * share * size**2
        return [SpanTerm(bound, Sector(left @ moved, weight, left), spread, order + 1)]

    def sector(self, layer: int = 0, *, reverse: bool = False) -> Sector | str:
        """Return αA and W; a gated unit has no such form."""
        if self.gated:
            return "a gate multiplies the field"
        return Sector(
            self.alpha * self.weight("weight_linear", layer, reverse), self.weight("weight_hh", layer, reverse)
        )

    def rate(self, layer: int, reverse: bool) -> Rate:
        """Return αAh + tanh(Wh + z), times the gate where there is one."""
        # Turned once: an exported step that turned them at every stage would read one tensor under several names.
        weight, linear = (self.weight(name, layer, reverse).mT for name in ("weight_hh", "weight_linear"))
        alpha = self.alpha

        def rate(drive: Tensor, h: Tensor) -> Float[Tensor, "*batch S"]:
            turned = h @ weight
            if not self.gated:
                return alpha * (h @ linear) + torch.tanh(turned + drive)
            gate, value = drive.chunk(2, dim=-1)
            return torch.sigmoid(turned + gate) * (alpha * (h @ linear) + torch.tanh(turned + value))

        return rate

    def advance(self, layer: int, reverse: bool) -> Step:
        """Step by the integrator; IMEX solves for each sequence's own span."""
        if self.integrator != "imex":
            return super().advance(layer, reverse)
        weight, linear = (
            self.weight("weight_hh", layer, reverse),
            self.alpha * self.weight("weight_linear", layer, reverse),
        )

        def step(x_t: Tensor, now: tuple[Tensor, ...], span: Tensor | float) -> tuple[Tensor, ...]:
            rest = torch.tanh(now[0] @ weight.mT + x_t)
            return (imex(linear, rest, now[0], self.step_size * span, self.implicitness),)

        return step

    def extra_repr(self) -> str:
        """Show the unit's settings too."""
        shown = {name: getattr(self, name) for name in ("step_size", "beta", "gamma", "alpha", "integrator")}
        shown |= {"implicitness": self.implicitness} if self.integrator == "imex" else {}
        shown |= {"gated": True} if self.gated else {}
        return ", ".join([super().extra_repr(), *(f"{name}={value}" for name, value in shown.items())])


def _pair(name: str, value: PerMatrix) -> tuple[float, float]:
    both: list[Any] = list(value) if isinstance(value, Sequence) else [value, value]
    good = len(both) == 2 and all(map(is_number, both))
    require(good, f"expected {name} to be a number, or one for A and one for W", f"got {value!r}")
    return float(both[0]), float(both[1])
