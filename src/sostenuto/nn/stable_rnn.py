"""The stably reparametrized RNN: h′ = σ(W h + U u + b) with a W that is Hurwitz for every parameter (wang2024)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice, check_positive, require
from sostenuto.constraints.between import Between
from sostenuto.constraints.stable import FORMS, REPARAMETRIZATIONS, Stable
from sostenuto.nn.base import Recipe
from sostenuto.nn.dense import DenseLayer, DenseMap, Rate, Sector
from sostenuto.nn.fused import check_backend
from sostenuto.ops.activation import SLOPES, activate
from sostenuto.ops.dense import PRECISIONS
from sostenuto.ops.diagonal import diagonal_scan
from sostenuto.ops.step import Step


class StableRNN(DenseLayer):
    """A plain continuous-time unit whose matrix cannot lose its stability while it is trained.

    Vector field: dh/dt = σ(W h + U u + b), W = −diag f(θ), −f(S) or −f(S) + (M − Mᵀ)/2 with S = (M + Mᵀ)/2, as
    `Stable` makes it. Discrete map, Euler: h ← h + ε σ(W h + U u_t + b). Reference: wang2024, eqs. (1) and (16), with
    the forms of ``docs/errata.md`` (wang2024.4), where the printed −e^M fails.

    With ``integrator="exact"``, for independent linear units, the map is the solution itself, the input held through
    the step: h ← e^{εw} ⊙ h + (e^{εw} − 1)/w ⊙ (U u_t + b), which decays for every ε; with ``"exp"`` e^{εw} is the
    exp(−exp θ) of the linear recurrent unit (Orvieto et al. 2023), in real numbers.

    `certificate`: W is Hurwitz, and W + Wᵀ ≺ 0, in every form but ``direct``, so ``settling`` (rest under a constant
    input) holds for the differential equation whatever the parameters; ``discrete settling`` tests the map run, which
    asks for a small ε. No unit without a linear part contracts under every input, unless σ is the identity.

    Sizes, ``bias``, layout, ``dropout``, directions, ``device`` and ``dtype`` are those of `RecurrentLayer`.

    Args:
        activation: σ: ``"tanh"``, ``"relu"``, ``"hardtanh"``, ``"logistic"`` or ``"identity"``.
        reparametrization: f: ``"softplus"``, ``"exp"``, ``"inverse"``, or ``"direct"``, W = M, **not constrained**.
        form: ``"diagonal"`` (W is a vector and units are independent), ``"symmetric"`` or ``"dissipative"``.
        step_size: ε > 0.
        integrator: ``"euler"``, or ``"exact"`` with the diagonal form and the identity.
        half_life: steps n, or time, for which at least half of any difference of states is left, whatever is read:
            diagonal form.
        forget_within: steps, or time, after which at most half of it is left; also needs the identity, since units that
            saturate keep differences. With either, W lies in an interval and ``reparametrization`` is not used.
        time_span: the longest time span of a step that both promises are for.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        precision: ``"exact"``, or ``"tf32"`` for rounded products on a GPU.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` U, ``weight_hh_l{ℓ}`` W, ``bias_ih_l{ℓ}`` b; per layer N(d + 2) numbers
    (diagonal), else N(d + N + 1).

    >>> layer = StableRNN(2, 8, form="dissipative", batch_first=True)
    >>> layer(torch.zeros(3, 50, 2))[0].shape, layer.certificate("settling").holds
    (torch.Size([3, 50, 8]), True)
    """

    recipe = Recipe(in_block={"step_size": 0.5}, promising={})

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
        activation: str = "tanh",
        reparametrization: str = "softplus",
        form: str = "diagonal",
        step_size: float = 0.1,
        integrator: str = "euler",
        half_life: float | None = None,
        forget_within: float | None = None,
        time_span: float = 1.0,
        backend: str = "auto",
        precision: str = "exact",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("activation", activation, SLOPES)
        check_choice("reparametrization", reparametrization, REPARAMETRIZATIONS)
        check_choice("form", form, FORMS)
        check_choice("precision", precision, PRECISIONS)
        check_positive("step_size", step_size)
        check_choice("integrator", integrator, ("euler", "exact"))
        linear = form == "diagonal" and activation == "identity"
        require(
            integrator == "euler" or linear,
            "expected form='diagonal' and activation='identity' with integrator='exact'",
            f"got {form!r} and {activation!r}",
        )
        self.activation, self.step_size, self.integrator = activation, float(step_size), integrator
        self.reparametrization, self.form = reparametrization, form
        self.half_life, self.forget_within, self.time_span = half_life, forget_within, time_span
        check_positive("time_span", time_span)
        self._shares = None if half_life is forget_within is None else self._promised()
        self.backend, self.precision = check_backend(backend), precision
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create U, W (a vector in the diagonal form) and b."""
        shape = (self.hidden_size,) * (1 if self.form == "diagonal" else 2)
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, *shape)
        within = (
            None if self._shares is None else _Promised(*self._shares, self.step_size * self.time_span, self.integrator)
        )
        self.constrain("weight_hh", layer, reverse, within or Stable(self.form, self.reparametrization))
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)

    def reset_parameters(self) -> None:
        """Draw U Xavier-normal, b = 0 and the free weight from U(−1/√N, 1/√N), ``direct`` as softplus would map it."""
        with torch.no_grad():
            for cell in self.cells():
                nn.init.xavier_normal_(self.weight("weight_ih", *cell))
                bound = self.hidden_size**-0.5 if self._shares is None else 3.0
                free = self.free_weight("weight_hh", *cell).uniform_(-bound, bound)
                if self.reparametrization == "direct":
                    free.copy_(Stable(self.form, "softplus")(free))
                if self.bias:
                    self.weight("bias_ih", *cell).zero_()

    def discrete_map(self, layer: int = 0, *, reverse: bool = False, span: float = 1.0) -> DenseMap:
        """Return the residual step, P = I, Q = εI, and W as a matrix; or the exact one, P = e^{εW}, W = 0."""
        weight = self.weight("weight_hh", layer, reverse)
        if self.integrator == "exact":
            decay, gain = _exact(weight, self.step_size * span)
            return DenseMap(torch.diag(torch.zeros_like(weight)), torch.diag(decay), torch.diag(gain))
        matrix = torch.diag(weight) if self.form == "diagonal" else weight
        return DenseMap(matrix, weight.new_ones(1, 1), weight.new_full((1,), self.step_size * span))

    def _promised(self) -> tuple[float, float]:
        """Return the largest and the least −εw for which a unit keeps half_life and forget_within."""
        remember, forget = self.half_life, self.forget_within
        for name, steps in (("half_life", remember), ("forget_within", forget)):
            if steps is not None:
                check_positive(name, steps)
        diagonal = self.form == "diagonal" and self.reparametrization != "direct"
        require(diagonal, "expected form='diagonal' and a reparametrization with a promised memory", f"got {self.form}")
        linear = forget is None or self.activation == "identity"
        hint = "units that saturate keep differences for ever"
        require(linear, "expected activation='identity' with forget_within", f"got {self.activation!r}", hint)
        most = self._rate(remember) if remember is not None else (1.0 if self.integrator == "euler" else 10.0)
        # Over a given time short steps of Euler's method forget least, like the solution itself.
        least = math.log(2) * self.time_span / forget if forget is not None else most / 100
        expected = "expected forget_within above half_life"
        require(most * (1 - 1e-4) > least * (1 + 1e-4), expected, f"got {forget} and {remember}")
        return most, least

    def _rate(self, half_life: float) -> float:
        """Return −εw of a unit that keeps exactly half for so long, in steps of the longest span."""
        rate = math.log(2) * self.time_span / half_life
        slope = SLOPES[self.activation][1]
        return -math.expm1(-rate) / slope if self.integrator == "euler" else rate

    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B d"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Run the dense scan, or the diagonal one where units are independent."""
        if self.form != "diagonal":
            return super().trajectory(layer, reverse, entering, start)
        weight = self.weight("weight_hh", layer, reverse)
        linear, gain = torch.ones_like(weight), torch.full_like(weight, self.step_size)
        if self.integrator == "exact":
            linear, gain = _exact(weight, self.step_size)
            weight = torch.zeros_like(weight)
        drive = self.drive(layer, reverse, [entering])
        states, _ = diagonal_scan(drive, start, weight, linear, gain, activation=self.activation, backend=self.backend)
        return states

    def sector(self, layer: int = 0, *, reverse: bool = False) -> Sector | str:
        """Return A = 0 and W as a matrix."""
        weight = self.weight("weight_hh", layer, reverse)
        matrix = torch.diag(weight) if self.form == "diagonal" else weight
        return Sector(torch.zeros_like(matrix), matrix)

    def rate(self, layer: int, reverse: bool) -> Rate:
        """Return σ(Wh + z)."""
        weight = self.weight("weight_hh", layer, reverse)
        if self.form == "diagonal":
            return lambda drive, h: activate(weight * h + drive, self.activation)
        return lambda drive, h: activate(h @ weight.mT + drive, self.activation)

    def advance(self, layer: int, reverse: bool) -> Step:
        """Step by Euler's method, or exactly, over each sequence's own span."""
        if self.integrator == "euler":
            return super().advance(layer, reverse)
        weight = self.weight("weight_hh", layer, reverse)

        def step(x_t: Tensor, now: tuple[Tensor, ...], span: Tensor | float) -> tuple[Tensor, ...]:
            decay, gain = _exact(weight, self.step_size * span)
            return (decay * now[0] + gain * x_t,)

        return step

    def extra_repr(self) -> str:
        """Show the unit's settings too."""
        names = ("activation", "reparametrization", "form", "step_size", "integrator")
        return ", ".join([super().extra_repr(), *(f"{name}={getattr(self, name)}" for name in names)])


class _Promised(Between):
    """Keep −τw between ``least`` and ``most``, τ the longest step, less what rounding in the weight's dtype can do."""

    def __init__(self, most: float, least: float, step: float, integrator: str) -> None:
        super().__init__(-most / step, -least / step)
        self.step, self.exact = step, integrator == "exact"

    def bounds(self, dtype: torch.dtype) -> tuple[float, float]:
        """Draw the bounds together: w, τ and τw are rounded, and e^{τw} near 1; so is 1 + τw in the certificate."""
        off = 8 * torch.finfo(dtype).eps
        room = off * -self.low + (off if self.exact else 8 * torch.finfo(torch.float64).eps) / self.step
        low, high = self.low + room, self.high - room
        expected = f"expected a promised memory that weights in {dtype} can keep"
        hint = "promise fewer steps, more room between half_life and forget_within, or take a finer dtype"
        require(low < high < 0, expected, f"got w between {low:.3g} and {high:.3g}", hint)
        return low, high


def _exact(weight: Float[Tensor, " H"], span: Float[Tensor, "B 1"] | float) -> tuple[Tensor, Tensor]:
    """Solve h′ = w h + z over a span τ: e^{wτ}, and (e^{wτ} − 1)/w, which is τ at w = 0."""
    turned = weight * span
    near = turned.abs() < torch.finfo(turned.dtype).eps ** 0.25
    small, other = torch.where(near, turned, 0), torch.where(near, 1, turned)
    share = torch.where(near, 1 + small / 2 * (1 + small / 3 * (1 + small / 4)), torch.expm1(other) / other)
    return torch.exp(turned), span * share
