"""How an audit says that a statement does not apply, and how it thins a curve for the record."""

import math

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from sostenuto.report.numbers import number

MOST_POINTS = 200


def not_applicable(condition: str, values: Float[Tensor, " unit"], holds: Bool[Tensor, " unit"]) -> str:
    """Name a condition that fails and by how much; nothing where it holds for all units.

    >>> import torch
    >>> not_applicable("w ≥ −α", torch.tensor([0.5, -3.0, -2.0]), torch.tensor([True, False, False]))
    'not applicable: w ≥ −α fails (−3 to −2), for 2 of 3 units'
    """
    if bool(holds.all()):
        return ""
    bad = values[~holds]
    low, high = number(float(bad.min())), number(float(bad.max()))
    shown = low if low == high else f"{low} to {high}"
    share = "" if not bool(holds.any()) else f", for {len(bad)} of {len(values)} units"
    return f"not applicable: {condition} fails ({shown}){share}"


def thinned(count: int) -> tuple[int, ...]:
    """Choose at most 200 of the numbers 1 … ``count``, the first and the last among them.

    >>> thinned(3), len(thinned(5000)), thinned(5000)[-1]
    ((1, 2, 3), 200, 5000)
    """
    return tuple(np.unique(np.linspace(1, count, min(count, MOST_POINTS)).round().astype(int)).tolist())


def factor(logarithm: float) -> str:
    """Write the number whose natural logarithm is given, also where it is too large for a float.

    >>> factor(0.0), factor(2000.0)
    ('1', '10^868.6')
    """
    return number(math.exp(logarithm)) if abs(logarithm) < 700 else f"10^{logarithm / math.log(10):.1f}"
