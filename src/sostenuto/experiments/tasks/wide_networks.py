"""Networks of finite width beside their limit, and the kernel's sensitivity to each step (alemohammad2021)."""

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from sostenuto.checks import require
from sostenuto.kernels import RecurrentNTK
from sostenuto.kernels.wide_rnn import WideRNN

STEP = 1e-4
"""Change of x_t: the compiled kernel is exact to some 1e-15, so that s(t) is found to 1e-7 of its largest."""


def sensitivity(
    kernel: RecurrentNTK, x: Float64[np.ndarray, "time 1"], y: Float64[np.ndarray, "time 1"]
) -> Float64[np.ndarray, " time"]:
    """Return |∂Θ(x, y)/∂x_t| of every step over the largest: what `RecurrentNTK.sensitivity` gives, 40 times as fast.

    >>> x, y = np.array([[1.0], [-1.0], [1.0]]), np.array([[0.6], [0.8], [0.1]])
    >>> sensitivity(RecurrentNTK(), x, y).round(3)
    array([1.   , 0.235, 0.25 ])
    """
    moves = STEP * np.eye(len(x))[:, :, None]
    values = kernel.gram([*(x + moves), *(x - moves)], [y])[:, 0]
    slopes = np.abs(values[: len(x)] - values[len(x) :])
    return slopes / max(float(slopes.max()), np.finfo(float).tiny)


def mean_sensitivity(kernel: RecurrentNTK, steps: int, pairs: int, seed: int) -> Float64[np.ndarray, " time"]:
    """Average `sensitivity` over pairs of Gaussian sequences (alemohammad2021, Figure 3)."""
    random = np.random.default_rng(seed)
    total = np.zeros(steps)
    for _ in range(pairs):
        x, y = random.normal(size=(2, steps, 1))
        total += sensitivity(kernel, x, y)
    return total / pairs


States = list[Float64[Tensor, "sequence width"]]


def tangent_products(
    network: WideRNN, left: Float64[Tensor, "row time 1"], right: Float64[Tensor, "column span 1"]
) -> Float64[np.ndarray, "row column"]:
    """Return ⟨∇f(x), ∇f(y)⟩ of every pair: what `EmpiricalNTK` gives, at a width where gradients fill the memory.

    With δ_t = ∂f/∂g_t the gradient by W is Σ_t δ_t h_{t−1}ᵀ σ_w/√n, so that tied weights give
    Σ_{t,t′} ⟨δ_t, δ′_t′⟩ (σ_w²/n ⟨h_{t−1}, h′_{t′−1}⟩ + σ_u² x_t x′_t′ + σ_b²) + σ_v²/n ⟨h_T, h′_T′⟩, and untied ones
    the terms with t = t′ alone (alemohammad2021, appendices B.2 and B.4).

    >>> network = WideRNN(1, 8, generator=torch.Generator().manual_seed(0))
    >>> x = torch.ones(2, 3, 1, dtype=torch.float64)
    >>> tangent_products(network, x, x[:, :2]).shape
    (2, 2)
    """
    require(network.num_layers == 1, "expected a network of one layer", f"got {network.num_layers}")
    w, u, b, v = network.sigmas
    (states, slopes), (others, tilts) = _followed(network, left), _followed(network, right)
    total = v**2 / network.width * states[-1] @ others[-1].mT
    for t, slope in enumerate(slopes):
        for s, tilt in enumerate(tilts):
            if not network.tied and t != s:
                continue
            inside = w**2 / network.width * states[t] @ others[s].mT + u**2 * left[:, t] @ right[:, s].mT + b**2
            total = total + (slope @ tilt.mT) * inside
    return total.numpy()


def _followed(network: WideRNN, x: Tensor) -> tuple[States, States]:
    """Return h_0 … h_T and δ_1 … δ_T of every sequence."""
    w, u, b, v = network.sigmas
    width = network.width
    states, entered = [network.start(x)[0]], []
    with torch.enable_grad():
        for t in range(x.shape[1]):
            at = 0 if network.tied else t
            carried = states[-1] @ network.weight_hh[0][at].detach().mT * (w / width**0.5)
            entering = u * x[:, t] @ network.weight_ih[0][at].detach().mT
            before = (carried + entering + b * network.bias[0][at].detach()).requires_grad_()
            entered.append(before)
            states.append(network.phi(before))
        output = (states[-1] @ network.readout.detach() * (v / width**0.5)).sum()
        slopes = torch.autograd.grad(output, entered)
    return [state.detach() for state in states], list(slopes)
