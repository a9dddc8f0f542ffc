"""The benchmark of bounds on few models: nothing broken, and a bound that is too small is counted."""

import math

import pytest

from sostenuto.benchmarks import _bound_cases, bounds


def test_no_bound_is_broken_by_a_few_models(monkeypatch):
    monkeypatch.setattr(_bound_cases, "MODELS", 6)
    record = bounds.run(progress=False, count=3)
    assert record["violations"] == 0
    assert record["least_applicable"] >= 3
    assert len(record["bounds"]) >= 20
    assert record["bounds"]["signature norm"]["reached"]["largest"] <= 1


def test_a_bound_that_is_too_small_is_counted():
    def halved(seed):
        yield from ((name, measured, value / 2) for name, measured, value in _bound_cases.norms(seed))

    found = bounds.summarize(bounds.collect(halved, 20)["RKHS norm, two levels exact"])
    assert found["violations"] > 10
    assert found["reached"]["largest"] == pytest.approx(2, rel=1e-3)


def test_what_does_not_apply_is_neither_kept_nor_broken():
    found = bounds.summarize([(1.0, 2.0), (5.0, math.nan), (math.nan, 1.0)])
    assert (found["drawn"], found["applicable"], found["violations"]) == (3, 2, 1)
