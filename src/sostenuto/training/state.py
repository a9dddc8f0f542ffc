"""A moving average of the weights, evaluated and kept in their place."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sostenuto.training.checkpoint import Checkpoint


class WeightAverage:
    """θ̄ ← decay·θ̄ + (1 − decay)·θ after every step, with the decay eased in so that early steps do not weigh on it.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(model, decay=0.9)
    >>> with average.in_place(model):
    ...     same = torch.equal(model.weight, average.tensors["weight"])
    >>> same
    True
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.tensors = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self._weight = torch.ones((), device=next(iter(self.tensors.values())).device)

    def update(self, model: nn.Module) -> None:
        """Take one more step into the average."""
        self.advance()
        self.blend(model)

    def advance(self) -> None:
        """Count a step and set the weight of the one to come: the part of `update` that a graph does not record."""
        self.steps += 1
        self._weight.fill_(1 - min(self.decay, self.steps / (self.steps + 9)))

    @torch.no_grad()
    def blend(self, model: nn.Module) -> None:
        """Move the average towards the weights of ``model``."""
        for name, value in model.state_dict().items():
            mean = self.tensors[name]
            if value.is_floating_point():
                mean.lerp_(value.to(mean.dtype), self._weight.to(mean.dtype))
            else:
                mean.copy_(value)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Evaluate the model with the averaged weights; the trained ones come back after."""
        trained = snapshot(model)
        model.load_state_dict(self.tensors)
        try:
            yield
        finally:
            model.load_state_dict(trained)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights of ``model``."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@dataclass
class Progress:
    """How far training has come, in plain values.

    ``epoch`` epochs are finished and ``batch`` batches of the next one, over which ``loss_sum`` and ``units`` run.
    ``best_score`` is the metric and the loss of the best epoch, both turned so that more is better. ``diverged`` says
    in a sentence why training was given up.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    units: float = 0.0
    best_score: list[float] | None = None
    best_epoch: int | None = None
    stale: int = 0
    finished: bool = False
    seconds: float = 0.0
    diverged: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class TrainingState:
    """The model, its optimizer, the average and best weights, the random generators, and the progress."""

    model: nn.Module
    optimizer: Optimizer
    average: WeightAverage | None
    progress: Progress
    best: dict[str, Tensor] | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Name every tensor that a step changes: weights, their average, the optimizer's state."""
        named = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        if self.average is not None:
            named |= {f"average/{name}": value for name, value in self.average.tensors.items()}
        for index, entries in self.optimizer.state_dict()["state"].items():
            named |= {f"optimizer/{index}/{key}": value for key, value in entries.items() if isinstance(value, Tensor)}
        return named

    def to_checkpoint(self, config_digest: str, random_states: dict[str, Tensor]) -> Checkpoint:
        """Gather all of it."""
        optimizer = self.optimizer.state_dict()
        plain: dict[str, dict[str, Any]] = {}
        for index, entries in optimizer["state"].items():
            plain |= {str(index): {key: value for key, value in entries.items() if not isinstance(value, Tensor)}}
        tensors = self.tensors() | {f"best/{name}": value for name, value in (self.best or {}).items()}
        tensors |= {f"random/{name}": value for name, value in random_states.items()}
        values = {
            "config": config_digest,
            "progress": vars(self.progress),
            "optimizer_groups": [{**group, "lr": float(group["lr"])} for group in optimizer["param_groups"]],
            "optimizer_values": plain,
            "average_steps": self.average.steps if self.average is not None else 0,
        }
        return Checkpoint(tensors, values)

    def restore(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """Take all of it back; return the random states by name."""
        tensors, values = checkpoint.tensors, checkpoint.values
        self.model.load_state_dict(_under("model/", tensors))
        self.best = _under("best/", tensors) or None
        if self.average is not None:
            self.average.steps = values["average_steps"]
            for name, value in _under("average/", tensors).items():
                self.average.tensors[name].copy_(value)
        state: dict[int, dict[str, Any]] = {
            int(index): dict(entries) for index, entries in values["optimizer_values"].items()
        }
        for name, value in _under("optimizer/", tensors).items():
            index, key = name.split("/", 1)
            state.setdefault(int(index), {})[key] = value
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict({"state": state, "param_groups": values["optimizer_groups"]})
        # A recorded step reads its learning rate from the tensor there was.
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.progress = Progress(**values["progress"])
        return _under("random/", tensors)


@contextmanager
def random_numbers(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from ``seed`` inside the block, and leave the generators outside as they are.

    >>> before = torch.get_rng_state()
    >>> with random_numbers(3, torch.device("cpu")):
    ...     drawn = torch.rand(2)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def random_states() -> list[Tensor]:
    """Read the generators of this process: the CPU's, then the current GPU's where there is one."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if torch.cuda.is_available() else states


def set_random_states(states: list[Tensor]) -> None:
    """Set the generators of this process to what `random_states` read."""
    torch.set_rng_state(states[0])
    if len(states) > 1 and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[1])


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
