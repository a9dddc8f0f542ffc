import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.ridge import LeaveOneOutRidge, RidgeStatistics
from tests.models.test_loo_ridge import problem


@pytest.mark.parametrize("size", [(40, 6), (15, 30)])
@pytest.mark.parametrize("parts", [1, 4])
def test_sums_over_parts_give_the_ridge_of_all_rows(size, parts):
    features, targets, _ = problem(*size)
    ridge = LeaveOneOutRidge.fit(features, targets)
    origin = features[:3].mean(0)
    pieces = [
        RidgeStatistics.of(x, y, origin) for x, y in zip(features.chunk(parts), targets.chunk(parts), strict=True)
    ]
    total = sum(pieces[1:], pieces[0])
    slope, offset = total.solve(ridge.penalty)
    torch.testing.assert_close(features @ slope + offset, ridge.predict(features), rtol=1e-7, atol=1e-7)


def test_a_weight_of_two_is_a_row_twice():
    features, targets, _ = problem(30, 5)
    weight = torch.where(torch.arange(30) < 10, 2.0, 1.0)
    origin = torch.zeros(5)
    weighted = RidgeStatistics.of(features, targets, origin, weight)
    twice = RidgeStatistics.of(features, targets, origin) + RidgeStatistics.of(features[:10], targets[:10], origin)
    for name in ("weight", "first", "second", "target", "cross"):
        torch.testing.assert_close(getattr(weighted, name), getattr(twice, name))


def test_float32_rows_far_from_zero_keep_their_digits():
    features, targets, _ = problem(200, 5)
    far = (features + 1000).float()
    expected = LeaveOneOutRidge.fit(far.double(), targets)
    statistics = RidgeStatistics.of(far, targets, far[:10].mean(0))
    slope, offset = statistics.solve(expected.penalty)
    torch.testing.assert_close(far.double() @ slope + offset, expected.predict(far.double()), rtol=1e-4, atol=1e-3)
    with pytest.raises(InputError, match="expected statistics with the same origin"):
        _ = statistics + RidgeStatistics.of(far, targets, torch.zeros(5))
