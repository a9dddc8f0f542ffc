import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.ridge import _PENALTIES, Ridge, RidgeStatistics


def problem(seed: int, count: int, width: int, noise: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64) * torch.logspace(-2, 2, width) + 3
    weights = torch.randn(width, 2, generator=generator, dtype=torch.float64) / torch.logspace(-2, 2, width)[:, None]
    return features, features @ weights + noise * torch.randn(count, 2, generator=generator, dtype=torch.float64)


def by_the_definition(features: torch.Tensor, targets: torch.Tensor, penalty: float) -> tuple[float, torch.Tensor]:
    """Solve the normal equations and score them with the explicit hat matrix."""
    count = len(features)
    x = (features - features.mean(0)) / features.std(0, correction=0)
    y = targets - targets.mean(0)
    if x.shape[0] < x.shape[1]:
        # With more features than rows the same matrix, by a far better conditioned inverse.
        weights = x.T @ torch.linalg.inv(x @ x.T + penalty * torch.eye(count))
    else:
        weights = torch.linalg.inv(x.T @ x + penalty * torch.eye(x.shape[1])) @ x.T
    hat = x @ weights
    score = (y - hat @ y).square().sum() / (count - 1 - hat.trace()) ** 2
    return float(score), weights @ y


@pytest.mark.parametrize("size", [(40, 3), (60, 20), (15, 30)])
@pytest.mark.parametrize("seed", [0, 1, 15])
def test_the_penalty_and_the_weights_are_those_of_the_definition(seed: int, size: tuple[int, int]) -> None:
    features, targets = problem(seed, *size)
    ridge = Ridge.fit(features, targets)
    score, weights = by_the_definition(features, targets, ridge.penalty)
    others = [by_the_definition(features, targets, penalty)[0] for penalty in (size[0] * _PENALTIES).tolist()]
    # Where hundreds of penalties score alike, rounding decides among them.
    assert score <= 1.001 * min(others)
    torch.testing.assert_close(ridge.weights, weights, rtol=1e-4, atol=1e-8)


def test_without_noise_the_truth_is_found_and_noise_alone_is_shrunk_away() -> None:
    features, targets = problem(0, 200, 5, noise=0.0)
    ridge = Ridge.fit(features, targets)
    torch.testing.assert_close(ridge.predict(features), targets, rtol=1e-3, atol=1e-3)
    noise = torch.randn(60, 40, dtype=torch.float64)
    ridge = Ridge.fit(noise, torch.randn(60, 1, dtype=torch.float64))
    assert ridge.penalty > 60 * 0.1


def test_repeated_and_constant_features_do_no_harm() -> None:
    features, targets = problem(1, 100, 4)
    wider = torch.cat([features, features, torch.full((100, 3), 7.0)], dim=1)
    assert torch.isfinite(Ridge.fit(wider, targets).weights).all()
    error = (Ridge.fit(wider, targets).predict(wider) - targets).square().mean()
    plain = (Ridge.fit(features, targets).predict(features) - targets).square().mean()
    assert float(error) == pytest.approx(float(plain), rel=0.02)


def test_single_precision_is_taken_and_one_row_is_refused() -> None:
    features, targets = problem(2, 50, 3)
    single = Ridge.fit(features.float(), targets.float()).predict(features.float())
    np.testing.assert_allclose(single, Ridge.fit(features, targets).predict(features), rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match="expected at least 2 rows to fit a ridge, got 1"):
        Ridge.fit(features[:1], targets[:1])


def test_sums_of_dependent_features_in_single_precision_are_solved() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(6000, 3, generator=generator) @ torch.randn(3, 400, generator=generator)
    targets = rows[:, :1].double()
    sums = RidgeStatistics.of(rows, targets, torch.zeros(400))
    for penalty in (1e-6, 1e-2):
        slope, offset = sums.solve(penalty)
        assert (rows.double() @ slope + offset - targets).abs().max() < 1e-4
