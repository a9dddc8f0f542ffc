"""The numbers that count increasing trees: why star products of a bounded analytic activation grow no faster.

A star product of N letters is a sum over increasing trees of N vertices. With |σ^(m)| ≤ ρ^m·m! each tree weighs at most
∏ m_v!, and these weights add up to (2N−3)!!; (2N−3)!!/N! = C_{N−1}/2^{N−1} with the Catalan numbers C_n.
``docs/rnn_as_kernel.md`` proves it.
"""

import math
from functools import cache

SERIES_LIMIT = 0.1
"""Where the tail of the Catalan series is summed term by term, since its closed form would cancel."""


def tree_weight(order: int) -> float:
    """Return (2N−3)!! for N ≥ 1, as a float.

    >>> [tree_weight(n) for n in range(1, 6)]
    [1.0, 1.0, 3.0, 15.0, 105.0]
    """
    return math.prod(range(1, 2 * order - 2, 2)) * 1.0


def catalan_tail(x: float, first: int = 0) -> float:
    """Return Σ_{n ≥ first} C_n x^n for 0 ≤ x ≤ 1/4, infinity beyond.

    >>> catalan_tail(0.25), round(catalan_tail(0.1, 1), 6)
    (2.0, 0.127017)
    """
    if not 0 <= x <= 0.25:
        return math.inf
    if x > SERIES_LIMIT:
        early = math.fsum(_catalan(n) * x**n for n in range(first))
        return 2 / (1 + math.sqrt(1 - 4 * x)) - early
    last = first + 60
    # C_{n+1} ≤ 4·C_n: what is left out is at most a geometric series.
    rest = _catalan(last) * x**last / (1 - 4 * x)
    return math.fsum([*(_catalan(n) * x**n for n in range(first, last)), rest])


@cache
def _catalan(n: int) -> int:
    return math.comb(2 * n, n) // (n + 1)
