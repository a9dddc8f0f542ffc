"""Layers on a fused scan: one op over all time where the recurrence allows it, a loop over steps where it does not."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.checks import check_choice, require
from sostenuto.nn.base import Below, Lengths, Parts, Ran, RecurrentLayer, Spans
from sostenuto.ops.backend import BACKENDS
from sostenuto.ops.step import Step, step_scan

Run = Callable[[Float[Tensor, "T B G"], Float[Tensor, "B S"]], Float[Tensor, "T B S"]]


def states_at_ends(states: Float[Tensor, "T B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """Take every sequence's state at its own last step; what lies beyond it gets no gradient.

    >>> states_at_ends(torch.arange(6.0).reshape(3, 2, 1), torch.tensor([1, 3])).flatten().tolist()
    [0.0, 5.0]
    """
    index = (lengths - 1)[None, :, None].expand(1, -1, states.shape[-1])
    return states.gather(0, index)[0]


def run_ragged(
    run: Run, drive: Float[Tensor, "T B G"], start: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"]]:
    """Run a scan over a padded block, and return its states, and each sequence's at its own end.

    The scan runs on into the padding, where nothing reads it. Only where it overflows there (and a zero gradient times
    infinity would be NaN) is it done again stretch by stretch, with the sequences that are still running.
    """
    states = run(drive, start)
    if bool(torch.isfinite(states).all()):
        return states, states_at_ends(states, lengths)
    return run_by_stretches(run, drive, start, lengths)


def run_by_stretches(
    run: Run, drive: Float[Tensor, "T B G"], start: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"]]:
    """Run a scan from one sequence's end to the next, never into the padding, which is left zero.

    >>> add = lambda drive, start: start + drive.cumsum(0)
    >>> states, ends = run_by_stretches(add, torch.ones(3, 2, 1), torch.zeros(2, 1), torch.tensor([1, 3]))
    >>> states[..., 0].tolist(), ends.flatten().tolist()
    ([[1.0, 1.0], [0.0, 2.0], [0.0, 3.0]], [1.0, 3.0])
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    falling = lengths[order].tolist()
    drive, now = drive.index_select(1, order), start.index_select(0, order)
    begin, pieces, ends = 0, [], []
    for stop in sorted(set(falling)):
        running = sum(length >= stop for length in falling)
        piece = run(drive[begin:stop, :running], now)
        pieces.append(F.pad(piece, (0, 0, 0, len(falling) - running)))
        still = sum(length > stop for length in falling)
        ends.append(piece[-1, still:])
        begin, now = stop, piece[-1, :still]
    pieces.append(drive.new_zeros(drive.shape[0] - begin, *start.shape, dtype=start.dtype))
    back = torch.argsort(order)
    return torch.cat(pieces).index_select(1, back), torch.cat(ends[::-1]).index_select(0, back)


class FusedLayer(RecurrentLayer):
    """Drive, states and ends around a scan that gives every state; a subclass names the scan in `trajectory`.

    ``backend_used`` says what the last call ran on: ``"scan"``, the fused op, or ``"steps"``, the plain loop over
    `advance`, which serves gates, integrators of several stages, and time spans. Lengths are not time spans: packed
    sequences run on the scan.
    """

    backend = "auto"
    backend_used: str = ""
    fused: bool = True
    """Whether the recurrence as it was built has a fused scan at all."""

    @abstractmethod
    def trajectory(
        self, layer: int, reverse: bool, entering: Float[Tensor, "T B _"], start: Float[Tensor, "B S"]
    ) -> Float[Tensor, "T B S"]:
        """Run the fused scan over all time on what `enter` gives; components of a state stand side by side."""

    def enter(self, layer: int, reverse: bool, below: Below, lengths: Lengths) -> Float[Tensor, "T B _"]:
        """Return what `trajectory` reads: the drive."""
        return self.drive(layer, reverse, below, lengths)

    def advance(self, layer: int, reverse: bool) -> Step:
        """Return the step (drive, state, span) → state for the loop, with the weights read once."""
        raise NotImplementedError(f"layer {layer} ({reverse=}) of {type(self).__name__} has no loop of steps")

    def drive(
        self,
        layer: int,
        reverse: bool,
        below: list[Float[Tensor, "*batch _"]],
        lengths: Lengths = None,  # noqa: ARG002
    ) -> Float[Tensor, "*batch G"]:
        """Project the input, V u + b, in one product over all time."""
        return F.linear(below[-1], *self.input_map(layer, reverse))

    def input_map(self, layer: int, reverse: bool) -> tuple[Float[Tensor, "G _"], Float[Tensor, " G"] | None]:
        """Return V and b, if there is one."""
        return self.weight("weight_ih", layer, reverse), self.weight("bias_ih", layer, reverse) if self.bias else None

    def emit(
        self,
        layer: int,  # noqa: ARG002
        reverse: bool,  # noqa: ARG002
        below: Below,  # noqa: ARG002
        states: Float[Tensor, "T B S"],
        start: Float[Tensor, "B S"],  # noqa: ARG002
    ) -> Float[Tensor, "T B H"]:
        """Turn states into outputs: the first component."""
        return states[..., : self.hidden_size]

    def run(self, layer: int, reverse: bool, below: Below, state: Parts, timespans: Spans, lengths: Lengths) -> Ran:
        """Take the fused scan unless the recurrence or real time spans ask for the loop."""
        if not self.fused or (timespans is not None and lengths is None):
            self.record("steps")
            return self.walk(layer, reverse, self.drive(layer, reverse, below, lengths), state, timespans)
        self.record("scan")
        entering, start = self.enter(layer, reverse, below, lengths), torch.cat(state, dim=-1)

        def run(entering: Tensor, start: Tensor) -> Tensor:
            return self.trajectory(layer, reverse, entering, start)

        if lengths is None:
            states = run(entering, start)
            end = states[-1]
        else:
            states, end = run_ragged(run, entering, start, lengths)
        return self.emit(layer, reverse, below, states, start), end.chunk(len(state), dim=-1)

    def walk(self, layer: int, reverse: bool, drive: Float[Tensor, "T B G"], state: Parts, timespans: Spans) -> Ran:
        """Loop over steps; a span of 0 leaves the state as it is."""
        return step_scan(drive, state, self.advance(layer, reverse), timespans=timespans)

    def record(self, used: str) -> None:
        """Keep which way a call went, and refuse the loop where a compiled backend was asked for."""
        hint = "pass backend='auto' or 'reference'"
        compiled = used == "steps" and self.backend in ("cpu", "gpu")
        require(not compiled, f"expected a recurrence that the backend {self.backend!r} has", "got one of steps", hint)
        if not torch.compiler.is_compiling():
            self.backend_used = used


def check_backend(backend: Any) -> str:
    """Refuse an unknown backend."""
    check_choice("backend", backend, BACKENDS)
    return backend
