"""Numbers read off the model once an epoch: a probe is a function of model and epoch whose numbers land in the log."""

from collections.abc import Callable

import torch
from torch import nn

Probe = Callable[[nn.Module, int], dict[str, float]]


def weight_norms(model: nn.Module, epoch: int) -> dict[str, float]:  # noqa: ARG001
    """Give the Frobenius norm of every trained weight.

    >>> weight_norms(nn.Linear(1, 1, bias=False).requires_grad_(), 0).keys()
    dict_keys(['norm/weight'])
    """
    named = ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
    return {f"norm/{name}": float(weight.detach().norm()) for name, weight in named}


def recurrent_spectra(model: nn.Module, epoch: int) -> dict[str, float]:  # noqa: ARG001
    """Give the spectral radius and norm of every square recurrent matrix, and the range of every recurrent vector."""
    numbers: dict[str, float] = {}
    for name, weight in _recurrent_weights(model):
        if weight.ndim == 1:
            numbers |= {f"min/{name}": float(weight.min()), f"max/{name}": float(weight.max())}
        elif weight.shape[0] == weight.shape[1]:
            radius = torch.linalg.eigvals(weight).abs().max()
            numbers |= {f"radius/{name}": float(radius), f"spectral/{name}": float(torch.linalg.matrix_norm(weight, 2))}
    return numbers


def _recurrent_weights(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    found = []
    for path, module in model.named_modules():
        for name in {key.split(".")[-1] for key, _ in module.named_parameters(recurse=False)} | set(
            getattr(module, "parametrizations", {})
        ):
            if name.startswith("weight_hh"):
                found.append((f"{path}.{name}".lstrip("."), getattr(module, name).detach().float().cpu()))
    return sorted(found)


PROBES: dict[str, Probe] = {"weight_norms": weight_norms, "recurrent_spectra": recurrent_spectra}
"""Probes by the name a config or the command line uses."""
