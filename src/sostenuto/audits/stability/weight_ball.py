"""The ball of weights around a model: every parameter may move by at most β in its spectral norm.

wang2024, Definition 3.4, measures a change of the weights by the largest of |ΔW|₂, |ΔU|₂, |Δb|₂, |Δc|₂: a ball that is
a product of balls, one per parameter. Vectors are measured by their Euclidean norm, tensors of more axes as matrices.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sostenuto.checks import require


class WeightBall:
    """Moves the weights of a model that learn, and puts them back.

    ``relative`` lets β count in the norm of each parameter; where that is zero, in the median one.
    """

    def __init__(self, model: nn.Module, *, relative: bool = False) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        require(len(self.parameters) > 0, "expected a model with weights that learn", "got none")
        self._center = [parameter.detach().clone() for parameter in self.parameters]
        norms = [float(spectral_norm(center.double())) if relative else 1.0 for center in self._center]
        usual = sorted(norms)[len(norms) // 2] or 1.0
        self._sizes = [norm or usual for norm in norms]

    @contextmanager
    def moved(self, change: list[Tensor]) -> Iterator[None]:
        """Let the weights be those of the center plus ``change``, for a while."""
        try:
            with torch.no_grad():
                for parameter, center, part in zip(self.parameters, self._center, change, strict=True):
                    parameter.copy_(center + part)
            yield
        finally:
            with torch.no_grad():
                for parameter, center in zip(self.parameters, self._center, strict=True):
                    parameter.copy_(center)

    def draw(self, generator: torch.Generator, radius: float) -> list[Tensor]:
        """Draw a change on the edge of the ball: every parameter Gaussian, scaled to norm ``radius``."""
        found = []
        for center, size in zip(self._center, self._sizes, strict=True):
            noise = torch.randn(center.shape, generator=generator, dtype=torch.float64)
            found.append((noise * (radius * size / spectral_norm(noise))).to(center))
        return found

    def climb(self, change: list[Tensor], gradients: tuple[Tensor, ...], step: float, radius: float) -> list[Tensor]:
        """Step in the direction of norm 1 that gains most in every parameter, and come back into the ball."""
        # In float64: a long step would overflow in half precision.
        return [
            project(part.double() + step * size * steepest(gradient).double(), radius * size).to(part)
            for part, gradient, size in zip(change, gradients, self._sizes, strict=True)
        ]


def as_matrix(values: Tensor) -> Tensor:
    """Lay a tensor out as a matrix: a vector is one column."""
    return values.reshape(values.shape[0] if values.ndim else 1, -1)


def spectral_norm(values: Tensor) -> Tensor:
    """Give the largest singular value.

    >>> spectral_norm(torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    matrix = as_matrix(values)
    largest = matrix.abs().max().clamp(min=torch.finfo(matrix.dtype).tiny)
    return torch.linalg.eigvalsh(_product(matrix / largest))[-1].clamp(min=0).sqrt() * largest


def project(values: Tensor, radius: float) -> Tensor:
    """Find the nearest point of spectral norm at most ``radius``: singular values are cut there."""
    return _resized(values, lambda sizes: sizes.clamp(max=radius))


def steepest(gradient: Tensor) -> Tensor:
    """Give the direction of spectral norm 1 that gains most: the orthogonal factor of the gradient."""
    rounding = torch.finfo(gradient.dtype).eps
    return _resized(gradient, lambda sizes: (sizes > rounding * sizes.max()).to(sizes))


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[0] < matrix.shape[1]


def _product(matrix: Tensor) -> Tensor:
    """Multiply a matrix by itself to the smaller of the two squares."""
    return matrix @ matrix.T if _is_wide(matrix) else matrix.T @ matrix


def _resized(values: Tensor, resize: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the singular values of a matrix, by the eigenvectors of its product with itself: a tenth of an SVD."""
    matrix = as_matrix(values).double()
    tiny = torch.finfo(matrix.dtype).tiny
    largest = matrix.abs().max().clamp(min=tiny)  # taken out, lest squares overflow
    squares, vectors = torch.linalg.eigh(_product(matrix / largest))
    sizes = squares.clamp(min=0).sqrt() * largest
    turned = vectors * (resize(sizes) / sizes.clamp(min=tiny)) @ vectors.T
    changed = turned @ matrix if _is_wide(matrix) else matrix @ turned
    return changed.reshape(values.shape).to(values)
