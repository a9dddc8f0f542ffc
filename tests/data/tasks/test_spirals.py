import math

import numpy as np

from sostenuto.data.tasks.spirals import spirals


def test_the_class_is_the_direction_of_turning() -> None:
    data = spirals(seed=3, num_train=200, num_test=0).train
    targets = np.asarray(data.targets)
    assert (targets == "clockwise").sum() == 100
    for path, target in zip(data.sequences, targets, strict=True):
        angle = np.unwrap(np.arctan2(path[:, 1], path[:, 0]))
        assert (angle[-1] > angle[0]) == (target == "counterclockwise")


def test_radius_and_speed_follow_the_equation() -> None:
    time = np.linspace(0, 4 * math.pi, 100)
    speeds, widths = [], []
    for path in spirals(num_train=400, num_test=0).train.sequences:
        inverse = 1 / np.hypot(*path.T)
        width = (inverse[-1] - 1) / time[-1]
        np.testing.assert_allclose(inverse, 1 + width * time, rtol=1e-9)
        angle = np.unwrap(np.arctan2(path[:, 1], path[:, 0]))
        speed = abs(angle[-1] - angle[0]) / time[-1]
        np.testing.assert_allclose(np.abs(angle - angle[0]), speed * time, atol=1e-9)
        speeds.append(speed)
        widths.append(width)
    # U(0, 1): mean 1/2 with standard error 1/√(12·400) = 0.0144; four of them are allowed.
    for drawn in (speeds, widths):
        assert 0 <= min(drawn) < 0.05
        assert 0.95 < max(drawn) <= 1
        assert abs(np.mean(drawn) - 0.5) < 0.058
