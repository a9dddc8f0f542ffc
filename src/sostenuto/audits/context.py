"""What a check of an audit works with: the model, the data within a budget, and how the user describes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from sostenuto.audits.batches import EvalBatch
from sostenuto.audits.clock import clock_of
from sostenuto.audits.model import audited
from sostenuto.audits.stability.carried import bypassed, share_carried
from sostenuto.audits.stability.state_map import find_recurrence
from sostenuto.checks import InputError
from sostenuto.report.numbers import duration
from sostenuto.types import Sequences


class Budget(NamedTuple):
    """How much each check may do."""

    sequences: int
    horizon: int
    steps: int
    exponents: int
    noise_draws: int
    attack_steps: int
    restarts: int
    probes: int
    weight_draws: int
    answers: int
    """Sequences of each part that skill and the generalization gap are measured on."""
    seconds: float
    """How long the whole audit may take, as far as its estimates are right."""


BUDGETS = {
    "quick": Budget(128, 256, 256, 4, 2, 10, 1, 4, 2, 1024, 240.0),
    "full": Budget(1024, 2048, 2048, 32, 5, 40, 3, 16, 5, 16384, 7200.0),
}
SHARE = 0.12
"""The share of an audit's time that one check may take."""
LEAST_ROWS = 4
"""Fewer sequences than this are not worth a check."""
ROWS_CARRIED = 16
"""Sequences by which it is told whether answers go through the recurrent layer."""


class Cost(NamedTuple):
    """Seconds per sequence: of asking the model, and of a gradient."""

    forward: float
    backward: float


@dataclass(frozen=True)
class AuditContext:
    """What the checks run on: the user's own arguments, checked, and a part of them that fits the budget.

    ``train`` and ``test`` are the parts that the generalization gap is measured on; the first is None where the
    training part was not given. ``seconds`` is what the whole audit may take.
    """

    model: nn.Module
    data: EvalBatch
    train: EvalBatch | None
    test: EvalBatch
    budget: Budget
    seconds: float
    cost: Cost
    thresholds: Mapping[str, Mapping[str, float]]
    baselines: Mapping[str, float]
    seed: int
    time_step: float
    time_unit: str
    target_scale: float | Sequence[float]
    target_unit: str

    @property
    def is_regression(self) -> bool:
        """Say whether the model answers with numbers."""
        return self.data.measure == "error"

    @property
    def arguments(self) -> tuple[Any, Any]:
        """Give the sequences and their targets."""
        return self.data.values, self.data.targets

    @property
    def lengths(self) -> Any:
        """Give the true lengths, None where all fill the batch."""
        return self.data.lengths

    @property
    def unit(self) -> dict[str, Any]:
        """Give the target's own unit, for checks of a regressor."""
        return {"target_scale": self.target_scale, "target_unit": self.target_unit}

    @cached_property
    def bypassed(self) -> str:
        """Say why the state of the recurrent layer does not speak for the model; empty where it does, or is none."""
        try:
            layer = find_recurrence(self.model)
        except InputError:
            return ""
        if layer is self.model:
            return ""
        few = self.data.sample(ROWS_CARRIED, self.seed)

        def ask(values: Sequences) -> Float[np.ndarray, "batch ..."]:
            return few.answers(self.model, slice(0, len(values)), values).double().cpu().numpy()

        with audited(self.model, self.seed):
            return bypassed(layer, share_carried(layer, ask, few.values))

    @property
    def share(self) -> float:
        """Give the seconds that one check may take."""
        return SHARE * self.seconds

    def size(self) -> float:
        """Give the size of a usual input: the standard deviation over all channels, or 1 where inputs do not vary."""
        spread = float(self.data.true_steps().std(correction=0))
        return spread if spread > 0 else 1.0

    def affordable(
        self, *, forward: float = 0.0, backward: float = 0.0, data: EvalBatch | None = None, beyond: float = 1.0
    ) -> EvalBatch:
        """Take as many sequences as so many calls and gradients of each leave time for, drawn by chance.

        More than the budget's number are taken where a share ``beyond`` of the time is enough.
        """
        data = self.data if data is None else data
        each = forward * self.cost.forward + backward * self.cost.backward
        count = int(self.share / each) if each > 0 else len(data.values)
        if count < min(LEAST_ROWS, len(data.values)):
            raise InputError(
                f"expected {LEAST_ROWS} sequences to take at most {duration(self.share)}, got an estimate of "
                f"{duration(LEAST_ROWS * each)}; allow more with max_seconds."
            )
        count = max(min(count, self.budget.sequences), int(beyond * count))
        return data.sample(count, self.seed, balanced=False)

    def few(self, most: int) -> dict[str, Any]:
        """Take a few sequences for what follows states step by step."""
        few = self.data.sample(most, self.seed, balanced=True)
        return {"X": few.values, "lengths": few.lengths}

    def equal(self, most: int) -> EvalBatch:
        """Take sequences of one length and every class: of the longer half, cut to the shortest of those taken."""
        data = self.data
        if data.lengths is None:
            return data.sample(most, self.seed, balanced=True)
        long = data.take(torch.nonzero(data.lengths >= data.lengths.median())[:, 0])
        chosen = long.sample(most, self.seed, balanced=True)
        assert chosen.lengths is not None
        steps = int(chosen.lengths.min())
        targets = chosen.targets[:, :steps] if chosen.has_step_targets else chosen.targets
        return replace(chosen, values=chosen.values[:, :steps], lengths=None, targets=targets)


def seconds_of(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Time a call once, at least a microsecond."""
    start = clock()
    call()
    return max(clock() - start, 1e-6)


def measured_cost(model: nn.Module, data: EvalBatch, seed: int) -> Cost:
    """Time the model on a few sequences, with a gradient and without."""
    few = data.take(slice(0, min(8, len(data.values))))
    rows = slice(0, len(few.values))
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        few.scores(model, rows, few.values)
        clock = clock_of(model)
        forward = seconds_of(lambda: few.scores(model, rows, few.values), clock)
        leaf = few.values.clone().requires_grad_()

        def gradient() -> None:
            with torch.enable_grad():
                loss = few.losses(few.scores(model, rows, leaf), rows).sum()
                if loss.requires_grad:
                    torch.autograd.grad(loss, leaf, allow_unused=True)

        gradient()  # the first call may compile
        backward = seconds_of(gradient, clock)
    return Cost(forward / len(few.values), backward / len(few.values))
