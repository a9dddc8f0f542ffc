"""Exponential smoothing: the compiled recursion is the reference's."""

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.estimators.forecast.smoothing import SMOOTHERS
from sostenuto.ops import smoothing
from sostenuto.ops.smoothing import exponential_smoothing

GAINS = torch.from_numpy(SMOOTHERS)


@pytest.mark.parametrize("steps", [1, 2, 5, 63])
@pytest.mark.parametrize("seasons", [(0,), (1, 4), (12, 0, 7), (100,)])
def test_the_kernel_agrees_with_the_reference(steps, seasons):
    values = torch.from_numpy(np.random.default_rng(steps).normal(size=(steps, 6)).cumsum(0))[:, ::2]
    for last in (False, True):
        made = [
            exponential_smoothing(values, GAINS, seasons, horizon=9, last=last, backend=backend)
            for backend in ("reference", "cpu")
        ]
        assert made[0].shape == (len(seasons), len(SMOOTHERS), 1 if last else steps, 9, 3)
        torch.testing.assert_close(made[1], made[0], rtol=1e-11, atol=1e-11)


def test_series_do_not_see_each_other_and_the_last_origin_is_that_of_all():
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(70, 3)))
    together = exponential_smoothing(values, GAINS, (0, 7), horizon=4)
    alone = exponential_smoothing(values[:, 1:2], GAINS, (0, 7), horizon=4)
    assert torch.equal(together[..., 1:2], alone)
    assert torch.equal(exponential_smoothing(values, GAINS, (0, 7), horizon=4, last=True)[:, :, 0], together[:, :, -1])
    cut = exponential_smoothing(values[:50], GAINS, (0, 7), horizon=4)
    assert torch.equal(together[:, :, :50], cut)  # no forecast reads a later value


def test_a_short_series_is_smoothed_without_a_kernel(monkeypatch):
    monkeypatch.setattr(
        smoothing,
        "choose_backend",
        lambda backend, *_, **__: pytest.fail(backend) if backend != "reference" else backend,
    )
    values = torch.zeros(smoothing.FEW_STEPS - 1, 1, dtype=torch.float64)
    assert exponential_smoothing(values, GAINS, horizon=1).abs().max() == 0


def test_what_cannot_be_smoothed_is_refused():
    with pytest.raises(InputError, match="expected at least one step, got none"):
        exponential_smoothing(torch.zeros(0, 1, dtype=torch.float64), GAINS, horizon=1)
    with pytest.raises(InputError, match="expected seasons of 0 or more steps"):
        exponential_smoothing(torch.zeros(3, 1, dtype=torch.float64), GAINS, (-1,), horizon=1)
