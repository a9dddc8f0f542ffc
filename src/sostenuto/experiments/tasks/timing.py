"""Time of a forward and a backward pass, side by side: rounds go through all contenders in turn."""

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import sostenuto.nn as layers

Job = Callable[[], Any]


def fused(input_size: int, hidden_size: int, device: str) -> dict[str, nn.Module]:
    """Return the layers of rusch2021's Figure 2 and more, each as fast as it is known to run.

    Two layers where the paper has two, one otherwise; UnICORNN with both, since a second layer costs a product of
    matrices that one layer does without.
    """
    two: dict[str, Any] = {"num_layers": 2, "device": device}
    options: dict[str, Any] = {"device": device}
    return {
        "UnICORNN, 1 layer": layers.UnICORNN(input_size, hidden_size, **options),
        "UnICORNN, 2 layers": layers.UnICORNN(input_size, hidden_size, **two),
        "nn.LSTM": nn.LSTM(input_size, hidden_size, **options),
        "nn.GRU": nn.GRU(input_size, hidden_size, **options),
        "SRU, 2 layers": layers.SRU(input_size, hidden_size, **two),
        "IndRNN, 2 layers, batch norm": layers.IndRNN(input_size, hidden_size, batch_norm=True, **two),
        "coRNN": layers.CoRNN(input_size, hidden_size, **options),
        "ExpRNN": layers.ExpRNN(input_size, hidden_size, **options),
        "LipschitzRNN": layers.LipschitzRNN(input_size, hidden_size, **options),
    }


def looped(input_size: int, hidden_size: int, device: str) -> dict[str, nn.Module]:
    """Return layers that take one step after another by torch's operators, as most published code does."""
    options: dict[str, Any] = {"backend": "reference", "device": device}
    results: dict[str, nn.Module] = {
        "coRNN as a loop": layers.CoRNN(input_size, hidden_size, **options),
        "ExpRNN as a loop": layers.ExpRNN(input_size, hidden_size, **options),
    }
    if importlib.util.find_spec("torchrecurrent") is not None:
        module = importlib.import_module("torchrecurrent")
        results["torchrecurrent UnICORNN"] = module.UnICORNN(input_size, hidden_size).to(device)
    return results


GROUPS: dict[str, Callable[[int, int, str], dict[str, nn.Module]]] = {"fused": fused, "looped": looped}
"""What is timed together: rounds of the one take milliseconds, of the other seconds."""


def forward_and_backward(layer: nn.Module, inputs: Tensor) -> Job:
    """Return a job that runs a layer over ``(time, batch, channel)`` inputs and the gradients of its parameters."""
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    gradient = torch.randn_like(layer(inputs)[0])

    def job() -> None:
        torch.autograd.grad(layer(inputs)[0], parameters, gradient, allow_unused=True)

    return job


def interleaved(jobs: Mapping[str, Job], device: str, *, rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Return the milliseconds of every round, so that what disturbs the machine disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for attempt in range(warm_up + rounds):
        for name, job in jobs.items():
            began = _clock(device)
            job()
            if attempt >= warm_up:
                times[name].append(1e3 * (_clock(device) - began))
    return times


def median_times(
    group: str, steps: int, batch: int, input_size: int, hidden_size: int, *, device: str, rounds: int
) -> dict[str, Any]:
    """Time every layer of a group on one shape: the median in milliseconds, and where it was measured."""
    inputs = torch.randn(steps, batch, input_size, device=device)
    modules = GROUPS[group](input_size, hidden_size, device)
    jobs = {name: forward_and_backward(layer, inputs) for name, layer in modules.items()}
    times = interleaved(jobs, device, rounds=rounds)
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {"where": where, "milliseconds": {name: statistics.median(values) for name, values in times.items()}}


def _clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
