import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.kernels import RecurrentNTK
from tests.laws.kernel_laws import KernelLaws, sample


class TestRecurrentNTK(KernelLaws):
    kernels = (
        RecurrentNTK(),
        RecurrentNTK(2, "erf", sigma_w=(1.2, 0.8), sigma_b=0.3, sigma_h=0.5, normalize=True),
        RecurrentNTK(3, sigma_b=0.1, sigma_h=0.2, pooling="mean", kind="nngp"),
    )


@pytest.mark.parametrize("activation", ["relu", "erf", torch.tanh], ids=["relu", "erf", "tanh"])
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_kernel_is_the_sum_over_covariances(activation, pooling, kind):
    """The full tables of Σ and Π, computed as the paper writes them, against the diagonals alone."""
    options = {"sigma_w": 1.3, "sigma_b": (0.2, 0.4), "sigma_h": 0.5, "sigma_v": 1.2}
    kernel = RecurrentNTK(2, activation, **options, pooling=pooling, kind=kind)
    x = sample(2, 4, 5, 3)
    expected = [[float(getattr(kernel.covariances(a, b), kind)) for b in x] for a in x]
    np.testing.assert_allclose(kernel(x), expected, rtol=1e-7)


def test_gradients_meet_where_both_sequences_end():
    pair = RecurrentNTK(2, sigma_b=0.1).covariances(*sample(3, 5))
    assert pair.pi.shape == (2, 3, 5)
    on = np.eye(3, 5, k=2, dtype=bool)
    assert (pair.pi.numpy()[:, on] > 0).all()
    assert not pair.pi.numpy()[:, ~on].any()


def test_start_counts_for_equal_sequences_only():
    x = sample(4, 4)
    with_start, without = (RecurrentNTK(sigma_h=h)([*x, x[0].copy()]) for h in (1.0, 1e-9))
    assert with_start[0, 2] == pytest.approx(with_start[0, 0], rel=1e-14)
    assert with_start[0, 0] > 1.05 * without[0, 0]
    assert with_start[0, 1] != pytest.approx(without[0, 1], rel=1e-3)


@pytest.mark.parametrize(("activation", "sigma_u"), [("relu", 1.0), ("erf", 1.0), ("erf", 0.2)])
def test_quadrature_finds_the_closed_form_within_the_stated_error(activation, sigma_u):
    function = {"relu": torch.relu, "erf": torch.erf}[activation]
    x = sample(3, 5, 4)
    options = {"sigma_b": 0.2, "sigma_w": 0.8, "sigma_u": sigma_u}
    closed, by_quadrature = (RecurrentNTK(1, a, **options) for a in (activation, function))
    stated = by_quadrature.quadrature_error(x)
    assert stated < {"relu": 1e-7, "erf": 1e-11}[activation]
    assert closed.quadrature_error(x) == 0
    # The error is of one average; the kernel takes two a step, over up to 5 steps.
    np.testing.assert_allclose(by_quadrature(x), closed(x), rtol=10 * stated + 1e-12)


def test_long_sequences_are_finite_when_normalized_and_refused_otherwise():
    x = np.random.default_rng(0).normal(size=(3, 10_000))
    for sigma_w in (1.34, 1.47):
        K = RecurrentNTK(sigma_w=sigma_w, normalize=True)(x)  # noqa: N806
        assert np.isfinite(K).all()
        np.testing.assert_allclose(np.diag(K), 1.0, rtol=1e-11)
    kernel = RecurrentNTK(sigma_w=1.47)
    with pytest.raises(InputError, match=r"got exp\(7\d\d.*sequences 0 of X and 0 of Y; pass normalize=True"):
        kernel(x)
    with pytest.raises(InputError, match="of sequence 0; pass normalize=True"):
        kernel.diag(x)
    assert (kernel.log_diag(x) > 709).all()


def test_equals_mpmath_after_ten_thousand_steps():
    from tests.kernels.exact_recurrent_ntk import exact_normalized

    x, y = np.random.default_rng(1).normal(size=(2, 10_000))
    for sigma_w in (1.34, 1.47):
        got = RecurrentNTK(sigma_w=sigma_w, normalize=True)([x], [y])[0, 0]
        assert got == pytest.approx(exact_normalized(x, y, sigma_w), rel=1e-10)


def test_huge_and_tiny_inputs():
    x = [[1e300, -1e300, 1e-300], [1e-200, 1.0, 1e200], [0.0, 0.0, 0.0]]
    K = RecurrentNTK(normalize=True)(x)  # noqa: N806
    assert np.isfinite(K).all()
    assert K[2, 2] == K[0, 2] == 0
    with pytest.raises(InputError, match="expected variances below 1e"):
        RecurrentNTK(activation="erf")(x)


