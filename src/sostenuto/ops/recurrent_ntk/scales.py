"""The standard deviations of the weights at initialization: what the infinite-width kernel is a function of."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor


@dataclass(frozen=True)
class Scales:
    """σ of each group of weights, one per layer; ``v`` is the read-out's (alemohammad2021, eq. (5)).

    >>> Scales.of(num_layers=2, w=1.4, u=(1.0, 0.5)).u
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    w: Float64[Tensor, " layer"]
    u: Float64[Tensor, " layer"]
    b: Float64[Tensor, " layer"]
    h: Float64[Tensor, " layer"]
    v: Float64[Tensor, ""]

    @classmethod
    def of(
        cls,
        num_layers: int = 1,
        w: float | tuple[float, ...] = 2**0.5,
        u: float | tuple[float, ...] = 1.0,
        b: float | tuple[float, ...] = 0.0,
        h: float | tuple[float, ...] = 0.0,
        v: float = 1.0,
    ) -> "Scales":
        """Repeat single numbers for every layer."""
        one, two, three, four = (
            torch.as_tensor(value, dtype=torch.float64).expand(num_layers).clone() for value in (w, u, b, h)
        )
        return cls(one, two, three, four, torch.tensor(v, dtype=torch.float64))


@dataclass(frozen=True)
class Scaled:
    """A matrix beyond float64: entry (i, j) is values_ij · exp(rows_i + columns_j)."""

    values: Float64[Tensor, "row column"]
    rows: Float64[Tensor, " row"]
    columns: Float64[Tensor, " column"]
