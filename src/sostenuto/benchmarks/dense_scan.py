"""The dense scan as the Lipschitz and the antisymmetric unit against torch's RNN and LSTM, side by side in one run."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from sostenuto.benchmarks._times import ROUNDS, graph_milliseconds, interleaved
from sostenuto.ops.dense import dense_scan, driven_scan
from sostenuto.ops.dense.reference import dense_scan_reference

TITLE = (
    "The dense scan in its layers against torch's RNN and LSTM, plain loops and products alone, forward plus backward"
)
TIMED = True
CPU_SHAPES = ((784, 32, 128), (784, 128, 128))
GPU_SHAPES = ((784, 128, 64), (784, 128, 128), (784, 128, 256))
STEP = 0.03


def run(progress: bool = True) -> dict[str, Any]:
    """Measure on the GPU where there is one, on the CPU otherwise; milliseconds are medians over interleaved rounds.

    On a GPU all large products outside the scans are in tf32, as cuDNN's are, and every job is replayed as a CUDA graph
    too: what the GPU takes, without what Python takes to ask for it.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    spins = os.environ.get("GOMP_SPINCOUNT", "torch's own")  # torch's RNN and LSTM are slow where their threads sleep
    record: dict[str, Any] = {"device": device, "dtype": "float32", "rounds": ROUNDS, "spins of waiting threads": spins}
    shapes = GPU_SHAPES if device == "cuda" else CPU_SHAPES
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    try:
        for shape in tqdm(shapes, desc="dense scan", unit="shape", disable=not progress):
            record["x".join(map(str, shape))] = _measure(*shape, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before  # what is measured next has its own products
    record["errors against float64"] = {
        precision: _error(precision, device) for precision in ("exact", *(("tf32",) if device == "cuda" else ()))
    }
    return record


def _measure(steps: int, batch: int, hidden: int, device: str) -> dict[str, float]:
    """Time the unit with its input product and all weights' gradients, as a layer does, beside torch's layers."""
    torch.manual_seed(0)
    x = torch.randn(steps, batch, hidden, device=device)
    jobs = {
        "Lipschitz": _unit(x, full=True),
        "antisymmetric": _unit(x, full=False),
        "RNN": _layer(torch.nn.RNN(hidden, hidden, device=device), x),
        "LSTM": _layer(torch.nn.LSTM(hidden, hidden, device=device), x),
        "plain loop, Lipschitz": _unit(x, full=True, scan=dense_scan_reference),
        "products alone, Lipschitz": _products(x, 8),
        "products alone, antisymmetric": _products(x, 5),
    }
    if device == "cuda":
        jobs["Lipschitz, tf32"] = _unit(x, full=True, precision="tf32")
        jobs["antisymmetric, tf32"] = _unit(x, full=False, precision="tf32")
    elif importlib.util.find_spec("torchrecurrent") is not None:
        module = importlib.import_module("torchrecurrent")
        jobs["torchrecurrent, antisymmetric"] = _layer(module.AntisymmetricRNN(hidden, hidden), x)
    times = interleaved(jobs, device)
    if device == "cuda":
        graphs = {name: graph_milliseconds(job) for name, job in jobs.items() if "plain loop" not in name}
        return {f"{name}, ms": value for name, value in graphs.items()} | {
            **{f"{name}, without a graph, ms": value for name, value in times.items()},
            "LSTM / Lipschitz, tf32": graphs["LSTM"] / graphs["Lipschitz, tf32"],
            "RNN / antisymmetric, tf32": graphs["RNN"] / graphs["antisymmetric, tf32"],
        }
    ratios = {
        "LSTM / Lipschitz": times["LSTM"] / times["Lipschitz"],
        "RNN / Lipschitz": times["RNN"] / times["Lipschitz"],
        "RNN / antisymmetric": times["RNN"] / times["antisymmetric"],
    }
    if "torchrecurrent, antisymmetric" in times:
        ratios["torchrecurrent / antisymmetric"] = times["torchrecurrent, antisymmetric"] / times["antisymmetric"]
    flops = {"Lipschitz": 8, "antisymmetric": 5}
    rates = {
        f"{name}{unit}, Gflop/s": 2e-6 * count * steps * batch * hidden**2 / times[name + unit]
        for unit, count in flops.items()
        for name in ("", "products alone, ")
    }
    return {f"{name}, ms": value for name, value in times.items()} | ratios | rates


def _weights(hidden: int, device: str, *, full: bool) -> tuple[list[Tensor], Tensor, Tensor]:
    """Draw an input map, a bias, W and, for the Lipschitz unit, A; give them with P and Q."""
    draw = [torch.randn(hidden, hidden, device=device) / hidden**0.5 for _ in range(3 if full else 2)]
    leaves = [weight.requires_grad_() for weight in (draw[0], torch.zeros(hidden, device=device), *draw[1:])]
    return leaves, torch.eye(hidden if full else 1, device=device), torch.full((1,), STEP, device=device)


def _unit(x: Tensor, *, full: bool, scan: Callable[..., Any] | None = None, **options: Any) -> Callable[[], Any]:
    """Prepare h ← h + ε(A h + tanh(W h + V x + b)) where ``full``, and without A but with a skew W otherwise.

    As a layer does, through `driven_scan`; or by a product over all time and then a given ``scan``.
    """
    hidden = x.shape[-1]
    leaves, identity, gain = _weights(hidden, x.device.type, full=full)
    start = torch.zeros(x.shape[1], hidden, device=x.device)

    def job() -> None:
        linear = identity + STEP * leaves[3] if full else identity
        weight = leaves[2] if full else leaves[2] - leaves[2].T
        if scan is None:
            states = driven_scan(x, leaves[0], leaves[1], start, weight, linear, gain, **options)
        else:
            inputs = torch.nn.functional.linear(x, leaves[0], leaves[1])
            states, _ = scan(inputs, start, weight, linear, gain, **options)
        torch.autograd.grad(states.sum(), leaves)

    return job


def _layer(layer: torch.nn.Module, x: Tensor) -> Callable[[], Any]:
    parameters = list(layer.parameters())

    def job() -> None:
        result = layer(x)
        torch.autograd.grad(result[0].sum(), parameters, allow_unused=True)

    return job


def _products(x: Tensor, count: int) -> Callable[[], Any]:
    """Prepare a floor: as many large products as the unit needs, with no order in time to keep.

    Forward the input's and one or two of the state; backward as many of the state, and a gradient for each matrix.
    """
    rows = x.flatten(0, 1)
    weight, out = torch.randn(x.shape[-1], x.shape[-1], device=x.device), torch.empty_like(rows)

    def job() -> None:
        for _ in range(count):
            torch.mm(rows, weight, out=out)

    return job


def _error(precision: str, device: str) -> float:
    """Return the largest error of the states after 784 steps, relative to the largest state."""
    torch.manual_seed(0)
    x = torch.randn(784, 16, 128, device=device)
    leaves, identity, gain = _weights(128, device, full=True)
    start, linear = torch.zeros(16, 128, device=device), identity + STEP * leaves[3].detach()
    arguments = (x, start, leaves[2].detach(), linear, gain)
    got = dense_scan(*arguments, precision=precision)[0].double()
    truth = dense_scan_reference(*(value.double() for value in arguments))[0]
    return ((got - truth).abs().max() / truth.abs().max()).item()
