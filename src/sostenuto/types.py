"""Shapes as types: the jaxtyping aliases every module shares.

They are annotations at run time and checks in the tests, where beartype reads them.
"""

from pathlib import Path

from jaxtyping import Bool, Float, Int
from torch import Tensor

Sequences = Float[Tensor, "batch time channel"]
"""Padded real sequences, house layout."""

Tokens = Int[Tensor, "batch time"]
"""Padded token ids."""

Lengths = Int[Tensor, " batch"]
"""The true length of each padded sequence."""

Mask = Bool[Tensor, "batch time"]
"""True where a step belongs to its sequence."""

Timespans = Float[Tensor, "batch time"]
"""Time passed between a step and the one before it, in units of the sampling step."""

PathLike = str | Path
