"""How a call of a compiled scan travels: straight through autograd, or as a registered operator."""

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack

_PLAIN = {Tensor, torch.nn.Parameter}


def runs_eagerly(*values: object) -> bool:
    """Whether nothing looks on: no compiler, exporter, fake tensor, tensor subclass or functorch transform.

    They need the registered operator; its dispatch costs some 0.1 ms a step of training, which a short scan notices.

    >>> runs_eagerly(torch.ones(1), "tanh", None)
    True
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return not any(issubclass(kind, Tensor) for kind in {type(value) for value in values} - _PLAIN)


def in_forward_mode(*tensors: Tensor | None) -> bool:
    """Whether a forward-mode derivative is being taken: the compiled scans have none.

    >>> in_forward_mode(torch.ones(1), None)
    False
    """
    if torch.autograd.forward_ad._current_level < 0:  # nobody has begun one, so that no tensor need be looked at
        return False
    unpack = torch.autograd.forward_ad.unpack_dual
    return any(tensor is not None and unpack(tensor).tangent is not None for tensor in tensors)


def in_functional_derivative() -> bool:
    """Whether torch.func differentiates (grad, vjp, jacrev, jvp, hessian): no registered operator can follow it there.

    `torch.func.vmap` alone is not meant: the operators have rules for it.

    >>> in_functional_derivative(), torch.func.grad(lambda x: x * in_functional_derivative())(torch.tensor(2.0)).item()
    (False, 1.0)
    """
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return False
    return any(level.key() in (TransformType.Grad, TransformType.Jvp) for level in get_interpreter_stack() or ())


def needs_reference(*tensors: Tensor | None) -> bool:
    """Whether a derivative is taken that the compiled scans do not have: in forward mode, or by torch.func.

    >>> needs_reference(torch.ones(1), None)
    False
    """
    return in_functional_derivative() or in_forward_mode(*tensors)


def folded(tensor: Tensor, dim: int | None, size: int, axis: int) -> Tensor:
    """Bring a mapped axis in front of ``axis`` and join the two; repeat what is not mapped.

    >>> folded(torch.zeros(4, 3), None, 2, 0).shape
    torch.Size([8, 3])
    """
    moved = (
        tensor.unsqueeze(axis).expand(*tensor.shape[:axis], size, *tensor.shape[axis:])
        if dim is None
        else tensor.movedim(dim, axis)
    )
    return moved.flatten(axis, axis + 1)
