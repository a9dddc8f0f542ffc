"""What the oscillator classifier and regressor share: a ridge on the features, of all rows at once or of sums."""

from collections.abc import Iterator
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from sostenuto.checks import InputError, require
from sostenuto.estimators.oscillator_features import FeatureStream, OscillatorEstimator, Rows
from sostenuto.models.loo_ridge import LeaveOneOutRidge
from sostenuto.models.ridge_statistics import RidgeStatistics
from sostenuto.ops.oscillator_bank import THRESHOLDS, OscillatorBank
from sostenuto.types import PathLike

MOST_ROWS = 4000
"""More sequences than these are summed up (`RidgeStatistics`) instead of being compared with each other."""
SAMPLE_ROWS = 2000
"""Sequences on which leave-one-out then chooses the penalty."""


class HeldOut(NamedTuple):
    """Answers for sequences that the ridge had not seen, and which sequences they are."""

    rows: np.ndarray
    answers: Float64[np.ndarray, "n output"]


class OscillatorRidge(OscillatorEstimator):
    """An oscillator estimator whose features are read by a ridge; ``coef_`` and ``intercept_`` are its line.

    ``importance_`` (unit, output) is the norm of each unit's weights on standardized features.
    """

    penalty_: float
    coef_: np.ndarray
    intercept_: np.ndarray
    importance_: np.ndarray

    def _fit_ridge(
        self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray, client: Any = None
    ) -> HeldOut:
        """Fit all rows: compared with each other, or, where they are many or a cluster is given, summed up in parts."""
        vars(self).pop("_statistics", None)
        if len(rows) <= MOST_ROWS and client is None:
            ridge, held_out = self._leave_one_out(rows, targets, weight, judged)
            self.coef_, self.intercept_ = (part.numpy() for part in ridge.line())
            return held_out
        held_out = self._begin(rows, targets, weight, judged)
        bank = self.bank_
        parts = (
            (part, targets[low:high], weight[low:high], bank, self._origin)
            for part, low, high in _numbered(rows.parts(bank))
        )
        if client is None:
            for part in parts:
                self._add(_sum_up(part))
        else:
            self._add(_added_on(client, parts))
        self._solve()
        return held_out

    def _fit_part(self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray) -> HeldOut | None:
        """Add some rows to those fitted before; the first ones choose the penalty, and are held out for it."""
        held_out = self._begin(rows, targets, weight, judged) if not hasattr(self, "_origin") else None
        bank = self.bank_
        for part, low, high in _numbered(rows.parts(bank)):
            self._add(_sum_up((part, targets[low:high], weight[low:high], bank, self._origin)))
        self._is_stale = True
        return held_out

    def _answers(self, rows: Rows) -> Float64[np.ndarray, "n output"]:
        """Give the ridge's answers for sequences."""
        self._solve()
        bank = self.bank_
        return np.concatenate([_angles(part.features(bank)) @ self.coef_ + self.intercept_ for part in rows.parts(bank)])

    def _begin(self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray) -> HeldOut:
        """Choose the penalty on some of the rows, and start sums over rows from zero, around their middle."""
        chosen = np.random.default_rng(self.seed_).permutation(len(rows))[:SAMPLE_ROWS]
        chosen.sort()
        picked = rows.pick(chosen)
        ridge, held_out = self._leave_one_out(picked, targets[chosen], weight[chosen], judged[chosen])
        self._origin, self._statistics = ridge.center, None
        return HeldOut(chosen, held_out.answers)

    def _leave_one_out(
        self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray
    ) -> tuple[LeaveOneOutRidge, HeldOut]:
        features = torch.from_numpy(_angles(rows.features(self.bank_)))
        given = {"sample_weight": torch.from_numpy(weight), "judged": torch.from_numpy(judged)}
        if is_classifier(self):
            given["classes"] = torch.from_numpy(targets.argmax(1))
        ridge = LeaveOneOutRidge.fit(features, torch.from_numpy(targets), **given)
        self.penalty_, self._is_stale = ridge.penalty, False
        by_threshold = ridge.weights.double().unflatten(0, (THRESHOLDS, -1))
        self.importance_ = by_threshold.square().sum(0).sqrt().numpy()
        return ridge, HeldOut(np.arange(len(rows)), ridge.held_out.numpy())

    def _add(self, statistics: RidgeStatistics) -> None:
        known = self._statistics
        self._statistics = statistics if known is None else known + statistics
        self._is_stale = True

    def _solve(self) -> None:
        """Bring ``coef_`` and ``intercept_`` up to date with the sums."""
        check_is_fitted(self)
        if getattr(self, "_is_stale", False) and self._statistics is not None:
            slope, offset = self._statistics.solve(self.penalty_)
            self.coef_, self.intercept_, self._is_stale = slope.numpy(), offset.numpy(), False

    def _check_goes_on(self) -> bool:
        """Say whether rows were added before; what was fitted at once, or loaded, keeps no sums to add to."""
        if hasattr(self, "_origin"):
            return True
        if hasattr(self, "coef_"):
            raise InputError(
                "expected an estimator that is new or was fitted by partial_fit, got one whose sums were not kept; "
                "start a new one and pass all parts to partial_fit."
            )
        return False

    def save(self, path: PathLike) -> None:
        """Write the fitted estimator into one safetensors file; sums over rows (`partial_fit`) are not in it."""
        self._solve()
        super().save(path)

    def stream(self) -> "AnswerStream":
        """Begin a sequence that is read step by step, with an answer after each step."""
        self._solve()
        return AnswerStream(self)


class AnswerStream(FeatureStream):
    """The ridge's answers while a sequence arrives."""

    def __init__(self, estimator: OscillatorRidge) -> None:
        super().__init__(estimator)
        self._estimator = estimator

    def answers(self) -> Float64[np.ndarray, " output"]:
        """Give the ridge's answers after what has been read so far."""
        return _angles(self.features()) @ self._estimator.coef_ + self._estimator.intercept_


def _angles(shares: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Turn shares into the angles whose squared sine they are, in place: a count's noise is then the same everywhere."""
    return np.arcsin(np.sqrt(shares, out=shares).clip(max=1, out=shares), out=shares)


_Part = tuple[Rows, np.ndarray, np.ndarray, OscillatorBank, torch.Tensor]


def _numbered(parts: Iterator[Rows]) -> Iterator[tuple[Rows, int, int]]:
    """Say of each part which rows it holds."""
    low = 0
    for part in parts:
        yield part, low, low + len(part)
        low += len(part)


def _sum_up(part: _Part) -> RidgeStatistics:
    """Sum up one part; runs on a worker too."""
    rows, targets, weight, bank, origin = part
    features = torch.from_numpy(_angles(rows.features(bank)))
    return RidgeStatistics.of(features, torch.from_numpy(targets), origin, torch.from_numpy(weight))


def _added_on(client: Any, parts: Iterator[_Part]) -> RidgeStatistics:
    """Sum parts up on the workers of a dask cluster, pair by pair in a fixed order: the workers do not matter."""
    waiting = [client.submit(_sum_up, part, pure=False) for part in parts]
    require(len(waiting) > 0, "expected at least one part", "got none")
    while len(waiting) > 1:
        pairs = [waiting[i : i + 2] for i in range(0, len(waiting), 2)]
        waiting = [client.submit(add, *pair, pure=False) if len(pair) == 2 else pair[0] for pair in pairs]
    return waiting[0].result()
