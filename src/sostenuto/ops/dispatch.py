"""How a call of a compiled scan travels: straight through autograd, or as a registered operator."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack, is_legacy_batchedtensor

_PLAIN = {Tensor, torch.nn.Parameter}


def runs_eagerly(*values: object) -> bool:
    """Return True in plain eager mode (no compiler, exporter, tracer, functorch transform, fake tensor or subclass).

    They need the registered operator; its dispatch costs some 0.1 ms per step of training, which a short scan notices.

    >>> runs_eagerly(torch.ones(1), "tanh", None)
    True
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or in_trace():
        return False
    return not any(issubclass(kind, Tensor) for kind in {type(value) for value in values} - _PLAIN)


def in_trace() -> bool:
    """Whether `torch.jit.trace` records: it sees torch's own operators alone.

    >>> in_trace()
    False
    """
    return torch._C._get_tracing_state() is not None


def in_onnx_export() -> bool:
    """Whether a graph for ONNX is being made, which knows none of our operators.

    >>> in_onnx_export()
    False
    """
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()  # which takes imports: asked last


def in_forward_mode(*tensors: Tensor | None) -> bool:
    """Whether a forward-mode derivative is being taken: the compiled scans have none.

    >>> in_forward_mode(torch.ones(1), None)
    False
    """
    if torch.autograd.forward_ad._current_level < 0:  # no forward-mode level is open: no tensor has a tangent
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
    """Whether the reference must run: for derivatives in forward mode or by torch.func, in a trace, and for ONNX.

    >>> needs_reference(torch.ones(1), None)
    False
    """
    return in_trace() or in_onnx_export() or in_functional_derivative() or in_forward_mode(*tensors)


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


def run_adjoint(adjoint: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Run a compiled adjoint; where `torch.vmap` maps the gradients that arrive, one after the other.

    So `torch.autograd.functional.jacobian(..., vectorize=True)` and ``is_grads_batched=True`` have their rule.

    >>> torch.vmap(lambda d: run_adjoint(lambda d: (2 * d.sum(), None), d)[0])(torch.ones(3, 2)).tolist()
    [4.0, 4.0, 4.0]
    """
    if any(isinstance(value, Tensor) and is_legacy_batchedtensor(value) for value in arguments):
        return _run_legacy(adjoint, arguments)
    if runs_eagerly(*arguments):
        return tuple(adjoint(*arguments))
    return _Adjoint.apply(adjoint, *arguments)  # pyright: ignore[reportReturnType]


def _run_legacy(adjoint: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run under the map that ``is_grads_batched`` still is: not functorch's, and without rules of our own."""
    level = max(torch._C._vmapmode_increment_nesting() - 1, 1)  # a thread of a GPU does not know it
    torch._C._vmapmode_decrement_nesting()
    mapped = [isinstance(value, Tensor) and is_legacy_batchedtensor(value) for value in arguments]
    whole = [
        torch._remove_batch_dim(value, level, 0, 0) if maps else value  # pyright: ignore[reportPrivateImportUsage]
        for value, maps in zip(arguments, mapped, strict=True)
    ]
    size = next(value.shape[0] for value, maps in zip(whole, mapped, strict=True) if maps)
    results, _ = one_by_one(adjoint, size, [0 if maps else None for maps in mapped], whole)
    add = torch._add_batch_dim  # pyright: ignore[reportPrivateImportUsage]
    return tuple(None if result is None else add(result, 0, level) for result in results)


class _Adjoint(torch.autograd.Function):
    """A function of tensors that no transform can look into; it has no derivative."""

    @staticmethod
    def forward(adjoint: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
        """Run it as it is."""
        return tuple(adjoint(*arguments))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep nothing: gradients that are differentiated again are the reference's."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
        """Run once for each mapped element."""
        return one_by_one(run_adjoint, info.batch_size, in_dims, arguments)


def one_by_one(
    function: Callable[..., Any], size: int, in_dims: Sequence[Any], arguments: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
    """Run a function once for each element of a mapped axis; stack its results, as a rule for `torch.vmap` must."""
    runs = []
    for index in range(size):
        pairs = zip(arguments, in_dims, strict=True)
        runs.append(
            function(
                *(v.select(d, index).contiguous() if isinstance(v, Tensor) and d is not None else v for v, d in pairs)
            )
        )
    results = tuple(None if parts[0] is None else torch.stack(parts) for parts in zip(*runs, strict=True))
    return results, tuple(None if result is None else 0 for result in results)


def recorded_gradients(
    results: Sequence[Tensor], inputs: Sequence[Tensor | None], arriving: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Differentiate results, keeping the graph, so that the gradient can be differentiated again."""
    used = [(result, d) for result, d in zip(results, arriving, strict=True) if d is not None]
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    roots, weights = zip(*used, strict=True)
    gradients = iter(torch.autograd.grad(roots, wanted, weights, create_graph=True, allow_unused=True))
    return [next(gradients) if tensor is not None and tensor.requires_grad else None for tensor in inputs]
