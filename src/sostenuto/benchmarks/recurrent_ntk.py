"""The recurrent NTK's compiled kernel against the same recursion in vectorized NumPy over the whole matrix."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from sostenuto.kernels import RecurrentNTK

TITLE = "the recurrent NTK of all pairs, compiled, against its recursion in vectorized NumPy"
COUNT, STEPS = 500, 500
ROUNDS = 5


def run(progress: bool = True) -> dict[str, Any]:
    """Measure one channel and one layer, then more of both; seconds are medians, rates count distinct pairs."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(COUNT, STEPS))
    kernel = RecurrentNTK(sigma_w=1.4, sigma_b=0.1)
    jobs: dict[str, Callable[[], Any]] = {
        "compiled": lambda: kernel(x),
        "NumPy": lambda: numpy_gram(x, 1.4, 1.0, 0.1),
        "compiled, 2 layers": lambda: RecurrentNTK(2, sigma_w=1.4, sigma_b=0.1)(x),
        "compiled, erf": lambda: RecurrentNTK(1, "erf", sigma_b=0.1)(x),
        "compiled, 12 channels": lambda: kernel(generator.normal(size=(COUNT, STEPS, 12))),
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
    }


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
