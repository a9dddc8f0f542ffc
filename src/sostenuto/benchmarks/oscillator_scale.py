"""What oscillators cost beside a floor, a step of a stream, and a million sequences read in parts.

The floor of a set of N sequences of T steps for U units is a product of the (N, T) data with a (T, U) matrix in
float32: one multiply-add per sequence, step and unit, at the speed of BLAS. Beside it stand the features alone and the
whole of `OscillatorClassifier`, fit and predict, on sequences of noise and a wave of FordA's size. Everything is
measured in turn in one process, in seconds of the processor; run it with ``OMP_NUM_THREADS=1`` for one core.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from sostenuto.estimators import OscillatorClassifier, OscillatorFeatures

TITLE = "Oscillators beside a multiply-add per unit and step, a step of a stream, and a million sequences in parts"
TRAIN, TEST, STEPS, UNITS = 3601, 1320, 500, 700
ROUNDS = 5
STREAMED, STREAM_UNITS = 20_000, 1000
SERIES, SERIES_STEPS, SERIES_UNITS, PART = 1_000_000, 100, 64, 10_000


def run(
    progress: bool = True,
    sizes: tuple[int, int, int, int] = (TRAIN, TEST, STEPS, UNITS),
    streamed: int = STREAMED,
    series: int = SERIES,
    part: int = PART,
) -> dict[str, Any]:
    """Return seconds beside the floor, microseconds per step of a stream, and seconds and memory of many sequences."""
    return {
        "threads": torch.get_num_threads(),
        "floor": beside_floor(*sizes),
        "stream": stream(streamed),
        "many": many(series, part, progress=progress),
    }


def beside_floor(train: int, test: int, steps: int, units: int) -> dict[str, Any]:
    """Measure the product, the features, and fit with predict."""
    values, labels = _waves(train + test, steps, np.random.default_rng(0))
    data, matrix = torch.from_numpy(values).float(), torch.randn(steps, units)
    features = OscillatorFeatures(units, random_state=0).fit(values[:train])
    jobs: dict[str, Callable[[], Any]] = {
        "floor": lambda: data @ matrix,
        "features": lambda: features.transform(values),
    }
    for job in jobs.values():
        job()  # compiled, and memory taken
    taken = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            taken[name].append(_seconds(job))
    seconds = {name: statistics.median(each) for name, each in taken.items()}
    classifier = OscillatorClassifier(units, random_state=0)
    fit = _seconds(lambda: classifier.fit(values[:train], labels[:train]))
    predict = _seconds(lambda: classifier.predict(values[train:]))
    return {
        "train": train, "test": test, "steps": steps, "units": units, "multiply_adds": (train + test) * steps * units,
        "floor_s": seconds["floor"], "features_s": seconds["features"], "fit_s": fit, "predict_s": predict,
        "features_over_floor": seconds["features"] / seconds["floor"],
        "fit_and_predict_over_floor": (fit + predict) / seconds["floor"],
        "predict_over_its_floor": predict / (seconds["floor"] * test / (train + test)),
    }  # fmt: skip


def stream(steps: int, units: int = STREAM_UNITS) -> dict[str, Any]:
    """Push a long sequence step by step, and compare the features with those of the whole."""
    values = np.random.default_rng(0).normal(size=(1, steps))
    features = OscillatorFeatures(units, random_state=0).fit(values[:, :2000])
    readers = [features.stream() for _ in range(ROUNDS)]

    def push(read: Callable[[float], None]) -> None:
        for value in values[0]:
            read(value)

    taken = [_seconds(lambda one=reader: push(one.push)) for reader in readers]
    apart = np.abs(readers[0].features() - features.transform([values[0]])[0]).max()
    return {
        "units": units, "steps": steps, "microseconds_per_step": 1e6 * statistics.median(taken) / steps,
        "largest_difference": float(apart),
    }  # fmt: skip


def many(count: int, part: int, *, progress: bool = True) -> dict[str, Any]:
    """Fit a classifier to ``count`` sequences, a part at a time; memory is the most the process held, in GB."""
    generator = np.random.default_rng(0)
    classifier = OscillatorClassifier(SERIES_UNITS, random_state=0)
    seconds, memory = [], []
    parts = range(0, count, part)
    for _ in tqdm(parts, desc="sequences in parts", disable=not progress):
        values, labels = _waves(part, SERIES_STEPS, generator)
        seconds.append(_seconds(lambda x=values, y=labels: classifier.partial_fit(x, y, classes=[0, 1])))
        memory.append(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 30 if sys.platform == "darwin" else 1 << 20)
        )
    values, labels = _waves(part, SERIES_STEPS, generator)
    tenths = np.array_split(np.array(seconds[1:] or seconds), min(10, max(1, len(seconds) - 1)))
    return {
        "sequences": count, "steps": SERIES_STEPS, "units": SERIES_UNITS, "part": part,
        "seconds": sum(seconds), "seconds_per_part_by_tenths": [float(np.mean(each)) for each in tenths],
        "GB_after_first_part": memory[0], "GB_at_the_end": memory[-1],
        "accuracy_on_more": float(classifier.score(values, labels)),
    }  # fmt: skip


def _waves(count: int, steps: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw noise with a faint wave of one of two frequencies."""
    labels = generator.integers(0, 2, count)
    phase = generator.uniform(0, 2 * np.pi, (count, 1))
    waves = np.sin((0.3 + 0.1 * labels[:, None]) * np.arange(steps) + phase)
    return 0.5 * waves + generator.normal(size=(count, steps)), labels


def _seconds(job: Callable[[], Any]) -> float:
    began = time.process_time()
    job()
    return time.process_time() - began
