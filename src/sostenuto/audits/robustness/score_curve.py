"""A score that falls while noise or an attacker's reach grows: what its record says, draws and is judged by."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sostenuto.audits.base import UNDECIDED, AuditResult, Judged, graded, points
from sostenuto.audits.batches import GUESSES, Measure, score_words
from sostenuto.report.numbers import percent
from sostenuto.results import Numbers


@dataclass(frozen=True, kw_only=True)
class ScoreCurve(AuditResult):
    """A score at several levels: the accuracy, or the root mean square error in ``unit``, as ``measure`` says.

    ``guess`` is the score of always answering the most frequent class, or the mean; ``count`` the answers judged:
    sequences, or steps that have targets. ``lost_low`` and ``lost_high`` hold what each level costs in 19 of 20
    repetitions: accuracy, or error as a share of the guess's. ``marks`` are the shares of right answers, or the mean
    squared errors, of each sequence at the strongest level, by which two models are compared; ``most_lost`` the share
    of its right answers that the class loses there which loses most.
    """

    measure: Measure
    score: Numbers
    clean_score: float
    guess: float
    lost_low: Numbers
    lost_high: Numbers
    count: int
    unit: str = ""
    marks: Numbers = ()
    most_lost: float = 0.0

    @property
    @abstractmethod
    def strengths(self) -> Numbers:
        """Give the levels."""

    @property
    def strongest(self) -> int:
        """Give the place of the strongest level."""
        return int(np.argmax(self.strengths))

    @property
    def lost(self) -> float:
        """Give what the strongest level costs, in points of accuracy or in the error's unit."""
        change = self.score[self.strongest] - self.clean_score
        return -change if self.measure == "accuracy" else change

    def words(self, score: float) -> str:
        """Write a score with its unit."""
        return score_words(self.measure, score, self.unit)

    @property
    def guess_words(self) -> str:
        """Say what a guess would reach."""
        return f"{GUESSES[self.measure]} gives {self.words(self.guess)}"

    def draw(self, ax: Any, label: str, spread: Numbers | None = None) -> None:
        """Draw the score over the levels, and that of a guess."""
        order = np.argsort(self.strengths, kind="stable")
        factor = 100 if self.measure == "accuracy" else 1
        levels, scores = (np.asarray(values)[order] for values in (self.strengths, self.score))
        if levels[0] > 0:
            levels, scores = np.insert(levels, 0, 0.0), np.insert(scores, 0, self.clean_score)
        bars = None if spread is None else factor * np.asarray(spread)[order]
        if bars is not None and len(bars) < len(levels):
            bars = np.insert(bars, 0, 0.0)
        ax.errorbar(levels, factor * scores, yerr=bars, marker="o", capsize=3, label=label)
        guess = "most frequent class" if self.measure == "accuracy" else "mean of the targets"
        ax.axhline(factor * self.guess, linestyle="--", color="gray", label=guess)
        if self.measure == "accuracy":
            ax.set_ylim(0, 102)
            ax.set_ylabel("accuracy, %")
        else:
            ax.set_ylim(bottom=0)
            ax.set_ylabel(f"root mean square error, {self.unit}" if self.unit else "root mean square error")
        ax.legend()


def judge_loss(result: ScoreCurve, limits: Mapping[str, float]) -> Judged:
    """Grade what the strongest level costs, and say by which interval and thresholds."""
    interval = (result.lost_low[result.strongest], result.lost_high[result.strongest])
    what = "of accuracy" if result.measure == "accuracy" else "of the error of a guess"
    said = "everything" if not np.isfinite(interval).all() else f"{points(interval[0])} to {points(interval[1])}"
    basis = (
        f"{result.summary()} Lost: {said} points {what} (95 % interval); steady up to {points(limits['steady'])}, "
        f"broken beyond {points(limits['broken'])}."
    )
    judged = graded(interval, limits["steady"], limits["broken"], ("Steady", "Wavers", "Breaks"), basis)
    if judged.outcome == "good" and result.most_lost > limits["broken"]:
        # A rare class may be lost as a whole while the accuracy hardly moves.
        told = f"One class loses {percent(result.most_lost)} of its right answers."
        return Judged("unknown", UNDECIDED, f"{told} {basis}")
    return judged
