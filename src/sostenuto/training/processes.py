"""Devices and processes: one Accelerator, made anew for each training; what a number was measured with."""

import atexit
import gc
import os
import platform
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import broadcast_object_list
from torch import nn

from sostenuto.checks import InputError, Stopped
from sostenuto.version import __version__

Decision = TypeVar("Decision")


def make_accelerator(device: str = "auto", precision: str = "float32") -> Accelerator:
    """Make an Accelerator for ``device`` (``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``) and ``precision``.

    Under ``accelerate launch`` the process group it set up is used. Otherwise settings of an earlier training in this
    process are reset, because Accelerate keeps them.
    """
    try:
        wanted = None if device == "auto" else torch.device(device)
    except RuntimeError as error:
        raise InputError(f"expected a device such as auto, cpu or cuda, got {device!r}.") from error
    _check_present(device, wanted)
    distributed = PartialState._shared_state and PartialState().num_processes > 1
    AcceleratorState._reset_state(reset_partial_state=not distributed)
    with _device_variable(wanted):
        accelerator = Accelerator(cpu=_on_cpu(wanted), mixed_precision="bf16" if precision == "bf16" else "no")
    if accelerator.num_processes > 1:
        atexit.unregister(_leave)
        atexit.register(_leave)
    if _started_alone(accelerator):
        warnings.warn(
            "accelerate launch --cpu starts a single process where there is no mpirun; "
            "torchrun --nproc_per_node 2 -m sostenuto.cli … starts two",
            stacklevel=1,
        )
    if wanted is not None and accelerator.device.type != wanted.type:
        raise InputError(f"expected a device such as auto, cpu or cuda, got {device!r}, which is not here.")
    return accelerator


def unwrap(model: nn.Module) -> None:
    """Take off the model what Accelerate put on it for mixed precision, so that it answers as a stored one does."""
    for name in ("forward", "_original_forward"):
        model.__dict__.pop(name, None)


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


def _leave() -> None:
    """Leave the process group before the interpreter ends: its threads, left running, may abort the process then."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _check_present(device: str, wanted: torch.device | None) -> None:
    if wanted is None or wanted.type != "cuda":
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (wanted.index or 0) >= count:
        raise InputError(
            f"expected a device that this machine has, got {device!r} with {count} GPUs here; pass cpu or auto."
        )


def _on_cpu(wanted: torch.device | None) -> bool:
    """Whether to train on the CPU; Accelerate connects several processes there only on request."""
    if wanted is not None:
        return wanted.type == "cpu"
    return "LOCAL_RANK" in os.environ and not torch.cuda.is_available()


def _started_alone(accelerator: Accelerator) -> bool:
    """Whether ``accelerate launch --cpu`` was asked for several processes: then it names a meeting place, and stops."""
    wants_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true" and "MASTER_PORT" in os.environ
    return wants_cpu and accelerator.num_processes == 1 and "LOCAL_RANK" not in os.environ


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


_PACKAGES = ("torch", "numpy", "numba", "triton", "accelerate", "scikit-learn")


def environment(device: str = "cpu") -> dict[str, str]:
    """Name the versions of Python and the packages that matter, the processor and the device.

    >>> sorted(environment())[:2]
    ['accelerate', 'device']
    """
    versions = {
        "python": platform.python_version(),
        "sostenuto": __version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    versions["torch"] = str(torch.__version__)
    is_gpu = device.startswith("cuda") and torch.cuda.is_available()
    versions["device"] = torch.cuda.get_device_name() if is_gpu else f"{device}, {os.cpu_count()} cores"
    return versions


_FROZEN_AT_START = 1000
"""Some interpreters, Python 3.12 among them, set a few hundred objects of their own aside; somebody's are thousands."""


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Exclude all objects that exist now from garbage collection inside the block.

    The libraries that a training has loaded are half a million objects. A pass over them takes a fifth of a second, as
    twenty steps of a small model do, and frees nothing. Where the caller has frozen objects already, they stay frozen.

    >>> with gc_frozen():
    ...     gc.get_freeze_count() > 10_000
    True
    >>> gc.get_freeze_count()
    0
    """
    if gc.get_freeze_count() > _FROZEN_AT_START:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """Note SIGTERM and SIGHUP inside the block in the list given, so that work ends where it can be resumed.

    A second one is not waited for. Signals that the process ignores, as under nohup, stay ignored, and only the main
    thread can note any.
    """
    noted: list[int] = []

    def note(number: int, _: Any) -> None:
        if noted:
            raise Stopped(f"stopped by {signal.Signals(number).name}", number)
        noted.append(number)

    with ExitStack() as stack:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            main = threading.current_thread() is threading.main_thread()
            if main and number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, note))
        yield noted
