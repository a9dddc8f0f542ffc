"""The signature kernel: sequences as paths, compared by all their iterated integrals up to a level."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sostenuto.checks import InputError, check_choice, check_count, require
from sostenuto.kernels.base import Bounds, Diagonal, Hyperparameter, Matrix, SequenceKernel, Steps
from sostenuto.ops.signature import (
    path_increments,
    signature_kernel_diagonal,
    signature_kernel_levels,
    signature_kernel_slopes,
    signature_size,
)
from sostenuto.ops.signature.features import feature_diagonal, feature_kernel, feature_slopes
from sostenuto.ops.signature.goursat import goursat_diagonal, goursat_kernel, goursat_slopes

EXPLICIT_SIZE = 2048
"""Up to this many numbers in a signature ``method="auto"`` forms them: products of vectors, not sums over segments."""


class Signature(SequenceKernel):
    """Compare sequences as paths by their signatures: K(x, y) = Σ_{k=0}^N w_k ⟨X^k, Y^k⟩.

    X^k holds the k-fold iterated integrals of the piecewise linear path through the points of x. With
    ``normalization="factorial"`` w_k = (k!)²: the kernel of fermanian2021, section 2.2, truncated at N; for total
    variations below 1 what is cut off is at most q^(N+1)/(1 − q), q the product of both. With ``"none"`` w_k = 1; then
    ``level=None`` is the whole sum, the solution of a partial differential equation (extra ``signature``).

    The kernel sees the shape of a path and the order of its movements, not its speed or where it begins; time as a
    channel brings back the speed, a basepoint the beginning.

    Args:
        level: N ≥ 1, or None for all levels.
        normalization: ``"factorial"``, ``"none"``, or None: the first with a level, the second without.
        scale: factor on the data; `sostenuto.theory.scale_paths` finds the one that brings total variations below 1.
        time_scale: factor τ on the channel t ∈ [0, 1]; the paper has (1 − L)/2, which is 0.25 at L = 1/2.
        time_augmentation: append that channel.
        basepoint: let the path begin at the origin.
        normalize: divide by √(K(x, x) K(y, y)).
        method: ``"dynamic"``: a program over pairs of segments, without tensors of d^N entries; ``"explicit"``: inner
            products of signatures; ``"auto"``: the second where a signature has at most 2048 numbers. Both are exact.
        scale_bounds: lowest and highest scale in a search, or ``"fixed"``.
        time_scale_bounds: likewise.

    >>> kernel = Signature(level=2, time_augmentation=False)
    >>> kernel([[0.0, 1.0], [0.0, 1.0, 2.0]])  # 1 + ab + (ab)² for straight lines of lengths a and b
    array([[ 3.,  7.],
           [ 7., 21.]])
    >>> Signature(level=3).hyperparameters[0].name, Signature(level=3).method_for(1)
    ('scale', 'explicit')
    """

    parameters = ("scale", "time_scale")

    def __init__(
        self,
        level: int | None = 4,
        normalization: str | None = None,
        *,
        scale: Any = 1.0,
        time_scale: Any = 0.25,
        time_augmentation: bool = True,
        basepoint: bool = False,
        normalize: bool = False,
        method: str = "auto",
        scale_bounds: Bounds = (1e-3, 1e1),
        time_scale_bounds: Bounds = (1e-3, 1e1),
    ) -> None:
        self.level, self.normalization, self.method = level, normalization, method
        self.scale, self.time_scale = scale, time_scale
        self.time_augmentation, self.basepoint, self.normalize = time_augmentation, basepoint, normalize
        self.scale_bounds, self.time_scale_bounds = scale_bounds, time_scale_bounds
        self.check_parameters()

    def check_parameters(self) -> None:
        """Refuse a level, normalization or method that there is not, besides what every kernel refuses."""
        super().check_parameters()
        check_choice("normalization", self.normalization, ("factorial", "none", None))
        check_choice("method", self.method, ("auto", "dynamic", "explicit"))
        if self.level is not None:
            check_count("level", self.level)
            return
        require(
            self.normalization != "factorial",
            "expected a level with normalization='factorial'",
            "got level=None",
            "give a level, or normalization='none' for the untruncated kernel",
        )
        require(self.method == "auto", "expected method='auto' with level=None", f"got {self.method!r}")

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """Describe the scale and, where time is a channel, its scale."""
        both = super().hyperparameters
        return both if self.time_augmentation else both[:1]

    def method_for(self, channels: int) -> str:
        """Say how sequences of so many channels are compared: ``"explicit"``, ``"dynamic"`` or ``"goursat"``."""
        if self.level is None:
            return "goursat"
        if self.method != "auto":
            return self.method
        size = signature_size(channels + int(self.time_augmentation), self.level)
        return "explicit" if size <= EXPLICIT_SIZE else "dynamic"

    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return Σ_k w_k ⟨X^k, Y^k⟩, divided by √(K(x, x) K(y, y)) with ``normalize``."""
        rows = self._increments(left)
        columns = rows if right is left else self._increments(right)
        method = self.method_for(left[0].shape[1])
        if method == "goursat":
            matrix = goursat_kernel(rows, columns)
        elif method == "explicit":
            matrix = feature_kernel(rows, columns, self._weights())
        else:
            matrix = self._weighted(signature_kernel_levels(rows, columns, len(self._weights()) - 1, backend="cpu"))
        matrix = self._finite(matrix, rows, columns)
        if self.normalize:
            own = self._raw_diagonal(rows, method)
            other = own if columns is rows else self._raw_diagonal(columns, method)
            matrix = matrix / (own.sqrt()[:, None] * other.sqrt()[None])
        return matrix.numpy()

    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return K(x, x) of every sequence."""
        own = self._raw_diagonal(self._increments(sequences), self.method_for(sequences[0].shape[1]))
        return (own / (own.sqrt() * own.sqrt()) if self.normalize else own).numpy()

    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and ∂K/∂log scale, ∂K/∂log time_scale, exactly.

        A factor on every channel multiplies level k by its 2k-th power, so the two derivatives of level k add up to
        2k·K_k and one of them gives the other.
        """
        increments = self._increments(sequences)
        matrix, slopes = self._slopes(increments, self.method_for(sequences[0].shape[1]))
        matrix = self._finite(matrix, increments, increments)
        if self.normalize:
            own = matrix.diagonal()
            matrix = matrix / (own.sqrt()[:, None] * own.sqrt()[None])
            for name, slope in slopes.items():
                rate = slope.diagonal() / own
                roots = own.sqrt()[:, None] * own.sqrt()[None]
                slopes[name] = slope / roots - matrix * (rate[:, None] + rate[None]) / 2
        return matrix.numpy(), {name: slopes[name].numpy() for name in names}

    def _slopes(self, increments: Tensor, method: str) -> tuple[Tensor, dict[str, Tensor]]:
        channels = increments.shape[2] - int(self.time_augmentation)
        if method == "goursat":
            matrix, slopes = goursat_slopes(increments)
            return matrix, {"scale": slopes[..., :channels].sum(-1), "time_scale": slopes[..., channels:].sum(-1)}
        if method == "explicit":
            matrix, slope, whole = feature_slopes(increments, self._weights(), channels)
        else:
            levels, slopes = signature_kernel_slopes(increments, increments, len(self._weights()) - 1, channels)
            matrix, slope = self._weighted(levels), self._weighted(slopes)
            whole = self._weighted(levels * 2 * torch.arange(levels.shape[-1], dtype=torch.float64))
        return matrix, {"scale": slope, "time_scale": whole - slope}

    def _raw_diagonal(self, increments: Tensor, method: str) -> Tensor:
        if method == "goursat":
            return goursat_diagonal(increments)
        if method == "explicit":
            own = feature_diagonal(increments, self._weights())
        else:
            own = self._weighted(signature_kernel_diagonal(increments, len(self._weights()) - 1))
        own = self._finite(own, increments, increments)
        require(
            bool((own >= 1 - 1e-6).all()),
            "expected K(x, x) of at least 1",
            f"got {float(own.min()):.4g}: rounding has eaten all digits of a long path that returns to where it was",
            "give a smaller scale or a lower level",
        )
        return own

    def _increments(self, sequences: list[Steps]) -> Tensor:
        lengths = torch.tensor([len(sequence) for sequence in sequences])
        points = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(x) for x in sequences], batch_first=True)
        time_scale = float(self.time_scale) if self.time_augmentation else 0.0
        return path_increments(points * float(self.scale), lengths, basepoint=self.basepoint, time_scale=time_scale)

    def _weights(self) -> list[float]:
        assert self.level is not None
        factorial = self.normalization != "none"
        return [float(math.factorial(k)) ** 2 if factorial else 1.0 for k in range(self.level + 1)]

    def _weighted(self, levels: Tensor) -> Tensor:
        """Add up the levels, the small ones first, in an order that does not depend on the batch."""
        total = torch.zeros_like(levels[..., 0])
        for k, weight in enumerate(self._weights()):
            total = total + weight * levels[..., k]
        return total

    def _finite(self, matrix: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if bool(torch.isfinite(matrix).all()):
            return matrix
        longest = [float(torch.linalg.vector_norm(side, dim=-1).sum(-1).max()) for side in (left, right)]
        raise InputError(
            f"expected signature kernels that float64 can hold, got an overflow at level {self.level} with total "
            f"variations up to {longest[0]:.4g} and {longest[1]:.4g} after scaling; give a smaller scale or a lower "
            "level."
        )
