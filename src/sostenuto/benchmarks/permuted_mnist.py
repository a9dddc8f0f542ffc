"""The default stack on permuted MNIST, one pixel per step, no augmentation, within a given time."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto.choices import Precision
from sostenuto.data.registry import load
from sostenuto.nn import Stack
from sostenuto.training.step import matmul_precision

TITLE = "the default stack on permuted MNIST, pixel by pixel, without augmentation"
WARM_UP = 0.05


@dataclass(frozen=True)
class Settings:
    """Sizes, and the recipe of the other benchmarks: AdamW, warm-up, cosine over the time given, clipping."""

    hidden_size: int = 256
    num_layers: int = 4
    dropout: float = 0.2
    batch: int = 100
    seconds: float = 420.0
    learning_rate: float = 0.004
    weight_decay: float = 0.05
    held_out: int = 5000
    seed: int = 0
    graph: bool = True
    """Whether a GPU runs a step of training as a CUDA graph."""
    precision: Precision = "tf32"
    """How a GPU rounds the factors of matrix products."""
    path: str = ""
    """A file ``mnist.npz`` with x_train, y_train, x_test and y_test; empty for the data set of that name."""


class Model(nn.Module):
    """The stack, and a linear map of its mean output."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        size = settings.hidden_size
        self.layer = Stack(1, size, settings.num_layers, dropout=settings.dropout)
        self.readout = nn.Linear(size, 10)

    def forward(self, x: Float[Tensor, "T B 1"]) -> Float[Tensor, "B class"]:
        """Return logits."""
        return self.readout(self.layer(x)[0].mean(0))


def run(progress: bool = True, settings: Settings = Settings()) -> dict[str, Any]:  # noqa: B008
    """Train for the time given; the weights of the best epoch on the part held out are tested, once."""
    with matmul_precision(settings.precision):
        return _train(settings, progress)


def _train(settings: Settings, progress: bool) -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(settings.seed)
    train, held, test = (tuple(part.to(device) for part in pair) for pair in _data(settings))
    model, step = Model(settings).to(device), torch.zeros((), device=device)
    parameters = list(model.parameters())
    groups = [
        {"params": [weight for weight in parameters if weight.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in parameters if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=step.clone(), fused=True, capturable=device == "cuda")
    began, epochs, best = time.perf_counter(), [], {}
    update = _captured(model, optimizer, train, settings.batch) if device == "cuda" and settings.graph else None
    with tqdm(total=round(settings.seconds), disable=not progress, unit="s") as bar:
        while (used := time.perf_counter() - began) < settings.seconds or not epochs:
            for rows in torch.randperm(len(train[0]), device=device).split(settings.batch):
                if len(rows) < settings.batch or used > settings.seconds:
                    continue
                share = min(used / settings.seconds, 1.0)
                rate = settings.learning_rate * min(1.0, (share + 1e-3) / WARM_UP) * (1 + math.cos(math.pi * share)) / 2
                for group in optimizer.param_groups:
                    group["lr"].fill_(rate)
                _update(model, optimizer, train, rows) if update is None else update(rows)
                used = time.perf_counter() - began
            if device == "cuda":
                torch.cuda.synchronize()
            score = _accuracy(model, *held)
            if not epochs or score > max(epoch["held out"] for epoch in epochs):
                best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            epochs.append({"seconds": round(time.perf_counter() - began, 1), "held out": score})
            bar.update(round(time.perf_counter() - began) - bar.n)
            bar.write(f"epoch {len(epochs)}: {epochs[-1]}")
    model.load_state_dict(best)
    return {
        "settings": settings.__dict__,
        "parameters": sum(weight.numel() for weight in parameters),
        "device": device,
        "test accuracy": _accuracy(model, *test),
        "epochs": epochs,
    }


def _data(settings: Settings) -> list[tuple[Tensor, Tensor]]:
    """Return pixels in one random order, of mean 0 and deviation 1, and classes: to train, held out, the test set."""
    if settings.path:
        arrays = np.load(settings.path, allow_pickle=False)
        images, classes = [arrays[f"x_{part}"] for part in ("train", "test")], [arrays["y_train"], arrays["y_test"]]
    else:
        data = load("mnist")
        assert data.test is not None
        parts = data.train, data.test
        images, classes = ([np.stack(part.sequences) for part in parts], [np.asarray(part.targets) for part in parts])
    order = np.random.default_rng(0).permutation(784)
    flat = [torch.from_numpy(part.reshape(len(part), 784)[:, order].astype(np.float32)) for part in images]
    mean, deviation = flat[0].mean(), flat[0].std()
    x = [(part - mean) / deviation for part in flat]
    y = [torch.from_numpy(part.astype(np.int64)) for part in classes]
    kept = len(x[0]) - settings.held_out
    return [(x[0][:kept], y[0][:kept]), (x[0][kept:], y[0][kept:]), (x[1], y[1])]


def _update(model: nn.Module, optimizer: torch.optim.Optimizer, train: tuple[Tensor, ...], rows: Tensor) -> None:
    x, y = train[0][rows], train[1][rows]
    F.cross_entropy(model(x.T[..., None].contiguous()), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def _captured(
    model: nn.Module, optimizer: torch.optim.Optimizer, train: tuple[Tensor, ...], batch: int
) -> Callable[[Tensor], None]:
    """Capture a step of training as a CUDA graph; the learning rate and the rows are read anew in each replay."""
    model.train()
    rows = torch.zeros(batch, dtype=torch.long, device=train[0].device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # at a rate of 0: nothing moves but Adam's moments
            _update(model, optimizer, train, rows)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _update(model, optimizer, train, rows)

    def replay(chosen: Tensor) -> None:
        rows.copy_(chosen)
        graph.replay()

    return replay


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    right = [
        model(part.T[..., None].contiguous()).argmax(-1) == true
        for part, true in zip(x.split(500), y.split(500), strict=True)
    ]
    model.train()
    return float(torch.cat(right).float().mean())
