"""The nonlinearities of the recurrences, by name: each has its slope as a function of its own value.

Back-propagation through a scan then keeps σ(a) alone: tanh 1 − u², relu and modrelu [u ≠ 0], hardtanh [|u| < 1],
logistic u(1 − u), identity 1.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_choice

ACTIVATIONS = ("tanh", "relu", "hardtanh", "logistic", "identity", "modrelu")
"""The place of a name in this list is its code in the compiled kernels."""


def activate(
    values: Float[Tensor, "*any H"], name: str, threshold: Float[Tensor, " H"] | None = None
) -> Float[Tensor, "*any H"]:
    """Apply the nonlinearity ``name``; modrelu is sign(a)·max(|a| + threshold, 0) (Helfrich et al. 2018, real case).

    >>> activate(torch.tensor([-2.0, 0.5]), "hardtanh").tolist()
    [-1.0, 0.5]
    >>> activate(torch.tensor([-2.0, 0.5]), "modrelu", torch.tensor([-1.0, -1.0])).tolist()
    [-1.0, 0.0]
    """
    if name == "modrelu":
        assert threshold is not None
        return torch.sign(values) * torch.relu(values.abs() + threshold)
    if name == "hardtanh":
        return torch.nn.functional.hardtanh(values)
    if name == "identity":
        return values
    plain = {"tanh": torch.tanh, "relu": torch.relu, "logistic": torch.sigmoid}
    if name not in plain:
        check_choice("activation", name, ACTIVATIONS)
    return plain[name](values)


def check_activation(name: str, threshold: Tensor | None) -> None:
    """Refuse an unknown name, modrelu without its threshold, and a threshold for anything else."""
    check_choice("activation", name, ACTIVATIONS)
    if (name == "modrelu") != (threshold is not None):
        got = "none" if threshold is None else "one"
        raise InputError(f"expected a threshold for modrelu and for nothing else, got {got} for {name!r}.")
