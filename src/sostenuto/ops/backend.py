"""Which backend runs an op. This is the only file that looks for numba or triton."""

import importlib
import importlib.util
import os
from typing import Any

import torch
from torch import Tensor

from sostenuto.checks import InputError, check_choice

BACKENDS = ("auto", "reference", "cpu", "gpu")
DTYPES = {"cpu": (torch.float32, torch.float64), "gpu": (torch.float32,)}
"""The precisions that each backend's kernels have; the reference has every one."""

HAS_NUMBA = importlib.util.find_spec("numba") is not None
"""Whether the CPU kernels can be compiled here."""
HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether the GPU kernels can be compiled here."""
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
"""Whether Triton interprets the GPU kernels: then they run tensors on the CPU, in place of the CPU kernels.

The variable is Triton's own, and Triton too reads it once, where kernels are defined."""


def native_backend(state: Tensor) -> str:
    """Name the kernels that run a scan of ``state``: ``"cpu"``, or ``"gpu"`` on a GPU and under Triton's interpreter.

    >>> native_backend(torch.zeros(1))
    'cpu'
    """
    return "gpu" if state.is_cuda or INTERPRETED else "cpu"


def kernels_of(op: str, state: Tensor) -> Any:
    """Import the kernels of an op for the device of its state: its module ``cpu`` or ``gpu``, when they are used.

    >>> kernels_of("sostenuto.ops.diagonal", torch.zeros(1)).__name__
    'sostenuto.ops.diagonal.cpu'
    """
    return importlib.import_module(f"{op}.{native_backend(state)}")


def choose_backend(requested: str, example: Tensor, *, built: tuple[str, ...] = BACKENDS[2:]) -> str:
    """Settle ``"auto"``, or check that the backend asked for can run on ``example``'s device.

    ``built`` names the fast backends the op has. Automatic choice takes the fast one for the device where there is one
    and the reference otherwise: a tensor on another device, or of a precision that its kernels lack (`DTYPES`). Nothing
    at all, an empty batch, is the reference's in every case.

    >>> choose_backend("auto", torch.zeros(1, dtype=torch.float16), built=("cpu",))
    'reference'
    """
    check_choice("backend", requested, BACKENDS)
    if example.numel() == 0:
        return "reference"
    fast = native_backend(example)
    installed = HAS_TRITON if fast == "gpu" else HAS_NUMBA
    runs = fast in built and installed and example.device.type in ("cpu", "cuda") and example.dtype in DTYPES[fast]
    if requested == "auto":
        return fast if runs else "reference"
    if requested != "reference" and not (runs and requested == fast):
        raise InputError(
            f"expected a tensor that the backend {requested!r} can take, got {example.dtype} on {example.device}; "
            "pass backend='auto' or 'reference'."
        )
    return requested
