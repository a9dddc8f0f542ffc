"""Timing of a job as a CUDA graph: what the GPU takes, without what Python takes to ask for it."""

import statistics
from collections.abc import Callable
from typing import Any

import torch

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
