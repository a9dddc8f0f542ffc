"""The input map and the dense scan, h ← P h + Q σ(W h + V x_t + b): one function where the CPU's kernels run it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dense_scan import BACKENDS, dense_scan
from sostenuto.ops.dispatch import in_forward_mode, runs_eagerly
from sostenuto.ops.driven_scan.autograd import DrivenScan


def driven_scan(
    x: Float[Tensor, "T B d"],
    matrix: Float[Tensor, "H d"],
    bias: Float[Tensor, " H"] | None,
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "S H"] | Float[Tensor, " k"],
    *,
    activation: str = "tanh",
    threshold: Float[Tensor, " H"] | None = None,
    backend: str = "auto",
    precision: str = "exact",
) -> Float[Tensor, "T B S"]:
    """Run h ← P h + Q σ(W h + V x_t + b) over time; return every h.

    It means `dense_scan` of ``F.linear(x, matrix, bias)``, and is that wherever something looks on (a compiler, an
    exporter, a functorch transform, autocast), on a GPU, and with a threshold. In eager code on the CPU the two are
    one function: the drive and its gradient are never written to memory.

    Reference: paper 001, eqs. (1) and (3), discretized.

    >>> x, eye = torch.ones(3, 1, 2), torch.eye(2)
    >>> states = driven_scan(x, eye, None, torch.zeros(1, 2), 0 * eye, eye, eye, activation="identity")
    >>> states[:, 0, 0].tolist()
    [1.0, 2.0, 3.0]
    """
    tensors = (x, matrix, bias, start, weight, linear, gain)
    if choose_backend(backend, start, built=BACKENDS[2:]) == "cpu" and threshold is None and _as_one(tensors):
        return DrivenScan.apply(*tensors, activation)  # pyright: ignore[reportReturnType]
    options = {"backend": backend, "precision": precision}
    drive = F.linear(x, matrix, bias)
    return dense_scan(drive, start, weight, linear, gain, activation=activation, threshold=threshold, **options)[0]


def _as_one(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether nothing asks for two functions; mixed dtypes are `F.linear`'s to refuse."""
    given = [tensor for tensor in tensors if tensor is not None]
    one_kind = all(tensor.dtype == given[0].dtype for tensor in given)
    looked_on = torch.is_autocast_enabled("cpu") or in_forward_mode(*given) or not runs_eagerly(*given)
    return one_kind and not looked_on
