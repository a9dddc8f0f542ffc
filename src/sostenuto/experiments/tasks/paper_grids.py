"""The four kernels of alemohammad2021's comparisons and the hyper-parameters it chooses among (appendix A.1)."""

from typing import Any

from sostenuto.estimators.rntk.classifier import PAPER_GRID
from sostenuto.kernels import NTK, RBF, Polynomial, RecurrentNTK
from sostenuto.kernels.base import SequenceKernel

Axes = dict[str, tuple[Any, ...]]

KERNELS = ("RNTK", "NTK", "RBF", "Polynomial")
GRIDS: dict[str, Axes] = {
    "RNTK": {name: values for name, values in PAPER_GRID.items() if len(values) > 1},
    "NTK": {
        "num_layers": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        "sigma_w": (0.5, 1.0, 2**0.5, 2.0, 2.5, 3.0),
        "sigma_b": (0.0, 0.01, 0.1, 0.2, 0.5, 0.8, 1.0, 2.0, 5.0),
    },
    "RBF": {"alpha": (0.01, 0.05, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 1, 2, 3, 4, 5, 10, 20, 30, 40, 100)},
    "Polynomial": {"degree": (1, 2, 3, 4, 5), "offset": (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)},
}


def grid_of(column: str, every: int = 1) -> Axes:
    """Return the axes of a kernel's grid; ``every`` thins the two large ones, those of RNTK and NTK, axis by axis.

    >>> from sostenuto.estimators.rntk.base import grid_points
    >>> [len(grid_points(grid_of(column))) for column in KERNELS], len(grid_points(grid_of("RNTK", 2)))
    ([900, 540, 18, 30], 144)
    """
    large = column in ("RNTK", "NTK")
    return {name: values[::every] if large else values for name, values in GRIDS[column].items()}


def kernel_of(column: str, point: dict[str, Any]) -> SequenceKernel:
    """Build the kernel of a grid's point; the paper writes the RBF as exp(−α‖x − y‖²).

    >>> kernel_of("RBF", {"alpha": 0.5})
    RBF(length_scale=1)
    """
    if column == "RNTK":
        return RecurrentNTK(**point)
    if column == "NTK":
        return NTK(**point)
    return RBF((2 * point["alpha"]) ** -0.5) if column == "RBF" else Polynomial(**point)
