"""The scan of dense recurrences h ← P h + Q σ(W h + z_t), with its input map or without: check, choose, apply."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, require
from sostenuto.ops.activation import check_activation
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dense.autograd import DrivenScan, scan
from sostenuto.ops.dense.plan import planned
from sostenuto.ops.dense.reference import dense_scan_reference
from sostenuto.ops.dispatch import in_forward_mode, needs_reference, runs_eagerly

PRECISIONS = ("exact", "tf32")


def dense_scan(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "S H"] | Float[Tensor, " k"],
    *,
    activation: str = "tanh",
    threshold: Float[Tensor, " H"] | None = None,
    backend: str = "auto",
    precision: str = "exact",
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"]]:
    """Run h ← P h + Q σ(W h + z_t) over time; return every h, then the last.

    ``inputs`` holds the projected inputs z_t, ``start`` the state before the first step and ``weight`` W. The state
    may hold k components of the width H side by side (S = k·H); then P and Q need not be full matrices:

    - ``linear`` P: a full matrix (S, S), or coefficients p (k, k) between components, P = p ⊗ I. With k = 1, [[1]] is
      a residual step and [[0]] Elman's; k = 2 serves second-order systems with the state (y, z).
    - ``gain`` Q: a full matrix (S, H), or coefficients q (k,), Q = q ⊗ I.

    Every tensor but no option is differentiable, the coefficients too. ``activation`` is one of tanh, relu, hardtanh,
    logistic, identity and modrelu, which alone takes a ``threshold`` a unit. ``precision="tf32"`` lets the GPU round
    the factors of a product to 11 bits; the diagonal of P is never rounded. On a GPU the kernels take a state of one
    component, or of two with coefficients for P and Q, whose matrices fit into on-chip memory,
    of several multiprocessors where one cannot hold them; ``backend="auto"`` takes the reference beyond. Forward-mode
    derivatives and those of torch.func (grad, jacrev, hessian) are the reference's; `torch.func.vmap` runs the kernels.

    Reference: erichson2021, eqs. (1) and (3), discretized; wang2024, eq. (2).

    >>> import torch
    >>> z, zero = torch.zeros(5, 1, 2), torch.ones(1, 2)
    >>> states, last = dense_scan(z, zero, torch.eye(2), torch.tensor([[0.5]]), torch.tensor([0.0]))
    >>> states.shape, last.tolist()
    (torch.Size([5, 1, 2]), [[0.03125, 0.03125]])
    """
    _check_shapes(inputs, start, linear, gain)
    check_activation(activation, threshold)
    check_choice("precision", precision, PRECISIONS)
    chosen = _chosen(backend, (start, weight, linear, gain), precision)
    tensors = (inputs, start, weight, linear, gain, threshold)
    if chosen != "reference" and not needs_reference(*tensors):
        return scan(*tensors, activation, precision)
    return dense_scan_reference(inputs, start, weight, linear, gain, activation=activation, threshold=threshold)


def _chosen(backend: str, tensors: tuple[Tensor, Tensor, Tensor, Tensor], precision: str) -> str:
    """Settle the backend: on a GPU also by whether the matrices fit into on-chip memory."""
    chosen = choose_backend(backend, tensors[0])
    if chosen != "gpu":
        return chosen
    fits = planned(*tensors, precision) is not None
    require(
        backend != "gpu" or fits,
        "expected a state of one component, or of two with coefficients for P and Q, and matrices that fit on the GPU",
        f"got a state of {tensors[0].shape[1]} with matrices of {', '.join(str(tuple(v.shape)) for v in tensors[1:])}",
        "pass backend='auto' or 'reference', or precision='tf32'",
    )
    return chosen if fits else "reference"


def _check_shapes(inputs: Tensor, start: Tensor, linear: Tensor, gain: Tensor) -> None:
    hidden, width = inputs.shape[-1], start.shape[-1]
    k = width // hidden if width % hidden == 0 else width
    require(
        linear.shape[0] == linear.shape[1] and (linear.shape[0] == width or linear.shape[0] == k),
        f"expected linear as a matrix ({width}, {width}) or as coefficients ({k}, {k})",
        f"got shape {tuple(linear.shape)}",
    )
    require(
        (gain.shape[0] == width and gain.shape[1] == hidden)
        if gain.ndim == 2
        else gain.shape[0] == k and k * hidden == width,
        f"expected gain as a matrix ({width}, {hidden}) or, where the state is whole components of the width {hidden}, "
        "as one coefficient each",
        f"got shape {tuple(gain.shape)}",
    )


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

    It means `dense_scan` of ``F.linear(x, matrix, bias)``, and is that outside plain eager mode (a compiler, an
    exporter, a functorch transform, autocast), on a GPU, and with a threshold. In eager code on the CPU the two are
    one function: the drive and its gradient are never written to memory.

    Reference: erichson2021, eqs. (1) and (3), discretized.

    >>> x, eye = torch.ones(3, 1, 2), torch.eye(2)
    >>> states = driven_scan(x, eye, None, torch.zeros(1, 2), 0 * eye, eye, eye, activation="identity")
    >>> states[:, 0, 0].tolist()
    [1.0, 2.0, 3.0]
    """
    tensors = (x, matrix, bias, start, weight, linear, gain)
    if choose_backend(backend, start) == "cpu" and threshold is None and _as_one(tensors):
        return DrivenScan.apply(*tensors, activation)  # pyright: ignore[reportReturnType]
    options = {"backend": backend, "precision": precision}
    drive = F.linear(x, matrix, bias)
    return dense_scan(drive, start, weight, linear, gain, activation=activation, threshold=threshold, **options)[0]


def _as_one(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether nothing asks for two functions; mixed dtypes are `F.linear`'s to refuse."""
    present = [tensor for tensor in tensors if tensor is not None]
    one_kind = all(tensor.dtype == present[0].dtype for tensor in present)
    transformed = torch.is_autocast_enabled("cpu") or in_forward_mode(*present) or not runs_eagerly(*present)
    return one_kind and not transformed
