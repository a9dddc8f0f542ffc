"""Forecasting windows from any series, and a split in time that does not leak."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sostenuto.checks import check_count, check_fraction, require
from sostenuto.data.dataset import Dataset, SequenceSet

Bounds = list[tuple[int, int]]
"""The first step and the one after the last, for each series."""


def windows(
    series: Any,
    length: int,
    *,
    horizon: int = 1,
    stride: int = 1,
    channel_names: tuple[str, ...] = (),
) -> SequenceSet:
    """Cut ``series`` (time, channel) into windows of ``length`` steps with the ``horizon`` steps after each as target.

    ``sequences[i] = series[i·stride : i·stride + length]``, ``targets[i]`` the next ``horizon`` steps: an array
    ``(n, horizon, channel)``. A 1-D series is one channel; a `SequenceSet` holds several series, and where its
    ``target_name`` is one of its channels, that one alone is the target. Times are cut with the values; what came
    before the first step of a window is not known, so its span is 1. Missing values may stand in the windows, not in
    the targets: a window whose target has one is left out.

    >>> data = windows(np.arange(6.0), 3)
    >>> [window[:, 0].tolist() for window in data.sequences], data.targets[:, 0, 0].tolist()
    ([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], [3.0, 4.0, 5.0])
    """
    for name, value in (("length", length), ("horizon", horizon), ("stride", stride)):
        check_count(name, value)
    data = _series_set(series, channel_names)
    return _windows(data, [(0, len(array)) for array in data.sequences], length, horizon, stride)


def forecast(
    series: Any,
    length: int,
    *,
    horizon: int = 1,
    stride: int = 1,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    name: str = "series",
    channel_names: tuple[str, ...] = (),
) -> Dataset:
    """Cut ``series`` at one or two moments and then into `windows`, so that no moment is in two parts.

    The last ``test_fraction`` of every series is the test part, the ``validation_fraction`` before it the validation
    part. Splitting the windows themselves would leak: neighbors share all but ``stride`` of their steps.

    >>> data = forecast(np.arange(100.0), 5)
    >>> float(data.train.targets.max()), float(data.test.sequences[0][0, 0])
    (79.0, 80.0)
    """
    check_fraction("test_fraction", test_fraction)
    check_fraction("validation_fraction", validation_fraction)
    data = _series_set(series, channel_names)
    ends = [len(array) for array in data.sequences]
    lasts = [end - round(test_fraction * end) for end in ends]
    middles = [last - round(validation_fraction * end) for last, end in zip(lasts, ends, strict=True)]
    require(min(middles) > 0, "expected fractions that leave something to train on", f"got {min(middles)} steps")

    def part(begins: list[int], ends: list[int]) -> SequenceSet | None:
        bounds = list(zip(begins, ends, strict=True))
        return None if begins == ends else _windows(data, bounds, length, horizon, stride)

    train = part([0] * len(ends), middles)
    assert train is not None
    return Dataset(
        name=name,
        train=train,
        validation=part(middles, lasts),
        test=part(lasts, ends),
        description=f"Windows of {length} steps; the target is the next {horizon}.",
        origin="windows of a series, divided in time",
    )


def last_windows(data: SequenceSet, length: int) -> SequenceSet:
    """Take the last ``length`` steps of every series (all of a shorter one): what a forecast of its future is made of.

    >>> [window[:, 0].tolist() for window in last_windows(SequenceSet([np.arange(4.0)[:, None]]), 2).sequences]
    [[2.0, 3.0]]
    """
    check_count("length", length)
    return _cut(data, [(index, max(len(s) - length, 0), len(s)) for index, s in enumerate(data.sequences)])


def _windows(data: SequenceSet, bounds: Bounds, length: int, horizon: int, stride: int) -> SequenceSet:
    need = length + horizon
    named = data.target_name in data.channel_names
    columns = [data.channel_names.index(data.target_name)] if named else slice(None)
    places: list[tuple[int, int, int]] = []
    targets: list[np.ndarray] = []
    for index, (begin, end) in enumerate(bounds):
        if begin == end > 0:
            continue
        which = "" if data.ids is None else f" in series {data.ids[index]!r}"
        require(
            end - begin >= need,
            f"expected a series of at least {need} steps (length {length} + horizon {horizon})",
            f"got {end - begin}{which}",
            "use shorter windows",
        )
        for start in range(begin, end - need + 1, stride):
            following = data.sequences[index][start + length : start + need, columns]
            if not np.isnan(following).any():
                places.append((index, start, start + length))
                targets.append(following)
    require(len(places) > 0, "expected a window whose target is observed", "got none", "fill or drop missing values")
    name = data.target_name or ("next values" if horizon > 1 else "next value")
    return replace(_cut(data, places), targets=np.stack(targets), task="forecast", target_name=name)


def _cut(data: SequenceSet, places: list[tuple[int, int, int]]) -> SequenceSet:
    """Take pieces (series, first step, end) of series, with their times."""

    def pieces(rows: Any) -> Any:
        return None if rows is None else [rows[index][start:end] for index, start, end in places]

    chosen = data.take(np.array([index for index, _, _ in places]))
    spans = pieces(data.timespans)
    return replace(
        chosen,
        sequences=pieces(data.sequences),
        targets=None,
        timespans=None if spans is None else [np.concatenate([[1.0], span[1:]]) for span in spans],
        times=pieces(data.times),
    )


def _series_set(series: Any, channel_names: tuple[str, ...]) -> SequenceSet:
    if isinstance(series, SequenceSet):
        return replace(series, sequences=[_series(array) for array in series.sequences])
    return SequenceSet([_series(series)], channel_names=channel_names)


def _series(series: Any) -> Float[np.ndarray, "time channel"]:
    array = np.asarray(series, dtype=np.float64)
    require(array.ndim in (1, 2), "expected a series of shape (time,) or (time, channel)", f"got {array.shape}")
    require(not np.isinf(array).any(), "expected finite values or NaN", "got infinity", "clip or drop it")
    return array[:, None] if array.ndim == 1 else array
