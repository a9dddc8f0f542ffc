"""The test for the map that is really run: h ← F h + Q σ(W h + z)."""

import math

from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates.certificate import Certificate, fails
from sostenuto.nn.certificates.norms import DISCRETE, expansion
from sostenuto.nn.certificates.system import Slope, sector_system


def discrete(
    F: Float[Tensor, "state state"],  # noqa: N803
    W: Float[Tensor, "unit state"],  # noqa: N803
    slope: Slope = 1.0,
    *,
    Q: Float[Tensor, "state unit"] | None = None,  # noqa: N803
) -> Certificate:
    """Test whether h ← F h + Q σ(W h + z_t) contracts under every input z."""
    value, slack = expansion(sector_system(F, W, Q, slope))
    if value + slack >= 1:
        return Certificate("discrete", False, "norm", DISCRETE, reason=fails(DISCRETE, value))
    return Certificate("discrete", True, "norm", DISCRETE, rate=-math.log(value + slack), overshoot=1.0)
