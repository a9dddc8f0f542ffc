"""A model as an audit needs it: held still while it is asked, and answering with one tensor or refused."""

import copy
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TypeGuard, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import InputError, require
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.types import Lengths, Sequences

Model = TypeVar("Model", bound=nn.Module)


def place_of(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Find the device and number format of a model from its first real parameter or buffer.

    >>> place_of(nn.Linear(2, 1, dtype=torch.float64))
    (device(type='cpu'), torch.float64)
    """
    for tensor in chain(model.parameters(), model.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    return torch.device("cpu"), torch.get_default_dtype()


def forward_arguments(model: nn.Module) -> dict[str, bool]:
    """Name the arguments of a model's ``forward``, and say of each whether it must be given.

    >>> forward_arguments(nn.RNN(1, 1))
    {'input': True, 'hx': False}
    """
    if isinstance(model, torch.jit.ScriptModule):
        own = model.forward.schema.arguments[1:]  # pyright: ignore[reportFunctionMemberAccess]
        return {one.name: not one.has_default_value() for one in own}
    known = inspect.signature(model.forward).parameters
    return {name: one.default is inspect.Parameter.empty for name, one in known.items()}


def takes_lengths(model: nn.Module) -> bool:
    """Say whether a model's ``forward`` has an argument called ``lengths``."""
    return "lengths" in forward_arguments(model)


def is_classifier(model: nn.Module) -> TypeGuard[SequenceClassifier]:
    """Say whether a model is a `SequenceClassifier` with a linear head.

    >>> is_classifier(nn.Linear(2, 1))
    False
    """
    return isinstance(model, SequenceClassifier) and type(model.head) is nn.Linear


def still_copy(model: Model) -> Model:
    """Copy a model to the CPU, in float64, in evaluation mode and without gradients, as proofs and state maps need it.

    A layer bound to GPU kernels chooses its kernels anew, since there are none for such a copy.

    >>> place_of(still_copy(nn.Linear(2, 1)))
    (device(type='cpu'), torch.float64)
    """
    still = copy.deepcopy(model).double().cpu().eval().requires_grad_(False)
    for module in still.modules():
        if getattr(module, "backend", "") == "gpu":
            module.backend = "auto"  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    return still


def widened(model: nn.Module) -> nn.Module:
    """Give a model itself, or a float32 copy of one in half precision, for what rounding to 8 bits would drown.

    >>> place_of(widened(nn.Linear(2, 1).bfloat16()))[1]
    torch.float32
    """
    return copy.deepcopy(model).float() if place_of(model)[1] in (torch.bfloat16, torch.float16) else model


@contextmanager
def _whole_products() -> Iterator[None]:
    """Multiply in full float32 on a GPU, and the same way each time.

    cuDNN's recurrent kernels round to 10 bits by default, which would be taken for a memory that never fades.
    """
    before = torch.get_float32_matmul_precision()
    enabled = torch.backends.cudnn.enabled
    with torch.backends.cudnn.flags(enabled=enabled, benchmark=False, deterministic=True, allow_tf32=False):
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


@contextmanager
def audited(model: nn.Module, seed: int) -> Iterator[None]:
    """Hold a model still: evaluation mode, no gradients, torch's random numbers from ``seed``; then put all of it back.

    Every submodule gets its own mode back, so that one that was frozen in evaluation mode stays so.
    """
    modes = [(module, module.training) for module in model.modules()]
    device, _ = place_of(model)
    forked, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
    with torch.random.fork_rng(devices=forked, device_type=kind), torch.no_grad(), ExitStack() as stack:
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            stack.enter_context(_whole_products())
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def call_model(model: nn.Module, values: Sequences, lengths: Lengths | None = None) -> Float[Tensor, "batch ..."]:
    """Ask a model about a batch and insist on one tensor: ``(batch, out)`` or ``(batch, time, out)``.

    ``values`` and ``lengths`` are already where the model is. ``lengths`` goes to a model whose ``forward`` takes it.

    >>> call_model(nn.RNN(1, 2, batch_first=True), torch.zeros(3, 4, 1))
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected the model to return one tensor, got tuple; wrap it in so.audits.adapt(model,
    output=lambda output: …), which takes the scores out.
    """
    options = {"lengths": lengths} if lengths is not None and takes_lengths(model) else {}
    shape = tuple(values.shape)
    try:
        output = model(values.clone(), **options)  # a model may change its input in place
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or "no message"
        raise InputError(
            f"expected the model to accept a batch of shape {shape} (batch, time, channel), got "
            f"{type(error).__name__}: {reason}; call the model on such a tensor to see where."
        ) from error
    require(
        isinstance(output, Tensor),
        "expected the model to return one tensor",
        f"got {type(output).__name__}",
        "wrap it in so.audits.adapt(model, output=lambda output: …), which takes the scores out",
    )
    batch, steps = shape[:2]
    found = tuple(output.shape)
    require(
        (len(found) == 2 and found[0] == batch) or (len(found) == 3 and found[:2] == (batch, steps)),
        f"expected the model to return ({batch}, out) or ({batch}, {steps}, out)",
        f"got {found}",
        "put the batch first",
    )
    require(output.is_floating_point(), "expected the model to return real numbers", f"got {output.dtype}")
    return output
