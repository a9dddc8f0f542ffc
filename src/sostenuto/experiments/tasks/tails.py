"""Laws about how memories die out: a tail that is told no law speaks neither for nor against one."""

from collections.abc import Callable, Sequence

UNTOLD = "no law"
"""The kind of a tail that `sostenuto.audits.memory.tail.fit_tail` tells no law."""


def shares(kinds: Sequence[str], wanted: Callable[[str], bool]) -> tuple[float, float]:
    """Return the least and the largest share of memories with a wanted tail, whatever the untold ones may be.

    >>> shares(["exponential", "no law", "polynomial", "polynomial"], lambda kind: kind == "exponential")
    (0.25, 0.5)
    """
    told = sum(wanted(kind) for kind in kinds if kind != UNTOLD)
    return told / len(kinds), (told + list(kinds).count(UNTOLD)) / len(kinds)


def is_exponential(kind: str) -> bool:
    """Return whether a tail was told exponential."""
    return kind == "exponential"


def is_otherwise(kind: str) -> bool:
    """Return whether a tail was told another law than the exponential."""
    return not is_exponential(kind)


def why_undecided(least: bool, most: bool, kinds: Sequence[str]) -> str:
    """Say that untold tails decide a law, which holds by the ``least`` or only by the ``most`` that is possible.

    >>> why_undecided(False, True, ["exponential", "no law"]), why_undecided(True, True, ["no law"])
    ('1 of 2 tails told no law', '')
    """
    return f"{list(kinds).count(UNTOLD)} of {len(kinds)} tails told no law" if most and not least else ""
