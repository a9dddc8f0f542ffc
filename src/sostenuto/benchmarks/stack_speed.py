"""What a training step of a stack takes beside torch's LSTM and GRU, called from an ordinary loop."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto.benchmarks._times import ROUNDS, graph_milliseconds, interleaved
from sostenuto.nn import DampedOscillators, Stack, UnICORNN

TITLE = "stacks of three blocks against nn.LSTM, forward plus backward: equal numbers on a CPU, equal width on a GPU"
TIMED = True
CPU_SHAPES = ((128, 32), (1000, 8))
GPU_SHAPES = ((784, 32), (1000, 8), (128, 32))


def run(progress: bool = True) -> dict[str, Any]:
    """Measure on the GPU where there is one, on the CPU otherwise; milliseconds are medians over interleaved rounds.

    On a GPU every layer is replayed as a CUDA graph too: what the GPU takes, without what Python takes to ask for it.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes, layers, channels = (
        (CPU_SHAPES, _equal_numbers(), 64) if device == "cpu" else (GPU_SHAPES, _equal_width(), 128)
    )
    numbers = {name: sum(value.numel() for value in layer.parameters()) for name, layer in layers.items()}
    record: dict[str, Any] = {"device": device, "dtype": "float32", "rounds": ROUNDS, "numbers": numbers}
    for steps, batch in tqdm(shapes, desc="stack speed", unit="shape", disable=not progress):
        x = torch.randn(steps, batch, channels, device=device)
        jobs = {name: _training_step(layer, x) for name, layer in layers.items()}
        times = {f"{name}, ms": value for name, value in interleaved(jobs, device).items()}
        if device == "cuda":
            times |= {f"{name}, as a graph, ms": graph_milliseconds(job) for name, job in jobs.items()}
        record[f"{steps}x{batch}"] = times | {"LSTM / Stack": times["LSTM, ms"] / times["Stack, ms"]}
    return record


def _equal_numbers() -> dict[str, nn.Module]:
    """Return layers of some 98 000 numbers each, for 64 channels."""
    return {
        "LSTM": nn.LSTM(64, 127),
        "GRU": nn.GRU(64, 148),
        "Stack": Stack(64, 99, num_layers=3),
        "Stack of two": Stack(64, 120, num_layers=2),
    }


def _equal_width() -> dict[str, nn.Module]:
    """Return three layers of 128 units each, for 128 channels."""
    kinds = {"LSTM": nn.LSTM, "Stack": Stack, "DampedOscillators": DampedOscillators, "UnICORNN": UnICORNN}
    return {name: kind(128, 128, num_layers=3, device="cuda") for name, kind in kinds.items()}


def _training_step(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    parameters = list(layer.parameters())
    arriving = torch.randn_like(layer(x)[0])

    def job() -> None:
        torch.autograd.grad(layer(x)[0], parameters, arriving, allow_unused=True)

    return job
