"""How many random recurrences each certificate proves stable, and whether a simulation contradicts any of them.

A system h′ = Ah + tanh(Wh + z(t)) of 1 to 16 units is judged by the norm test and by the Lur'e inequality, and its
Euler steps by their two tests. Every certified system is simulated, two starts under the same random input, and looked
at where its units have constant slopes. A certificate is contradicted where the distance of the two states exceeds
overshoot · exp(−rate · t) times the first one, or where some slopes decay more slowly than it says.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from sostenuto.nn.certificates import Certificate, contraction, discrete, lure
from sostenuto.nn.certificates.norms import DISCRETE, expansion
from sostenuto.nn.certificates.slopes import rate_limit
from sostenuto.nn.certificates.system import sector_system

TITLE = "stability certificates on random recurrences: norm test against matrix inequality, each against simulation"

COUNT = 2000
STEP = 0.1
_TESTS = ("norm", "lure", "discrete norm", "discrete inequality")


def run(progress: bool = True, count: int = COUNT, seed: int = 0) -> dict[str, Any]:
    """Return how many of ``count`` systems each test certifies, at which rates, and how many it certifies wrongly."""
    places = tqdm(range(count), desc="certificates", unit="system", disable=not progress)
    return summarize([judge(index, seed) for index in places], seed)


def judge(index: int, seed: int = 0) -> dict[str, Any]:
    """Judge one system: its limit, and of each test that certifies it the rate, the bound's use and contradictions."""
    A, W = random_system(np.random.default_rng((seed, index)))  # noqa: N806
    limits = rate_limits(A, W)
    row: dict[str, Any] = {"limit": limits[0]}
    for test, certificate in certificates(A, W).items():
        if certificate.holds:
            stepped = "discrete" in test
            share = largest_share(A, W, certificate, step=STEP if stepped else None, seed=index)
            rate = certificate.rate or 0.0
            row[test] = {"rate": rate, "share": share, "wrong": share > 1 + 1e-6 or rate > limits[stepped]}
    return row


def summarize(rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """Count and average what `judge` found."""
    by_test = {test: [row[test] for row in rows if test in row] for test in _TESTS}
    both = [(row["norm"]["rate"], row["lure"]["rate"]) for row in rows if "norm" in row and "lure" in row]
    return {
        "count": len(rows),
        "seed": seed,
        "euler_step": STEP,
        "unstable_at_some_slopes": sum(row["limit"] <= 0 for row in rows),
        "certified": {test: len(each) for test, each in by_test.items()},
        "certified_share": {test: len(each) / len(rows) for test, each in by_test.items()},
        "contradicted": {test: sum(row["wrong"] for row in each) for test, each in by_test.items()},
        "largest_share_of_bound": {
            test: max((row["share"] for row in each), default=0.0) for test, each in by_test.items()
        },
        "median_rate": {test: _median([row["rate"] for row in each]) for test, each in by_test.items()},
        "median_ratio_of_lure_to_norm_rate": _median([lure_rate / norm for norm, lure_rate in both]),
    }


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0


def random_system(generator: np.random.Generator) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n n"]]:
    """Draw A = −aI + gG/√n and W = wG′/√n with normal G, G′ and 1 to 16 units.

    >>> A, W = random_system(np.random.default_rng(0))
    >>> A.shape == W.shape
    True
    """
    units = int(generator.integers(1, 17))
    decay, spread, push = generator.uniform((0.1, 0.0, 0.0), (3.0, 1.5, 2.0))
    noise = generator.normal(size=(2, units, units)) / np.sqrt(units)
    return torch.from_numpy(spread * noise[0] - decay * np.eye(units)), torch.from_numpy(push * noise[1])


def rate_limits(A: Float[Tensor, "n n"], W: Float[Tensor, "n n"]) -> tuple[float, float]:  # noqa: N803
    """Return the slowest decay found at constant slopes, of the differential equation and of its Euler steps."""
    eye = torch.eye(len(A), dtype=A.dtype)
    steps = sector_system(eye + STEP * A, W, STEP * eye, 1.0)
    return rate_limit(sector_system(A, W, None, 1.0), discrete=False), rate_limit(steps, discrete=True)


def certificates(A: Float[Tensor, "n n"], W: Float[Tensor, "n n"]) -> dict[str, Certificate]:  # noqa: N803
    """Ask the four tests about one system."""
    eye = torch.eye(len(A), dtype=A.dtype)
    F, Q = eye + STEP * A, STEP * eye  # noqa: N806
    value, slack = expansion(sector_system(F, W, Q, 1.0))
    norm = value + slack
    bare = Certificate("discrete", norm < 1, "norm", DISCRETE, rate=-float(np.log(norm)), overshoot=1.0)
    return {
        "norm": contraction(A, W),
        "lure": lure(A, W),
        "discrete norm": bare,
        "discrete inequality": discrete(F, W, Q=Q),
    }


def largest_share(
    A: Float[Tensor, "n n"],  # noqa: N803
    W: Float[Tensor, "n n"],  # noqa: N803
    certificate: Certificate,
    *,
    step: float | None,
    seed: int,
    num_steps: int = 200,
) -> float:
    """Simulate 64 pairs of states and return the largest distance as a share of what the certificate allows.

    With ``step`` the map is Euler's, run as it is; without, the differential equation is followed over spans of 0.02,
    each by four steps of RK4: with one, its own error passes a tight bound by 7e-6. Inputs are constant over a span;
    states of sizes from .01 to 10 meet inputs of sizes from 0 to 10.
    """
    generator = torch.Generator().manual_seed(seed)
    units, pairs = len(A), 64
    sizes = torch.logspace(-2, 1, 8, dtype=torch.float64).repeat(8)[:, None]
    inputs = torch.cat([torch.zeros(1), torch.logspace(-2, 1, 7)]).double().repeat_interleave(8)[:, None]
    h = sizes * torch.randn(2, pairs, units, generator=generator, dtype=torch.float64)
    first, rate, overshoot = (h[0] - h[1]).norm(dim=-1), certificate.rate or 0.0, certificate.overshoot or 1.0
    length, worst = 0.02 if step is None else step, 0.0
    for n in range(1, num_steps + 1):
        z = inputs * torch.randn(pairs, units, generator=generator, dtype=torch.float64)
        if step is not None:
            h = h + step * _field(h, z, A, W)
        else:
            for _ in range(4):
                h = h + length / 4 * _slope(h, z, A, W, length / 4)
        time = n if step is not None else n * length
        distance = (h[0] - h[1]).norm(dim=-1)
        # Below this the difference of two states is rounding error.
        seen = distance > 1e-9 * (1 + h.abs().amax((0, 2)))
        share = distance / (overshoot * first * np.exp(-rate * time))
        worst = max(worst, float(share[seen].max())) if bool(seen.any()) else worst
    return worst


def _field(h: Tensor, z: Tensor, A: Tensor, W: Tensor) -> Tensor:  # noqa: N803
    return h @ A.T + torch.tanh(h @ W.T + z)


def _slope(h: Tensor, z: Tensor, A: Tensor, W: Tensor, length: float) -> Tensor:  # noqa: N803
    first = _field(h, z, A, W)
    second = _field(h + length / 2 * first, z, A, W)
    third = _field(h + length / 2 * second, z, A, W)
    return (first + 2 * second + 2 * third + _field(h + length * third, z, A, W)) / 6
