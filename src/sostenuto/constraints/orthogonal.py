"""Rotations from skew matrices, by the matrix exponential or by Cayley's map."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import InputError, check_choice, require
from sostenuto.constraints.linear_algebra import matrix_exp, solve
from sostenuto.constraints.parts import require_part, skew_part

MAPS = ("exp", "cayley")


class Orthogonal(nn.Module):
    """Make a free square matrix orthogonal: with A = U − Uᵀ, U its strictly upper triangle, W = e^A or (I+A)⁻¹(I−A).

    ``exp`` reaches every rotation (orthogonal, determinant 1); ``cayley`` every one without the eigenvalue −1.
    Reference: Lezcano-Casado and Martínez-Rubio 2019 (ExpRNN); Helfrich et al. 2018 (scaled Cayley).

    >>> weight = Orthogonal("exp")(torch.randn(4, 4))
    >>> torch.allclose(weight @ weight.T, torch.eye(4), atol=1e-5)
    True
    """

    def __init__(self, map: str = "exp") -> None:
        super().__init__()
        check_choice("map", map, MAPS)
        self.map = map

    def forward(self, free: Float[Tensor, "h h"]) -> Float[Tensor, "h h"]:
        """Map a free matrix to a rotation, in float64: in float32 squaring leaves errors of up to 1e-5 in e^A."""
        upper = free.double().triu(1)
        skew = upper - upper.mT
        if self.map == "exp":
            return matrix_exp(skew).to(free.dtype)
        identity = torch.eye(free.shape[-1], dtype=skew.dtype, device=free.device)
        return solve(identity + skew, identity - skew).to(free.dtype)

    @torch.no_grad()
    def right_inverse(self, weight: Float[Tensor, "h h"]) -> Float[Tensor, "h h"]:
        """Find the strictly upper triangle that maps to the rotation ``weight``."""
        if weight.is_meta:
            return torch.empty_like(weight)  # a shape without values
        identity = torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device)
        require_part(weight @ weight.mT - identity, weight, "an orthogonal matrix")
        if self.map == "exp":
            require(bool(torch.linalg.det(weight) > 0), "expected a rotation (determinant 1)", "got a reflection")
            skew = _logarithm(weight)
        else:
            skew, failed = torch.linalg.solve_ex(identity + weight, identity - weight)
            require(not failed, "expected a rotation without the eigenvalue −1", "got one with it", "use map='exp'")
        free = skew_part(skew).triu(1)
        missed = float((self(free) - weight).abs().max())
        if not missed <= 1e4 * torch.finfo(weight.dtype).eps:
            raise InputError(
                f"expected a rotation away from the eigenvalue −1, got one that comes back with an error of "
                f"{missed:.1g}; start from free angles instead."
            )
        return free

    def extra_repr(self) -> str:
        """Show the map."""
        return f"map={self.map}"


def rotation_blocks(
    angles: Float[Tensor, " half"],
    size: int,
    map: str = "exp",
) -> Float[Tensor, "size size"]:
    """Place 2×2 blocks on the diagonal of a free matrix so that it maps to rotations by ``angles``.

    The entry above the diagonal is −θ for e^A and tan(θ/2) for Cayley's map; an odd last row stays zero.
    Reference: Henaff et al. 2016 (θ uniform on (−π, π)); Helfrich et al. 2018 (θ uniform on (0, π/2)).

    >>> Orthogonal("cayley")(rotation_blocks(torch.tensor([math.pi / 2]), 2, "cayley")).round().tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    free = angles.new_zeros(size, size)
    rows = torch.arange(0, size - 1, 2, device=angles.device)
    free[rows, rows + 1] = -angles if map == "exp" else torch.tan(angles / 2)
    return free


def _logarithm(rotation: Float[Tensor, "h h"]) -> Float[Tensor, "h h"]:
    """Find a skew A with e^A = ``rotation``, on the planes in which it turns.

    The symmetric part C = cos A and the skew part S = sin A commute, so A = (θ/sin θ)·S with θ read off on C's
    eigenvectors. Half turns have S = 0 and come in pairs: each pair becomes one plane.
    """
    cosines, vectors = torch.linalg.eigh((rotation + rotation.mT) / 2)
    sine = skew_part(rotation)
    sines = (sine @ vectors).norm(dim=0)
    angles = torch.atan2(sines, cosines)
    half = (cosines < 0) & (sines < 100 * torch.finfo(rotation.dtype).eps)
    factor = torch.where(half, 0, torch.where(angles > 0, angles / torch.where(sines > 0, sines, 1), 1))
    skew = vectors @ (factor[:, None] * (vectors.mT @ sine))
    turned = vectors[:, half]
    even = turned.shape[1] // 2 * 2
    first, second = turned[:, 0:even:2], turned[:, 1:even:2]
    return skew + math.pi * (first @ second.mT - second @ first.mT)
