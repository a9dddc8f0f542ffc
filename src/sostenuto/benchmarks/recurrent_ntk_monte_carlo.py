"""The recurrent NTK against finite networks drawn at random: tangent kernels and GP kernels of tied RNNs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sostenuto.kernels import RecurrentNTK

TITLE = "the recurrent NTK against random networks of width 2000: differences in standard errors"
WIDTH, DRAWS = 2000, 200
LENGTHS = (2, 4, 5, 5, 3, 7)
SIGMAS = {"sigma_w": 1.2, "sigma_u": 0.9, "sigma_b": 0.3, "sigma_h": 0.5, "sigma_v": 1.1}
ACTIVATIONS: dict[str, tuple[Any, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "relu": ("relu", torch.relu, lambda g: (g > 0).to(g.dtype)),
    "erf": ("erf", torch.erf, lambda g: 2 / math.sqrt(math.pi) * torch.exp(-(g**2))),
    "tanh": (torch.tanh, torch.tanh, lambda g: 1 - torch.tanh(g) ** 2),
}


def run(progress: bool = True, width: int = WIDTH, draws: int = DRAWS) -> dict[str, Any]:
    """Draw networks of 1, 2 and 3 layers and three activations; compare every pair of sequences of 2 to 7 steps."""
    record: dict[str, Any] = {"width": width, "draws": draws, "lengths": list(LENGTHS), **SIGMAS}
    cases = [(layers, name) for layers in (1, 2, 3) for name in ACTIVATIONS]
    for layers, name in tqdm(cases, desc="Monte Carlo", unit="case", disable=not progress):
        record[f"{layers} layers, {name}"] = compare(sequences(), layers, name, width, draws)
    return record


def sequences(seed: int = 0) -> list[np.ndarray]:
    """Return sequences of two channels; the lengths give the pairs (2,4), (5,5) and (3,7) among others."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(length, 2)) for length in LENGTHS]


def compare(x: list[np.ndarray], layers: int, name: str, width: int, draws: int, seed: int = 0) -> dict[str, Any]:
    """Return the limit, the mean over networks, its standard error, and the largest difference in standard errors."""
    kernels = finite_kernels(x, layers, name, width, draws, seed)
    record = {}
    for kind, samples in zip(("ntk", "nngp"), kernels, strict=True):
        limit = RecurrentNTK(layers, ACTIVATIONS[name][0], **SIGMAS, kind=kind)(x)  # pyright: ignore[reportArgumentType]
        mean, error = samples.mean(axis=0), samples.std(axis=0, ddof=1) / math.sqrt(draws)
        distance = np.abs(mean - limit) / error
        pairs = {"(2,4)": (0, 1), "(5,5)": (2, 3), "(3,7)": (4, 5), "(5,5) same": (2, 2), "(7,7) same": (5, 5)}
        record[kind] = {
            "largest difference in standard errors": float(distance.max()),
            "share of pairs within 3 standard errors": float((distance <= 3).mean()),
            **{
                pair: {"limit": float(limit[at]), "mean": float(mean[at]), "standard error": float(error[at])}
                for pair, at in pairs.items()
            },
        }
    return record


def finite_kernels(
    x: list[np.ndarray], layers: int, name: str, width: int, draws: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return Θ̂ and 𝒦̂ = σ_v²⟨h, h′⟩/n of random tied networks, each (draws, n, n).

    ⟨∂f/∂W, ∂f′/∂W⟩ = Σ_{t,t′} (δ_t·δ′_t′/n)(σ_w²/n h_{t−1}·h′_{t′−1}), and likewise for U and b: no Jacobian is formed.
    """
    generator = torch.Generator().manual_seed(seed)
    pairs = [_network(x, layers, *ACTIVATIONS[name][1:], width, generator) for _ in range(draws)]
    return np.stack([ntk for ntk, _ in pairs]), np.stack([nngp for _, nngp in pairs])


def _network(
    x: list[np.ndarray],
    layers: int,
    phi: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    n: int,
    generator: torch.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one network and return its two kernels; sequences begin together, and each ends at its own step."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32)

    w, u, b, h, v = (SIGMAS[f"sigma_{letter}"] for letter in "wubhv")
    lengths, count, channels = [len(each) for each in x], len(x), x[0].shape[1]
    steps = max(lengths)
    inputs = torch.zeros(steps, count, channels)
    for index, each in enumerate(x):
        inputs[: len(each), index] = torch.from_numpy(each).float()
    recurrent = [normal(n, n) for _ in range(layers)]
    entering = [normal(n, channels if layer == 0 else n) for layer in range(layers)]
    bias, readout = [normal(n) for _ in range(layers)], normal(n)
    states = [[h * normal(count, n)] for _ in range(layers)]
    slopes: list[list[Tensor]] = [[] for _ in range(layers)]
    for t in range(steps):
        below = inputs[t]
        for layer in range(layers):
            g = w / math.sqrt(n) * states[layer][-1] @ recurrent[layer].T + b * bias[layer]
            g = g + u / math.sqrt(below.shape[1]) * below @ entering[layer].T
            below = phi(g)
            states[layer].append(below)
            slopes[layer].append(slope(g))
    deltas = _deltas(lengths, slopes, recurrent, entering, readout, w, u, v)
    last = torch.stack([states[-1][length][index] for index, length in enumerate(lengths)]).double()
    nngp = v**2 / n * last @ last.T
    ntk = nngp.clone()
    for layer in range(layers):
        delta = torch.stack(deltas[layer]).double().flatten(0, 1)
        before = torch.stack(states[layer][:-1]).double().flatten(0, 1)
        lower = inputs if layer == 0 else torch.stack(states[layer - 1][1:])
        lower = lower.double().flatten(0, 1)
        forward = w**2 / n * before @ before.T + u**2 / lower.shape[1] * lower @ lower.T + b**2
        products = (delta @ delta.T / n) * forward
        ntk += products.view(steps, count, steps, count).sum(dim=(0, 2))
    return ntk.numpy(), nngp.numpy()


def _deltas(
    lengths: list[int],
    slopes: list[list[Tensor]],
    recurrent: list[Tensor],
    entering: list[Tensor],
    readout: Tensor,
    w: float,
    u: float,
    v: float,
) -> list[list[Tensor]]:
    """Return δ = √n ∂f/∂g at every layer and step, 0 after a sequence's end (docs/errata.md, alemohammad2021.4)."""
    layers, steps, n = len(slopes), len(slopes[0]), len(readout)
    deltas = [[torch.empty(0)] * steps for _ in range(layers)]
    for t in reversed(range(steps)):
        for layer in reversed(range(layers)):
            arriving = torch.zeros(len(lengths), n)
            if layer == layers - 1:
                arriving[[index for index, length in enumerate(lengths) if length == t + 1]] = v * readout
            else:
                arriving += u / math.sqrt(n) * deltas[layer + 1][t] @ entering[layer + 1]
            if t + 1 < steps:
                arriving += w / math.sqrt(n) * deltas[layer][t + 1] @ recurrent[layer]
            deltas[layer][t] = slopes[layer][t] * arriving
    return deltas
