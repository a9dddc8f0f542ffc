"""What a fitted oscillator estimator looks at: frequencies, channels, kinds of units, and how long it remembers."""

import numpy as np

from sostenuto.estimators.oscillator_ridge import OscillatorRidge
from sostenuto.ops.oscillator_bank import KINDS, LANES
from sostenuto.results import OscillatorSummary

_BINS = 24
_FORGOTTEN = 0.01


def oscillator_summary(
    estimator: OscillatorRidge, channel_names: tuple[str, ...], outputs: tuple[str, ...]
) -> OscillatorSummary:
    """Share the squared weights of a fitted ridge out among periods, channels and kinds, for every output.

    >>> from sostenuto.estimators import OscillatorClassifier
    >>> X = np.sin(np.outer(np.arange(40) % 2 + 1, np.arange(60)) / 4 + np.arange(40)[:, None])
    >>> fitted = OscillatorClassifier(100, random_state=0).fit(X, np.arange(40) % 2)
    >>> summary = oscillator_summary(fitted, (), ("slow", "fast"))
    >>> summary.units, len(summary.periods), [round(sum(row), 6) for row in summary.by_period]
    (100, 24, [1.0, 1.0])
    """
    bank, squares = estimator.bank_, estimator.importance_**2
    squares = squares / np.maximum(squares.sum(0), np.finfo(float).tiny)
    names = outputs or tuple(f"target {index + 1}" for index in range(squares.shape[1]))
    period = 2 * np.pi / bank.rate[:, 1].numpy()
    edges = np.geomspace(2.0, max(float(period.max()), 4.0) * 1.0001, _BINS + 1)
    place = np.clip(np.searchsorted(edges, period, side="right") - 1, 0, _BINS - 1)
    by_period = np.stack([np.bincount(place, column, _BINS) for column in squares.T])
    block = np.arange(bank.n_units) // LANES
    kind = bank.kind.numpy()[block]
    by_kind = np.stack([np.bincount(kind, column, len(KINDS)) for column in squares.T])
    channels = len(estimator.center_)
    share = bank.mix.numpy() ** 2  # of unit norm, so that a unit's weight is shared out
    mixed = np.zeros((bank.n_units, channels))
    np.add.at(mixed, (np.arange(bank.n_units)[:, None], bank.channels.numpy()[block]), share)
    rates = np.concatenate([bank.rate[:, 0].numpy(), bank.second_rate[:, 0].numpy()[kind > 0]])
    memory = np.log(_FORGOTTEN) / rates
    return OscillatorSummary(
        units=bank.n_units,
        outputs=names,
        periods=tuple(np.sqrt(edges[1:] * edges[:-1]).tolist()),
        by_period=tuple(tuple(row) for row in by_period.tolist()),
        channels=channel_names or tuple(f"channel {index + 1}" for index in range(channels)),
        by_channel=tuple(tuple(row) for row in (squares.T @ mixed).tolist()),
        kinds=KINDS,
        by_kind=tuple(tuple(row) for row in by_kind.tolist()),
        memory=float(np.median(memory)),
        longest_memory=float(memory.max()),
        unseen_score=float(estimator.best_score_),  # pyright: ignore[reportAttributeAccessIssue]
    )
