"""Cheap methods shown beside a model, so that the reader sees whether it earns its keep.

All of them work on encoded batches: real predictions are in encoded units, `Encoding.decode_targets` brings them back.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from sostenuto.checks import InputError, require
from sostenuto.choices import Task
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.encoding import Encoding
from sostenuto.models.features import step_features, summary_features
from sostenuto.models.ridge import Ridge
from sostenuto.types import Lengths, Sequences

Prediction = Shaped[Tensor, "test ..."]

_CELLS = 1 << 24
_CANDIDATES = 8
_MOST_STEPS = 1 << 17
_MOST_OPERATIONS = 4e12
_OPERATIONS_PER_SECOND = 5e9
"""Of the nearest neighbor on one core, from below."""
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class BaselinePrediction:
    """What a cheap method predicts for the test part, and how long it took."""

    name: str
    description: str
    predictions: Tensor
    seconds: float


def baseline_predictions(
    train: SequenceBatch, test: SequenceBatch, encoding: Encoding, *, seconds: float = math.inf
) -> list[BaselinePrediction]:
    """Run the cheap methods that fit the task; classes have the most common one among them.

    One target per sequence: 1-nearest neighbor and ridge on summary features. Forecasts: previous value (where the
    targets are the input's own channels) and ridge. Nearest neighbor looks at evenly spaced training sequences where
    all of them would take more than about ``seconds`` (and a second at least) or 4·10¹² operations, and says so in its
    description.
    """
    task, classes = encoding.task, len(encoding.classes)
    done = []
    if classes:
        done.append(_timed("most common class", "the same answer always", lambda: most_common_class(train, test)))
    if encoding.forecast_channels:
        done.append(_timed("previous value", "the last value seen, repeated", lambda: previous_value(test, encoding)))
    elif task in ("classification", "regression") and not encoding.is_tokens:
        cost = len(train) * len(test) * test.values[0].numel()
        most = min(_MOST_OPERATIONS, _OPERATIONS_PER_SECOND * max(seconds, _LEAST_SECONDS))
        # A power of two: how long a training took must not show in the least digit.
        every = min(2 ** max(0, math.ceil(math.log2(cost / most))), len(train) // 2)
        few = train if every == 1 else train.select(torch.arange(0, len(train), every))
        seen = "" if every == 1 else f", {len(few)} of {len(train)} training sequences"
        words = f"Euclidean distance{seen}"
        done.append(_timed("1-nearest neighbor", words, lambda: nearest_neighbor(few, test, task)))
    name, words = _ridge_words(encoding)
    done.append(_timed(name, words, lambda: summary_ridge(train, test, task, classes)))
    return done


def most_common_class(train: SequenceBatch, test: SequenceBatch) -> Prediction:
    """Answer every sequence (or step) of ``test`` with the class that ``train`` has most of.

    >>> train = SequenceBatch.from_sequences(torch.zeros(3, 2), [1, 0, 1])
    >>> most_common_class(train, SequenceBatch.from_sequences(torch.zeros(2, 2)))
    tensor([1, 1])
    """
    targets = _targets(train)
    known = targets[train.mask] if train.has_step_targets else targets
    shape = test.values.shape[:2] if train.has_step_targets else test.values.shape[:1]
    return torch.full(shape, int(known.bincount().argmax()), device=targets.device)


def nearest_neighbor(train: SequenceBatch, test: SequenceBatch, task: Task) -> Prediction:
    """Answer with the target of the training sequence at the least Euclidean distance.

    Sequences that differ in length are first drawn out or squeezed, linearly in time, to the median training length.
    A matrix product finds eight candidates and their exact distances decide, so rounding does not. Not for tokens, nor
    for a target at every step.

    >>> train = SequenceBatch.from_sequences(torch.tensor([[0.0, 0.0], [5.0, 5.0]]), [0, 1])
    >>> nearest_neighbor(train, SequenceBatch.from_sequences(torch.tensor([[4.0, 3.0]])), "classification")
    tensor([1])
    """
    require(task != "sequence", "expected one target per sequence for nearest neighbor", "got one per step")
    require(train.values.ndim == 3, "expected channels of numbers for nearest neighbor", "got tokens")
    targets = _targets(train)
    steps = int(train.lengths.median())
    known = _resampled(train.values, train.lengths, steps).flatten(1)
    center = known.mean(0)
    known = known - center
    norms = known.square().sum(1)
    chunk = max(1, _CELLS // max(len(known), _CANDIDATES * known.shape[1]))
    nearest = []
    for start in range(0, len(test), chunk):
        rows = slice(start, start + chunk)
        queries = _resampled(test.values[rows], test.lengths[rows], steps).flatten(1) - center
        score = torch.addmm(norms, queries, known.T, alpha=-2)
        candidates = score.topk(min(_CANDIDATES, len(known)), largest=False).indices.sort(1).values
        exact = (known[candidates] - queries[:, None]).double().square().sum(-1)
        nearest.append(candidates.gather(1, exact.argmin(1, keepdim=True))[:, 0])
    return targets[torch.cat(nearest)]


def summary_ridge(train: SequenceBatch, test: SequenceBatch, task: Task, num_classes: int = 0) -> Prediction:
    """Predict by ridge regression from plain features; classes (``num_classes`` above 0) by the largest one-hot answer.

    Features are `summary_features` (tokens: their counts) or, for a target at every step, `step_features`: then at most
    about 130,000 evenly spaced training steps are used, and the answer is 0 past the end of a sequence.

    >>> level = torch.arange(20.0) % 2
    >>> train = SequenceBatch.from_sequences(torch.randn(20, 9) + 9 * level[:, None], level.long())
    >>> bool((summary_ridge(train, train, "classification", num_classes=2) == level).all())
    True
    """
    targets = _targets(train)
    if task == "sequence":
        return _step_ridge(train, test, targets, num_classes)
    prediction = Ridge.fit(summary_features(train), _responses(targets, num_classes)).predict(summary_features(test))
    return prediction.argmax(1) if num_classes else prediction.reshape(-1, *targets.shape[1:]).to(targets.dtype)


def previous_value(test: SequenceBatch, encoding: Encoding) -> Float[Tensor, "test horizon channel"]:
    """Forecast that nothing changes: the last encoded value of each channel, at every step of the horizon.

    Needs targets that are the input's own channels, which the encoding then keeps in the unit of the inputs; indicator
    channels of missing values are left out. A missing last value is its channel's mean under ``missing="mask"``.
    """
    if not encoding.forecast_channels:
        raise InputError(
            f"expected a forecast of the {encoding.num_channels} input channels for the previous value, "
            f"got targets of shape {encoding.target_shape}."
        )
    rows = torch.arange(len(test), device=test.values.device)
    last = test.values[rows, test.lengths - 1][:, list(encoding.forecast_channels)]
    return last[:, None].repeat(1, encoding.target_shape[0], 1)


def _ridge_words(encoding: Encoding) -> tuple[str, str]:
    how = "linear, penalty by generalized cross-validation, from "
    if encoding.task == "sequence":
        return "ridge on recent values", how + "the values up to 8 steps back"
    if encoding.is_tokens:
        return "ridge on token counts", how + "how often each token occurs"
    return "ridge on summary features", how + "mean, spread, extremes, ends, slope and change of every channel"


def _step_ridge(train: SequenceBatch, test: SequenceBatch, targets: Tensor, num_classes: int) -> Tensor:
    every = max(1, -(-int(train.lengths.sum()) // _MOST_STEPS))
    picked = torch.zeros_like(train.mask)
    picked[train.mask] = torch.arange(int(train.lengths.sum()), device=picked.device) % every == 0
    rows = [step_features(v)[m] for v, m in zip(train.values.split(64), picked.split(64), strict=True)]
    ridge = Ridge.fit(torch.cat(rows), _responses(targets[picked], num_classes))
    shape = test.values.shape[:2] if num_classes else (*test.values.shape[:2], *targets.shape[2:])
    prediction = torch.zeros(shape, dtype=targets.dtype, device=targets.device)
    for start in range(0, len(test), 64):
        part = slice(start, start + 64)
        mask = test.mask[part]
        predicted = ridge.predict(step_features(test.values[part])[mask])
        prediction[part][mask] = (
            predicted.argmax(1) if num_classes else predicted.reshape(-1, *targets.shape[2:]).to(prediction.dtype)
        )
    return prediction


def _responses(targets: Tensor, num_classes: int) -> Tensor:
    if num_classes:
        return torch.nn.functional.one_hot(targets, num_classes).double()
    return targets.reshape(len(targets), -1).double()


def _resampled(values: Sequences, lengths: Lengths, steps: int) -> Float[Tensor, "batch step channel"]:
    """Draw every sequence out to ``steps`` steps, linearly between its own."""
    if values.shape[1] == steps and bool((lengths == steps).all()):
        return values
    place = torch.linspace(0, 1, steps, device=values.device, dtype=torch.float64) * (lengths[:, None] - 1)
    below = place.floor().long()
    above = torch.minimum(below + 1, lengths[:, None] - 1)
    share = (place - below).to(values.dtype)[:, :, None]
    rows = torch.arange(len(values), device=values.device)[:, None]
    return torch.lerp(values[rows, below], values[rows, above], share)


def _targets(train: SequenceBatch) -> Tensor:
    if train.targets is None:
        raise InputError("expected training targets for a baseline, got none.")
    return train.targets


def _timed(name: str, description: str, predict: Callable[[], Tensor]) -> BaselinePrediction:
    start = time.perf_counter()
    predictions = predict()
    return BaselinePrediction(name, description, predictions, time.perf_counter() - start)
