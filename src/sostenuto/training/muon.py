"""`Muon`: steps of momentum made orthogonal for the matrices inside a recurrent layer, AdamW for all else."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.training.mixed_adam import MixedAdam

MOMENTUM = 0.95
MATCHED = 0.6
"""Root mean square of the entries of a step, as a share of the learning rate; AdamW's is 0.2 to 0.4."""
_ROUNDS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)
_LEAST_SIDE = 16
"""Matrices with a shorter side (from one channel, to ten classes) are left to AdamW."""


class Muon(MixedAdam):
    """AdamW, but for the groups with ``orthogonal=True``: momentum of which every singular value is set to about one.

    m ← .95 m + .05 G,  W ← (1 − ηλ)W − .6 η √max(n, k) · orth(.95 m + .05 G) for W of n × k, where orth(UΣVᵀ) ≈ UVᵀ
    by five rounds of a quintic (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the root after Liu et
    al. 2025, arXiv:2502.16982, so that a learning rate serves both kinds of weights). η is the group's learning rate
    times its ``matrix_rate``.

    >>> weight = nn.Parameter(torch.zeros(16, 16))
    >>> optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.1)
    >>> weight.grad = torch.diag(torch.logspace(0, -2, 16))
    >>> optimizer.step()
    >>> bool((-weight.diagonal() > 0.15).all())
    True
    """

    mark = "orthogonal"

    def own_step(self, group: dict[str, Any], gradients: dict[Tensor, Tensor]) -> None:
        """Step along the orthogonal momentum, matrices of one shape together."""
        rate, decay = group.get("matrix_rate", 1.0) * group["lr"], group["weight_decay"]
        shapes: dict[torch.Size, list[Tensor]] = {}
        for weight in gradients:
            shapes.setdefault(weight.shape, []).append(weight)
        for shape, weights in shapes.items():
            ahead = torch.stack([self._look_ahead(weight, gradients[weight]) for weight in weights])
            steps = MATCHED * max(shape) ** 0.5 * orthogonal(ahead)
            for weight, step in zip(weights, steps, strict=True):
                weight.mul_(1 - rate * decay).sub_(rate * step)

    def _look_ahead(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Move the momentum and give the gradient after its next step (Nesterov's)."""
        state = self.state[weight]
        if not state:
            # AdamW looks for a count of steps in every state it loads.
            state["step"] = torch.zeros((), device=weight.device)
            state["momentum"] = torch.zeros_like(weight)
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(state["momentum"], MOMENTUM)


def orthogonal(matrices: Float[Tensor, "*batch row column"]) -> Float[Tensor, "*batch row column"]:
    """Bring every singular value near one (.7 to 1.2, for those above a 250th of the norm) without a decomposition.

    X ← aX + (bXXᵀ + c(XXᵀ)²)X five times, from X divided by its Frobenius norm; zero stays zero.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + torch.finfo(x.dtype).tiny)
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


def parameter_groups(model: nn.Module, matrix_rate: float = 1.0) -> list[dict[str, Any]]:
    """Divide the weights of a model into Muon's two groups; one without weights is left out."""
    matrices = inner_matrices(model)
    inside = set(map(id, matrices))
    others = [weight for weight in model.parameters() if weight.requires_grad and id(weight) not in inside]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "orthogonal": True, "matrix_rate": matrix_rate},
        {"params": others},
    ]
    return [group for group in groups if group["params"]]


def inner_matrices(model: nn.Module) -> list[nn.Parameter]:
    """List the weights that Muon makes orthogonal steps for: matrices of some size in the model's recurrent layer."""
    layer = getattr(model, "layer", model)
    return [weight for weight in layer.parameters() if _is_matrix(weight)]


def _is_matrix(weight: nn.Parameter) -> bool:
    sized = weight.ndim == 2 and min(weight.shape) >= _LEAST_SIDE
    return sized and weight.requires_grad and weight.is_floating_point()
