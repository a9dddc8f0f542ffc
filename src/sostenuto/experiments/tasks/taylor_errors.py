"""Errors of the step-N Taylor expansion of random RNNs along a spiral, against the solution (fermanian2021)."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.data.tasks.spirals import spirals
from sostenuto.theory.activation import smooth_activation
from sostenuto.theory.ode import solve
from sostenuto.theory.path_scale import scale_paths
from sostenuto.theory.signature import signature
from sostenuto.theory.star_product import products_ending_in_time
from sostenuto.theory.tensor_field import TensorField, rnn_field

ACTIVATIONS = ("tanh", "logistic")


@dataclass(frozen=True)
class Weights:
    """U, V and b of many RNNs of one shape."""

    recurrent: Float[Tensor, "model hidden hidden"]
    input_map: Float[Tensor, "model hidden channel"]
    bias: Float[Tensor, "model hidden"]

    @property
    def frobenius(self) -> Float[Tensor, " model"]:
        """‖W‖_F, W = (U V)."""
        return torch.cat([self.recurrent, self.input_map], dim=2).flatten(1).norm(dim=1)


def uniform_weights(count: int, hidden: int, generator: torch.Generator, channels: int = 2) -> Weights:
    """Draw every weight and bias uniformly within ±1/√hidden, as torch does.

    >>> uniform_weights(3, 2, torch.Generator().manual_seed(0)).frobenius.max() < 2
    tensor(True)
    """
    parts = torch.rand(count, hidden, hidden + channels + 1, generator=generator, dtype=torch.float64)
    u, v, b = ((2 * parts - 1) / hidden**0.5).split([hidden, channels, 1], dim=2)
    return Weights(u, v, b[..., 0])


def rescaled(weights: Weights, frobenius: Float[Tensor, " model"]) -> Weights:
    """Bring ‖W‖_F of every model to the number given; biases stay."""
    factor = (frobenius / weights.frobenius)[:, None, None]
    return Weights(weights.recurrent * factor, weights.input_map * factor, weights.bias)


def spiral_path(points: int, total_variation: float, seed: int = 0) -> Float[Tensor, "time 2"]:
    """Return a spiral from the origin, scaled to the total variation L.

    >>> spiral_path(100, 0.5).shape
    torch.Size([99, 2])
    """
    data = spirals(seed, num_train=1, num_test=0, num_steps=points)
    spiral = torch.from_numpy(np.asarray(data.train.sequences[0]))
    path = spiral[1:] - spiral[0]
    return scale_paths(path, total_variation, basepoint=True).apply(path)


def taylor_errors(
    weights: Weights, path: Float[Tensor, "time 2"], order: int, activation: str, total_variation: float
) -> Float[Tensor, "model order"]:
    """Measure the largest ‖H_t − H_t^N‖ along ``path`` for N = 1 … ``order``, one row a model.

    H is solved to a relative 1e-13; the signature of the path is computed once for all models.

    >>> weights = uniform_weights(2, 2, torch.Generator().manual_seed(0))
    >>> errors = taylor_errors(weights, spiral_path(20, 0.5), 3, "tanh", 0.5)
    >>> (errors[:, 2] < errors[:, 0]).all()
    tensor(True)
    """
    sigma = smooth_activation(activation)
    u, v, b = weights.recurrent, weights.input_map, weights.bias

    def rate(h: Tensor, x: Tensor) -> Tensor:
        return sigma((u @ h[..., None] + v @ x[..., None])[..., 0] + b)

    many = TensorField(rate, u.shape[1], u.shape[1], v.shape[2], total_variation=total_variation)
    exact = solve(many, path.expand(len(u), -1, -1), tolerance=1e-13)
    known = signature(path, order, normalization="none", prefixes=True, basepoint=True, total_variation=total_variation)
    in_time = [level[..., -1].reshape(len(path), -1) for level in list(known)[1:]]
    errors = []
    for index in range(len(u)):
        field = rnn_field(u[index], v[index], b[index], activation, total_variation=total_variation)
        products = products_ending_in_time(field, order)
        state, results = torch.zeros_like(exact[index]), []
        for words, product in zip(in_time, products, strict=True):
            state = state + words @ product.reshape(-1, product.shape[-1])
            results.append((state - exact[index]).norm(dim=1).max())
        errors.append(torch.stack(results))
    return torch.stack(errors)
