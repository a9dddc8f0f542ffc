"""Weights that are images of free ones: registered, read, pickled, and guarded against writes that would be lost."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_map_only

from sostenuto.checks import InputError, sentence
from sostenuto.ops.dispatch import runs_eagerly


class ConstrainedWeight(Tensor):
    """A constrained weight as ``layer.weight_hh_l0`` gives it: a tensor that refuses to be written in place.

    It is computed from a free parameter at every reading, so what is written into it would be lost. Whatever is
    computed from it is an ordinary tensor; its views refuse too.

    >>> from sostenuto.nn import ExpRNN
    >>> layer = ExpRNN(1, 4)
    >>> nn.init.zeros_(layer.weight_hh_l0)
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected a constrained weight to be replaced as a whole, got a write in place, which
    would be lost: the weight is computed from a free parameter; assign it: layer.weight_hh_l0 = value.
    """

    weight_name: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function as on an ordinary tensor; raise where it wrote into a constrained one."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if torch.compiler.is_compiling():  # a graph knows no count of writes
                return func(*args, **kwargs)
            weights = [value for value in (*args, *kwargs.values()) if isinstance(value, cls)]
            writes = [weight._version for weight in weights]
            result = func(*args, **kwargs)
            for weight, before in zip(weights, writes, strict=True):
                # `layer.weight *= 2` is not lost: Python assigns what `__imul__` gives.
                if weight._version != before and not func.__name__.startswith("__i"):
                    raise InputError(_sentence(weight.weight_name))
            return tree_map_only(Tensor, lambda tensor: _guarded_view(tensor, weights), result)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Be stored as an ordinary tensor."""
        return self.as_subclass(Tensor).__reduce_ex__(protocol)


def _sentence(name: str) -> str:
    got = "got a write in place, which would be lost: the weight is computed from a free parameter"
    return sentence("expected a constrained weight to be replaced as a whole", got, f"assign it: layer.{name} = value")


def _guarded_view(result: Tensor, weights: Sequence[ConstrainedWeight]) -> Tensor:
    """Return a result as it is, or guarded where it shows a weight's own memory."""
    if result.layout is not torch.strided or not runs_eagerly():
        return result
    memory = result.untyped_storage()._cdata
    name = next((weight.weight_name for weight in weights if weight.untyped_storage()._cdata == memory), None)
    return result if name is None else _guarded(result, name)


def _guarded(weight: Tensor, name: str) -> Tensor:
    """Guard a tensor, unless it is a transform's, or one of inference mode, which counts no writes."""
    if not runs_eagerly() or weight.is_inference():
        return weight
    guarded = weight.as_subclass(ConstrainedWeight)
    guarded.weight_name = name
    return guarded


class _Guard(property):
    """torch's property of a parametrized tensor, with what it gives guarded; ``read`` gives it plain."""

    def __init__(self, read: property, name: str) -> None:
        super().__init__(lambda layer: _guarded(read.fget(layer), name), read.fset)  # pyright: ignore[reportOptionalCall]
        self.read = read.fget


class ConstrainedModule(nn.Module):
    """A module whose constrained weights can be pickled, and refuse writes in place."""

    def constrain_parameter(self, name: str, constraint: nn.Module) -> None:
        """Let the parameter ``name`` be the image of a free one under ``constraint``."""
        parametrize.register_parametrization(self, name, constraint)
        setattr(type(self), name, _Guard(self.related(name, getattr(type(self), name)), name))

    def related(self, name: str, constrained: property) -> property:  # noqa: ARG002
        """Return the property of a constrained parameter; a subclass may relate it to another parameter."""
        return constrained

    def read_parameter(self, name: str) -> Tensor:
        """Return a parameter as a plain tensor; a constrained one comes constrained."""
        guard = None if torch.compiler.is_compiling() else type(self).__dict__.get(name)
        return guard.read(self) if isinstance(guard, _Guard) else getattr(self, name)  # pyright: ignore[reportOptionalCall]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Name the class behind the one that torch makes for a parametrized module, which no pickle can find."""
        if not parametrize.is_parametrized(self):
            return super().__reduce_ex__(protocol)
        return _hollow, (type(self).__bases__[0], tuple(self.parametrizations)), self.__dict__  # pyright: ignore[reportArgumentType]


def _hollow(cls: type[ConstrainedModule], names: tuple[str, ...]) -> ConstrainedModule:
    """Make a module whose class knows its constrained weights, and which waits for its state."""
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    for name in names:
        module.register_parameter(name, nn.Parameter(torch.empty(0)))
        module.constrain_parameter(name, nn.Identity())
    return module
