"""One step at a time without gradients: what weights give is computed once per stream, and the call is kept short."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sostenuto.ops.dispatch import runs_eagerly

Value = TypeVar("Value")


class StepCache:
    """What has been computed from a module's weights, for as long as the weights stay as they are.

    A weight counts as changed when it is another tensor, lies elsewhere in memory, or was written to in place. Writes
    through ``.data`` leave no trace; `clear`, at the start of every stream, sees them. Copies and pickles are empty.

    >>> cache = StepCache()
    >>> [cache.get("half", lambda: 0.5), cache.get("half", lambda: 0.25)]
    [0.5, 0.5]
    """

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.running = False
        self._owners: list[dict[str, Any]] = []
        self._seen: tuple[Any, ...] = ()

    def get(self, key: Any, compute: Callable[[], Value]) -> Value:
        """Return the value under a key, computed if there is none."""
        if key not in self.values:
            self.values[key] = compute()
        return self.values[key]

    def clear(self, module: nn.Module) -> None:
        """Forget everything, and take note of a module's weights."""
        self.values, self._owners = {}, [each._parameters for each in module.modules()]
        self._seen = self._versions()

    def check(self, module: nn.Module) -> None:
        """Forget everything where a weight has changed."""
        if not self._owners or self._versions() != self._seen:
            self.clear(module)

    def _versions(self) -> tuple[Any, ...]:
        weights = (weight for owner in self._owners for weight in owner.values() if weight is not None)
        return tuple((id(weight), weight._version, weight.data_ptr()) for weight in weights)

    def __reduce__(self) -> Any:
        """Be copied and pickled as an empty one."""
        return StepCache, ()


def can_shorten(layer: Any, input_t: Tensor, state: Any) -> bool:
    """Whether a step may leave out what a call does: no gradient, hook, dropout, autocast, or doubtful argument."""
    if torch.is_grad_enabled() or layer.bidirectional or not runs_eagerly(input_t):
        return False
    if _has_hooks(layer) or (layer.training and layer.dropout > 0) or torch.is_autocast_enabled(input_t.device.type):
        return False
    like = next(iter(layer._parameters.values()), None)
    if like is None or like.is_inference() or input_t.dtype != like.dtype or input_t.device != like.device:
        return False
    if input_t.ndim not in (1, 2) or input_t.shape[-1] != layer.input_size or input_t.numel() == 0:
        return False
    parts = () if state is None else (state,) if isinstance(state, Tensor) else state
    shape = (layer.num_layers, *input_t.shape[:-1], layer.hidden_size)
    fits = isinstance(parts, tuple) and len(parts) in (0, len(layer.state_names))
    return fits and all(
        isinstance(part, Tensor) and part.shape == shape and part.dtype == like.dtype and part.device == like.device
        for part in parts
    )


def short_step(layer: Any, input_t: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Advance one step by `RecurrentLayer.run` alone, with what weights give taken from the layer's cache."""
    cache: StepCache = layer._step_cache
    if state is None:
        cache.clear(layer)
    else:
        cache.check(layer)
    x, single = input_t.view(-1, layer.input_size), input_t.ndim == 1
    if state is None:
        parts = x.new_zeros(len(layer.state_names), layer.num_layers, len(x), layer.hidden_size).unbind()
    else:
        parts = (state,) if isinstance(state, Tensor) else state
        parts = tuple(part.unsqueeze(1) for part in parts) if single else parts
    cache.running = True
    try:
        output, after = layer.step_layers(x, parts) or _layer_by_layer(layer, x, parts)
    finally:
        cache.running = False
    if single:
        output, after = output[0], tuple(part.squeeze(1) for part in after)
    return output, after if len(after) > 1 else next(iter(after))


def _layer_by_layer(layer: Any, x: Tensor, parts: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    below, ends = [x[None]], []
    for index in range(layer.num_layers):
        output, end = layer.run(index, False, below, tuple(part[index] for part in parts), None, None)
        below.append(output)
        ends.append(end)
    columns = zip(*ends, strict=True)
    return below[-1][0], tuple(
        next(iter(column))[None] if len(ends) == 1 else torch.stack(column) for column in columns
    )


def _has_hooks(layer: nn.Module) -> bool:
    everywhere = nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks
    own = layer._forward_hooks, layer._forward_pre_hooks, layer._compiled_call_impl, "forward" in vars(layer)
    return any(map(bool, (*everywhere, *own)))
