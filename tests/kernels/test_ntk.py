import math

import numpy as np
import pytest

from sostenuto.kernels import NTK
from tests.laws.kernel_laws import KernelLaws, sample


class TestNTK(KernelLaws):
    kernels = (NTK(2), NTK(3, "erf", sigma_b=0.5, normalize=True), NTK(1, sigma_w=0.7, kind="nngp"))


def by_the_paper(x, y, layers, w, b, v):
    """Σ, Σ̇ and the sum over layers, as docs/errata.md, alemohammad2021.5, has them."""

    def dual(own, other, sigma):
        c = max(-1.0, min(1.0, sigma / math.sqrt(own * other)))
        rest = math.pi - math.acos(c)
        return (c * rest + math.sqrt(1 - c * c)) * math.sqrt(own * other) / (2 * math.pi), rest / (2 * math.pi)

    inner = [w**2 * float(one @ two) / len(x) + b**2 for one, two in ((x, x), (y, y), (x, y))]
    sigmas, slopes = [], []
    for layer in range(layers):
        own, other, sigma = inner
        value, slope = dual(own, other, sigma)
        sigmas.append(sigma)
        slopes.append((v**2 if layer + 1 == layers else w**2) * slope)
        inner = [w**2 * own / 2 + b**2, w**2 * other / 2 + b**2, w**2 * value + b**2]
    return v**2 * value + sum(s * math.prod(slopes[i:]) for i, s in enumerate(sigmas))


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_is_the_papers_formula_corrected(layers):
    x, y = (each[:, 0] for each in sample(6, 6, channels=1))
    got = NTK(layers, sigma_w=1.7, sigma_b=0.4, sigma_v=0.6)([x], [y])[0, 0]
    assert got == pytest.approx(by_the_paper(x, y, layers, 1.7, 0.4, 0.6), rel=1e-12)


def test_order_of_steps_does_not_matter():
    x = np.stack(sample(6, 6, 6, channels=1))[:, :, 0]
    order = [3, 0, 5, 1, 4, 2]
    np.testing.assert_allclose(NTK(3)(x[:, order]), NTK(3)(x), rtol=1e-12)
