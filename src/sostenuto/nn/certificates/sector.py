"""The Lur'e test: a matrix inequality that uses every unit's slope on its own."""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates.certificate import Certificate
from sostenuto.nn.certificates.norms import contraction
from sostenuto.nn.certificates.system import Slope


def lure(
    A: Float[Tensor, "state state"],  # noqa: N803
    W: Float[Tensor, "unit state"],  # noqa: N803
    slope: Slope = 1.0,
    *,
    B: Float[Tensor, "state unit"] | None = None,  # noqa: N803
) -> Certificate:
    """Test whether h′ = A h + B σ(W h + z(t)) contracts in some quadratic norm under every input z."""
    return replace(contraction(A, W, slope, B=B), kind="lure")
