"""Stacks against nn.LSTM, nn.GRU and linear units on ordinary tasks: equal parameters, equal time, one recipe."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto.benchmarks._linear_peers import LRU, Blocks, LinOSS, MinGRU
from sostenuto.benchmarks._ordinary_tasks import TASKS, Batch, Task
from sostenuto.nn import Stack

TITLE = "stacks against nn.LSTM, nn.GRU and linear units on ordinary tasks, at equal parameters and equal time"

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "stack": lambda channels, size: Stack(channels, size, num_layers=2),
    "nn.LSTM": nn.LSTM,
    "nn.GRU": nn.GRU,
    "minGRU": lambda channels, size: Blocks(channels, size, MinGRU),
    "LRU": lambda channels, size: Blocks(channels, size, LRU),
    "LinOSS": lambda channels, size: Blocks(channels, size, LinOSS),
}
WARM_UP = 0.05


@dataclass(frozen=True)
class Settings:
    """One recipe for all layers and tasks: AdamW, warm-up and cosine, clipping, no decay of vectors.

    The stack and nn.LSTM are trained from every seed, their peers from the first ``peer_seeds``.
    """

    parameters: int = 25_000
    seconds: float = 4.0
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    peer_seeds: int = 2
    learning_rate: float = 0.02
    weight_decay: float = 0.01
    tasks: tuple[str, ...] = tuple(TASKS)[:10]
    layers: tuple[str, ...] = tuple(LAYERS)


QUICK = Settings(
    2000, 0.05, (0, 1), 1, tasks=("sine", "digits"), layers=("stack", "nn.LSTM", "LRU", "LinOSS", "minGRU")
)


class Model(nn.Module):
    """A layer and a linear read-out of its last steps."""

    def __init__(self, layer: nn.Module, size: int, task: Task) -> None:
        super().__init__()
        self.layer, self.readout, self.last = layer, nn.Linear(size, task.outputs), task.last

    def forward(self, batch: Batch) -> Tensor:
        """Predict every target of a batch; a layer of continuous time is given the time spans."""
        x = batch.x.transpose(0, 1)
        timed = isinstance(self.layer, Stack) and batch.spans is not None
        output, _ = self.layer(x, timespans=batch.spans.T.contiguous()) if timed else self.layer(x)  # pyright: ignore[reportOptionalMemberAccess]
        if self.last:
            return self.readout(output[-self.last :]).transpose(0, 1)
        if batch.lengths is None:
            return self.readout(output[-1])
        return self.readout(output[batch.lengths - 1, torch.arange(output.shape[1])])


def run(progress: bool = True, settings: Settings = Settings()) -> dict[str, Any]:  # noqa: B008
    """Train every layer on every task for as many seconds of one core; give scores by seed.

    Layers take turns seed by seed, so that a machine that is busy for a while slows all of them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    turns = [(seed, layer) for seed in settings.seeds for layer in settings.layers if seed in _seeds(layer, settings)]
    try:
        with tqdm(total=len(settings.tasks) * len(turns), disable=not progress, unit="cell") as bar:
            for name in settings.tasks:
                task = TASKS[name]()
                widths = {layer: _width(task, LAYERS[layer], settings.parameters) for layer in settings.layers}
                results: dict[str, list[tuple[float, int]]] = {layer: [] for layer in settings.layers}
                for seed, layer in turns:
                    results[layer].append(_train(task, LAYERS[layer], widths[layer], seed, settings))
                    bar.update()
                columns = {layer: _column(runs, widths[layer]) for layer, runs in results.items()}
                rows.append({"task": task.name, "score": task.score, "columns": columns})
    finally:
        torch.set_num_threads(threads)
    return {"settings": {**settings.__dict__, "batch": 32}, "mean_rank": _mean_ranks(rows), "rows": rows}


def _seeds(layer: str, settings: Settings) -> tuple[int, ...]:
    return settings.seeds if layer in ("stack", "nn.LSTM") else settings.seeds[: settings.peer_seeds]


def _column(results: list[tuple[float, int]], width: int) -> dict[str, Any]:
    scores, steps = zip(*results, strict=True)
    spread = float(np.std(scores, ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else None
    return {
        "mean": float(np.mean(scores)),
        "standard_error": spread,
        "scores": list(scores),
        "steps": list(steps),
        "width": width,
    }


def _width(task: Task, make: Callable[[int, int], nn.Module], parameters: int) -> int:
    """Find the largest even width with at most so many parameters, read-out included."""
    size = 4
    while _count(Model(make(task.channels, size + 2), size + 2, task)) <= parameters:
        size += 2
    return size


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _train(
    task: Task, make: Callable[[int, int], nn.Module], size: int, seed: int, settings: Settings
) -> tuple[float, int]:
    """Train for the given time of one core, drawing batches left out; give the score on unseen data and the steps."""
    torch.manual_seed(seed)
    model, generator = Model(make(task.channels, size), size, task), torch.Generator().manual_seed(1000 + seed)
    optimizer = torch.optim.AdamW(_groups(model, settings.weight_decay), lr=settings.learning_rate, fused=True)
    _step(task, model, None, task.draw(2, generator, False), 0.0)  # compiles, and changes nothing
    used, steps = 0.0, 0
    while used < settings.seconds:
        batch, share = task.draw(task.batch, generator, False), used / settings.seconds
        began = time.thread_time()
        rate = min(1.0, (share + 1e-3) / WARM_UP) * (1 + math.cos(math.pi * share)) / 2
        _step(task, model, optimizer, batch, settings.learning_rate * rate)
        used, steps = used + time.thread_time() - began, steps + 1
    return _score(task, model.eval()), steps


def _step(task: Task, model: nn.Module, optimizer: torch.optim.Optimizer | None, batch: Batch, rate: float) -> None:
    loss = _loss(task, model(batch), batch.y)
    loss.backward()
    if optimizer is not None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    model.zero_grad()


def _groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Let matrices decay, and vectors (norms, biases, scales, poles) not."""
    weights = list(model.parameters())
    return [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": decay},
        {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0},
    ]


def _loss(task: Task, predicted: Tensor, y: Tensor) -> Tensor:
    if task.classes:
        return F.cross_entropy(predicted.flatten(0, -2), y.flatten())
    return F.mse_loss(predicted, y)


@torch.no_grad()
def _score(task: Task, model: nn.Module) -> float:
    batch = task.draw(256, torch.Generator().manual_seed(7), True)
    predicted = model(batch)
    if task.score == "error":
        return float((predicted.argmax(-1) != batch.y).float().mean())
    loss = float(_loss(task, predicted, batch.y))
    return loss / math.log(2) if task.score == "bits" else loss


def _mean_ranks(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Rank layers on every task, 1 the best, ties shared; give the mean over tasks."""
    names = list(rows[0]["columns"])
    ranks = []
    for row in rows:
        values = np.array([row["columns"][name]["mean"] for name in names])
        ranks.append((values[:, None] > values).sum(1) + ((values[:, None] == values).sum(1) + 1) / 2)
    return dict(zip(names, np.mean(ranks, 0).round(2).tolist(), strict=True))
