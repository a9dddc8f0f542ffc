"""The ball of weights around a model: every parameter may move by at most β in its spectral norm.

wang2024, Definition 3.4, measures a change of the weights by the largest of |ΔW|₂, |ΔU|₂, |Δb|₂, |Δc|₂: a ball that is
a product of balls, one per parameter. Vectors are measured by their Euclidean norm, tensors of more axes as matrices.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sostenuto.checks import require


class WeightBall:
    """Moves the weights of a model that learn, and puts them back."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        require(len(self.parameters) > 0, "expected a model with weights that learn", "got none")
        self._center = [parameter.detach().clone() for parameter in self.parameters]

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
        for center in self._center:
            noise = torch.randn(center.shape, generator=generator, dtype=torch.float64)
            found.append((noise * (radius / spectral_norm(noise))).to(center))
        return found

    def climb(self, change: list[Tensor], gradients: tuple[Tensor, ...], step: float, radius: float) -> list[Tensor]:
        """Step in the direction of norm 1 that gains most in every parameter, and come back into the ball."""
        # In float64: a long step would overflow in half precision.
        return [
            project(part.double() + step * steepest(gradient).double(), radius).to(part)
            for part, gradient in zip(change, gradients, strict=True)
        ]


def as_matrix(values: Tensor) -> Tensor:
    """Lay a tensor out as a matrix: a vector is one column."""
    return values.reshape(values.shape[0] if values.ndim else 1, -1)


def spectral_norm(values: Tensor) -> Tensor:
    """Give the largest singular value.

    >>> spectral_norm(torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return torch.linalg.matrix_norm(as_matrix(values), ord=2)


def project(values: Tensor, radius: float) -> Tensor:
    """Find the nearest point of spectral norm at most ``radius``: singular values are cut there."""
    left, sizes, right = torch.linalg.svd(as_matrix(values).double(), full_matrices=False)
    return (left * sizes.clamp(max=radius) @ right).reshape(values.shape).to(values)


def steepest(gradient: Tensor) -> Tensor:
    """Give the direction of spectral norm 1 that gains most: the orthogonal factor of the gradient."""
    left, sizes, right = torch.linalg.svd(as_matrix(gradient).double(), full_matrices=False)
    kept = (sizes > torch.finfo(gradient.dtype).eps * sizes.max()).to(sizes)
    return (left * kept @ right).reshape(gradient.shape).to(gradient)
