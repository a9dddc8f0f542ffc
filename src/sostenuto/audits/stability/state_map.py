"""Any recurrence as a map h ← f(h, x) in float64, with its Jacobian: a layer, a torch cell or a plain function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.model import still_copy
from sostenuto.checks import InputError, require
from sostenuto.nn.base import Contract

BatchedMap = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class StateMap:
    """A recurrence on flat states: ``advance(h, x)`` and ``jacobian(h, x)`` for a batch of them, in float64.

    The components and layers of a state stand side by side. ``layer`` is the module it was made from, if any, and
    ``begin(x)`` its state after the first input, where it begins by itself.
    """

    name: str
    state_size: int
    input_size: int
    advance: BatchedMap
    jacobian: BatchedMap
    layer: nn.Module | None = None
    begin: Callable[[Tensor], Tensor] | None = None

    def carry(
        self, h: Float[Tensor, "batch state"], x: Float[Tensor, "batch channel"], frame: Float[Tensor, "batch state k"]
    ) -> Float[Tensor, "batch state k"]:
        """Multiply directions by the Jacobian: from products alone where they are few beside the state.

        A product with a direction is the derivative of the backward pass, which is linear in what it is given. A
        fused step without a second derivative is differentiated as a whole.
        """
        size, columns = frame.shape[1:]
        if 4 * columns <= size:
            try:
                return self._products(h, x, frame)
            except (RuntimeError, NotImplementedError):  # no derivative of the step's backward pass
                pass
        return self.jacobian(h, x) @ frame

    def _products(self, h: Tensor, x: Tensor, frame: Tensor) -> Tensor:
        columns = frame.shape[2]
        states = h.detach().repeat_interleave(columns, 0).requires_grad_()
        with torch.enable_grad():
            moved = self.advance(states, x.repeat_interleave(columns, 0))
            given = torch.zeros_like(moved, requires_grad=True)
            (back,) = torch.autograd.grad(moved, states, given, create_graph=True)
            directions = frame.transpose(1, 2).reshape(back.shape)
            (products,) = torch.autograd.grad(back, given, directions)
        return products.unflatten(0, (len(h), columns)).transpose(1, 2)


def is_recurrent(module: nn.Module) -> bool:
    """Say whether a module's state can be stepped: one of this library's layers, torch's, or one with a `step`."""
    known = isinstance(module, (Contract, nn.RNNBase, nn.RNNCellBase))
    return known or (callable(getattr(module, "step", None)) and hasattr(module, "input_size"))


def find_recurrence(model: nn.Module) -> nn.Module:
    """Find the one recurrent layer in a model, or the model itself; refuse none or several.

    >>> find_recurrence(nn.Sequential(nn.Linear(2, 3), nn.Tanh()))
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected a model with one recurrent layer, whose state can be followed, got 0 in
    Sequential; pass the recurrent layer itself, or its step as a function f(h, x).
    """
    if is_recurrent(model):
        return model
    found: list[nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        if id(module) not in inside and is_recurrent(module):
            found.append(module)
            inside.update(id(part) for part in module.modules())
    require(
        len(found) == 1,
        "expected a model with one recurrent layer, whose state can be followed",
        f"got {len(found)} in {type(model).__name__}",
        "pass the recurrent layer itself, or its step as a function f(h, x)",
    )
    return found[0]


def map_of_function(step: Callable[[Tensor, Tensor], Tensor], state_size: int, input_size: int) -> StateMap:
    """Wrap a function of one state ``(state,)`` and one input ``(channel,)``; torch.func maps and differentiates it."""

    def checked(h: Tensor, x: Tensor) -> Tensor:
        moved = step(h, x)
        good = isinstance(moved, Tensor) and moved.shape == h.shape
        shape = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved).__name__
        require(good, f"expected f(h, x) to return a state of shape {tuple(h.shape)}", f"got {shape}")
        return moved

    name = getattr(step, "__name__", type(step).__name__)
    advance, jacobian = torch.func.vmap(checked), torch.func.vmap(torch.func.jacrev(checked))
    return StateMap("f" if name == "<lambda>" else name, state_size, input_size, advance, jacobian)


