"""torch's own LSTM, GRU and RNN under the shared contract."""

from typing import Any

import torch

from sostenuto.checks import check_flag, require
from sostenuto.nn.base import Contract, check_sizes
from sostenuto.nn.certificates import MemoryCertificate
from sostenuto.nn.certified import GATED
from sostenuto.nn.map_memory import CertifiedMap, Ends, map_memory


class _TorchUnit(Contract):
    """Adds `step` and a clear word about time spans to a torch layer; weights and kernels stay torch's."""

    continuous = False
    proj_size: int

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *args: Any, **options: Any) -> None:
        check_sizes(input_size, hidden_size, num_layers)
        check_flag("bidirectional", options.get("bidirectional", False))
        if not isinstance(self, torch.nn.LSTM):  # torch's own refuse even 0 there
            hint = "take sostenuto.nn.LSTM, or put a torch.nn.Linear behind the layer"
            projected = options.pop("proj_size", 0)
            require(projected == 0, f"expected no proj_size for {type(self).__name__}", f"got {projected!r}", hint)
        super().__init__(input_size, hidden_size, num_layers, *args, **options)  # pyright: ignore[reportCallIssue]

    @property
    def output_size(self) -> int:
        """Features of the output at every step: with ``proj_size`` those of the projection."""
        return (self.proj_size or self.hidden_size) * self.num_directions

    def forward(self, input: Any, state: Any = None, timespans: Any = None, *, hx: Any = None) -> tuple[Any, Any]:
        """Call torch's layer; ``timespans`` has no meaning for a discrete map and is refused."""
        state = self._check_call(input, state, hx, timespans)
        return super().forward(input, state)  # pyright: ignore[reportAttributeAccessIssue]


class LSTM(_TorchUnit, torch.nn.LSTM):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`torch.nn.LSTM` with `step` for streaming; constructor, weights and state (h, c) are torch's.

    ``dropout`` is torch's too: drawn anew at every step, where this library's own layers keep one mask per sequence.

    >>> layer = LSTM(2, 4)
    >>> output, (h, c) = layer(torch.zeros(5, 3, 2))
    >>> one, (h, c) = layer.step(torch.zeros(3, 2), (h, c))
    >>> output.shape, one.shape
    (torch.Size([5, 3, 4]), torch.Size([3, 4]))
    """

    state_names = ("h", "c")
    no_memory_proof = GATED


class GRU(_TorchUnit, torch.nn.GRU):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`torch.nn.GRU` with `step` for streaming; constructor, weights and state h are torch's."""

    no_memory_proof = GATED


class RNN(_TorchUnit, torch.nn.RNN):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`torch.nn.RNN` (tanh or relu) with `step` for streaming; constructor, weights and state h are torch's."""

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        maps: list[list[Ends]] = [[] for _ in range(self.num_layers)]
        for place, (entering, weight, *_) in enumerate(self.all_weights):
            eye = torch.eye(len(weight), dtype=weight.dtype)
            unit = CertifiedMap(torch.zeros_like(weight), weight, eye, entering, self.nonlinearity, self.hidden_size)
            maps[place // self.num_directions].append(Ends(unit, unit))
        return map_memory(maps, spans, drive, passes=True)
