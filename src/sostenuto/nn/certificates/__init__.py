"""Proofs that a recurrence forgets its start, from its matrices alone; each says what was checked, or what fails.

Names are imported when first used: a layer needs the forms of a certificate, and its proof only when it is asked for.
"""

from typing import TYPE_CHECKING

from sostenuto.lazy import LazyTable, lazy_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from sostenuto.nn.certificates.blocks import BlockMaps, block_memory
    from sostenuto.nn.certificates.certificate import Certificate, changed, fails, over_spans, refused
    from sostenuto.nn.certificates.maps import certify_discrete, discrete
    from sostenuto.nn.certificates.memory import (
        LevelDecay,
        MemoryCertificate,
        Window,
        both_directions,
        not_provable,
        remembering,
    )
    from sostenuto.nn.certificates.norms import certify_contraction, contraction
    from sostenuto.nn.certificates.oscillators import OscillatorGrowth, half_lives, oscillator_growth
    from sostenuto.nn.certificates.sector import certify_lure, lure
    from sostenuto.nn.certificates.settling import certify_discrete_settling, certify_settling
    from sostenuto.nn.certificates.unit import DenseUnit

KINDS: "LazyTable[Callable[[DenseUnit], Certificate]]" = LazyTable(
    __name__,
    {
        "contraction": "certify_contraction",
        "lure": "certify_lure",
        "discrete": "certify_discrete",
        "settling": "certify_settling",
        "discrete settling": "certify_discrete_settling",
    },
)
"""What a layer's `certificate` can be asked for, and the function of a `DenseUnit` that answers.

A kind that covers time spans begins with "discrete".
"""

__all__ = [
    "KINDS",
    "BlockMaps",
    "Certificate",
    "DenseUnit",
    "LevelDecay",
    "MemoryCertificate",
    "OscillatorGrowth",
    "Window",
    "block_memory",
    "both_directions",
    "certify_contraction",
    "certify_discrete",
    "certify_discrete_settling",
    "certify_lure",
    "certify_settling",
    "changed",
    "contraction",
    "discrete",
    "fails",
    "half_lives",
    "lure",
    "not_provable",
    "oscillator_growth",
    "over_spans",
    "refused",
    "remembering",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
