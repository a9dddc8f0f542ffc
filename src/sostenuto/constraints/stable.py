"""Weights that make a linear system decay: every eigenvalue keeps a negative real part."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice, check_positive, require
from sostenuto.constraints.parts import inverse_softplus, require_part, skew_part, symmetric_part
from sostenuto.constraints.spectral_function import ScalarFunction, spectral_function

FORMS = ("diagonal", "symmetric", "dissipative")
REPARAMETRIZATIONS = ("softplus", "exp", "inverse", "direct")
HIGHEST = 5.0
"""Where e^x is cut, so that a step of an optimizer cannot make the system arbitrarily stiff."""


class Stable(nn.Module):
    """Make a free weight Hurwitz, for every value of it: −diag f(θ), −f(S), or −f(S) + (M − Mᵀ)/2; S = (M + Mᵀ)/2.

    f is ε + softplus(x), ε + e^min(x, 5) or ε + 1/(1 + x²) and acts on the eigenvalues of S. In each form
    v*(W + Wᵀ)v ≤ −2ε|v|², so Re λ ≤ −ε. ``direct`` is W = M, **not constrained**: it is there to compare with.
    Reference: wang2024, eq. (16), in the forms of ``docs/errata.md`` (wang2024.4), where the printed ones fail.

    Args:
        form: ``"diagonal"`` (the weight is a vector), ``"symmetric"`` or ``"dissipative"``.
        reparametrization: ``"softplus"``, ``"exp"``, ``"inverse"`` or ``"direct"``.
        floor: ε > 0. Floats reach 0 where f only tends to it, so without one the promise would not hold.

    Matrices are put together in float64, and one rounding of their norm is taken off the diagonal, so that the promise
    holds for the rounded matrix too. The gradient is Daleckii and Krein's, finite where eigenvalues meet.

    >>> weight = Stable("dissipative", "exp")(100 * torch.randn(4, 4))
    >>> bool(torch.linalg.eigvals(weight).real.max() <= -1e-3)
    True
    """

    def __init__(self, form: str = "diagonal", reparametrization: str = "softplus", floor: float = 1e-3) -> None:
        super().__init__()
        check_choice("form", form, FORMS)
        check_choice("reparametrization", reparametrization, REPARAMETRIZATIONS)
        check_positive("floor", floor)
        self.form, self.reparametrization, self.floor = form, reparametrization, float(floor)

    @property
    def is_constrained(self) -> bool:
        """Whether the weight is Hurwitz for every parameter value: for all but ``direct``."""
        return self.reparametrization != "direct"

    def forward(self, free: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Map a free vector (diagonal) or matrix to a stable one."""
        if not self.is_constrained:
            return free.clone()
        if self.form == "diagonal":
            return -self.floor - _FUNCTIONS[self.reparametrization].value(free)
        wide = free.double()
        weight = -spectral_function(symmetric_part(wide), _FUNCTIONS[self.reparametrization])
        if self.form == "dissipative":
            weight = weight + skew_part(wide)
        shift = self.floor + torch.finfo(free.dtype).eps * torch.linalg.matrix_norm(weight.detach(), keepdim=True)
        identity = torch.eye(free.shape[-1], dtype=wide.dtype, device=free.device)
        return (weight - shift * identity).to(free.dtype)

    @torch.no_grad()
    def right_inverse(self, weight: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Find a free value that maps to ``weight``."""
        if not self.is_constrained or weight.is_meta:
            return weight.clone()  # on the device meta there is a shape without values
        if self.form == "diagonal":
            return self._inverse(-weight.double() - self.floor).to(weight.dtype)
        wide = weight.double()
        skew = skew_part(wide)
        if self.form == "symmetric":
            require_part(skew.to(weight.dtype), weight, "a symmetric matrix")
        values, vectors = torch.linalg.eigh(-symmetric_part(wide))
        free = (vectors * self._inverse(values - self.floor)[..., None, :]) @ vectors.mT
        return (free + skew if self.form == "dissipative" else free).to(weight.dtype)

    def extra_repr(self) -> str:
        """Show form, function and floor."""
        return f"form={self.form}, reparametrization={self.reparametrization}, floor={self.floor}"

    def _inverse(self, above: Tensor) -> Tensor:
        least, most = float(above.min()), float(above.max())
        got = f"got rates from {least + self.floor:.6g} to {most + self.floor:.6g}"
        require(least > 0, f"expected decay rates above the floor {self.floor}", got)
        if self.reparametrization == "softplus":
            return inverse_softplus(above)
        highest = float(torch.tensor(HIGHEST).exp()) if self.reparametrization == "exp" else 1.0
        tolerance = 1 + 1e-5
        require(most <= highest * tolerance, f"expected decay rates of at most {highest + self.floor:.6g}", got)
        within = above.clamp(max=highest)
        return torch.log(within) if self.reparametrization == "exp" else torch.sqrt(1 / within - 1)


def _softplus(x: Tensor) -> Tensor:
    """Compute what `torch.nn.functional.softplus` does, which onnxruntime knows in float32 alone."""
    return torch.where(x > 20, x, torch.log1p(torch.exp(torch.where(x > 20, 20.0, x))))


_FUNCTIONS = {
    "softplus": ScalarFunction(_softplus, torch.sigmoid, lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
    "exp": ScalarFunction(
        lambda x: torch.exp(x.clamp(max=HIGHEST)),
        lambda x: torch.where(x < HIGHEST, torch.exp(x.clamp(max=HIGHEST)), 0),
        lambda x: torch.where(x < HIGHEST, torch.exp(x.clamp(max=HIGHEST)), 0),
    ),
    "inverse": ScalarFunction(
        lambda x: 1 / (1 + x**2),
        lambda x: -2 * x / (1 + x**2) ** 2,
        lambda x: (6 * x**2 - 2) / (1 + x**2) ** 3,
    ),
}
