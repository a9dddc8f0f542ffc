"""Devices and processes: one Accelerator, made anew for each training."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import broadcast_object_list

from sostenuto.checks import InputError

Decision = TypeVar("Decision")


def make_accelerator(device: str = "auto", precision: str = "float32") -> Accelerator:
    """Make an Accelerator for ``device`` (``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``) and ``precision``.

    Under ``accelerate launch`` the process group it set up is used. Otherwise settings of an earlier training in this
    process are forgotten, since Accelerate keeps them for good.
    """
    try:
        wanted = None if device == "auto" else torch.device(device)
    except RuntimeError as error:
        raise InputError(f"expected a device such as auto, cpu or cuda, got {device!r}.") from error
    if wanted is not None and wanted.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"expected a device that this machine has, got {device!r} and no GPU; pass cpu or auto.")
    distributed = PartialState._shared_state and PartialState().num_processes > 1
    AcceleratorState._reset_state(reset_partial_state=not distributed)
    with _device_variable(wanted):
        return Accelerator(
            cpu=wanted is not None and wanted.type == "cpu",
            mixed_precision="bf16" if precision == "bf16" else "no",
        )


def main_decides(decide: Callable[[], Decision], device: str = "auto") -> Decision:
    """Let the first process decide and tell the others; a refusal is raised in all of them."""
    accelerator = make_accelerator(device)
    if accelerator.num_processes == 1:
        return decide()
    message: list[Any] = [None]
    if accelerator.is_main_process:
        try:
            message = [(True, decide())]
        except InputError as error:
            message = [(False, str(error))]
    good, value = broadcast_object_list(message)[0]
    if not good:
        raise InputError(value)
    return value


@contextmanager
def _device_variable(wanted: torch.device | None) -> Iterator[None]:
    """Accelerate takes a device number from the environment only."""
    if wanted is None or wanted.index is None:
        yield
        return
    before = os.environ.get("ACCELERATE_TORCH_DEVICE")
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(wanted)
    try:
        yield
    finally:
        os.environ.pop("ACCELERATE_TORCH_DEVICE")
        if before is not None:
            os.environ["ACCELERATE_TORCH_DEVICE"] = before
