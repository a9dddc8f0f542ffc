"""Several small recurrent networks of one shape side by side: one product a step serves folds and learning rates."""

import torch
from jaxtyping import Float
from torch import Tensor

KINDS = ("gaussian", "identity", "gru")
SMALL = 1e-3
"""Deviation of all but the recurrent weights of the identity network (Le, Jaitly and Hinton 2015)."""
Weights = dict[str, Tensor]
"""Tensors whose first axis is the network."""


def initial_weights(kind: str, count: int, layers: int, width: int, classes: int) -> Weights:
    """Draw ``count`` networks of one input channel from torch's generator (alemohammad2021, appendix A.1).

    ``"gaussian"``: NTK initialization, N(0, 1) with the factors outside; ``"identity"``: recurrent weights 1, the rest
    small; ``"gru"``: uniform in ±1/√width, as torch does it.

    >>> sorted(initial_weights("gaussian", 2, 1, 4, 3))
    ['input0', 'readout', 'recurrent0']
    """
    weights: Weights = {}
    for layer in range(layers):
        entering = 1 if layer == 0 else width
        if kind == "gru":
            bound = width**-0.5
            shapes = {"input": (entering,), "recurrent": (width,), "input_bias": (), "recurrent_bias": ()}
            for name, shape in shapes.items():
                weights[f"{name}{layer}"] = torch.empty(count, 3 * width, *shape).uniform_(-bound, bound)
            continue
        scale = 1.0 if kind == "gaussian" else SMALL
        weights[f"input{layer}"] = scale * torch.randn(count, width, entering)
        if kind == "gaussian":
            weights[f"recurrent{layer}"] = torch.randn(count, width, width)
        else:
            weights[f"recurrent{layer}"] = torch.eye(width).repeat(count, 1, 1)
            weights[f"bias{layer}"] = torch.zeros(count, width)
    scale = {"gaussian": 1.0, "identity": SMALL, "gru": width**-0.5}[kind]
    weights["readout"] = scale * torch.randn(count, classes, width)
    if kind != "gaussian":
        weights["readout_bias"] = torch.zeros(count, classes)
    return weights


def class_scores(kind: str, weights: Weights, x: Float[Tensor, "network batch time"]) -> Tensor:
    """Return the scores ``(network, batch, class)`` after the last step."""
    below = x.permute(2, 0, 1)[..., None].contiguous()
    layers = sum(name.startswith("recurrent") and "bias" not in name for name in weights)
    for layer in range(layers):
        last = layer == layers - 1
        below = (_gru if kind == "gru" else _rectified)(kind, weights, layer, below, last)
    state, readout = below[-1], weights["readout"]
    if kind == "gaussian":
        return torch.bmm(state, readout.mT) * (2 / readout.shape[2]) ** 0.5
    return torch.baddbmm(weights["readout_bias"][:, None], state, readout.mT)


def _rectified(kind: str, weights: Weights, layer: int, below: Tensor, last: bool) -> Tensor:
    recurrent, entering = weights[f"recurrent{layer}"], weights[f"input{layer}"]
    inputs = below @ entering.mT
    if kind == "gaussian":
        # σ_w = √2, σ_u = 1, σ_b = 0; one input channel has the factor 1.
        recurrent, inputs = recurrent * (2 / recurrent.shape[2]) ** 0.5, inputs * entering.shape[2] ** -0.5
    else:
        inputs = inputs + weights[f"bias{layer}"][:, None]
    carried, state, states = recurrent.mT, torch.zeros_like(inputs[0]), []
    for entry in inputs.unbind(0):
        state = torch.relu(torch.baddbmm(entry, state, carried))
        states.append(state)
    return state[None] if last else torch.stack(states)


def _gru(kind: str, weights: Weights, layer: int, below: Tensor, last: bool) -> Tensor:  # noqa: ARG001 - one contract
    inputs = below @ weights[f"input{layer}"].mT + weights[f"input_bias{layer}"][:, None]
    carried, bias = weights[f"recurrent{layer}"].mT, weights[f"recurrent_bias{layer}"][:, None]
    state, states = torch.zeros_like(inputs[0, ..., : carried.shape[1]]), []
    for entry in inputs.unbind(0):
        inner = torch.baddbmm(bias, state, carried)
        reset, update, fresh = entry.chunk(3, dim=-1)
        own_reset, own_update, own_fresh = inner.chunk(3, dim=-1)
        gate = torch.sigmoid(update + own_update)
        new = torch.tanh(fresh + torch.sigmoid(reset + own_reset) * own_fresh)
        state = torch.lerp(new, state, gate)
        states.append(state)
    return state[None] if last else torch.stack(states)
