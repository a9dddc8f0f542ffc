"""Which backend runs an op. This is the only file that looks for numba or triton."""

import importlib.util

import torch
from torch import Tensor

from sostenuto.checks import InputError, check_choice

BACKENDS = ("auto", "reference", "cpu", "gpu")


HAS_NUMBA = importlib.util.find_spec("numba") is not None
"""Whether the CPU kernels can be compiled here."""
HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether the GPU kernels can be compiled here."""


def choose_backend(requested: str, example: Tensor, *, built: tuple[str, ...]) -> str:
    """Settle ``"auto"``, or check that the backend asked for can run on ``example``'s device.

    ``built`` names the fast backends the op has. Automatic choice takes the fast one for the device where there is one
    and the reference otherwise: a tensor on another device, or of a precision that no kernel has (the CPU kernels have
    float32 and float64, the GPU kernels float32). Nothing at all, an empty batch, is the reference's in every case.

    >>> choose_backend("auto", torch.zeros(1, dtype=torch.float16), built=("cpu",))
    'reference'
    """
    check_choice("backend", requested, BACKENDS)
    fits_cpu = example.device.type == "cpu" and example.dtype in (torch.float32, torch.float64)
    fits_gpu = example.device.type == "cuda" and example.dtype == torch.float32
    possible = {
        "reference": True,
        "cpu": "cpu" in built and fits_cpu and HAS_NUMBA,
        "gpu": "gpu" in built and fits_gpu and HAS_TRITON,
    }
    if example.numel() == 0:
        return "reference"
    if requested == "auto":
        return next((name for name in ("cpu", "gpu") if possible[name]), "reference")
    if not possible[requested]:
        raise InputError(
            f"expected a tensor that the backend {requested!r} can take, got {example.dtype} on {example.device}; "
            "pass backend='auto' or 'reference'."
        )
    return requested
