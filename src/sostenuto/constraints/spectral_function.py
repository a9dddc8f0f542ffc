"""A scalar function of a symmetric matrix, with derivatives that are finite where eigenvalues meet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.constraints.linear_algebra import eigh, in_onnx_graph

Scalar = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ScalarFunction:
    """A function of a number with its first two derivatives."""

    value: Scalar
    slope: Scalar
    bend: Scalar


def spectral_function(matrix: Float[Tensor, "*n h h"], function: ScalarFunction) -> Float[Tensor, "*n h h"]:
    """Apply f to the eigenvalues of a symmetric matrix: f(S) = Q f(Λ) Qᵀ with S = QΛQᵀ.

    The derivative along E is Q (Φ ⊙ QᵀEQ) Qᵀ, Φ_ij = (f(λ_i) − f(λ_j))/(λ_i − λ_j), and f′(λ_i) where they meet
    (Daleckii and Krein); `torch.linalg.eigh` differentiated would divide by zero there. Second derivatives are taken
    likewise; a third is refused.

    >>> square = ScalarFunction(torch.square, lambda x: 2 * x, lambda x: 2 * torch.ones_like(x))
    >>> spectral_function(torch.tensor([[0.0, 2.0], [2.0, 0.0]]), square).round(decimals=3).tolist()
    [[4.0, 0.0], [0.0, 4.0]]
    """
    if in_onnx_graph():
        values, vectors = eigh(matrix)
        return (vectors * function.value(values)[..., None, :]) @ vectors.mT
    # Dynamo cannot trace a Function that has a forward-mode derivative.
    kind = _Spectral if torch.compiler.is_compiling() else _ForwardSpectral
    return kind.apply(matrix, function)  # pyright: ignore[reportReturnType]


class _Spectral(torch.autograd.Function):
    """f(S)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, function: ScalarFunction) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        return (vectors * function.value(values)[..., None, :]) @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ScalarFunction], output: Tensor) -> None:  # noqa: ARG004
        matrix, ctx.function = inputs
        ctx.save_for_backward(matrix)
        ctx.save_for_forward(matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (matrix,) = ctx.saved_tensors
        return _Derivative.apply(matrix, gradient, ctx.function), None  # pyright: ignore[reportReturnType]


class _ForwardSpectral(_Spectral):
    """f(S) with its derivative in forward mode too."""

    generate_vmap_rule = True

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (matrix,) = ctx.saved_tensors
        return _Derivative.apply(matrix, tangent, ctx.function)  # pyright: ignore[reportReturnType]


class _Derivative(torch.autograd.Function):
    """Df(S)[E], linear in E and its own adjoint."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, direction: Tensor, function: ScalarFunction) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        inner = _divided(values, function) * (vectors.mT @ direction @ vectors)
        return vectors @ inner @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, ScalarFunction], output: Tensor) -> None:  # noqa: ARG004
        matrix, direction, ctx.function = inputs
        ctx.save_for_backward(matrix, direction)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        matrix, direction = ctx.saved_tensors
        bent = _SecondDerivative.apply(matrix, direction, gradient, ctx.function)
        return bent, _Derivative.apply(matrix, gradient, ctx.function), None  # pyright: ignore[reportReturnType]


class _SecondDerivative(torch.autograd.Function):
    """D²f(S)[E, G] = Q (Σ_k f[λ_i, λ_k, λ_j](E_ik G_kj + G_ik E_kj)) Qᵀ, E and G in the eigenvectors' frame."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, one: Tensor, other: Tensor, function: ScalarFunction) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        one, other = (vectors.mT @ each @ vectors for each in (one, other))
        twice = _divided_twice(values, function)
        paths = "...ikj,...ik,...kj->...ij"
        inner = torch.einsum(paths, twice, one, other) + torch.einsum(paths, twice, other, one)
        return vectors @ inner @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keep nothing: there is no third derivative."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError("a third derivative of a stable weight is not implemented")


def _near(one: Tensor, other: Tensor, power: float) -> Tensor:
    """Say where a difference of values is so small that its quotient would be mostly rounding."""
    return (one - other).abs() <= torch.finfo(one.dtype).eps ** power * (1 + one.abs() + other.abs())


def _divided(values: Tensor, function: ScalarFunction) -> Tensor:
    """Divide (f(x) − f(y))/(x − y) for all pairs; f′ between them where they meet."""
    x, y = values[..., :, None], values[..., None, :]
    near = _near(x, y, 1 / 3)
    quotient = (function.value(x) - function.value(y)) / torch.where(near, 1, x - y)
    return torch.where(near, function.slope((x + y) / 2), quotient)


def _divided_twice(values: Tensor, function: ScalarFunction) -> Tensor:
    """Divide once more: f[x, y, z] = (f[x, y] − f[y, z])/(x − z), by whichever two lie farthest apart."""
    x, y, z = values[..., :, None, None], values[..., None, :, None], values[..., None, None, :]
    once = _divided(values, function)
    xy, yz, xz = once[..., :, :, None], once[..., None, :, :], once[..., :, None, :]
    apart = torch.stack(torch.broadcast_tensors((x - y).abs(), (y - z).abs(), (x - z).abs()))
    farthest = apart.argmax(0)
    over = torch.where(farthest == 0, x - y, torch.where(farthest == 1, y - z, x - z))
    up = torch.where(farthest == 0, xz - yz, torch.where(farthest == 1, xy - xz, xy - yz))
    size = 1 + values.abs().amax(-1)[..., None, None, None]
    near = over.abs() <= torch.finfo(values.dtype).eps ** 0.25 * size
    return torch.where(near, function.bend((x + y + z) / 3) / 2, up / torch.where(near, 1, over))
