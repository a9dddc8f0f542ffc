"""The attacks: gradient ascent and random search within a ball, and DeepFool's shortest way across a boundary.

A perturbation δ of a sequence is measured over its true steps, padding is never touched, and values are free unless
bounds are given: nothing is clamped to [0, 1].

    linf      max over steps and channels of |δ|
    l2        the Frobenius norm over the whole sequence
    step-l2   the largest Euclidean norm of one step
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NORMS = ("linf", "l2", "step-l2")

Perturbation = Float[Tensor, "batch time channel"]
Sizes = Float[Tensor, " batch"]
Bounds = tuple[float, float] | tuple[Tensor, Tensor] | None
"""Least and largest value allowed, or those of every sample."""
Loss = Callable[[Perturbation], Sizes]
"""From perturbed values to a number per sequence."""
Scores = Callable[[Perturbation], Float[Tensor, "batch cls"]]


def size(delta: Perturbation, norm: str) -> Sizes:
    """Measure perturbations, one number per sequence.

    >>> size(torch.tensor([[[3.0, 4.0], [0.0, 1.0]]]), "step-l2")
    tensor([5.])
    """
    if norm == "linf":
        return delta.abs().amax((1, 2))
    if norm == "l2":
        return delta.flatten(1).norm(dim=1)
    return delta.norm(dim=2).amax(1)


def project(delta: Perturbation, norm: str, epsilon: float) -> Perturbation:
    """Bring perturbations back into the ball of radius ``epsilon``."""
    if norm == "linf":
        return delta.clamp(-epsilon, epsilon)
    length = delta.norm(dim=2, keepdim=True) if norm == "step-l2" else delta.flatten(1).norm(dim=1)[:, None, None]
    return delta * (epsilon / length.clamp(min=max(epsilon, torch.finfo(delta.dtype).tiny)))


def steepest(gradient: Perturbation, norm: str) -> Perturbation:
    """Give the direction of size 1 that gains most."""
    if norm == "linf":
        return gradient.sign()
    length = gradient.norm(dim=2, keepdim=True) if norm == "step-l2" else gradient.flatten(1).norm(dim=1)[:, None, None]
    return gradient / length.clamp(min=torch.finfo(gradient.dtype).tiny)


def random_start(
    shape: torch.Size, norm: str, epsilon: float, generator: torch.Generator, like: Tensor
) -> Perturbation:
    """Draw a point of the ball: evenly in a cube, else a random direction at a random distance."""
    noise = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    if norm == "linf":
        return (epsilon * noise).to(like)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    share = torch.rand((shape[0], 1, 1), generator=generator, dtype=torch.float64)
    return (epsilon * share * steepest(drawn, norm)).to(like)


def input_gradient(harm: Tensor, values: Perturbation) -> Perturbation:
    """Differentiate by the input; zero where nothing leads back to it."""
    found = torch.autograd.grad(harm, values, allow_unused=True)[0] if harm.requires_grad else None
    return torch.zeros_like(values) if found is None else found


def projected_ascent(
    loss: Loss,
    values: Perturbation,
    true_steps: Bool[Tensor, "batch time 1"],
    start: Perturbation,
    *,
    norm: str,
    epsilon: float,
    steps: int,
    step_size: float,
    bounds: Bounds,
) -> Perturbation:
    """Climb ``loss`` by ``steps`` steps of length ``step_size`` within the ball, from ``start``; return the values."""
    delta = _within(values, torch.where(true_steps, start, 0), bounds)
    for _ in range(steps):
        moved = (values + delta).requires_grad_()
        with torch.enable_grad():
            harm = loss(moved).sum()
        # An answer without a gradient leaves an attack by gradients where it is.
        gradient = input_gradient(harm, moved)
        gradient = torch.where(true_steps, gradient.nan_to_num(), 0)
        delta = project(delta + step_size * steepest(gradient, norm), norm, epsilon)
        delta = _within(values, delta, bounds)
    return values + delta


def random_search(
    loss: Loss, zeros: Perturbation, *, norm: str, epsilon: float, tries: int, generator: torch.Generator
) -> Perturbation:
    """Climb ``loss`` without its gradient: new values in a random stretch of time are kept where they do more harm.

    The stretch shrinks from half of the sequence to a step or two. Reference: Andriushchenko et al., Square Attack,
    2020, in one dimension.
    """
    batch, steps, channels = zeros.shape
    signs = torch.randint(0, 2, (batch, 1, channels), generator=generator) * 2.0 - 1
    delta = project(epsilon * signs.expand_as(zeros).to(zeros), norm, epsilon)
    best, time = loss(delta), torch.arange(steps)[None, :, None]
    for place in range(tries):
        width = max(round(steps * 0.5 * (1 - place / tries) ** 2), 1)
        start = torch.randint(0, steps - width + 1, (batch, 1, 1), generator=generator)
        signs = torch.randint(0, 2, (batch, 1, channels), generator=generator) * 2.0 - 1
        inside = (time >= start) & (time < start + width)
        tried = project(torch.where(inside, epsilon * signs.to(zeros), delta), norm, epsilon)
        reached = loss(tried)
        better = (reached >= best) | best.isnan()
        delta = torch.where(better[:, None, None], tried, delta)
        best = torch.where(better, reached, best)
    return delta


def deepfool(
    scores: Scores,
    values: Perturbation,
    true_steps: Bool[Tensor, "batch time 1"],
    targets: Tensor,
    *,
    norm: str,
    steps: int,
    candidates: int,
    overshoot: float,
    bounds: Bounds,
) -> Perturbation:
    """Step to the nearest boundary of the linearized scores until the answer changes; return the values.

    Boundaries against the ``candidates`` highest other classes at the start are watched. Reference: Moosavi-Dezfooli et
    al., DeepFool, 2016, eqs. (10) and (11).
    """
    order = scores(values).argsort(dim=1, descending=True)
    others = order[order != targets[:, None]].view(len(values), -1)[:, :candidates]
    total, moved = torch.zeros_like(values), values
    for _ in range(steps):
        found, differences, gradients = _boundaries(scores, moved, targets, others)
        right = found.argmax(1) == targets
        if not bool(right.any()):
            break
        gradients = torch.where(true_steps, gradients, 0)
        flat = gradients.flatten(2)
        length = flat.abs().sum(2) if norm == "linf" else flat.norm(dim=2)
        distance = differences.abs() / (length + 1e-8)
        nearest = distance.argmin(0)
        rows = torch.arange(len(values), device=values.device)
        gradient, far = gradients[nearest, rows], distance[nearest, rows][:, None, None]
        unit = gradient.sign() if norm == "linf" else gradient / (length[nearest, rows][:, None, None] + 1e-8)
        total = torch.where(right[:, None, None], total + (far + 1e-4) * unit, total)
        moved = values + _within(values, (1 + overshoot) * total, bounds)
    return moved


def _boundaries(scores: Scores, moved: Perturbation, targets: Tensor, others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give the scores, and for every other class the lead of the true one and how the other's gain depends on input."""
    leaf = moved.detach().requires_grad_()
    with torch.enable_grad():
        found = scores(leaf)
        lead = found.gather(1, others) - found.gather(1, targets[:, None])
        gradients = [
            torch.autograd.grad(lead[:, k].sum(), leaf, retain_graph=k + 1 < lead.shape[1])[0]
            for k in range(lead.shape[1])
        ]
    return found.detach(), lead.detach().T, torch.stack(gradients)


def _within(values: Perturbation, delta: Perturbation, bounds: Bounds) -> Perturbation:
    limits: Any = bounds
    return delta if bounds is None else (values + delta).clamp(*limits) - values
