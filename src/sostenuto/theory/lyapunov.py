"""The Lyapunov matrix of a recurrence: a norm in which it decays, and what that norm costs."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import InputError, check_fraction, check_positive, require
from sostenuto.nn.base import Contract
from sostenuto.nn.certificates.equations import lyapunov_equation, stein
from sostenuto.theory.transient import TransientGrowth, transient_growth


@dataclass(frozen=True, eq=False)
class LyapunovMatrix:
    """P with AᵀP + PA = −I (or P − FᵀPF = I), and what follows from it; tensors are float64.

    V(h) = hᵀPh falls along every solution of h′ = Ah, and ‖e^{At}‖₂ ≤ √cond(P) · exp(−rate · t). ``residual`` is the
    largest entry of the equation's two sides apart, relative to ‖P‖₂‖A‖₂.
    """

    matrix: Float[Tensor, "n n"]
    P: Float[Tensor, "n n"]
    discrete: bool
    residual: float
    transient: TransientGrowth

    @property
    def norm(self) -> float:
        """‖P‖₂: at most 1/(2β) for a normal A whose real parts are at most −β, far larger for others."""
        return float(torch.linalg.eigvalsh(self.P)[-1])

    @property
    def least(self) -> float:
        """The least eigenvalue of P: at least 1/(2‖A‖₂) (wang2024, eq. (65), corrected), at least 1 if discrete."""
        return float(torch.linalg.eigvalsh(self.P)[0])

    @property
    def condition(self) -> float:
        """Condition number of P: how far from round its level sets are."""
        return self.norm / self.least

    @property
    def rate(self) -> float:
        """The decay that P proves, 1/(2‖P‖₂) per unit of time, or −½log(1 − 1/‖P‖₂) per step."""
        return -math.log1p(-1 / self.norm) / 2 if self.discrete else 1 / (2 * self.norm)

    @property
    def overshoot(self) -> float:
        """√cond(P), a bound on every ‖e^{At}‖₂ (or ‖Fᵏ‖₂); ``transient`` has a sharper one."""
        return math.sqrt(self.condition)

    def value(self, h: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
        """Return V(h) = hᵀPh."""
        h = h.double()
        return ((h @ self.P) * h).sum(-1)

    def level_set(self, level: float = 1.0) -> tuple[Float[Tensor, " n"], Float[Tensor, "n n"]]:
        """Return the half axes of the ellipsoid {V ≤ level}, longest first, and their directions in columns."""
        check_positive("level", level)
        values, directions = torch.linalg.eigh(self.P)
        return (level / values).sqrt(), directions

    def basin_radius(self, share: float) -> float:
        """Return Υ = √(L/(2‖P‖₂‖A‖₂)), within which diag(v)²A changes V′ by at most the share L of |v|².

        wang2024, lemma A.9, as corrected in ``docs/errata.md`` (wang2024.2): with v = tanh(Wh + z), v′ = (I −
        diag(v)²)Wv and |vᵀ(Wᵀdiag(v)²P + P diag(v)²W)v| ≤ L|v|² for all |v|₂ ≤ Υ, so that V still falls there.
        """
        check_fraction("share", share)
        require(not self.discrete, "expected a differential equation", "got a discrete map")
        return math.sqrt(share / (2 * self.norm * float(torch.linalg.matrix_norm(self.matrix, 2))))


def lyapunov(
    layer: nn.Module | Float[Tensor, "n n"],
    *,
    discrete: bool | None = None,
    level: int = 0,
    state: Float[Tensor, " n"] | None = None,
    input: Float[Tensor, " channel"] | None = None,
) -> LyapunovMatrix:
    """Solve AᵀP + PA = −I, or P − FᵀPF = I for a discrete map, for a matrix or for a layer linearized at a point.

    A layer with a vector field is linearized there, ∂h′/∂h at ``state`` and ``input`` (zero if left out); one without,
    or with ``discrete=True``, by the Jacobian of its step. A matrix that is not Hurwitz (not Schur) has no such P: the
    answer is then an error that says "not applicable" with the abscissa. ‖P‖₂ and the transient are reported because
    eigenvalues bound neither: for [[−1, 10], [0, −1]], ‖P‖₂ = 25.7, not ½, and ‖e^{At}‖ rises to 3.7. Reference:
    wang2024, lemmas A.8 and A.9, as corrected in ``docs/errata.md`` (wang2024.1 and wang2024.2).

    Args:
        layer: a recurrent layer of this library, or a matrix.
        discrete: whether a matrix is that of a map, and whether a layer's step is meant instead of its vector field.
        level: which layer of a stack, for a vector field.
        state: where to linearize, the components side by side.
        input: the input there.

    >>> found = lyapunov(torch.tensor([[-1.0, 10.0], [0.0, -1.0]]))
    >>> round(found.norm, 1), round(found.transient.peak, 1)
    (25.7, 3.7)
    """
    if isinstance(layer, Tensor):
        matrix, steps = layer.detach().double().cpu(), bool(discrete)
    else:
        name = type(layer).__name__
        require(isinstance(layer, Contract), "expected a recurrent layer of sostenuto or a matrix", f"got {name}")
        matrix, steps = _linearized(layer, discrete, level, state, input)
    transient = transient_growth(matrix, discrete=steps)
    values, eye = matrix.numpy(), torch.eye(len(matrix), dtype=torch.float64).numpy()
    solved = stein(values, eye) if steps else lyapunov_equation(values, eye)
    if solved is None:
        raise InputError("not applicable: a Lyapunov matrix within the range of float64 fails (overflow).")
    P = torch.from_numpy(solved)  # noqa: N806
    rest = P - matrix.T @ P @ matrix - torch.from_numpy(eye) if steps else matrix.T @ P + P @ matrix + torch.eye(len(P))
    size = float(torch.linalg.matrix_norm(P, 2)) * (1.0 if steps else float(torch.linalg.matrix_norm(matrix, 2)))
    return LyapunovMatrix(matrix, P, steps, float(rest.abs().max()) / size, transient)


def _linearized(
    layer: Any, discrete: bool | None, level: int, state: Tensor | None, input: Tensor | None
) -> tuple[Tensor, bool]:
    like = next(layer.parameters())
    x = torch.zeros(layer.input_size) if input is None else input
    x = x.to(like)
    if not discrete:
        width = layer.input_size if level == 0 else layer.output_size
        x = x if level == 0 else x.new_zeros(width)
        h = like.new_zeros(layer.state_size) if state is None else state.to(like)
        try:
            jacobian = torch.autograd.functional.jacobian(lambda now: layer.vector_field(now, x, layer=level), h)
            return _matrix(jacobian), False
        except InputError:
            if discrete is False:
                raise
    count, hidden = layer.num_layers, layer.hidden_size
    parts = len(layer.state_names)
    h = like.new_zeros(count * parts * hidden) if state is None else state.to(like)

    def step(now: Tensor) -> Tensor:
        split = tuple(now.unflatten(0, (parts, count, hidden)))
        _, after = layer.step(x, split[0] if parts == 1 else split)
        return torch.cat([part.flatten() for part in ((after,) if isinstance(after, Tensor) else after)])

    return _matrix(torch.autograd.functional.jacobian(step, h)), True


def _matrix(jacobian: Any) -> Tensor:
    return jacobian.detach().double().cpu()
