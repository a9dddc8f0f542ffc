"""What can happen to samples, drawn once and applied at any level, so that levels differ in strength alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sostenuto.audits.batches import EvalBatch
from sostenuto.checks import require
from sostenuto.report.numbers import number, percent
from sostenuto.results import Numbers
from sostenuto.types import Lengths, Sequences


class Corruption(ABC):
    """A way to damage samples, measured against the data: `draw` the chance part, then `apply` it at a level."""

    method: ClassVar[str]
    """How it is done, as the beginning of a sentence."""
    unit: ClassVar[str]
    """What a level means, for the axis of a figure."""
    highest: ClassVar[float] = float("inf")
    """The largest level that has a meaning."""

    @abstractmethod
    def __init__(self, data: EvalBatch) -> None:
        """Measure what is needed of every channel."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
        """Draw what `apply` needs for values of ``shape`` (batch, time, channel), one number per sample in order."""

    @abstractmethod
    def apply(self, values: Sequences, drawn: Tensor, level: float, lengths: Lengths) -> Sequences:
        """Return the damaged values; what is written beyond ``lengths`` is not used."""

    @staticmethod
    @abstractmethod
    def describe(level: float) -> str:
        """Name the damage at a level in words."""


class GaussianNoise(Corruption):
    """x + level · s · ε with ε standard normal and s the channel's standard deviation over all true steps."""

    method = "Gaussian noise was added to every true step, of standard deviation level × the channel's own"
    unit = "noise, in standard deviations of a channel"

    def __init__(self, data: EvalBatch) -> None:
        self.deviation = data.true_steps().std(0, correction=0)

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
        """Draw ε."""
        return torch.from_numpy(generator.standard_normal(shape))

    def apply(self, values: Sequences, drawn: Tensor, level: float, lengths: Lengths) -> Sequences:  # noqa: ARG002
        """Add the noise."""
        return values + (level * self.deviation * drawn).to(values.dtype)

    @staticmethod
    def describe(level: float) -> str:
        """Name the noise.

        >>> GaussianNoise.describe(0.5)
        'Gaussian noise of 0.5 standard deviations of each channel'
        """
        noun = "deviation" if level == 1 else "deviations"
        return f"Gaussian noise of {number(level)} standard {noun} of each channel"


class SaltAndPepper(Corruption):
    """A share ``level`` of the samples becomes the channel's largest or least value, each half the time.

    Reference: erichson2021, eqs. (17)-(19).
    """

    method = "The share given by the level of all true samples became the channel's largest or least value"
    unit = "share of samples replaced"
    highest = 1.0

    def __init__(self, data: EvalBatch) -> None:
        samples = data.true_steps()
        self.least, self.largest = samples.amin(0), samples.amax(0)

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
        """Draw a number in [−1, 1): its size says whether a sample is hit, its sign by what."""
        return torch.from_numpy(generator.uniform(-1.0, 1.0, shape))

    def apply(self, values: Sequences, drawn: Tensor, level: float, lengths: Lengths) -> Sequences:  # noqa: ARG002
        """Replace the samples that are hit."""
        extremes = torch.where(drawn < 0, self.least, self.largest).to(values.dtype)
        return torch.where(drawn.abs() <= level, extremes, values)

    @staticmethod
    def describe(level: float) -> str:
        """Name the noise.

        >>> SaltAndPepper.describe(0.5)
        '50.0\u202f% of the samples replaced by the extremes of their channel'
        """
        return f"{percent(level)} of the samples replaced by the extremes of their channel"


class MissingSteps(Corruption):
    """A share ``level`` of the steps is lost in all channels, and the value before stays: a sensor that sticks."""

    method = "The share given by the level of all true steps was lost, and the value before each held on"
    unit = "share of steps lost"
    highest = 1.0

    def __init__(self, data: EvalBatch) -> None:
        """Nothing is measured."""

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
        """Draw a number in [0, 1) a step: below the level the step is lost."""
        return torch.from_numpy(generator.uniform(0.0, 1.0, shape))[:, :, :1]

    def apply(self, values: Sequences, drawn: Tensor, level: float, lengths: Lengths) -> Sequences:  # noqa: ARG002
        """Hold the last step that was kept; the first is always there."""
        step = torch.arange(values.shape[1])[:, None]
        kept = torch.where(drawn >= level, step, 0).cummax(1).values
        return values.gather(1, kept.expand_as(values))

    @staticmethod
    def describe(level: float) -> str:
        """Name the damage.

        >>> MissingSteps.describe(0.5)
        '50.0\u202f% of the steps lost and the value before held'
        """
        return f"{percent(level)} of the steps lost and the value before held"


class TimeShift(Corruption):
    """Each sequence starts up to ``level`` of its length earlier or later; its edge value fills the gap."""

    method = "Each sequence was moved in time by up to the level times its length, its edge value filling the gap"
    unit = "largest shift, share of the length"
    highest = 1.0

    def __init__(self, data: EvalBatch) -> None:
        """Nothing is measured."""

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
        """Draw a number in [−1, 1) a sequence: the share of the largest shift."""
        return torch.from_numpy(generator.uniform(-1.0, 1.0, shape))[:, :1, :1]

    def apply(self, values: Sequences, drawn: Tensor, level: float, lengths: Lengths) -> Sequences:
        """Read every step from where it was before the shift, within the sequence."""
        ends = lengths[:, None, None] - 1
        shift = (drawn * level * lengths[:, None, None]).round().long()
        source = (torch.arange(values.shape[1])[:, None] - shift).clamp(min=0).minimum(ends)
        return values.gather(1, source.expand_as(values))

    @staticmethod
    def describe(level: float) -> str:
        """Name the damage.

        >>> TimeShift.describe(0.1)
        'shifts of up to 10.0\u202f% of the length'
        """
        return f"shifts of up to {percent(level)} of the length"


CORRUPTIONS: dict[str, type[Corruption]] = {
    "gaussian": GaussianNoise,
    "salt-and-pepper": SaltAndPepper,
    "missing": MissingSteps,
    "shift": TimeShift,
}


def damaged_batches(
    data: EvalBatch, noise: Corruption, levels: Numbers, seed: tuple[int, int], batch_size: int
) -> Iterator[tuple[int, slice, Sequences]]:
    """Give the damaged values of one draw at every level above 0: the level's place, the rows, their values.

    The same draw serves every level, and padding stays as it is.
    """
    generator = np.random.default_rng(seed)
    for rows in data.batches(batch_size):
        values, true_steps = data.values[rows], data.mask[rows][:, :, None]
        drawn, lengths = noise.draw(tuple(values.shape), generator), data.mask[rows].sum(1)
        for index, level in enumerate(levels):
            if level > 0:
                yield index, rows, torch.where(true_steps, noise.apply(values, drawn, level, lengths), values)


def checked_levels(levels: Sequence[float], kind: str) -> Numbers:
    """Refuse levels that have no meaning for this kind of damage."""
    steps = tuple(float(level) for level in levels)
    require(len(steps) > 0, "expected at least one noise level", "got none")
    highest = CORRUPTIONS[kind].highest
    good = all(0 <= level <= highest and level < float("inf") for level in steps)
    allowed = "from 0 to 1" if highest == 1 else "of at least 0"
    require(good, f"expected finite levels {allowed}", f"got {', '.join(f'{level:g}' for level in steps)}")
    return steps
