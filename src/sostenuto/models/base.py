"""What every model is: a recurrent layer, and a read-out on top of its states."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sostenuto.checks import check_choice, check_count, require
from sostenuto.choices import Readout
from sostenuto.nn.base import Contract
from sostenuto.types import Lengths, Sequences, Timespans


def pool(
    states: Float[Tensor, "batch time feature"],
    lengths: Lengths | None,
    readout: Readout,
    *,
    bidirectional: bool = False,
) -> Float[Tensor, "batch feature"]:
    """Reduce ``states`` over the true steps of each sequence.

    ``"last"`` takes the state where each pass ends: the last step forwards and, for a bidirectional layer, the first
    step of the second half of the features, which has read the sequence backwards.

    >>> states = torch.tensor([[[1.0], [5.0], [9.0]]])
    >>> [pool(states, torch.tensor([2]), how).item() for how in ("last", "mean", "max")]
    [5.0, 3.0, 5.0]
    """
    check_choice("readout", readout, get_args(Readout))
    if readout == "last":
        return _last(states, lengths, bidirectional)
    from sostenuto.ops.oscillator import time_max

    if lengths is None:
        return states.mean(1) if readout == "mean" else time_max(states)
    outside = torch.arange(states.shape[1], device=states.device)[None, :, None] >= lengths[:, None, None]
    if readout == "mean":
        return states.masked_fill(outside, 0.0).sum(1) / lengths[:, None]
    return time_max(states.masked_fill(outside, -torch.inf))


def _last(states: Tensor, lengths: Tensor | None, bidirectional: bool) -> Tensor:
    if lengths is None:
        last = states[:, -1]
    else:
        index = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
        last = states.gather(1, index)[:, 0]
    if not bidirectional:
        return last
    half = states.shape[2] // 2
    return torch.cat([last[:, :half], states[:, 0, half:]], dim=-1)


STREAM_WINDOW = 1 << 15
"""Steps that are read at a time where a longer sequence is predicted."""


class SequenceModel(nn.Module):
    """A batch-first recurrent layer run over padded sequences; subclasses add the read-out.

    `gradient_window` truncates back-propagation through time in training mode: the sequence is cut into windows of so
    many steps, counted from its end, and no gradient crosses a border. None (the default) lets it flow all the way. The
    end is that of the padded batch, and dropout between layers draws a mask for each window.

    `packs` False runs a layer of one direction on padded sequences as they are: what comes after an end is not looked
    at, and the lengths need not be read from the device. `readout_dropout` acts on what the read-out sees.

    UnICORNN reads a time span that is longer than its `longest_span` as one of that length, in training and after:
    a longer step would make its oscillators diverge.
    """

    softmax: ClassVar[bool] = False
    """Whether the answers are probabilities, the softmax of the scores."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        require(layer.batch_first, "expected a layer with batch_first=True", "got batch_first=False")
        self.layer = layer
        self.gradient_window: int | None = None
        self.packs = True
        self.readout_dropout = 0.0

    def states(
        self,
        values: Sequences,
        lengths: Lengths | None = None,
        timespans: Timespans | None = None,
        *,
        only_last: bool = False,
    ) -> Float[Tensor, "batch time feature"]:
        """Run the layer; states past a sequence's own length carry no meaning.

        ``only_last`` says that the read-out looks at the very last step alone, so that truncated gradients need no
        graph of the windows before it.
        """
        timespans = self._stable(timespans)
        if self.training and self.gradient_window is not None:
            return self._truncated(values, timespans, only_last and lengths is None)
        spans = {} if timespans is None else {"timespans": timespans}
        if lengths is None or not (self.packs or self.layer.bidirectional):
            return self.layer(values, **spans)[0]
        on_cpu = lengths.cpu()
        packed = pack_padded_sequence(values, on_cpu, batch_first=True, enforce_sorted=False)
        if timespans is not None:
            spans = {"timespans": pack_padded_sequence(timespans, on_cpu, batch_first=True, enforce_sorted=False)}
        output, _ = self.layer(packed, **spans)
        return pad_packed_sequence(output, batch_first=True, total_length=values.shape[1])[0]

    def pooled(
        self, values: Sequences, lengths: Lengths | None, timespans: Timespans | None, readout: Readout
    ) -> Float[Tensor, "batch feature"]:
        """Run the layer and reduce its states as `pool` does, with dropout where there is any.

        A layer that tracks its maximum returns that alone, one that saves memory its last state alone.
        """
        pooled = self._pooled(values, lengths, timespans, readout)
        return nn.functional.dropout(pooled, self.readout_dropout, self.training) if self.readout_dropout else pooled

    def streams(self, values: Sequences, lengths: Lengths | None) -> bool:
        """Whether sequences are read in windows of `STREAM_WINDOW` steps, the state carried from one to the next.

        Done where no gradient is wanted, so that memory does not grow with their length; a layer that reads backwards,
        or whose step depends on the length, and one with hooks are run on the whole.
        """
        layer = self.layer
        parts = layer.modules() if isinstance(layer, nn.Module) else ()
        return (
            values.shape[1] > STREAM_WINDOW
            and lengths is None
            and not (self.training or torch.is_grad_enabled() or layer.bidirectional)
            and all(getattr(part, "step_size", 1.0) is not None for part in parts)
            and not getattr(layer, "_forward_hooks", None)
        )

    def windows(self, values: Sequences, timespans: Timespans | None) -> Iterator[Float[Tensor, "batch time feature"]]:
        """Yield the states of one window after another."""
        timespans, state = self._stable(timespans), None
        for start in range(0, values.shape[1], STREAM_WINDOW):
            part = slice(start, start + STREAM_WINDOW)
            spans = {} if timespans is None else {"timespans": timespans[:, part]}
            output, state = self.layer(values[:, part], state, **spans)
            yield output

    def _streamed(self, values: Tensor, timespans: Tensor | None, readout: Readout) -> Tensor:
        """Pool over windows: the last one's last, the mean weighted by their lengths, or the largest of all."""
        pooled = torch.zeros(())
        for number, states in enumerate(self.windows(values, timespans)):
            part = pool(states, None, readout)
            if readout == "mean":
                part = part * (states.shape[1] / values.shape[1])
            if number and readout == "mean":
                pooled = pooled + part
            elif number and readout == "max":
                pooled = torch.maximum(pooled, part)
            else:
                pooled = part
        return pooled

    def _pooled(self, values: Tensor, lengths: Tensor | None, timespans: Tensor | None, readout: Readout) -> Tensor:
        if self.streams(values, lengths):
            return self._streamed(values, timespans, readout)
        whole = lengths is None and not (self.training and self.gradient_window is not None)
        if readout == "max" and whole and hasattr(self.layer, "peak"):
            return self.layer.peak(values, timespans=self._stable(timespans))
        saves = hasattr(self.layer, "final_state") and self.layer.memory == "recompute"
        if readout == "last" and whole and saves and not self.layer.bidirectional:
            return self.layer.final_state(values, timespans=self._stable(timespans))[0][-1]
        states = self.states(values, lengths, timespans, only_last=readout == "last")
        return pool(states, lengths, readout, bidirectional=self.layer.bidirectional)

    def _stable(self, timespans: Timespans | None) -> Timespans | None:
        if timespans is None or not isinstance(self.layer, Contract):
            return timespans
        longest = self.layer.longest_span()
        return timespans if longest is None else torch.minimum(timespans, longest.to(timespans))

    def _truncated(self, values: Tensor, timespans: Tensor | None, only_last: bool) -> Tensor:
        window = self.gradient_window or values.shape[1]
        check_count("gradient_window", window)
        fixed_step = getattr(self.layer, "step_size", 1.0) is not None
        require(not self.layer.bidirectional, "expected one direction for truncated gradients", "got two")
        require(fixed_step, "expected a fixed step_size for truncated gradients", "got 1/T of the whole sequence")
        steps, state, outputs = values.shape[1], None, []
        first = steps % window or window
        borders = [0, *range(first, steps + 1, window)]
        for start, stop in pairwise(borders):
            spans = {} if timespans is None else {"timespans": timespans[:, start:stop]}
            with torch.set_grad_enabled(torch.is_grad_enabled() and (stop == steps or not only_last)):
                output, state = self.layer(values[:, start:stop], state, **spans)
            state = state.detach() if isinstance(state, Tensor) else tuple(part.detach() for part in state)
            outputs.append(output)
        return torch.cat(outputs, dim=1)


def linear_head(inputs: int, outputs: int) -> nn.Linear:
    """Make a linear read-out with Kaiming-normal weights and zero bias (rusch2021, appendix A)."""
    head = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(head.weight)
    nn.init.zeros_(head.bias)
    return head
