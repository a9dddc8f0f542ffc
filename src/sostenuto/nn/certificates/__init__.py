"""Proofs that a recurrence forgets its start, from its matrices alone; each says what was checked, or what fails.

Names are imported when first used: a layer needs the forms of a certificate, and its proof only when it is asked for.
"""

from typing import TYPE_CHECKING

from sostenuto.lazy import lazy_names

if TYPE_CHECKING:
    from sostenuto.nn.certificates.blocks import BlockMaps, block_memory
    from sostenuto.nn.certificates.certificate import Certificate, changed, fails, over_spans, refused
    from sostenuto.nn.certificates.maps import discrete
    from sostenuto.nn.certificates.memory import (
        LevelDecay,
        MemoryCertificate,
        Window,
        both_directions,
        not_provable,
        remembering,
    )
    from sostenuto.nn.certificates.norms import contraction
    from sostenuto.nn.certificates.oscillators import OscillatorGrowth, half_lives, oscillator_growth
    from sostenuto.nn.certificates.sector import lure
    from sostenuto.nn.certificates.spans import over_curve

__all__ = [
    "BlockMaps",
    "Certificate",
    "LevelDecay",
    "MemoryCertificate",
    "OscillatorGrowth",
    "Window",
    "block_memory",
    "both_directions",
    "changed",
    "contraction",
    "discrete",
    "fails",
    "half_lives",
    "lure",
    "not_provable",
    "oscillator_growth",
    "over_curve",
    "over_spans",
    "refused",
    "remembering",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
