import math

import pytest

from sostenuto.report.numbers import binomial_interval, count, duration, number, percent, tick_labels


@pytest.mark.parametrize("write", [percent, number, count, duration])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_said_to_be_so(write, value: float) -> None:
    assert write(value) == "n/a"


def test_a_score_is_never_rounded_up_to_perfect_or_down_to_nothing() -> None:
    assert percent(0.9999) == percent(0.9995) == ">\u202f99.9\u202f%"
    assert percent(0.0001) == "<\u202f0.1\u202f%"
    assert percent(1.0) == "100\u202f%"
    assert percent(1.0, aligned=True) == "100.0\u202f%"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-1.5, "−1.5"),
        (1e-30, "10⁻³⁰"),
        (-1e9, "−10⁹"),
        (999999.9, "10⁶"),
        (123456, "123,456"),
        (1e308, "10³⁰⁸"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_aligned_numbers_keep_their_zeros() -> None:
    assert number(2.9, digits=3, aligned=True) == "2.90"


@pytest.mark.parametrize(("seconds", "text"), [(59.96, "1 min 00 s"), (3599.7, "1 h 00 min"), (0.9996, "1.0 s")])
def test_durations_carry_over(seconds: float, text: str) -> None:
    assert duration(seconds).replace("\u00a0", " ") == text


def test_ticks_close_together_are_told_apart() -> None:
    assert len(set(tick_labels([1000.0, 1000.001, 1000.002]))) == 3


def test_interval_stays_between_zero_and_one_and_needs_trials() -> None:
    low, high = binomial_interval(1.0, 10)
    assert 0.6 < low < 1
    assert high == pytest.approx(1.0)
    assert all(math.isnan(bound) for bound in binomial_interval(0.5, 0))
    assert all(math.isnan(bound) for bound in binomial_interval(math.nan, 10))