def test_near_sequences_keep_their_digits():
    """1 − C of near sequences is summed from differences: the tangent kernel's √(1 − C) needs it."""
    x = np.random.default_rng(0).normal(size=20)
    distances = np.array([1e-3, 1e-5, 1e-7])
    K = RecurrentNTK(normalize=True, sigma_b=0.1)([x], [x * (1 + d * np.sin(np.arange(20))) for d in distances])  # noqa: N806
    slope = np.polyfit(np.log(distances), np.log(1 - K[0]), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.02)


def test_sensitivity_is_the_gradient_by_the_input():
    kernel = RecurrentNTK(sigma_w=1.3, sigma_b=0.2)
    x, y = (each[:, 0] for each in sample(5, 7, channels=1))
    slopes = []
    for t in range(5):
        step = 1e-6 * np.eye(5)[t]
        slopes.append(abs(kernel([x + step], [y])[0, 0] - kernel([x - step], [y])[0, 0]))
    np.testing.assert_allclose(kernel.sensitivity(x, y), np.array(slopes) / max(slopes), rtol=1e-5)


def forward_mode(kernel, x):
    """Return the derivatives by theta, exactly, from the reference."""
    from sostenuto.kernels import recurrent_ntk as module

    base, letters = kernel._scales(), [p.name[-1] for p in kernel.hyperparameters if not p.fixed]
    assert letters
    slopes = []
    for letter in letters:
        count = 1 if letter == "v" else np.size(getattr(kernel, f"sigma_{letter}"))
        for index in range(count):

            def shifted(step, letter=letter, index=index, count=count):
                direction = torch.ones(()) if count == 1 else torch.eye(count, dtype=torch.float64)[index]
                parts = {**vars(base), letter: getattr(base, letter) * torch.exp(step * direction)}
                return kernel._matrix(x, x, module.Scales(**parts))

            slopes.append(module._forward_mode(shifted))
    return np.stack(slopes, axis=2)


@pytest.mark.parametrize(
    "options",
    [
        {"sigma_h": 0.4},
        {"sigma_h": 0.4, "normalize": True, "kind": "nngp"},
        {"sigma_b": 0.0},
        {"normalize": True, "activation": "erf"},
        {"num_layers": 2, "sigma_w": (1.2, 0.9)},
        {"sigma_w": (1.3,), "normalize": True},
    ],
    ids=["start", "nngp", "no bias", "erf", "layers", "a list"],
)
def test_gradients_agree_with_forward_mode(options):
    x = sample(6, 6, 4, 6)
    x[3] = -x[0]
    kernel = RecurrentNTK(**{"sigma_b": 0.2, **options})
    np.testing.assert_allclose(kernel(x, eval_gradient=True)[1], forward_mode(kernel, x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"activation": "erf"}], ids=["relu", "erf"])
def test_gradients_of_long_sequences_that_grow(options):
    """By σ_w the units of a rectifier grow as σ_w^T: a step of 1e-3 would miss 1e-4 of the derivative."""
    x = sample(60, 60, channels=1)
    kernel = RecurrentNTK(sigma_w=1.5, sigma_b=0.2, **options)
    exact = forward_mode(kernel, x)
    np.testing.assert_allclose(kernel(x, eval_gradient=True)[1], exact, rtol=1e-8, atol=1e-9 * np.abs(exact).max())


def test_gradients_of_sequences_of_zeros_are_finite():
    kernel = RecurrentNTK()
    for result in kernel([np.zeros((3, 1)), np.ones((2, 1))], eval_gradient=True):
        assert np.isfinite(result).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma_b": -0.1}, "expected sigma_b to be a finite number at least 0, got -0.1"),
        ({"num_layers": 2, "sigma_w": (1.0, 1.0, 1.0)}, "sigma_w to be a number or one for each of 2 layers, got 3"),
        ({"activation": "tanh"}, "expected activation to be one of 'relu', 'erf', got 'tanh'"),
        ({"kind": "gp"}, "expected kind to be one of 'ntk', 'nngp'"),
        ({"pooling": "max"}, "expected pooling to be one of"),
        ({"num_layers": 0}, "expected num_layers"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        RecurrentNTK(**options)


def test_a_zero_is_not_fitted():
    kernel = RecurrentNTK(sigma_b=0.0, sigma_h=0.1)
    names = [h.name for h in kernel.hyperparameters if not h.fixed]
    assert names == ["sigma_w", "sigma_u", "sigma_h", "sigma_v"]
