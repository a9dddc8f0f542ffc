"""UnICORNN's scan and layer against torch's LSTM and against the memory they must move, side by side in one run."""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from tqdm import tqdm

from sostenuto.benchmarks._times import ROUNDS, graph_milliseconds, interleaved
from sostenuto.nn import UnICORNN
from sostenuto.ops.oscillator import oscillator_scan

TITLE = "UnICORNN's scan and layer against torch's LSTM and a copy of the same bytes, forward plus backward"
TIMED = True
CPU_SHAPES = ((1000, 128, 128), (784, 32, 128))
GPU_SHAPES = ((1000, 128, 128), (784, 32, 256), (17984, 8, 32), (1000, 512, 512))


def run(progress: bool = True) -> dict[str, Any]:
    """Measure on the GPU where there is one, on the CPU otherwise; milliseconds are medians over interleaved rounds."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = GPU_SHAPES if device == "cuda" else CPU_SHAPES
    record: dict[str, Any] = {"device": device, "dtype": "float32", "rounds": ROUNDS}
    for shape in tqdm(shapes, desc="oscillator scan", unit="shape", disable=not progress):
        record["x".join(map(str, shape))] = _measure(*shape, device)
    return record


def _measure(steps: int, batch: int, hidden: int, device: str) -> dict[str, float]:
    jobs = {"scan": _scan(steps, batch, hidden, device), "copies": _copies(steps, batch, hidden, device, new=True)}
    jobs["copies, memory in place"] = _copies(steps, batch, hidden, device, new=False)
    wide = torch.randn(steps, batch, hidden, device=device)
    narrow = torch.randn(steps, batch, 1, device=device)
    jobs["layer(H, H)"] = _layer(UnICORNN(hidden, hidden, device=device), wide)
    jobs["LSTM(H, H)"] = _layer(torch.nn.LSTM(hidden, hidden, device=device), wide)
    jobs["layer(1, H)"] = _layer(UnICORNN(1, hidden, device=device), narrow)
    jobs["LSTM(1, H)"] = _layer(torch.nn.LSTM(1, hidden, device=device), narrow)
    if importlib.util.find_spec("torchrecurrent") is not None and device == "cpu":
        jobs["torchrecurrent(H, H)"] = _layer(_torchrecurrent(hidden), wide)
    times = interleaved(jobs, device)
    if device == "cuda":
        times["scan, as a CUDA graph"] = graph_milliseconds(jobs["scan"])
    ratios = {
        "scan / copies": times["scan"] / times["copies"],
        "scan / copies, memory in place": times["scan"] / times["copies, memory in place"],
        "LSTM(H, H) / layer(H, H)": times["LSTM(H, H)"] / times["layer(H, H)"],
        "LSTM(1, H) / layer(1, H)": times["LSTM(1, H)"] / times["layer(1, H)"],
    }
    if "torchrecurrent(H, H)" in times:
        ratios["torchrecurrent(H, H) / layer(H, H)"] = times["torchrecurrent(H, H)"] / times["layer(H, H)"]
    return {f"{name}, ms": value for name, value in times.items()} | ratios


def _scan(steps: int, batch: int, hidden: int, device: str) -> Callable[[], Any]:
    """Prepare the recurrence alone, as its operator runs it."""
    x = torch.randn(steps, batch, hidden, device=device, requires_grad=True)
    weight = torch.rand(hidden, device=device, requires_grad=True)
    step = (0.1 * torch.rand(hidden, device=device)).requires_grad_()
    zero, gradient = torch.zeros(batch, hidden, device=device), torch.randn(steps, batch, hidden, device=device)

    def job() -> None:
        outputs, _, _ = oscillator_scan(x, weight, step, 1.0, zero, zero)
        torch.autograd.grad(outputs, (x, weight, step), gradient)

    return job


def _copies(steps: int, batch: int, hidden: int, device: str, *, new: bool) -> Callable[[], Any]:
    """Copy what the scan must move: x to y forward, then x, y, dy and dx; into new memory or over the same again."""
    x, y, d_y, d_x = (torch.randn(steps, batch, hidden, device=device) for _ in range(4))

    def job() -> None:
        for source, target in ((x, y), (d_y, d_x), (x, y)):
            if new:
                source.clone()
            else:
                target.copy_(source)

    return job


def _layer(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    parameters = list(layer.parameters())

    def job() -> None:
        output = layer(x)[0]
        torch.autograd.grad(output.sum(), parameters)

    return job


def _torchrecurrent(hidden: int) -> torch.nn.Module:
    module = importlib.import_module("torchrecurrent")
    return module.UnICORNN(hidden, hidden)
