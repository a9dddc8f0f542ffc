"""Numbers read off the model once per epoch: a probe is a function of model and epoch whose numbers land in the log."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

Probe = Callable[[nn.Module, int], dict[str, float]]


def weight_norms(model: nn.Module, epoch: int) -> dict[str, float]:  # noqa: ARG001
    """Return the Frobenius norm of every trained weight.

    >>> weight_norms(nn.Linear(1, 1, bias=False).requires_grad_(), 0).keys()
    dict_keys(['norm/weight'])
    """
    named = ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
    return {f"norm/{name}": float(weight.detach().norm()) for name, weight in named}


def recurrent_spectra(model: nn.Module, epoch: int) -> dict[str, float]:  # noqa: ARG001
    """Return the spectral radius and norm of every square recurrent matrix, and the range of every recurrent vector."""
    numbers: dict[str, float] = {}
    for name, weight in _recurrent_weights(model):
        if weight.ndim == 1:
            numbers |= {f"min/{name}": float(weight.min()), f"max/{name}": float(weight.max())}
        elif weight.shape[0] == weight.shape[1]:
            radius = torch.linalg.eigvals(weight).abs().max()
            numbers |= {f"radius/{name}": float(radius), f"spectral/{name}": float(torch.linalg.matrix_norm(weight, 2))}
    return numbers


def rkhs_norms(model: nn.Module, epoch: int) -> dict[str, float]:  # noqa: ARG001
    """Return the norm of each output in the signature's RKHS, to order 3 at L = 1/2, and the Frobenius norm of (U V).

    For a residual layer with a linear head. Reference: fermanian2021, Figure 3.
    """
    from sostenuto.theory.rkhs import rkhs_norm

    layer: Any = model.layer
    head: Any = model.head
    with torch.no_grad():
        norm = rkhs_norm(layer, 3, readout=head)
    weights = (value for name, value in layer.named_parameters() if name.startswith("weight"))
    frobenius = torch.stack([weight.detach().norm() for weight in weights]).norm()
    values = {f"rkhs/output_{index}": float(value) for index, value in enumerate(norm.value)}
    return {**values, "rkhs/all": float(norm.squared.sum().sqrt()), "frobenius/layer": float(frobenius)}


def _recurrent_weights(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    weights = []
    for path, module in model.named_modules():
        for name in {key.split(".")[-1] for key, _ in module.named_parameters(recurse=False)} | set(
            getattr(module, "parametrizations", {})
        ):
            if name.startswith(("weight_hh", "delta_hh")):
                read = getattr(module, "read_parameter", partial(getattr, module))  # with the start of a difference
                weights.append((f"{path}.{name}".lstrip("."), read(name).detach().float().cpu()))
    return sorted(weights)


PROBES: dict[str, Probe] = {
    "weight_norms": weight_norms,
    "recurrent_spectra": recurrent_spectra,
    "rkhs_norms": rkhs_norms,
}
"""Probes by the name a config or the command line uses."""
