"""What a model answers where part of a sequence is replaced by the same part of another one.

A lag counts back from the last true step of each sequence: at lag n the last n steps are kept. Where a donor is shorter
than what it has to replace, it is repeated from its start, so that padding never stands in for data.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sostenuto.audits.model import call_model, place_of, takes_lengths
from sostenuto.checks import require
from sostenuto.types import Lengths, Sequences

Answers = Float[np.ndarray, "batch out"]


@dataclass(frozen=True, eq=False)
class ReplacedInput:
    """Sequences, their lengths, a donor of each in every round, and the model that is asked about mixtures of them.

    With ``classes`` an answer is taken less its mean over the classes: what moves all scores alike is no answer.
    ``scale`` turns the other answers into the target's own unit.
    """

    model: nn.Module
    values: Sequences
    lengths: Lengths
    donors: Int[Tensor, "round batch"]
    classes: bool
    scale: Float[np.ndarray, "#out"]
    batch_size: int

    @property
    def steps(self) -> Int[Tensor, "1 time"]:
        """Number the steps."""
        return torch.arange(self.values.shape[1])[None]

    @property
    def true_steps(self) -> Float[Tensor, "step channel"]:
        """Stack the true steps of all sequences, without padding."""
        return self.values[self.older(0)].double()

    def older(self, lag: int) -> Bool[Tensor, "batch time"]:
        """Mark the steps before the last ``lag`` ones."""
        return self.steps < (self.lengths - lag)[:, None]

    def block(self, lag: int, width: int) -> Bool[Tensor, "batch time"]:
        """Mark the ``width`` steps that end ``lag`` steps before the end."""
        end = (self.lengths - lag)[:, None]
        return (self.steps < end) & (self.steps >= end - width)

    def mixed(self, where: Bool[Tensor, "batch time"], number: int) -> tuple[Sequences, Bool[np.ndarray, " batch"]]:
        """Replace marked steps by those of the donors of one round; say in which sequences that changes anything."""
        donors = self.donors[number]
        source = self.steps % self.lengths[donors][:, None]
        other = self.values[donors[:, None], source]
        mixture = torch.where(where[:, :, None], other, self.values)
        return mixture, (mixture != self.values).any(-1).any(-1).numpy()

    def changes(self, where: Bool[Tensor, "batch time"], answers: Answers) -> tuple[np.ndarray, np.ndarray]:
        """Give the squared change of each answer and whether the decision changes, by (batch, round).

        NaN where a replacement has nothing to change.
        """
        squares, turned = [], []
        for number in range(len(self.donors)):
            mixture, differs = self.mixed(where, number)
            square, turn = np.full(len(answers), np.nan), np.full(len(answers), np.nan)
            rows = np.flatnonzero(differs)
            if len(rows):
                asked = self.run(mixture, torch.from_numpy(rows))
                square[rows] = np.square(asked - answers[rows]).mean(-1)
                turn[rows] = asked.argmax(-1) != answers[rows].argmax(-1)
            squares.append(square)
            turned.append(turn)
        return np.stack(squares, 1), np.stack(turned, 1)

    def run(self, values: Sequences, rows: Int[Tensor, " row"] | None = None) -> Float[np.ndarray, "row out"]:
        """Ask about sequences in place of the data's ``rows`` (of all, if left out): the answer at the last true step.

        ``values`` stand for all sequences of the data.
        """
        rows = torch.arange(len(values)) if rows is None else rows
        found = [self._last(self._call(values[part], self.lengths[part]), part) for part in rows.split(self.batch_size)]
        return np.concatenate(found)

    def every_step(self, values: Sequences) -> Float[np.ndarray, "batch time out"] | None:
        """Ask for the answers at all steps; None where the model gives one for each sequence."""
        parts = torch.arange(len(values)).split(self.batch_size)
        found = [self._call(values[part], self.lengths[part]) for part in parts]
        return np.concatenate([self._measured(one) for one in found]) if found[0].ndim == 3 else None

    def precision(self) -> float:
        """Give the coarser rounding of the model's numbers and of its answers, which mixed precision rounds again."""
        answer = self._call(self.values[:1], self.lengths[:1])
        return max(torch.finfo(place_of(self.model)[1]).eps, torch.finfo(answer.dtype).eps)

    def _call(self, values: Tensor, lengths: Tensor) -> Tensor:
        device, dtype = place_of(self.model)
        told = lengths.to(device) if takes_lengths(self.model) else None
        answers = call_model(self.model, values.to(device, dtype), told)
        require(bool(answers.isfinite().all()), "expected finite answers to mixed sequences", "got NaN or infinity")
        return answers

    def _last(self, answers: Tensor, rows: Tensor) -> np.ndarray:
        if answers.ndim == 3:
            last = (self.lengths[rows] - 1).to(answers.device)
            answers = answers[torch.arange(len(answers), device=answers.device), last]
        return self._measured(answers)

    def _measured(self, answers: Tensor) -> np.ndarray:
        found = answers.detach().double().cpu().numpy()
        return found - found.mean(-1, keepdims=True) if self.classes else found * self.scale


def drawn_donors(count: int, rounds: int, seed: int) -> Int[Tensor, "round batch"]:
    """Give every sequence another one in each round: a random order, shifted.

    >>> donors = drawn_donors(5, 2, seed=0)
    >>> bool((donors != torch.arange(5)).all()), bool((donors[0] != donors[1]).all())
    (True, True)
    """
    require(count >= 2, "expected at least 2 sequences, as one replaces part of another", f"got {count}")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator)
    shifts = torch.randperm(count - 1, generator=generator)[:rounds] + 1
    donors = torch.empty(len(shifts), count, dtype=torch.long)
    for number, shift in enumerate(shifts.tolist()):
        donors[number, order] = order.roll(shift)
    return donors
