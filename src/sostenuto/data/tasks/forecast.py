"""Forecasting windows from any series, and a split in time that does not leak."""

from typing import Any

import numpy as np
from jaxtyping import Float

from sostenuto.checks import check_count, check_fraction, require
from sostenuto.data.dataset import Dataset, SequenceSet


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
    ``(n, horizon, channel)``. A 1-D series is one channel. Missing values may stand in the windows, not in the targets:
    a window whose target has one is left out.

    >>> data = windows(np.arange(6.0), 3)
    >>> [window[:, 0].tolist() for window in data.sequences], data.targets[:, 0, 0].tolist()
    ([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], [3.0, 4.0, 5.0])
    """
    for name, value in (("length", length), ("horizon", horizon), ("stride", stride)):
        check_count(name, value)
    array = _series(series)
    need = length + horizon
    require(
        len(array) >= need,
        f"expected a series of at least {need} steps (length {length} + horizon {horizon})",
        f"got {len(array)}",
        "use shorter windows",
    )
    starts = [
        start
        for start in range(0, len(array) - need + 1, stride)
        if not np.isnan(array[start + length : start + need]).any()
    ]
    require(len(starts) > 0, "expected a window whose target is observed", "got none", "fill or drop missing values")
    return SequenceSet(
        [array[start : start + length] for start in starts],
        np.stack([array[start + length : start + need] for start in starts]),
        "forecast",
        channel_names=channel_names,
        target_name="next values" if horizon > 1 else "next value",
    )


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

    The last ``test_fraction`` of the series is the test part, the ``validation_fraction`` before it the validation
    part. Splitting the windows themselves would leak: neighbors share all but ``stride`` of their steps.

    >>> data = forecast(np.arange(100.0), 5)
    >>> float(data.train.targets.max()), float(data.test.sequences[0][0, 0])
    (79.0, 80.0)
    """
    check_fraction("test_fraction", test_fraction)
    check_fraction("validation_fraction", validation_fraction)
    array = _series(series)
    last = len(array) - round(test_fraction * len(array))
    middle = last - round(validation_fraction * len(array))
    require(middle > 0, "expected fractions that leave something to train on", f"got {middle} steps")

    def part(begin: int, end: int) -> SequenceSet | None:
        if begin == end:
            return None
        return windows(array[begin:end], length, horizon=horizon, stride=stride, channel_names=channel_names)

    train = part(0, middle)
    assert train is not None
    return Dataset(
        name=name,
        train=train,
        validation=part(middle, last),
        test=part(last, len(array)),
        description=f"Windows of {length} steps; the target is the next {horizon}.",
        origin="windows of a series, divided in time",
    )


def _series(series: Any) -> Float[np.ndarray, "time channel"]:
    array = np.asarray(series, dtype=np.float64)
    require(array.ndim in (1, 2), "expected a series of shape (time,) or (time, channel)", f"got {array.shape}")
    require(not np.isinf(array).any(), "expected finite values or NaN", "got infinity", "clip or drop it")
    return array[:, None] if array.ndim == 1 else array
