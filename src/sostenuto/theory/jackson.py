"""How well linear RNNs of width m approximate a linear functional: eq. (20) of wang2024, with its constant."""

import math

from sostenuto.checks import check_count, check_positive
from sostenuto.theory.bound import Assumption, Bound, make_bound


def jackson_bound(width: int, *, smoothness: int, decay: float, size: float, channels: int = 1) -> Bound:
    """Bound the error of the best linear RNN of ``width`` m for a functional with smooth, decaying step responses.

    If the responses y_i to a constant input in each of d channels have |e^{βt}·y_i^(k)(t)| ≤ γβ^k for k = 1 … α + 1
    (and tend to 0), an RNN with the rates jβ/(α+1), j = 1 … m, has

        sup_{‖x‖_∞ ≤ 1} |H_t(x) − Ĥ_t(x)| ≤ d·γ·(α + 1)·(π/4)^α·(2α + 1)!/(α + 1)! / (m(m−1)⋯(m−α+1)), m ≥ α.

    The paper's C(α)γd/(βm^α) has a factor 1/β too many: a change of the unit of time changes β alone, and neither γ nor
    the error. Reference: wang2024, theorem A.3; the constant is derived in ``docs/rnn_as_kernel.md``.

    Args:
        width: m.
        smoothness: α ≥ 1.
        decay: β > 0.
        size: γ.
        channels: d.

    >>> round(jackson_bound(100, smoothness=1, decay=1.0, size=1.0).value, 4)
    0.0471
    """
    for name, number in (("width", width), ("smoothness", smoothness), ("channels", channels)):
        check_count(name, number)
    check_positive("decay", decay)
    check_positive("size", size, zero=True)
    enough = Assumption("width ≥ smoothness", width >= smoothness, float(width))
    constant = (smoothness + 1) * (math.pi / 4) ** smoothness
    constant *= math.prod(range(smoothness + 2, 2 * smoothness + 2))
    falling = math.prod(width - j for j in range(smoothness)) if enough.holds else math.nan
    terms = {"constant": constant, "slowest_rate": decay / (smoothness + 1)}
    return make_bound("approximation error", channels * size * constant / falling, terms, [enough])
