"""Coefficients of a step of a damped oscillator whose input is held, in one pass each way."""

import importlib
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.backend import choose_backend, native_backend
from sostenuto.ops.dispatch import needs_reference, recorded_gradients, run_adjoint, runs_eagerly

Coefficients = tuple[Float[Tensor, "2 T1 B1 H"], Float[Tensor, "2 T1 B1 H"]]


def held_coefficients(
    decay: Float[Tensor, " H"],
    frequency: Float[Tensor, " H"],
    spans: Float[Tensor, "T B"] | None = None,
    scale: Float[Tensor, " H"] | None = None,
) -> Coefficients:
    """Return a = e^{κδ} and b = (e^{κδ} − 1)/κ, κ = −decay + i·frequency, of s′ = κ s + x with x held over a span δ.

    Without ``spans`` δ = 1; ``scale`` multiplies b. Decays must be above 0; b is exact for small spans too.

    >>> power, gain = held_coefficients(torch.tensor([0.5]), torch.tensor([0.0]))
    >>> [round(float(value), 4) for value in (power[0], gain[0])]
    [0.6065, 0.7869]
    """
    scale = torch.ones_like(decay) if scale is None else scale
    tensors = [tensor for tensor in (decay, frequency, scale, spans) if tensor is not None]
    same = all(tensor.dtype == decay.dtype and tensor.device == decay.device for tensor in tensors)
    fused = same and runs_eagerly(*tensors) and not needs_reference(*tensors) and decay.numel() > 0
    if fused and (spans is None or spans.numel() > 0) and choose_backend("auto", decay, built=("cpu",)) == "cpu":
        return _Held.apply(decay, frequency, scale, spans)  # pyright: ignore[reportReturnType]
    return held_coefficients_reference(decay, frequency, scale, spans)


def learned_coefficients(logs: Float[Tensor, " S"], added: float = 0.0) -> Coefficients:
    """Return a and b of a unit step from the logarithms that a layer learns, those of the decays γ first, S = 2H.

    γ = 1/(e^{−ν} + added) and ω = e^θ; b has the scale √(1 − e^{−2γ}), so that white noise keeps its size. It is one
    kernel each way.

    >>> power, gain = learned_coefficients(torch.tensor([0.0, 0.0]))
    >>> power.shape, round(float(power.square().sum()), 4)
    (torch.Size([2, 1, 1, 1]), 0.1353)
    """
    eager = runs_eagerly(logs) and not needs_reference(logs)
    if eager and choose_backend("auto", logs, built=("cpu", "gpu")) != "reference":
        return _Learned.apply(logs, added)  # pyright: ignore[reportReturnType]
    return _learned_from_parts(logs, added)


def _learned_from_parts(logs: Float[Tensor, " S"], added: float) -> Coefficients:
    """Compute decay, frequency and scale one by one."""
    H = len(logs) // 2
    decay = torch.exp(logs[:H]) if added == 0 else 1 / (torch.exp(-logs[:H]) + added)
    return held_coefficients(decay, torch.exp(logs[H:]), None, torch.sqrt(-torch.expm1(-2 * decay)))


def held_coefficients_reference(
    decay: Float[Tensor, " H"],
    frequency: Float[Tensor, " H"],
    scale: Float[Tensor, " H"],
    spans: Float[Tensor, "T B"] | None,
) -> Coefficients:
    """Compute them in plain torch."""
    if spans is None:
        turned, faded = frequency.view(1, 1, -1), decay.view(1, 1, -1)
    else:
        turned, faded = spans[..., None] * frequency, spans[..., None] * decay
    size, cosine, sine = torch.exp(-faded), torch.cos(turned), torch.sin(turned)
    real, imaginary = size * cosine, size * sine
    # e^{κδ} − 1 without cancellation: its real part is expm1(−γδ) cos − 2 sin²(ωδ/2).
    lost = torch.expm1(-faded) * cosine - 2 * torch.sin(turned / 2) ** 2
    each = scale / (decay * decay + frequency * frequency)
    held_real = (imaginary * frequency - lost * decay) * each
    held_imaginary = -(imaginary * decay + lost * frequency) * each
    return torch.stack([real, imaginary]), torch.stack([held_real, held_imaginary])


def _kernels(backend: str = "cpu") -> Any:
    return importlib.import_module(f"sostenuto.ops.damped.{backend}")


class _Held(torch.autograd.Function):
    """The coefficients in eager code; a gradient that is differentiated again is the reference's."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        """Run the kernel and save what the backward pass needs."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        return _kernels().coefficients(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint."""
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            return tuple(recorded_gradients(held_coefficients_reference(*inputs), inputs, gradients))
        shape = (2, 1, 1, len(inputs[0])) if inputs[3] is None else (2, *inputs[3].shape, len(inputs[0]))
        arriving = [inputs[0].new_zeros(()).expand(shape) if part is None else part for part in gradients]
        results = run_adjoint(lambda *parts: _kernels().coefficients_backward(*inputs, *parts), *arriving)
        return *results[:3], results[3] if inputs[3] is not None else None


class _Learned(torch.autograd.Function):
    """The coefficients from what is learned; a gradient that is differentiated again is the parts'."""

    @staticmethod
    def forward(ctx: Any, logs: Tensor, added: float) -> Any:
        """Run the kernel and save what the backward pass needs."""
        ctx.save_for_backward(logs)
        ctx.added = added
        return _kernels(native_backend(logs)).learned(logs, added)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint."""
        (logs,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *recorded_gradients(_learned_from_parts(logs, ctx.added), (logs,), gradients), None
        kernels = _kernels(native_backend(logs))
        results = run_adjoint(lambda *parts: [kernels.learned_backward(logs, ctx.added, *parts)], *gradients)
        return results[0], None
