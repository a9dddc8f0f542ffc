import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.kernels import RecurrentNTK, WideRNN
from sostenuto.theory.kernel_dynamics import kernel_drift, learning_rate_limit, mean_prediction


def problem(n=6, others=3, seed=0):
    generator = np.random.default_rng(seed)
    x, new = generator.normal(size=(n, 4)), generator.normal(size=(others, 4))
    kernel = RecurrentNTK(1, "erf", sigma_b=0.3)
    return kernel(x), kernel(new, x), generator.normal(size=n)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_solves_the_flow(loss):
    theta, cross, y = problem()
    rate, steps, time = 0.7, 20_000, 3.0
    factor = rate / (len(y) if loss == "mean" else 1) * time / steps
    f, new = np.zeros(len(y)), np.zeros(len(cross))
    for _ in range(steps):
        middle = f - 0.5 * factor * theta @ (f - y)
        f, new = f - factor * theta @ (middle - y), new - factor * cross @ (middle - y)
    options = {"learning_rate": rate, "loss": loss}
    np.testing.assert_allclose(mean_prediction(theta, y, time, **options), f, atol=1e-7)
    np.testing.assert_allclose(mean_prediction(theta, y, time, cross=cross, **options), new, atol=1e-7)


def test_begins_at_nothing_and_ends_at_regression():
    theta, cross, y = problem()
    assert not mean_prediction(theta, y, 0.0).any()
    np.testing.assert_allclose(mean_prediction(theta, y, np.inf), y, atol=1e-9)
    expected = cross @ np.linalg.solve(theta, y)
    np.testing.assert_allclose(mean_prediction(theta, y, np.inf, cross=cross), expected, rtol=1e-6)
    several = mean_prediction(theta, np.stack([y, 2 * y], axis=1), 1.0)
    np.testing.assert_allclose(several[:, 1], 2 * several[:, 0], rtol=1e-12)


def test_what_the_kernel_cannot_see_is_not_learned():
    assert mean_prediction(np.ones((2, 2)), np.array([1.0, -1.0]), np.inf) == pytest.approx([0.0, 0.0], abs=1e-12)


def test_descent_converges_below_the_limit_and_not_beyond():
    theta, _, y = problem()
    values = np.linalg.eigvalsh(theta)
    eta = learning_rate_limit(theta)
    assert eta == pytest.approx(2 / (values[0] + values[-1]))
    for rate, grows in ((0.99 * eta, False), (2.02 / values[-1], True)):
        f = np.zeros(len(y))
        for _ in range(2000):
            f = f - rate * theta @ (f - y)
        assert (np.abs(f - y).max() > np.abs(y).max()) == grows


def test_bad_matrices_are_refused():
    with pytest.raises(InputError, match="expected a symmetric kernel matrix"):
        mean_prediction(np.array([[1.0, 2.0], [0.0, 1.0]]), np.zeros(2), 1.0)
    with pytest.raises(InputError, match="expected a positive definite kernel"):
        learning_rate_limit(np.array([[1.0, 1.0], [1.0, 1.0]]) - 1e-9 * np.eye(2))


@pytest.mark.parametrize("activation", [torch.erf, torch.tanh], ids=["erf", "tanh"])
def test_drift_falls_as_the_root_of_the_width(activation):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(4, 3, 1)), np.array([1.0, -1.0, 0.5, -0.5])
    widths, drifts = (16, 64, 256), []
    for width in widths:
        found = []
        for seed in range(3):
            model = WideRNN(1, width, 1, activation, 1.2, 1.0, 0.3, generator=torch.Generator().manual_seed(seed))
            found.append(kernel_drift(model, x, y, steps=30).relative.max())
        drifts.append(np.mean(found))
    slope = np.polyfit(np.log(widths), np.log(drifts), 1)[0]
    # The theorem bounds the drift by n^−½; what is found falls about as n^−1, as for feed-forward networks.
    assert -1.5 < slope < -0.5, drifts
