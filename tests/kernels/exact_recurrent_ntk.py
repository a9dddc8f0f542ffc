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


def exact_erf(x, y, layers=1, w=1.0, u=1.0, b=0.0, h=0.0, kind="ntk", digits=500):
    """The error function's kernel of two sequences of one channel, of any lengths, in ``digits`` digits, σ_v = 1.

    At inputs of 1e100 the slope is a difference of numbers that agree in 200 digits.
    """
    with mpmath.workdps(digits):
        squares = [mpmath.mpf(s) ** 2 for s in (w, u, b, h)]
        x, y = [mpmath.mpf(v) for v in x], [mpmath.mpf(v) for v in y]
        own = [_erf_variances(side, layers, *squares) for side in (x, y)]
        steps = min(len(x), len(y))
        start = squares[3] if x == y else mpmath.mpf(0)
        states = [(start, mpmath.mpf(0))] * layers
        for t in range(steps):
            i, j = len(x) - steps + t, len(y) - steps + t
            entering, tangent = x[i] * y[j], mpmath.mpf(0)
            for layer in range(layers):
                covariance, carried = states[layer]
                sigma = squares[0] * covariance + squares[1] * entering + squares[2]
                theta = sigma + squares[0] * carried + squares[1] * tangent
                value, slope = _erf_dual(sigma, own[0][layer][i], own[1][layer][j])
                entering, tangent = value, slope * theta
                states[layer] = value, tangent
        return entering + (tangent if kind == "ntk" else 0)


def _erf_dual(sigma, q, p):
    scale = (1 + 2 * q) * (1 + 2 * p)
    return 2 / mpmath.pi * mpmath.asin(2 * sigma / mpmath.sqrt(scale)), 4 / mpmath.pi / mpmath.sqrt(
        scale - 4 * sigma**2
    )


def _erf_variances(x, layers, w2, u2, b2, h2):
    entering, found = [v * v for v in x], []
    for _ in range(layers):
        before, column, values = h2, [], []
        for v in entering:
            q = w2 * before + u2 * v + b2
            before = _erf_dual(q, q, q)[0]
            column.append(q)
            values.append(before)
        found.append(column)
        entering = values
    return found
