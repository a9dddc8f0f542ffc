"""What a call of a layer may be given: one rule for every layer, and one sentence for what breaks it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from sostenuto.checks import InputError, require, sentence

_NAMES = ("input", "state", "timespans")


def check_tensor(name: str, value: Any, like: Tensor) -> None:
    """Refuse what is not a tensor of the layer's own dtype and device; ``like`` is one of the layer's weights.

    Under autocast every floating-point dtype is accepted.

    >>> check_tensor("input", torch.zeros(3, dtype=torch.float64), torch.zeros(1))
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected input of the layer's torch.float32, got torch.float64; convert the tensor by
    .to(torch.float32), or the layer by .to(torch.float64).
    """
    dtype, device = like.dtype, like.device
    if not isinstance(value, (Tensor, PackedSequence)):
        made = f"torch.as_tensor(…, dtype={dtype}) makes one"
        hint = "leave the state out to start from 0" if value is None else made
        raise InputError(sentence(f"expected {name} to be a tensor", f"got {type(value).__name__}", hint))
    data: Any = value.data if isinstance(value, PackedSequence) else value
    if data.is_nested or data.layout is not torch.strided:
        kind = "nested" if data.is_nested else "sparse"
        hint = "pad it, or use pack_sequence" if data.is_nested else "call .to_dense()"
        raise InputError(sentence(f"expected {name} to be a dense tensor", f"got a {kind} one", hint))
    if data.device != device:
        hint = f"move the tensor by .to({str(device)!r}), or the layer"
        raise InputError(sentence(f"expected {name} on {device}, where the layer is", f"got {data.device}", hint))
    if data.dtype != dtype and not (data.is_floating_point() and torch.is_autocast_enabled(device.type)):
        hint = f"convert the tensor by .to({dtype})"
        hint += f", or the layer by .to({data.dtype})" if data.is_floating_point() else ""
        hint = "give real and imaginary parts as two channels" if data.is_complex() else hint
        raise InputError(sentence(f"expected {name} of the layer's {dtype}", f"got {data.dtype}", hint))


def given_state(state: Any, hx: Any, names: tuple[str, ...], like: Tensor) -> Any:
    """Return the state of a call, under this library's name or torch's, ``hx``; refuse parts that are not tensors."""
    require(state is None or hx is None, "expected one initial state", "got state and hx", "hx is torch's name for it")
    state = hx if state is None else state
    if state is None:
        return None
    if not isinstance(state, (Tensor, tuple, list)):
        raise InputError(sentence("expected state to be a tensor or a tuple of them", f"got {type(state).__name__}"))
    parts = (state,) if isinstance(state, Tensor) else tuple(state)
    if len(parts) != len(names):
        wanted = "one part" if len(names) == 1 else f"{len(names)} parts"
        raise InputError(sentence(f"expected a state of {wanted} ({', '.join(names)})", f"got {len(parts)}"))
    for name, part in zip(names, parts, strict=True):
        check_tensor(f"the state's {name}", part, like)
    return parts[0] if len(parts) == 1 else parts


def named_arguments(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Name what a call of a recurrent layer, torch's or this library's, was given.

    >>> named_arguments((1, 2), {"timespans": 3}), named_arguments((1,), {"hx": 2})
    ({'input': 1, 'state': 2, 'timespans': 3}, {'input': 1, 'state': 2})
    """
    named = dict(zip(_NAMES, args, strict=False)) | options
    return {("state" if name == "hx" else name): value for name, value in named.items() if value is not None}