def map_of_layer(layer: nn.Module, num_steps: int | None = None) -> StateMap:
    """Turn a recurrent layer into a map of its flat state; the layer itself is copied and left as it was.

    A layer whose step size is 1/T takes that of ``num_steps``, where it is known.

    >>> found = map_of_layer(nn.LSTM(2, 3))
    >>> found.state_size, found.jacobian(torch.zeros(5, 6).double(), torch.zeros(5, 2).double()).shape
    (6, torch.Size([5, 6, 6]))
    """
    name = type(layer).__name__.removeprefix("Parametrized")
    require(
        not getattr(layer, "bidirectional", False), "expected a one-directional layer", f"got a bidirectional {name}"
    )
    still = still_copy(layer)
    if num_steps is not None and getattr(still, "step_size", 0) is None:
        still.step_size = 1 / num_steps  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    input_size = int(still.input_size)  # pyright: ignore[reportArgumentType]
    step = _stepper(still)
    try:
        with torch.no_grad():
            first = step(torch.zeros(1, input_size, dtype=torch.float64), None)
    except InputError:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or "no message"
        raise InputError(f"expected {name} to take one step, got {type(error).__name__}: {reason}.") from error
    parts = (first,) if isinstance(first, Tensor) else tuple(first)
    layout = _Layout(tuple(tuple(part.shape) for part in parts), isinstance(first, Tensor))

    def advance(h: Tensor, x: Tensor) -> Tensor:
        return layout.flat(step(x, layout.parts(h)))

    def begin(x: Tensor) -> Tensor:
        return layout.flat(step(x, None))

    return StateMap(name, layout.size, input_size, advance, _by_rows(advance), layer, begin)


@dataclass(frozen=True)
class _Layout:
    """How a flat state lies in the tensors a layer wants: ``(layer, batch, hidden)``, or ``(batch, hidden)``."""

    shapes: tuple[tuple[int, ...], ...]
    alone: bool

    @property
    def sizes(self) -> list[int]:
        return [torch.Size(shape).numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def parts(self, h: Float[Tensor, "batch state"]) -> Any:
        found = []
        for piece, shape in zip(h.split(self.sizes, dim=1), self.shapes, strict=True):
            if len(shape) == 2:
                found.append(piece)
            else:
                found.append(piece.unflatten(1, (shape[0], shape[-1])).transpose(0, 1).contiguous())
        return found[0] if self.alone else tuple(found)

    def flat(self, state: Any) -> Float[Tensor, "batch state"]:
        parts = (state,) if isinstance(state, Tensor) else state
        return torch.cat([part if part.ndim == 2 else part.transpose(0, 1).flatten(1) for part in parts], dim=1)


def _stepper(layer: nn.Module) -> Callable[[Tensor, Any], Any]:
    """Give the function (input, state) → state of a layer."""
    if isinstance(layer, nn.RNNCellBase):
        return lambda x, state: layer(x, state)
    if isinstance(layer, nn.RNNBase) and not isinstance(layer, Contract):
        axis = 1 if layer.batch_first else 0
        return lambda x, state: layer(x.unsqueeze(axis), state)[1]
    return lambda x, state: layer.step(x, state)[1]  # pyright: ignore[reportCallIssue]


def _by_rows(advance: BatchedMap) -> BatchedMap:
    """Differentiate a batched map: one copy of each state for each row of its Jacobian, one backward pass for all.

    Fused kernels have no vmap of their own, and need none this way.
    """

    def jacobian(h: Float[Tensor, "batch state"], x: Float[Tensor, "batch channel"]) -> Tensor:
        batch, size = h.shape
        copies = h.detach().repeat_interleave(size, 0).requires_grad_()
        with torch.enable_grad():
            moved = advance(copies, x.repeat_interleave(size, 0))
            picked = moved.unflatten(0, (batch, size)).diagonal(dim1=1, dim2=2).sum()
        return torch.autograd.grad(picked, copies)[0].unflatten(0, (batch, size))

    return jacobian
