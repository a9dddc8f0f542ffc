import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.tasks.forecast import forecast, windows

counts = st.integers(1, 6)


@given(counts, counts, counts, st.integers(0, 30))
def test_every_window_is_followed_by_its_target(length: int, horizon: int, stride: int, more: int) -> None:
    series = np.arange(2 * (length + horizon + more), dtype=float).reshape(-1, 2)
    data = windows(series, length, horizon=horizon, stride=stride)
    assert len(data) == more // stride + 1
    targets = np.asarray(data.targets)
    assert targets.shape == (len(data), horizon, 2)
    for index, (window, target) in enumerate(zip(data.sequences, targets, strict=True)):
        start = index * stride
        np.testing.assert_array_equal(np.concatenate([window, target]), series[start : start + length + horizon])


@given(st.integers(60, 200), counts, counts, st.floats(0.2, 0.4), st.floats(0.2, 0.3))
def test_no_moment_is_in_two_parts(steps: int, length: int, horizon: int, test: float, validation: float) -> None:
    data = forecast(np.arange(steps), length, horizon=horizon, test_fraction=test, validation_fraction=validation)

    def moments(part: SequenceSet | None) -> set[float]:
        assert part is not None
        return set(np.concatenate(list(part.sequences)).ravel()) | set(np.asarray(part.targets).ravel())

    parts = [moments(part) for part in (data.train, data.validation, data.test)]
    assert max(parts[0]) < min(parts[1])
    assert max(parts[1]) < min(parts[2])
    assert set().union(*parts) == set(range(steps))


def test_a_window_whose_target_is_missing_is_left_out() -> None:
    series = np.arange(8.0)
    series[4] = np.nan
    data = windows(series, 2)
    assert np.asarray(data.targets).ravel().tolist() == [2.0, 3.0, 5.0, 6.0, 7.0]
    assert np.isnan(data.sequences[2][:, 0]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (np.zeros(3), r"expected a series of at least 4 steps \(length 3 \+ horizon 1\), got 3"),
        (np.zeros((9, 2, 2)), r"expected a series of shape \(time,\) or \(time, channel\), got \(9, 2, 2\)"),
        (np.array([0.0, np.inf] * 5), "expected finite values or NaN, got infinity"),
        (np.full(9, np.nan), "expected a window whose target is observed, got none"),
    ],
)
def test_bad_series_are_refused(series: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        windows(series, 3)


def test_fractions_must_leave_something_to_train_on() -> None:
    with pytest.raises(InputError, match="expected fractions that leave something to train on"):
        forecast(np.arange(10.0), 1, test_fraction=0.6, validation_fraction=0.5)
