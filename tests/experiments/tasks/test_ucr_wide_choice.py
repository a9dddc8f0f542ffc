"""The wider choice of a kernel: what is averaged, and that the test part decides nothing."""

import numpy as np
import pytest

from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.estimators.rntk.search import SupportVectors
from sostenuto.experiments.tasks.ucr_wide_choice import (
    COLUMNS,
    COSTS,
    FAMILIES,
    Judged,
    choices,
    family_points,
    kernel_at,
    wide_choice_accuracy,
)


def _bumps(count: int, seed: int) -> SequenceSet:
    """Draw noisy series with a bump early or late."""
    random = np.random.default_rng(seed)
    late = np.arange(count) % 2
    time = np.arange(16)
    rows = np.exp(-((time - np.where(late, 11, 4)[:, None]) ** 2) / 4) + 0.2 * random.normal(size=(count, 16))
    return SequenceSet([row[:, None] for row in rows], np.where(late, "late", "early"), "classification")


def _chosen(train: list[np.ndarray]) -> list[Judged]:
    indices = np.arange(len(train)) % 2
    found = [choices(train, indices, family, folds=3, every=4, seed=0) for family in FAMILIES]
    return [each for family in found for column in family.values() for each in column]


@pytest.fixture
def dataset():
    return Dataset(name="bumps", train=_bumps(24, 0), test=_bumps(30, 1))


@pytest.mark.parametrize("family", FAMILIES)
def test_bumps_are_told_apart(dataset, family):
    found = wide_choice_accuracy(dataset, family, folds=4, every=2, seed=0)
    assert list(found["test"]) == list(COLUMNS[family])
    for column, kinds in COLUMNS[family].items():
        assert found["test"][column] > 90
        assert 90 < found["validated"][column] <= 100
        assert found["chosen"][column]
        assert all(one["C"] in COSTS for one in found["chosen"][column])
        assert not kinds or {one["kind"] for one in found["chosen"][column]} <= set(kinds)


def test_the_test_part_chooses_nothing(dataset):
    """Other test labels change the accuracy alone, to one minus it."""
    swapped = np.where(np.asarray(dataset.test.targets) == "late", "early", "late")
    other = Dataset(
        name="swapped", train=dataset.train, test=SequenceSet(dataset.test.sequences, swapped, "classification")
    )
    one, two = (wide_choice_accuracy(each, "RNTK", folds=3, every=4, seed=0) for each in (dataset, other))
    assert one["chosen"] == two["chosen"]
    assert one["validated"] == two["validated"]
    for column in COLUMNS["RNTK"]:
        assert one["test"][column] + two["test"][column] == pytest.approx(100)


def test_matrices_have_one_size(dataset):
    train = list(dataset.train.sequences)
    for each in _chosen(train):
        own = np.diag(each.matrix)
        assert (own[:, None] + own - 2 * each.matrix).mean() == pytest.approx(2)
        np.testing.assert_allclose(each.matrix.mean(axis=0), 0, atol=1e-9)


def test_centering_changes_no_machine(dataset):
    """The same answers as those of a machine on the kernel itself, at the cost in its own size."""
    train, test = list(dataset.train.sequences), list(dataset.test.sequences)
    indices = np.arange(len(train)) % 2
    for each in _chosen(train):
        machine = SupportVectors.fit(each.kernel.gram(train, train), indices, each.cost / each.unit)
        plain = machine.scores(each.kernel.gram(test, [train[row] for row in machine.support]))
        np.testing.assert_allclose(each.scores(train, indices, test), plain, atol=0.01)


def test_equals_are_kept(dataset):
    """Every kernel kept has as many right answers over all deals as any, by its smallest cost."""
    train = list(dataset.train.sequences)
    for found in choices(train, np.arange(len(train)) % 2, "RNTK", folds=3, every=4, seed=0).values():
        assert len({int(each.right.max()) for each in found}) == 1
    assert all(each.cost == COSTS[list(each.right).index(each.right.max())] for each in _chosen(train))


def test_growth_is_that_of_a_state():
    """Without inputs after the first, k(x, x) of 𝒦 grows by exp(growth) over a sequence of T steps."""
    steps = 50
    impulse = np.zeros((steps + 1, 1))
    impulse[0] = 1.0
    point = {"growth": 2.0, "kind": "nngp", "num_layers": 1, "sigma_b": 0.0, "sigma_h": 0.0}
    kernel = kernel_at("RNTK", point, steps)
    first, last = (kernel.diagonal([impulse[:length]])[0] for length in (1, steps + 1))
    assert last / first == pytest.approx(np.exp(2.0))


def test_a_state_is_tried_beside_small_biases_alone():
    tried = family_points("RNTK")
    assert all(point["sigma_b"] < 0.3 for point in tried if point["sigma_h"] > 0)
    assert {point["kind"] for point in tried} == {"ntk", "nngp"}
    assert {point["growth"] for point in family_points("RNTK", 2)} == {-2.0, 0.0, 2.0}
