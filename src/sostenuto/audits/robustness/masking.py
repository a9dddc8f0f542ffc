"""Signs that a model's gradients do not show an attacker the way, so that an attack by gradients proves nothing."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from sostenuto.report.numbers import percent

SILENT = 0.1
"""Above this share of sequences without a gradient, gradients are masked."""
MARGIN = 0.03
"""What another attack must find beyond the gradients', or a larger ball leave beyond a smaller one, to be a sign."""


class Evidence(NamedTuple):
    """What attacks showed of ``sequences``.

    ``silent`` is the share without any gradient, ``scattered`` whether two calls with one input differ, ``lost`` what
    each attack took at radii in growing order, ``misled`` the share in which a small step along the gradient does
    not do what the gradient says.
    """

    sequences: int
    silent: float
    scattered: bool
    lost: Mapping[str, Sequence[float]]
    misled: float = 0.0


def masking(evidence: Evidence) -> str:
    r"""Name the signs of masked gradients; empty where there are none.

    Reference: Athalye, Carlini and Wagner 2018, section 3.1.

    >>> masking(Evidence(100, 1.0, False, {"pgd": (0.0, 0.0), "random-search": (0.0, 0.4)}))
    'the gradient is zero in 100\u202f% of the sequences; random-search, without gradients, took 40.0 points more'
    """
    signs = []
    if evidence.silent > SILENT:
        signs.append(f"the gradient is zero in {percent(evidence.silent)} of the sequences")
    if evidence.scattered:
        signs.append("the answers to one input differ from call to call")
    if evidence.misled > SILENT:
        signs.append(f"small steps do not do what the gradient says in {percent(evidence.misled)} of the sequences")
    margin = max(MARGIN, 3 / evidence.sequences)
    by_gradient = evidence.lost["pgd"]
    if any(before - after > margin for before, after in pairwise(by_gradient)):
        signs.append("a larger change allowed did less harm")
    for name, lost in evidence.lost.items():
        more = max(other - own for other, own in zip(lost, by_gradient, strict=True))
        if more > margin:
            signs.append(f"{name}, without gradients, took {100 * more:.1f} points more")
    return "; ".join(signs)
