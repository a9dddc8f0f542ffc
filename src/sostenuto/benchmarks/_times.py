"""Timing of jobs: in turn, or as a CUDA graph, which is what the GPU takes without what Python takes to ask for it."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

ROUNDS = 7
"""Rounds in which every job is called."""
_TURNS, _SHORT_SECONDS = 5, 0.03
"""A job that takes less than this is called as often in a round."""
_SETTLE = 50
"""Replays before the timed ones: an H200 copied a tenth slower just after memory was handed out than a moment later."""


def graph_milliseconds(job: Callable[[], Any], repeats: int = 20) -> float:
    """Capture a job after two rounds of warming up and give the median time of a replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            job()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    for _ in range(_SETTLE):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        graph.replay()
        after.record()
        torch.cuda.synchronize()
        times.append(before.elapsed_time(after))
    return statistics.median(times)


def interleaved(jobs: Mapping[str, Callable[[], Any]], device: str) -> dict[str, float]:
    """Return the median milliseconds of jobs called in turn, so that a noisy machine disturbs all alike.

    Each is called once more just before. What the job before left to tidy up is not the next one's time: after
    torchrecurrent's the system took 50 ms to take memory back, during whatever came next.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    waiting = jobs
    for attempt in range(ROUNDS * _TURNS):
        for name, job in waiting.items():
            job()
            times[name].append(_seconds(job, device))
        short = {name: job for name, job in jobs.items() if times[name][-1] < _SHORT_SECONDS}
        waiting = jobs if (attempt + 1) % _TURNS == 0 else short
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def _seconds(job: Callable[[], Any], device: str) -> float:
    began = _clock(device)
    job()
    return _clock(device) - began


def _clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
