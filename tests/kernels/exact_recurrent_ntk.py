"""The rectifier's normalized recurrent NTK of one pair in 60 digits: unscaled, as the paper writes it."""

import pytest

mpmath = pytest.importorskip("mpmath")


def exact_normalized(x, y, sigma_w, digits=60):
    with mpmath.workdps(digits):
        w2 = mpmath.mpf(sigma_w) ** 2
        x, y = [mpmath.mpf(float(v)) for v in x], [mpmath.mpf(float(v)) for v in y]
        pair, one, other = (_run(a, b, w2) for a, b in ((x, y), (x, x), (y, y)))
        return float(pair / mpmath.sqrt(one * other))


def _run(x, y, w2):
    turn = 2 * mpmath.pi
    same = x is y
    qx = qy = covariance = theta = slope = mpmath.mpf(0)
    for a, b in zip(x, y, strict=True):
        sigma = w2 * covariance + a * b
        theta = sigma + w2 * slope * theta
        qx, qy = w2 * qx / 2 + a * a, w2 * qy / 2 + b * b
        scale = mpmath.sqrt(qx * qy)
        cosine = mpmath.mpf(1) if same else max(mpmath.mpf(-1), min(mpmath.mpf(1), sigma / scale))
        angle = mpmath.acos(cosine)
        covariance = scale * (cosine * (mpmath.pi - angle) + mpmath.sqrt(1 - cosine**2)) / turn
        slope = (mpmath.pi - angle) / turn
    return covariance + slope * theta
