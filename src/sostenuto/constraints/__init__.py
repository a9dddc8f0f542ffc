"""Weight to constrained weight: torch parametrizations with a ``right_inverse``, one constraint per file."""

from sostenuto.constraints.at_least import AtLeast
from sostenuto.constraints.between import Between
from sostenuto.constraints.orthogonal import Orthogonal
from sostenuto.constraints.positive import Positive
from sostenuto.constraints.skew import Skew
from sostenuto.constraints.spectral_norm import SpectralNorm
from sostenuto.constraints.stable import Stable
from sostenuto.constraints.symmetric_skew import SymmetricSkew

__all__ = ["AtLeast", "Between", "Orthogonal", "Positive", "Skew", "SpectralNorm", "Stable", "SymmetricSkew"]
