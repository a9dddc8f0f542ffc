import math
from itertools import pairwise

import pytest

from sostenuto.training.config import TrainingConfig
from sostenuto.training.optimizers import learning_rate

EPOCHS, BATCHES = 11, 91
STEPS = EPOCHS * BATCHES  # 1001: step 300 is 30 % of the way from step 0 to step 1000


def rates(schedule: str, **options) -> list[float]:
    config = TrainingConfig(epochs=EPOCHS, learning_rate=0.2, schedule=schedule, **options)
    return [learning_rate(config, step, BATCHES) for step in range(STEPS)]


def test_constant():
    assert set(rates("constant")) == {0.2}


def test_one_cycle_starts_peaks_and_ends_where_it_says():
    curve = rates("one-cycle")
    assert curve[0] == pytest.approx(0.2 / 25)
    assert curve[150] == pytest.approx((0.2 / 25 + 0.2) / 2)
    assert curve[300] == max(curve) == pytest.approx(0.2)
    assert curve[650] == pytest.approx((0.2 + 0.2e-4) / 2)
    assert curve[1000] == pytest.approx(0.2e-4)
    assert all(a < b for a, b in pairwise(curve[:301]))
    assert all(a > b for a, b in pairwise(curve[300:]))


def test_cosine_falls_to_zero():
    curve = rates("cosine")
    assert curve[0] == 0.2
    assert curve[250] == pytest.approx(0.2 * (1 + math.cos(math.pi / 4)) / 2)
    assert curve[500] == pytest.approx(0.1)
    assert curve[1000] == pytest.approx(0.0, abs=1e-12)


def test_step_steps_at_the_start_of_its_epochs():
    curve = rates("step", step_epochs=(2, 5), step_factor=0.5)
    assert curve[2 * BATCHES - 1] == 0.2
    assert curve[2 * BATCHES] == curve[5 * BATCHES - 1] == 0.1
    assert curve[5 * BATCHES] == curve[-1] == 0.05


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine", "one-cycle"])
def test_a_single_step_has_a_rate(schedule):
    config = TrainingConfig(epochs=1, learning_rate=0.2, schedule=schedule, step_epochs=(1,))
    assert 0 < learning_rate(config, 0, 1) <= 0.2
