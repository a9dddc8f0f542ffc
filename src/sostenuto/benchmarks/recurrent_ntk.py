"""The recurrent NTK's compiled kernels against the same recursion in vectorized NumPy over the whole matrix."""

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sostenuto.kernels import RecurrentNTK
from sostenuto.ops.backend import HAS_TRITON
from sostenuto.ops.recurrent_ntk import Scales, recurrent_ntk
from sostenuto.ops.recurrent_ntk.cpu.profile import profiles

TITLE = "the recurrent NTK of all pairs, compiled, against its recursion in vectorized NumPy"
TIMED = True
COUNT, STEPS = 500, 500
GPU_COUNT, GPU_STEPS = 4096, 1024
CORNER = 64
"""Sequences of either end whose kernel the GPU's is compared with."""
ROUNDS = 5


def run(progress: bool = True) -> dict[str, Any]:
    """Measure one channel and one layer, then more of both, and the GPU where there is one; seconds are medians.

    Rates count distinct pairs.
    """
    generator = np.random.default_rng(0)
    x, wide = generator.normal(size=(COUNT, STEPS)), generator.normal(size=(COUNT, STEPS, 12))
    kernel = RecurrentNTK(sigma_w=1.4, sigma_b=0.1)
    jobs: dict[str, Callable[[], Any]] = {
        "compiled": lambda: kernel(x),
        "compiled, no bias": lambda: RecurrentNTK(sigma_w=1.4)(x),
        "NumPy": lambda: numpy_gram(x, 1.4, 1.0, 0.1),
        "compiled, 2 layers": lambda: RecurrentNTK(2, sigma_w=1.4, sigma_b=0.1)(x),
        "compiled, erf": lambda: RecurrentNTK(1, "erf", sigma_b=0.1)(x),
        "compiled, 12 channels": lambda: kernel(wide),
    }
    error = np.abs(kernel(x) / jobs["NumPy"]() - 1).max()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    rounds = [(name, job) for _ in range(ROUNDS) for name, job in jobs.items()]
    for name, job in tqdm(rounds, desc="recurrent NTK", unit="run", disable=not progress):
        began = time.perf_counter()
        job()
        seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    work = COUNT * (COUNT + 1) / 2 * STEPS
    return {
        "sequences": COUNT,
        "steps": STEPS,
        "dtype": "float64",
        "threads": torch.get_num_threads(),
        "largest relative difference": float(error),
        **{f"{name}, s": value for name, value in medians.items()},
        **{f"{name}, pair-steps / s": work / value for name, value in medians.items() if name != "NumPy"},
        "NumPy / compiled": medians["NumPy"] / medians["compiled"],
        "NumPy / compiled, no bias": medians["NumPy"] / medians["compiled, no bias"],
        **({"GPU": {name: on_gpu(bias) for name, bias in (("bias", 0.1), ("no bias", 0.0))}} if _has_gpu() else {}),
    }


def on_gpu(bias: float, count: int = GPU_COUNT, steps: int = GPU_STEPS) -> dict[str, Any]:
    """Time the GPU's kernel alone, by CUDA events, and the whole call with profiles, copies and the result on the CPU.

    The result is compared with the CPU's on the first and the last few sequences, of which no two are equal.
    """
    x = np.random.default_rng(0).normal(size=(count, steps, 1))
    scales = Scales.of(w=1.4, b=bias)
    sequences = list(torch.from_numpy(x).cuda())
    values = recurrent_ntk(sequences, None, scales).values
    ends = [*range(CORNER), *range(count - CORNER, count)]
    truth = recurrent_ntk([torch.from_numpy(x[index]) for index in ends], None, scales).values
    error = float(((values[ends][:, ends] - truth).abs() / truth.abs()).max())
    whole, alone = [], _kernel_seconds(x, scales)
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        recurrent_ntk(sequences, None, scales)
        whole.append(time.perf_counter() - began)
    work = count * (count + 1) / 2 * steps
    return {
        "sequences": count,
        "steps": steps,
        "largest relative difference": error,
        "kernel, s": alone,
        "kernel, pair-steps / s": work / alone,
        "whole call, s": statistics.median(whole),
        "whole call, pair-steps / s": work / statistics.median(whole),
    }


def _kernel_seconds(x: np.ndarray, scales: Scales) -> float:
    """Return the median time of all pairs, their profiles being on the GPU already."""
    kernels = importlib.import_module("sostenuto.ops.recurrent_ntk.gpu")
    count, steps, _ = x.shape
    sigmas = torch.stack([scales.w, scales.u, scales.b, scales.h]).numpy()
    side = profiles(x.reshape(count * steps, 1), np.full(count, steps), sigmas, False)
    table = torch.from_numpy(side.table).cuda().permute(1, 2, 0).contiguous()
    lengths, numbers = torch.full((count,), steps).cuda(), torch.arange(count).cuda()

    def job() -> Tensor:
        return kernels.pairs(
            table, table, (lengths, lengths), (numbers, numbers), layers=1, parts=side.parts,
            erf=False, bias=bool(scales.b.any()), kind="ntk", mode="upper",
        )  # fmt: skip

    job()
    seconds = []
    for _ in range(ROUNDS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        job()
        last.record()
        torch.cuda.synchronize()
        seconds.append(first.elapsed_time(last) / 1e3)
    return statistics.median(seconds)


def _has_gpu() -> bool:
    return HAS_TRITON and torch.cuda.is_available()


def numpy_gram(x: np.ndarray, w: float, u: float, b: float) -> np.ndarray:
    """Compute Θ for all pairs of one-channel rectifier sequences of one length, a whole matrix at each step."""
    count, steps = x.shape
    sigma, theta = np.zeros((count, count)), np.zeros((count, count))
    covariance, slope = np.zeros((count, count)), np.zeros((count, count))
    for t in range(steps):
        sigma = w**2 * covariance + u**2 * np.outer(x[:, t], x[:, t]) + b**2
        theta = sigma + w**2 * slope * theta
        deviation = np.sqrt(np.diag(sigma))
        scale = np.outer(deviation, deviation)
        cosine = np.clip(sigma / scale, -1.0, 1.0)
        angle = np.pi - np.arccos(cosine)
        covariance = scale * (cosine * angle + np.sqrt(1.0 - cosine**2)) / (2 * np.pi)
        slope = angle / (2 * np.pi)
    return covariance + slope * theta
