"""Families of kernels wider than the grids of alemohammad2021's appendix A.1, for columns beside its Table 2."""

from typing import Any

import numpy as np

from sostenuto.estimators.rntk.base import grid_points
from sostenuto.experiments.tasks.paper_grids import kernel_of
from sostenuto.kernels import RecurrentNTK
from sostenuto.kernels.base import SequenceKernel

BIASES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
FAMILIES: dict[str, dict[str, tuple[Any, ...]]] = {
    "RNTK": {
        "kind": ("ntk", "nngp"),
        "num_layers": (1, 2),
        "growth": (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0),
        "sigma_b": BIASES,
        "sigma_h": (0.0, 0.3),
    },
    "NTK": {
        "kind": ("ntk", "nngp"),
        "num_layers": (1, 2, 4, 8),
        "sigma_w": (1.0, 2**0.5, 2.0),
        "sigma_b": BIASES,
    },
    "RBF": {"alpha": tuple(float(10 ** (third / 3)) for third in range(-12, 10))},
    "Polynomial": {"degree": tuple(range(1, 11)), "offset": (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)},
}
"""Axes by kernel. growth = T log(σ_w²/2) is by how much a state of the recurrent network grows over a sequence."""
THINNED = ("growth", "sigma_b", "alpha", "degree")
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "RNTK": {"RNTK (wide)": ("ntk", "nngp"), "RNTK (wide, Θ)": ("ntk",)},
    "NTK": {"NTK (wide)": ("ntk", "nngp")},
    "RBF": {"RBF (wide)": ()},
    "Polynomial": {"Polynomial (wide)": ()},
}
"""Columns by kernel, and among which kinds each chooses: both, Θ alone, as the paper does, or there are none."""


def family_points(family: str, every: int = 1) -> list[dict[str, Any]]:
    """List a family; ``every`` thins `THINNED`, and an initial state is tried beside small biases alone.

    >>> [len(family_points(family)) for family in FAMILIES], len(family_points("RNTK", 2))
    ([224, 144, 22, 70], 48)
    """
    axes = {
        name: values[every - 1 :: every] if name in THINNED else values for name, values in FAMILIES[family].items()
    }
    return [point for point in grid_points(axes) if not point.get("sigma_h") or point["sigma_b"] < 0.3]


def kernel_at(family: str, point: dict[str, Any], steps: int) -> SequenceKernel:
    """Build the kernel of a point for sequences of ``steps`` steps; the RNTK has σ_w = √2 exp(growth / 2T).

    >>> kernel_at("RNTK", {"growth": 0.0, "kind": "nngp", "sigma_b": 3.0}, 100).sigma_w == 2**0.5
    True
    """
    if family != "RNTK":
        return kernel_of(family, point)
    rest = {name: value for name, value in point.items() if name != "growth"}
    return RecurrentNTK(sigma_w=2**0.5 * float(np.exp(point["growth"] / (2 * steps))), **rest)
