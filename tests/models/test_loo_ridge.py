import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.ridge import FEW, PENALTIES, LeaveOneOutRidge, RidgeStatistics


def problem(count, width, outputs=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64) * torch.logspace(-1, 1, width) + 3
    weights = (
        torch.randn(width, outputs, generator=generator, dtype=torch.float64) / torch.logspace(-1, 1, width)[:, None]
    )
    noise = torch.randn(count, outputs, generator=generator, dtype=torch.float64)
    return features, features @ weights + noise, 0.1 + torch.rand(count, generator=generator, dtype=torch.float64)


def solve(rows, targets, weight, penalty):
    """Minimize Σ wᵢ‖yᵢ − xᵢB − b‖² + λ‖B‖² by its normal equations; give B and b."""
    wide = torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], 1)
    penalized = penalty * torch.eye(wide.shape[1], dtype=rows.dtype)
    penalized[-1, -1] = 0
    solution = torch.linalg.solve(wide.T @ (weight[:, None] * wide) + penalized, wide.T @ (weight[:, None] * targets))
    return solution[:-1], solution[-1]


def left_out(rows, targets, weight, penalty):
    """Predict every row by a ridge fitted to all the others."""
    answers = []
    for i in range(len(rows)):
        others = torch.arange(len(rows)) != i
        slope, offset = solve(rows[others], targets[others], weight[others], penalty)
        answers.append(rows[i] @ slope + offset)
    return torch.stack(answers)


@pytest.mark.parametrize("size", [(25, 4), (12, 40), (30, 30)])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_and_held_out_answers_are_those_of_the_definition(size, weighted):
    features, targets, drawn = problem(*size)
    weight = drawn if weighted else torch.ones(size[0], dtype=torch.float64)
    ridge = LeaveOneOutRidge.fit(features, targets, sample_weight=weight if weighted else None)
    rows, weight = (features - ridge.center) / ridge.scale, weight / weight.mean()
    slope, offset = solve(rows, targets, weight, ridge.penalty)
    torch.testing.assert_close(ridge.weights, slope, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(ridge.predict(features), rows @ slope + offset, rtol=1e-6, atol=1e-8)
    answers = left_out(rows, targets, weight, ridge.penalty)
    torch.testing.assert_close(ridge.held_out, answers, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("some", [False, True])
def test_the_penalty_has_the_least_error_over_the_judged_rows(some):
    features, targets, weight = problem(60, 10, seed=3)
    targets[:15] = targets.mean(0)  # best predicted by a strong penalty, the others by a weak one
    judged = torch.arange(60) < (15 if some else 60)
    ridge = LeaveOneOutRidge.fit(features, targets, sample_weight=weight, judged=judged)
    rows, weight = (features - ridge.center) / ridge.scale, weight / weight.mean()

    def error(penalty):
        misses = (left_out(rows, targets, weight, penalty) - targets).square().sum(1)
        return float((weight * misses)[judged].sum())

    size = float((weight[:, None] * rows.square()).sum()) / 60
    assert error(ridge.penalty) <= 1.0001 * min(error(float(penalty)) for penalty in size * PENALTIES)
    everything = LeaveOneOutRidge.fit(features, targets, sample_weight=weight)
    assert (ridge.penalty != everything.penalty) == some


def test_where_no_row_is_judged_the_penalty_is_fixed():
    features, targets, _ = problem(20, 60)
    none = torch.zeros(20, dtype=torch.bool)
    assert LeaveOneOutRidge.fit(features, targets, judged=none).penalty == pytest.approx(60 * FEW)


def test_a_row_of_weight_zero_is_not_there():
    features, targets, weight = problem(20, 5)
    weight[3] = 0
    with_it = LeaveOneOutRidge.fit(features, targets, sample_weight=weight)
    kept = torch.arange(20) != 3
    without = LeaveOneOutRidge.fit(features[kept], targets[kept], sample_weight=weight[kept])
    torch.testing.assert_close(with_it.predict(features), without.predict(features), rtol=1e-6, atol=1e-8)


def test_constant_features_do_no_harm_and_one_row_is_refused():
    features, targets, _ = problem(30, 4)
    wider = torch.cat([features, torch.full((30, 3), 0.7, dtype=torch.float64)], 1)
    ridge = LeaveOneOutRidge.fit(wider.float(), targets)
    moved = wider.clone()
    moved[:, 4:] += 5
    np.testing.assert_allclose(ridge.predict(moved.float()), ridge.predict(wider.float()))
    with pytest.raises(InputError, match="expected at least 2 rows to fit a ridge, got 1"):
        LeaveOneOutRidge.fit(features[:1], targets[:1])


def test_slack_takes_the_least_penalty_that_is_nearly_as_good():
    features, targets, weight = problem(60, 10, seed=3)
    exact, slack = (LeaveOneOutRidge.fit(features, targets, sample_weight=weight, slack=s) for s in (0.0, 0.1))
    rows, weight = (features - exact.center) / exact.scale, weight / weight.mean()
    size = float((weight[:, None] * rows.square()).sum()) / 60
    errors = {
        penalty: float((weight[:, None] * (left_out(rows, targets, weight, penalty) - targets).square()).sum())
        for penalty in (size * PENALTIES).tolist()
    }
    good = [penalty for penalty, error in errors.items() if error <= 1.1 * min(errors.values())]
    assert slack.penalty == pytest.approx(min(good))
    assert slack.penalty < exact.penalty


def test_features_that_vary_within_rows_count_less():
    """Two features tell the classes apart; the one that is known to vary by itself gets next to no weight."""
    targets = torch.tensor([[1.0], [-1.0]]).repeat(5, 1)
    features = targets.repeat(1, 2).double()
    within = torch.tensor([0.0, 99.0], dtype=torch.float64)
    slope, _ = LeaveOneOutRidge.fit(features, targets, within=within).line()
    assert float(slope[1] / slope[0]) == pytest.approx(0.01)
    sums = RidgeStatistics.of(features, targets, features[0])
    torch.testing.assert_close(
        sums.solve(0.1, within)[0][:, 0] @ torch.tensor([-0.01, 1.0]).double(), torch.tensor(0.0).double()
    )


@pytest.mark.parametrize("judged", [None, torch.arange(60) < 40])
def test_of_many_rows_some_choose_the_penalty_and_all_are_left_out(monkeypatch, judged):
    features, targets, weight = problem(60, 90, seed=5)
    weight[7] = 0
    whole = LeaveOneOutRidge.fit(features, targets, sample_weight=weight, judged=judged)
    monkeypatch.setattr("sostenuto.models.ridge.CHOOSING_ROWS", 50)
    some = LeaveOneOutRidge.fit(features, targets, sample_weight=weight, judged=judged)
    errors = [float(((ridge.held_out - targets).square() * weight[:, None]).sum()) for ridge in (some, whole)]
    assert errors[0] < 1.2 * errors[1]
    rows, mean_one = (features - some.center) / some.scale, weight / weight[weight > 0].mean()
    answers = left_out(rows, targets, mean_one, some.penalty)
    torch.testing.assert_close(some.held_out, answers, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(some.weights, solve(rows, targets, mean_one, some.penalty)[0], rtol=1e-8, atol=1e-8)
    repeated = features[:3].float().repeat(20, 1)  # of rank 3: rounding leaves eigenvalues below 0
    assert bool(LeaveOneOutRidge.fit(1e3 * repeated, targets).held_out.isfinite().all())
