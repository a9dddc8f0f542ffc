"""The features of the oscillator bank on two CPU cores and, where there is one, on a GPU.

As many sequences of as many steps as FordA's (training and test part), of noise: how long it takes does not depend on
the values. Both read values that are where they compute and leave the features there; compiled code is warm.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sostenuto.estimators.oscillators.features import draw_bank, sample_thresholds
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.ops.backend import HAS_TRITON
from sostenuto.ops.oscillator_bank import OscillatorBank, bank_shares

TITLE = "The shares of time that 700 oscillators are above thresholds, FordA's size: two CPU cores and a GPU"
TIMED = True
COUNT, STEPS, UNITS = 4921, 500, 700
THREADS, ROUNDS = 2, 5


def run(progress: bool = True, count: int = COUNT, steps: int = STEPS, units: int = UNITS) -> dict[str, Any]:
    """Measure both, seconds are medians; compare their features, shares of the steps, which go up by 1 / steps."""
    bank, values, borders = problem(count, steps, units)
    jobs: dict[str, Callable[[], Tensor]] = {f"CPU, {THREADS} threads": lambda: bank_shares(values, borders, bank)}
    if HAS_TRITON and torch.cuda.is_available():
        there = values.cuda()
        jobs["GPU"] = lambda: bank_shares(there, borders, bank)
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        features = [job().cpu() for job in jobs.values()]
        rounds = tqdm(range(ROUNDS), desc="oscillator bank", unit="round", disable=not progress)
        taken = [[_seconds(job) for job in jobs.values()] for _ in rounds]
    finally:
        torch.set_num_threads(before)
    medians = dict(zip(jobs, (statistics.median(times) for times in zip(*taken, strict=True)), strict=True))
    record = {"sequences": count, "steps": steps, "channels": 1, "units": units, "dtype": "float32", "rounds": ROUNDS}
    record |= {f"{name}, s": value for name, value in medians.items()}
    record |= {f"{name}, unit-steps / s": count * steps * units / value for name, value in medians.items()}
    if len(features) == 1:
        return record
    slow, fast = medians.values()
    return record | _comparison(features[0], features[1], slow, fast)


def problem(count: int, steps: int, units: int) -> tuple[OscillatorBank, Tensor, Tensor]:
    """Draw sequences of one channel, and a bank with thresholds, as the estimators do."""
    generator = np.random.default_rng(0)
    values, borders = generator.normal(size=(count * steps, 1)), np.arange(count + 1) * steps
    bank = draw_bank(units, steps, 1, (0.3, 8.0), generator)
    thresholds = sample_thresholds(bank, PackedSequences(values, borders), None, generator)
    return replace(bank, thresholds=thresholds), torch.from_numpy(values).float(), torch.from_numpy(borders)


def _seconds(job: Callable[[], Tensor]) -> float:
    began = time.perf_counter()
    if job().is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _comparison(here: Tensor, there: Tensor, slow: float, fast: float) -> dict[str, float]:
    """Say how far features are apart: one step whose output rounds to the other side of a threshold is 1 / steps."""
    apart = (here - there).abs()
    return {
        "CPU / GPU": slow / fast,
        "share of features apart by more than 0.001": float((apart > 1e-3).double().mean()),
        "largest difference": float(apart.max()),
    }
