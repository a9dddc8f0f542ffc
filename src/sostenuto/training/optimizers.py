"""Optimizers, clipping and the learning rate as a function of the step."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import require
from sostenuto.training.config import TrainingConfig

WARM_UP = 0.3
START, END = 1 / 25, 1e-4


def learning_rate(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of optimizer step number ``step`` (from 0).

    >>> config = TrainingConfig(epochs=2, learning_rate=1.0, schedule="step", step_epochs=(1,))
    >>> [learning_rate(config, step, 2) for step in range(4)]
    [1.0, 1.0, 0.1, 0.1]
    """
    return config.learning_rate * _factor(config, step, steps_per_epoch)


def _factor(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "step":
        passed = sum(step // steps_per_epoch >= epoch for epoch in config.step_epochs)
        return config.step_factor**passed
    progress = step / max(config.epochs * steps_per_epoch - 1, 1)
    if config.schedule == "cosine":
        return _cosine(1.0, 0.0, progress)
    if progress < WARM_UP:
        return _cosine(START, 1.0, progress / WARM_UP)
    return _cosine(1.0, END, (progress - WARM_UP) / (1 - WARM_UP))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> None:
    """Scale all gradients by min(1, limit/‖g‖), with g all of them as one vector.

    It is `torch.nn.utils.clip_grad_norm_` for parameters of one device, without the search for others, which takes
    longer than the norm of a small model.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], 1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        norms = torch._foreach_norm(gradients)  # pyright: ignore[reportPrivateImportUsage]
        factor = (limit / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factor)  # pyright: ignore[reportPrivateImportUsage]


class MixedAdam(torch.optim.AdamW):
    """AdamW, but for the groups in which ``mark`` is true: those `own_step` moves."""

    mark: str

    def __init__(self, params: Iterable[dict[str, Any]], **options: Any) -> None:
        super().__init__(params, **options)
        for group in self.param_groups:
            group.setdefault(self.mark, False)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step; weights without a gradient stay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients: dict[Tensor, Tensor] = {}
        for group in self.param_groups:
            if group[self.mark]:
                own = {weight: weight.grad for weight in group["params"] if weight.grad is not None}
                self.own_step(group, own)
                gradients |= own
        for weight in gradients:
            weight.grad = None
        super().step()
        for weight, gradient in gradients.items():
            weight.grad = gradient
        return loss

    @abstractmethod
    def own_step(self, group: dict[str, Any], gradients: dict[Tensor, Tensor]) -> None:
        """Move the weights of a marked group by their gradients."""


class EvenAdam(MixedAdam):
    """AdamW, but for the groups with ``even=True``, whose second moment is one number for the whole tensor.

    m ← β₁ m + (1 − β₁) G,  v ← β₂ v + (1 − β₂) mean(G²),  W ← (1 − ηλ)W − η m̂ / (√v̂ + ε). Adam divides every entry
    by its own moment, so that a word seen three times moves as far as one seen a thousand times. (As classifiers of
    IMDB's reviews, means of word vectors had 87.0 % of other films' with this and 86.1 % with Adam.)

    >>> table = torch.nn.Parameter(torch.zeros(2, 1))
    >>> optimizer = EvenAdam([{"params": [table], "even": True}], lr=0.1)
    >>> table.grad = torch.tensor([[1.0], [0.01]])
    >>> optimizer.step()
    >>> bool(table[0] < 50 * table[1] < 0)
    True
    """

    mark = "even"

    def own_step(self, group: dict[str, Any], gradients: dict[Tensor, Tensor]) -> None:
        """Step along the momentum, divided by one number."""
        first, second = group["betas"]
        for weight, gradient in gradients.items():
            state = self.state[weight]
            if not state:
                state["step"] = torch.zeros((), device=weight.device)
                state["momentum"] = torch.zeros_like(weight)
                state["moment"] = torch.zeros((), device=weight.device, dtype=weight.dtype)
            state["step"] += 1
            state["momentum"].lerp_(gradient, 1 - first)
            state["moment"].lerp_(gradient.square().mean(), 1 - second)
            # 1 − β^t, without the rounding of a number near one.
            begun, measured = (-torch.expm1(state["step"] * math.log(beta)) for beta in (first, second))
            rate = group["lr"] / (begun * ((state["moment"] / measured).sqrt() + group["eps"]))
            weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(rate * state["momentum"])


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


def make_optimizer(model: nn.Module, config: TrainingConfig, *, graph: bool = False) -> torch.optim.Optimizer:
    """Make the optimizer of ``config``; with ``graph`` its learning rates are tensors that a recorded step reads."""
    groups = parameter_groups(model, config)
    weights = [weight for group in groups for weight in group["params"]]
    # One pass over each weight instead of a dozen; torch has it for real numbers, and takes groups of them on a GPU.
    fused = all(weight.device.type == "cpu" and weight.is_floating_point() for weight in weights)
    options: dict[str, Any] = {"lr": config.learning_rate, "fused": fused or None}
    if graph:
        require(config.optimizer != "sgd", "expected adamw, adam or muon for a graph", "got sgd", "set graph = false")
        options = {"lr": torch.zeros(()), "fused": True, "capturable": True}
        for group in groups:
            group["lr"] = torch.zeros((), device=weights[0].device)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=config.momentum, **options)
    kinds = {"adamw": EvenAdam if config.even_words else torch.optim.AdamW, "adam": torch.optim.Adam, "muon": Muon}
    return kinds[config.optimizer](groups, **options)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, each its own share of ``rate``."""
    for group in optimizer.param_groups:
        own = rate * group.get("rate_share", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def make_state(optimizer: torch.optim.Optimizer) -> None:
    """Make the state of an optimizer that has seen nothing, as a recorded step needs it from its start.

    One step at rate 0 makes it, and then it is set to 0.
    """
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    set_learning_rate(optimizer, 0.0)
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate


def parameter_groups(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """Divide the weights of a model by how they are moved: Muon's matrices, word vectors, and the others.

    With ``decayed="matrices"`` those of one axis are apart, without decay.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    inner = inner_matrices(model) if config.optimizer == "muon" else []
    table = getattr(model, "embedding", None)
    own = table is not None and (config.even_words or config.embedding_rate != 1)
    vectors = [weight for weight in table.parameters() if weight.requires_grad] if table is not None and own else []
    apart = set(map(id, [*inner, *vectors]))
    others = [weight for weight in weights if id(weight) not in apart]
    plain = [weight for weight in others if weight.ndim <= 1] if config.decayed == "matrices" else []
    undecayed = set(map(id, plain))
    words = {"rate_share": config.embedding_rate, "even": config.even_words}
    groups: list[dict[str, Any]] = [
        {"params": inner, "orthogonal": True, "matrix_rate": config.matrix_rate},
        {"params": [weight for weight in others if id(weight) not in undecayed]},
        {"params": vectors, **words},
        {"params": plain, "weight_decay": 0.0},
    ]
    return [{"weight_decay": config.weight_decay, **group} for group in groups if group["params"]]


def inner_matrices(model: nn.Module) -> list[nn.Parameter]:
    """List the weights that Muon makes orthogonal steps for: matrices of some size in the model's recurrent layer."""
    layer = getattr(model, "layer", model)
    return [weight for weight in layer.parameters() if _is_matrix(weight)]


def _is_matrix(weight: nn.Parameter) -> bool:
    sized = weight.ndim == 2 and min(weight.shape) >= _LEAST_SIDE
    return sized and weight.requires_grad and weight.is_floating_point()
