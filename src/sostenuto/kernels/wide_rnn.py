"""A finite RNN with NTK initialization, tied or untied: what the recurrent NTK is the limit of."""

import hashlib
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]

from sostenuto.checks import require
from sostenuto.types import Sequences

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "erf": torch.erf}


class WideRNN(nn.Module):
    """f = σ_v/√n·v h^L_T, g^ℓ_t = σ_w/√n·W h^ℓ_{t−1} + σ_u/√n·U h^{ℓ−1}_t + σ_b b, all ~ N(0, 1), h_0 ~ N(0, σ_h²).

    The factors stay outside the weights, so that their gradients have a limit as the width n grows (alemohammad2021,
    eqs. (1), (2), (5), (6); docs/errata.md, alemohammad2021.4). Untied weights are drawn anew for each of ``steps``
    steps (section 3.3). h_0 is drawn for each distinct sequence and layer, from the sequence's values and a seed of the
    network: equal sequences start alike, in every call. With σ_h > 0 it cannot be mapped: `EmpiricalNTK` takes
    ``method="loop"``.

    >>> network = WideRNN(1, 64, generator=torch.Generator().manual_seed(0))
    >>> network(torch.zeros(5, 7, 1, dtype=torch.float64)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        input_size: int,
        width: int,
        num_layers: int = 1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        sigma_w: float = 2**0.5,
        sigma_u: float = 1.0,
        sigma_b: float = 0.0,
        sigma_v: float = 1.0,
        *,
        sigma_h: float = 0.0,
        tied: bool = True,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.phi = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.width, self.num_layers, self.tied, self.steps = width, num_layers, tied, steps
        self.sigmas = sigma_w, sigma_u, sigma_b, sigma_v
        copies = 1 if tied else steps

        def normal(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))

        sizes = [input_size] + [width] * (num_layers - 1)
        self.weight_hh = nn.ParameterList(normal(copies, width, width) for _ in sizes)
        self.weight_ih = nn.ParameterList(normal(copies, width, size) for size in sizes)
        self.bias = nn.ParameterList(normal(copies, width) for _ in sizes)
        self.readout = normal(width)
        self.sigma_h = sigma_h
        self.seed = int(torch.randint(2**62, (), generator=generator)) if sigma_h > 0 else 0

    def start(self, x: Sequences) -> Float[Tensor, "layer batch hidden"]:
        """Return h_0 of every layer and sequence."""
        if self.sigma_h == 0:
            return x.new_zeros(self.num_layers, len(x), self.width)
        rows = []
        for sequence in _unwrapped(x).tolist():
            # Adding 0 turns −0 into 0, which has the same value but other bytes.
            values = (np.array(sequence) + 0.0).tobytes()
            digest = hashlib.blake2b(values + self.seed.to_bytes(8, "big"), digest_size=7).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
            rows.append(torch.randn(self.num_layers, self.width, generator=generator, dtype=torch.float64))
        return (self.sigma_h * torch.stack(rows, 1)).to(x)

    def forward(self, x: Sequences) -> Float[Tensor, "batch 1"]:
        """Return the output after the last step."""
        w, u, b, v = self.sigmas
        require(self.tied or x.shape[1] <= self.steps, f"expected at most {self.steps} steps", f"got {x.shape[1]}")
        states = list(self.start(x))
        for t in range(x.shape[1]):
            below, at = x[:, t], 0 if self.tied else t
            for layer in range(self.num_layers):
                entering = below @ self.weight_ih[layer][at].mT * (u / math.sqrt(below.shape[1]))
                carried = states[layer] @ self.weight_hh[layer][at].mT * (w / math.sqrt(self.width))
                below = states[layer] = self.phi(carried + entering + b * self.bias[layer][at])
        return (states[-1] @ self.readout * (v / math.sqrt(self.width)))[:, None]


def _unwrapped(x: Tensor) -> Tensor:
    """Take the values out of what `torch.func` wraps to follow derivatives; refuse what it maps."""
    while _functorch.is_functorch_wrapped_tensor(x):
        require(
            not _functorch.is_batchedtensor(x),
            "expected plain sequences with sigma_h above 0",
            "got mapped ones",
            "pass method='loop' to EmpiricalNTK",
        )
        x = _functorch.get_unwrapped(x)
    return x
