"""How long the norm in the signature's RKHS takes: exactly with its gradient, and by random signs to 5 %.

The published code of fermanian2021 takes 6.6 s for the first (32 units, order 3, with the gradient) and ends at order
4.
"""

import statistics
import time
from typing import Any

import torch
from tqdm import tqdm

from sostenuto.nn import ResidualRNN
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.tensor_field import tensor_field

TITLE = "the RKHS norm of an RNN: exact with its gradient (32 units), and by random signs to 5 % (256 units, order 6)"
TIMED = True

EXACT = {"hidden": 32, "channels": 2, "order": 3}
STOCHASTIC = {"hidden": 256, "channels": 16, "order": 6}
RELATIVE_ERROR = 0.05
_ROUNDS = 20


def run(
    progress: bool = True, exact: dict[str, int] | None = None, stochastic: dict[str, int] | None = None
) -> dict[str, Any]:
    """Return the seconds of both, and of the second the draws and the errors, at 1, 2 and 4 times torch's weights."""
    exact, stochastic = exact or EXACT, stochastic or STOCHASTIC
    scales = tqdm([1.0, 2.0, 4.0], disable=not progress)
    return {
        "exact": {**exact, **_exact(exact)},
        "stochastic": {**stochastic, "by_weight_scale": {str(scale): _drawn(stochastic, scale) for scale in scales}},
    }


def _exact(shape: dict[str, int]) -> dict[str, float]:
    torch.manual_seed(0)
    layer, head = ResidualRNN(shape["channels"], shape["hidden"]), torch.nn.Linear(shape["hidden"], 2)
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        rkhs_norm(layer, shape["order"], readout=head).squared.sum().backward()
        seconds.append(time.perf_counter() - start)
    return {"median_seconds": statistics.median(seconds), "first_seconds": seconds[0]}


def _drawn(shape: dict[str, int], scale: float) -> dict[str, Any]:
    torch.manual_seed(0)
    layer, head = ResidualRNN(shape["channels"], shape["hidden"]), torch.nn.Linear(shape["hidden"], 1)
    with torch.no_grad():
        for weight in layer.parameters():
            weight *= scale
        start = time.perf_counter()
        norm = rkhs_norm(
            tensor_field(layer), shape["order"], readout=head, method="stochastic", relative_error=RELATIVE_ERROR
        )
    return {
        "seconds": time.perf_counter() - start,
        "draws": norm.draws,
        "relative_standard_error": float(norm.standard_error / norm.squared),
        "value": float(norm.value),
        "squared_by_level": norm.levels[:, 0].tolist(),
    }
