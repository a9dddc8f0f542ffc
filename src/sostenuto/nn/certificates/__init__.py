"""Proofs that a recurrence forgets its start, from its matrices alone; each says what was checked, or what fails."""

from sostenuto.nn.certificates.certificate import Certificate, fails, refused
from sostenuto.nn.certificates.maps import discrete
from sostenuto.nn.certificates.norms import contraction
from sostenuto.nn.certificates.sector import lure
from sostenuto.nn.certificates.settling import settling
from sostenuto.nn.certificates.system import SLOPES

__all__ = ["SLOPES", "Certificate", "contraction", "discrete", "fails", "lure", "refused", "settling"]
