from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.splits import split, split_indices

fractions = st.floats(0.05, 0.95)
seeds = st.integers(0, 2**32 - 1)
classes = st.lists(st.sampled_from("abcd"), min_size=2, max_size=60)


def numbered(count: int, targets: Any = None, **options: Any) -> SequenceSet:
    """Make sequences that hold their own number, so that they can be followed."""
    return SequenceSet([np.full((2, 1), float(i)) for i in range(count)], targets, **options)


def numbers(part: SequenceSet) -> list[int]:
    return [int(sequence[0, 0]) for sequence in part.sequences]


@given(classes, fractions, seeds, st.sampled_from(["stratified", "random", "group", "time"]))
def test_every_split_is_an_ordered_partition_into_two_parts_that_repeats(
    labels: list[str], fraction: float, seed: int, method: Any
) -> None:
    assume(len(set(labels)) > 1)
    data = numbered(len(labels), np.array(labels), groups=np.array(labels))
    first, second = split(data, fraction, method=method, seed=seed)
    assert sorted(numbers(first) + numbers(second)) == list(range(len(labels)))
    assert numbers(first) == sorted(numbers(first))
    assert len(first) > 0
    assert len(second) > 0
    assert np.asarray(second.targets).tolist() == [labels[i] for i in numbers(second)]
    again = split(data, fraction, method=method, seed=seed)
    assert numbers(again[1]) == numbers(second)


@given(classes, fractions, seeds)
def test_stratified_keeps_every_class_on_both_sides_in_proportion(
    labels: list[str], fraction: float, seed: int
) -> None:
    data = numbered(len(labels), np.array(labels))
    first, second = split(data, fraction, seed=seed)
    repeated = {label for label in labels if labels.count(label) > 1}
    assume(repeated)
    for label in repeated:
        count, here = labels.count(label), np.asarray(second.targets).tolist().count(label)
        assert 1 <= here <= count - 1
        assert abs(here - fraction * count) <= 1 or here in (1, count - 1)
    assert set(labels) <= set(np.asarray(first.targets).tolist())


@given(st.integers(2, 200), fractions, seeds)
def test_random_takes_the_rounded_share(count: int, fraction: float, seed: int) -> None:
    _, second = split(numbered(count), fraction, method="random", seed=seed)
    assert len(second) == min(max(round(fraction * count), 1), count - 1)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=60), fractions, seeds)
def test_no_group_is_on_both_sides(groups: list[int], fraction: float, seed: int) -> None:
    assume(len(set(groups)) > 1)
    data = numbered(len(groups), groups=np.array(groups))
    first, second = split(data, fraction, method="group", seed=seed)
    assert not {groups[i] for i in numbers(first)} & {groups[i] for i in numbers(second)}
    largest = max(groups.count(group) for group in groups)
    assert abs(len(second) - fraction * len(groups)) <= largest


@given(st.integers(2, 100), fractions)
def test_time_takes_the_last(count: int, fraction: float) -> None:
    first, second = split(numbered(count), fraction, method="time")
    assert max(numbers(first)) < min(numbers(second))
    assert abs(len(second) - fraction * count) <= 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=40, max_size=120), st.floats(0.2, 0.8), seeds)
def test_a_regression_is_stratified_by_quantile(targets: list[float], fraction: float, seed: int) -> None:
    data = numbered(len(targets), np.array(targets), task="regression")
    _, second = split(data, fraction, seed=seed)
    assert abs(len(second) - fraction * len(targets)) <= 1
    order = np.argsort(np.array(targets), kind="stable")
    lower = set(order[: len(order) // 2].tolist())
    share = sum(i in lower for i in numbers(second)) / len(lower)
    # Ten strata of at least four: the halves differ by rounding in each of five, plus one stratum they may share.
    assert abs(share - fraction) <= 6 / len(lower)


def test_another_seed_gives_another_split() -> None:
    data = numbered(40, np.array(["a", "b"] * 20))
    chosen = {tuple(split_indices(data, 0.5, seed=seed)[1].tolist()) for seed in range(5)}
    assert len(chosen) == 5


@pytest.mark.parametrize(
    "data",
    [
        numbered(10),
        numbered(10, np.zeros((10, 3)), task="regression"),
        numbered(10, [np.zeros(2)] * 10, task="sequence"),
        numbered(10, np.zeros((10, 1, 1)), task="forecast"),
        numbered(10, np.array(list("abcdefghij"))),
    ],
    ids=["no targets", "several targets", "steps", "forecast", "all classes single"],
)
def test_what_cannot_be_stratified_is_divided_at_random(data: SequenceSet) -> None:
    np.testing.assert_array_equal(split_indices(data, 0.3)[1], split_indices(data, 0.3, method="random")[1])


def test_large_splits_hit_the_fraction() -> None:
    labels = np.random.default_rng(0).choice(list("abcde"), 1000, p=[0.5, 0.3, 0.1, 0.07, 0.03])
    _, second = split(numbered(1000, labels), 0.2)
    assert len(second) == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0.0}, "expected a fraction above 0 and below 1, got 0.0"),
        ({"fraction": 1}, "expected a fraction above 0 and below 1, got 1"),
        ({"fraction": 0.5, "method": "group"}, "expected groups to divide by, got none"),
        ({"fraction": 0.5, "count": 1}, "expected at least 2 sequences to divide, got 1"),
        ({"fraction": 0.5, "method": "group", "groups": np.array(["x"] * 4)}, "expected at least 2 groups, got 1"),
    ],
)
def test_impossible_splits_are_refused(options: dict[str, Any], message: str) -> None:
    data = numbered(options.pop("count", 4), groups=options.pop("groups", None))
    with pytest.raises(InputError, match=message):
        split(data, **options)


@pytest.mark.parametrize("seed", range(8))
def test_a_class_of_few_steps_stays_on_both_sides(seed):
    rows = [np.array([0, 1] * 3) for _ in range(20)]
    rows[4] = rows[11] = np.array([0, 0, 0, 2, 1, 1])
    data = SequenceSet([np.zeros((6, 1))] * 20, rows, "sequence")
    for part in split(data, 0.2, seed=seed):
        assert set(np.concatenate(part.targets)) == {0, 1, 2}
