"""What a check of an audit works with: the model, the data within a budget, and how the user describes them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from sostenuto.audits.robustness.measured import MeasuredSequences
from sostenuto.audits.robustness.targeted import TargetedSequences


class Budget(NamedTuple):
    """How much each check may do."""

    sequences: int
    horizon: int
    steps: int
    exponents: int
    noise_draws: int
    attack_steps: int
    probes: int
    weight_draws: int
    answers: int
    """Sequences of each part that the generalization gap is measured on."""


BUDGETS = {
    "quick": Budget(128, 256, 256, 4, 2, 10, 4, 2, 1024),
    "full": Budget(1024, 2048, 2048, 32, 5, 40, 16, 5, 16384),
}


class AuditContext(NamedTuple):
    """What the checks run on: the user's own arguments, checked, and a part of them that fits the budget.

    ``train`` and ``test`` are the parts that the generalization gap is measured on; the first is None where the
    training part was not given.
    """

    model: nn.Module
    data: TargetedSequences
    train: TargetedSequences | None
    test: TargetedSequences
    budget: Budget
    seed: int
    time_step: float
    time_unit: str
    target_scale: float | Sequence[float]
    target_unit: str

    @property
    def is_regression(self) -> bool:
        """Say whether the model answers with numbers."""
        return isinstance(self.data, MeasuredSequences)

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

    def size(self) -> float:
        """Give the size of a usual input: the standard deviation over all channels, or 1 where inputs do not vary."""
        spread = float(self.data.true_steps().std(correction=0))
        return spread if spread > 0 else 1.0

    def few(self, most: int) -> dict[str, Any]:
        """Take a few sequences for what follows states step by step."""
        lengths = None if self.lengths is None else self.lengths[:most]
        return {"X": self.data.values[:most], "lengths": lengths}

    def equal(self, most: int) -> tuple[Any, Any]:
        """Take sequences of one length: the longest ones, cut to the shortest of them where they differ."""
        values, targets = self.arguments
        if self.lengths is None:
            return values[:most], targets[:most]
        chosen = self.lengths.argsort(descending=True, stable=True)[:most]
        steps = int(self.lengths[chosen].min())
        return values[chosen, :steps], targets[chosen, :steps] if self.data.has_step_targets else targets[chosen]
