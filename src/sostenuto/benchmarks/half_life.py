"""What a promised half-life costs: accuracy of UnICORNN, free and with the promise, by one recipe.

With a GPU the task is permuted MNIST, 784 pixels one by one. Without one it is the 8 × 8 digits, read as 64 numbers
and followed by white noise until 500 steps. The answer is read from the last state. Adam with a one-cycle schedule,
no early stopping, the last weights on the test part. All runs are trained side by side; those of one seed see the same
batches.
"""

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

from sostenuto import datasets
from sostenuto.nn import UnICORNN

TITLE = "accuracy of UnICORNN with a promised half-life: permuted MNIST on a GPU, digits and noise without one"
HALF_LIVES = (None, 100.0, 784.0)
SEEDS = (0, 1, 2)
_WARM_UP, _TIMED = 3, 3


@dataclass(frozen=True)
class Task:
    """A data set, the length that noise fills it up to, the layer's options, and the recipe."""

    data: str
    steps: int
    layer: dict[str, Any]
    batch: int
    rate: float
    epochs: int


DIGITS = Task(
    "digits", 500, {"hidden_size": 64, "num_layers": 2, "step_size": 0.3, "stiffness": 1.0}, 64, 1e-2, epochs=20
)
PERMUTED_MNIST = Task(
    "mnist/permuted",
    784,
    {"hidden_size": 128, "num_layers": 3, "step_size": [0.15, 0.25, 0.35], "stiffness": 12.53},
    128,
    4e-3,
    epochs=100,
)


def run(
    progress: bool = True,
    task: Task | None = None,
    seeds: tuple[int, ...] = SEEDS,
    half_lives: tuple[float | None, ...] = HALF_LIVES,
    seconds: float = math.inf,
    sequences: int | None = None,
) -> dict[str, Any]:
    """Return accuracies on the test part, and what each trained layer provably remembers, for every half-life.

    Args:
        progress: whether to show a bar.
        task: what to learn, and how.
        seeds: of weights and batches.
        half_lives: promises to train with.
        seconds: what the training may take; measured first, it shortens the number of epochs.
        sequences: of each part, where fewer than all are wanted.

    Returns:
        A record of plain numbers.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    task = task or (PERMUTED_MNIST if device == "cuda" else DIGITS)
    values, classes, test, test_classes = (part[:sequences].to(device) for part in _parts(task))
    runs = [_Run(task, half_life, seed, device) for half_life in half_lives for seed in seeds]
    rate = torch.zeros((), device=device)
    optimizers = [torch.optim.Adam(run.parameters(), rate, fused=True, capturable=device == "cuda") for run in runs]
    index = torch.zeros(len(runs), task.batch, dtype=torch.long, device=device)

    def step(number: int) -> None:
        optimizers[number].zero_grad(set_to_none=True)
        rows = index[number]
        F.cross_entropy(runs[number](values[rows]), classes[rows]).backward()
        nn.utils.clip_grad_norm_(runs[number].parameters(), 1.0)
        optimizers[number].step()

    # At rate 0 nothing is learned; what the optimizers have seen until here is forgotten.
    steps, cost = _all_steps(step, len(runs), device)
    for value in (value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()):
        value.zero_()
    per_epoch = len(values) // task.batch
    epochs = max(1, int(min(task.epochs, seconds / (cost * per_epoch))))
    orders = [torch.Generator().manual_seed(run.seed) for run in runs]
    for epoch in tqdm(range(epochs), desc="half-lives", unit="epoch", disable=not progress):
        shuffled = torch.stack([torch.randperm(len(values), generator=order) for order in orders])
        batches = shuffled[:, : per_epoch * task.batch].reshape(len(runs), per_epoch, task.batch).to(device)
        for batch in range(per_epoch):
            index.copy_(batches[:, batch])
            rate.fill_(_one_cycle((epoch * per_epoch + batch) / (epochs * per_epoch), task.rate))
            steps()
    results: dict[str, Any] = {}
    for half_life in half_lives:
        rows = [run.judged(test, test_classes) for run in runs if run.half_life == half_life]
        accuracy = [row["accuracy"] for row in rows]
        spread = float(np.std(accuracy, ddof=1)) if len(rows) > 1 else 0.0
        name = "none" if half_life is None else f"{half_life:g}"
        results[name] = {"mean_accuracy": float(np.mean(accuracy)), "standard_deviation": spread, "runs": rows}
    return {
        "data": task.data,
        "epochs": epochs,
        "steps": task.steps,
        "layer": task.layer,
        "milliseconds_per_step_of_all": 1e3 * cost,
        "half_lives": results,
    }


class _Run(nn.Module):
    """A layer with a linear read-out of its last state."""

    def __init__(self, task: Task, half_life: float | None, seed: int, device: str) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.half_life, self.seed = half_life, seed
        self.layer = UnICORNN(1, **task.layer, batch_first=True, half_life=half_life)
        self.head = nn.Linear(task.layer["hidden_size"], 10)
        self.to(device)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.layer(values)[0][:, -1])

    @torch.no_grad()
    def judged(self, values: Tensor, classes: Tensor) -> dict[str, Any]:
        """Return the accuracy, and what is proved of the trained layer."""
        answers = torch.cat([self(part).argmax(-1) for part in values.split(1000)])
        proved = self.layer.memory_certificate()
        return {
            "seed": self.seed,
            "accuracy": float((answers == classes).double().mean()),
            "remembers_at_least": proved.remembers_at_least,
            "median_unit": float(np.median(proved.per_unit)),
            "layers": list(proved.layers),
        }


def _all_steps(step: Callable[[int], None], count: int, device: str) -> tuple[Callable[[], None], float]:
    """Join the steps of all runs, on a GPU in one graph of parallel branches; give the seconds they take too."""
    if device == "cpu":
        return _timed(lambda: [step(number) for number in range(count)])
    joined = _in_parallel(step, count)
    for _ in range(_WARM_UP):
        joined()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        joined()
    return _timed(graph.replay)


def _in_parallel(step: Callable[[int], None], count: int) -> Callable[[], None]:
    streams = [torch.cuda.Stream() for _ in range(count)]

    def joined() -> None:
        main = torch.cuda.current_stream()
        for number, stream in enumerate(streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                step(number)
        for stream in streams:
            main.wait_stream(stream)

    return joined


def _timed(joined: Callable[[], Any]) -> tuple[Callable[[], Any], float]:
    joined()
    _settle()
    begin = time.perf_counter()
    for _ in range(_TIMED):
        joined()
    _settle()
    return joined, (time.perf_counter() - begin) / _TIMED


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _one_cycle(done: float, highest: float) -> float:
    """Rise from a 25th to the highest rate in 30 % of the training, then fall to nothing, along cosines."""
    if done < 0.3:
        return highest * (1 - 0.48 * (1 + math.cos(math.pi * done / 0.3)))
    return highest * (1 + math.cos(math.pi * (done - 0.3) / 0.7)) / 2


def _parts(task: Task) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training sequences and classes, test sequences and classes; the noise is drawn once."""
    data, generator = datasets.load(task.data), torch.Generator().manual_seed(0)
    parts: list[Tensor] = []
    for part in (data.train, data.test):
        assert part is not None
        values = torch.from_numpy(np.stack(part.sequences)).float()
        values = (values - values.mean()) / values.std()
        noise = torch.randn(len(values), task.steps - values.shape[1], 1, generator=generator)
        classes = torch.tensor(np.asarray(part.targets).astype(int))
        parts += [torch.cat([values, noise], dim=1), classes]
    return parts[0], parts[1], parts[2], parts[3]
