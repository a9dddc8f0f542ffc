"""Proofs that a recurrence forgets its start, from its matrices alone; each says what was checked, or what fails."""

from sostenuto.nn.certificates.certificate import Certificate, fails, over_spans, overridden, refused
from sostenuto.nn.certificates.maps import discrete
from sostenuto.nn.certificates.memory import (
    LevelDecay,
    MemoryCertificate,
    Window,
    inside_blocks,
    not_provable,
    remembering,
)
from sostenuto.nn.certificates.norms import contraction
from sostenuto.nn.certificates.oscillators import OscillatorGrowth, half_lives, oscillator_growth
from sostenuto.nn.certificates.sector import lure
from sostenuto.nn.certificates.settling import settling
from sostenuto.nn.certificates.spans import over_curve

__all__ = [
    "Certificate",
    "LevelDecay",
    "MemoryCertificate",
    "OscillatorGrowth",
    "Window",
    "contraction",
    "discrete",
    "fails",
    "half_lives",
    "inside_blocks",
    "lure",
    "not_provable",
    "oscillator_growth",
    "over_curve",
    "over_spans",
    "overridden",
    "refused",
    "remembering",
    "settling",
]
