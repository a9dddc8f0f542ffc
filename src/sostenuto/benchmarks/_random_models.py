"""Random RNN fields and paths that try the bounds of fermanian2021: width ≤ 64, large biases, all sizes of weights."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sostenuto.theory.tensor_field import RNNField, TensorField, rnn_field


@dataclass(frozen=True)
class Group:
    """Models of one shape, and one path for each of them."""

    fields: list[RNNField]
    batched: TensorField
    paths: Tensor

    def __len__(self) -> int:
        """Count the models."""
        return len(self.fields)


def total_variation(paths: Tensor) -> Tensor:
    """Measure the lengths of paths from the origin."""
    return torch.cat([paths[..., :1, :], paths.diff(dim=-2)], dim=-2).norm(dim=-1).sum(-1)


def random_path(length: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw rough, smooth or jumping paths of length ``length``."""
    steps = torch.randn(shape, generator=generator, dtype=torch.float64)
    weight = torch.rand(*shape[:-1], 1, generator=generator, dtype=torch.float64) ** torch.randint(
        1, 20, (*shape[:-2], 1, 1), generator=generator
    )
    points = (steps * weight).cumsum(-2)
    return points * (length * (1 - 1e-12) / total_variation(points))[..., None, None]


def random_group(seed: int, count: int, *, steps: int = 12, largest: float = 1.0) -> Group:
    """Draw ``count`` models; ``largest`` is the top of the row sums, whose logarithm is uniform over three decades."""
    generator = torch.Generator().manual_seed(seed)
    width = int(2 ** (6 * torch.rand(1, generator=generator)).item()) if seed % 5 else 64
    channels = 1 + seed % 3
    activation = ("tanh", "logistic")[seed % 2]
    length = (0.1, 0.5, 0.9)[seed % 3]
    shape = (count, width, width + channels)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64)
    if seed % 4 == 0:
        weights = weights.abs()
    sums = largest * 10 ** (-3 * torch.rand(count, 1, 1, generator=generator, dtype=torch.float64))
    weights = weights / weights.abs().sum(2, keepdim=True).amax(1, keepdim=True) * sums
    spread = 10 ** (3 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 1.5)
    bias = spread * torch.randn(count, width, generator=generator, dtype=torch.float64)
    u, v = weights.split([width, channels], dim=2)
    fields = [rnn_field(u[i], v[i], bias[i], activation, total_variation=length) for i in range(count)]

    def rate(h: Tensor, x: Tensor) -> Tensor:
        inner = torch.einsum("nij,nj->ni", u, h) + torch.einsum("nij,nj->ni", v, x) + bias
        return fields[0].activation(inner)

    batched = TensorField(rate, width, width, channels, total_variation=length)
    return Group(fields, batched, random_path(length, (count, steps, channels), generator))


def random_readout(field: RNNField, seed: int) -> Tensor:
    """Draw one output of length about 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(field.hidden_size, generator=generator, dtype=torch.float64) / math.sqrt(field.hidden_size)
