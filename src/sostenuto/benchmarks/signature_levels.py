"""Signatures to a level, forward and with the gradient, by the reference, the compiled kernels and pysiglib in turn."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from sostenuto.ops.signature import HAS_PYSIGLIB, signature_levels

TITLE = "signatures of paths, forward and with the gradient: the reference, the compiled kernels and pysiglib"
TIMED = True
SHAPES = (
    (64, 150, 2, 6), (64, 150, 3, 4), (16, 1000, 5, 4), (1, 1000, 3, 4), (512, 100, 2, 4),
)  # fmt: skip
"""Batch, steps, channels, level."""
_ROUNDS = {"reference": 3, "cpu": 15, "pysiglib": 15}


def run(progress: bool = True, shapes: tuple[tuple[int, int, int, int], ...] = SHAPES) -> dict[str, Any]:
    """Return median milliseconds by shape and backend in float64, ratios to pysiglib, and the largest difference."""
    backends = ["reference", "cpu", *(["pysiglib"] if HAS_PYSIGLIB else [])]
    record: dict[str, Any] = {"threads": torch.get_num_threads(), "shapes": {}}
    for shape in tqdm(shapes, desc="signature levels", unit="shape", disable=not progress):
        record["shapes"]["{} x {} x {}, level {}".format(*shape)] = _measured(shape, backends)
    return record


def _measured(shape: tuple[int, int, int, int], backends: list[str]) -> dict[str, Any]:
    batch, steps, channels, level = shape
    generator = torch.Generator().manual_seed(0)
    increments = 0.1 * torch.randn(batch, steps, channels, generator=generator, dtype=torch.float64)
    leaf = increments.clone().requires_grad_()

    def forward(backend: str) -> Tensor:
        return signature_levels(increments, level, backend=backend)

    def both(backend: str) -> Tensor:
        return torch.autograd.grad(signature_levels(leaf, level, backend=backend).square().sum(), leaf)[0]

    results: dict[str, Any] = {}
    for name, call in (("forward", forward), ("forward_and_gradient", both)):
        milliseconds = _in_turn(call, backends)
        exact = call("reference")
        differences = {each: float((call(each) - exact).abs().max() / exact.abs().max()) for each in backends[1:]}
        results[name] = {"milliseconds": milliseconds, "difference_from_reference": differences}
        results[name]["reference_over_cpu"] = milliseconds["reference"] / milliseconds["cpu"]
        if "pysiglib" in milliseconds:
            results[name]["pysiglib_over_cpu"] = milliseconds["pysiglib"] / milliseconds["cpu"]
    return results


def _in_turn(call: Callable[[str], Tensor], backends: list[str]) -> dict[str, float]:
    """Time the backends one after the other, round by round: what else the machine does meets them all."""
    times: dict[str, list[float]] = {backend: [] for backend in backends}
    for backend in backends:
        call(backend)
    for index in range(max(_ROUNDS.values())):
        for backend in backends:
            if index < _ROUNDS[backend]:
                began = time.perf_counter()
                call(backend)
                times[backend].append(1e3 * (time.perf_counter() - began))
    return {backend: statistics.median(each) for backend, each in times.items()}
