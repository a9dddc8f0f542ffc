"""The error function's kernel keeps its digits from inputs of 1e-100 to 1e9, against 500 digits.

Beyond 1e10 the kernel depends on angles between sequences below 1e-16, which float64 inputs do not have.
"""

import itertools

import mpmath
import numpy as np
import pytest
import torch

from sostenuto.kernels import NTK, RecurrentNTK
from sostenuto.ops.recurrent_ntk import recurrent_ntk
from tests.kernels.exact_recurrent_ntk import exact_erf
from tests.kernels.test_recurrent_ntk import forward_mode

SCALES = (1e-100, 1e-12, 1e-8, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6, 1e9)
ACCURACY = 1e-12


def sequences(scale):
    generator = np.random.default_rng(0)
    x = [generator.normal(size=length) * scale for length in (3, 4, 3)]
    return [*x, x[0].copy(), -x[1], x[2] * (1 + 1e-6), generator.uniform(0.5, 2.0, 3)]


def errors(got, x, **options):
    """Errors relative to the entry, or to √(k(x,x)k(y,y))/100 where an entry is smaller: signs cancel there."""
    exact = {(i, j): exact_erf(x[i], x[j], **options) for i, j in itertools.product(range(len(x)), repeat=2)}
    sizes = {p: max(abs(e), (exact[p[0], p[0]] * exact[p[1], p[1]]) ** 0.5 / 100) for p, e in exact.items()}
    return max(abs(float((got[p] - e) / sizes[p])) for p, e in exact.items())


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("layers", "w", "b", "h"), [(1, 1.0, 0.0, 0.0), (2, 1.3, 0.0, 0.0), (2, 0.7, 0.2, 0.4)])
@pytest.mark.parametrize("scale", SCALES)
def test_every_entry_has_twelve_digits(backend, layers, w, b, h, scale):
    x = sequences(scale)
    kernel = RecurrentNTK(layers, "erf", sigma_w=w, sigma_b=b, sigma_h=h)
    tensors = [torch.from_numpy(each)[:, None] for each in x]
    for kind in ("ntk", "nngp"):
        got = recurrent_ntk(tensors, None, kernel._scales(), activation="erf", kind=kind, backend=backend).values
        assert errors(got.numpy(), x, layers=layers, w=w, b=b, h=h, kind=kind) < ACCURACY


@pytest.mark.parametrize("scale", SCALES)
def test_diagonals_have_twelve_digits(scale):
    x = sequences(scale)
    kernel = RecurrentNTK(2, "erf", sigma_w=1.2)
    exact = [float(exact_erf(each, each, layers=2, w=1.2)) for each in x]
    np.testing.assert_allclose(kernel.diag(x), exact, rtol=ACCURACY)
    np.testing.assert_allclose(np.diag(kernel(x)), exact, rtol=ACCURACY)
    np.testing.assert_allclose(kernel.log_diag(x), np.log(exact), rtol=ACCURACY, atol=ACCURACY)
    pair = kernel.covariances(x[0], x[0])
    assert float(pair.ntk) == pytest.approx(exact[0], rel=ACCURACY)


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e-3])
def test_small_inputs_give_a_scaled_linear_kernel(pooling, scale):
    """At small inputs erf(z) is 2z/√π: the kernel of c·x is c² times that of x, and positive semi-definite."""
    x = [each / np.abs(each).max() for each in sequences(1.0)]
    kernel = RecurrentNTK(activation="erf", pooling=pooling)
    one, other = kernel([scale * each for each in x]) / scale**2, kernel([1e-10 * each for each in x]) / 1e-20
    np.testing.assert_allclose(one, other, rtol=50 * scale**2 + 1e-13, atol=1e-14 * np.abs(other).max())
    assert np.linalg.eigvalsh(one).min() > -1e-13 * np.abs(one).max()
    assert (NTK(2, "erf").diag([[scale, scale]]) > 0).all()


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1.0, 1e4])
def test_derivatives_keep_their_digits(scale):
    """By the input and by log σ, forwards, backwards and by differences, against differences in 500 digits."""
    x, y = (each * scale for each in np.random.default_rng(3).normal(size=(2, 3)))
    kernel = RecurrentNTK(activation="erf", sigma_w=0.9)

    def moved(t, step):
        with mpmath.workdps(500):
            return exact_erf([mpmath.mpf(v) + (i == t) * step for i, v in enumerate(x)], y, w=0.9)

    with mpmath.workdps(500):
        step, shift = mpmath.mpf(scale) * mpmath.mpf("1e-30"), mpmath.mpf("1e-30")
        slopes = [abs(float((moved(t, step) - moved(t, -step)) / (2 * step))) for t in range(3)]
        high, low = (exact_erf(x, y, w=0.9 * mpmath.exp(s)) for s in (shift, -shift))
        by_sigma = float((high - low) / (2 * shift))
    np.testing.assert_allclose(kernel.sensitivity(x, y), np.array(slopes) / max(slopes), rtol=1e-11)
    for forwards in (False, True):
        both = [x[:, None], y[:, None]]
        gradient = forward_mode(kernel, both) if forwards else kernel(both, eval_gradient=True)[1]
        assert gradient[0, 1, 0] == pytest.approx(by_sigma, rel=1e-11 if forwards else 1e-9)


def test_sequences_of_zeros_normalize_to_zero():
    got = RecurrentNTK(activation="erf", normalize=True)([[0.0, 0.0], [1.0, 2.0]])
    np.testing.assert_allclose(got, [[0.0, 0.0], [0.0, 1.0]], rtol=1e-14)
