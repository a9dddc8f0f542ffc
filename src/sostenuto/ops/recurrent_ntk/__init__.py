"""The GP kernel and the neural tangent kernel of an infinitely wide RNN: check, choose a backend, apply."""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.autograd import forward_ad

from sostenuto.checks import check_choice, require
from sostenuto.ops.backend import BACKENDS, HAS_TRITON, choose_backend
from sostenuto.ops.recurrent_ntk import fast
from sostenuto.ops.recurrent_ntk.duals import Dual, Erf, ReLU
from sostenuto.ops.recurrent_ntk.profile import Profile, profile
from sostenuto.ops.recurrent_ntk.ragged import Series, by_length, identities, same
from sostenuto.ops.recurrent_ntk.reference import pairs_reference, pooling_weights
from sostenuto.ops.recurrent_ntk.scales import Scaled, Scales

__all__ = [
    "KINDS",
    "POOLINGS",
    "Scaled",
    "Scales",
    "dual_for",
    "met_variances",
    "recurrent_ntk",
    "recurrent_ntk_diagonal",
]

KINDS = ("ntk", "nngp")
POOLINGS = ("last", "mean")
Activation = str | Callable[[Tensor], Tensor]


def recurrent_ntk(
    left: Sequence[Series],
    right: Sequence[Series] | None,
    scales: Scales,
    *,
    activation: Activation = "relu",
    kind: str = "ntk",
    pooling: str = "last",
    backend: str = "auto",
) -> Scaled:
    """Return Θ(x, y), or the GP kernel 𝒦(x, y), for every pair of sequences of any lengths.

    Reference: alemohammad2021, Theorem 1 and eqs. (11)–(19), corrected in docs/errata.md (alemohammad2021.1–4).
    ``right=None`` means ``left`` again. The units of a rectifier's kernel are kept as logarithms, so no length and no σ
    overflows.

    ``backend="auto"`` takes compiled code for the closed forms, ``"relu"`` and ``"erf"``, where nothing is to be
    differentiated, and the reference otherwise. Sequences on a GPU are profiled on the CPU and paired on the GPU, but
    for mean pooling, which runs on the CPU; the result is on the CPU.

    >>> x = [torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)]
    >>> recurrent_ntk(x, None, Scales.of(w=1.0)).values.shape
    torch.Size([2, 2])
    """
    check_choice("kind", kind, KINDS)
    check_choice("pooling", pooling, POOLINGS)
    other = left if right is None else right
    chosen = _chosen(backend, activation, pooling, scales, left, other)
    if chosen != "reference":
        options = {"erf": activation == "erf", "kind": kind, "pooling": pooling, "gpu": chosen == "gpu"}
        return fast.matrix(left, right, scales, **options)
    dual = dual_for(activation, [*left, *other], scales)
    numbers = identities(left, other)
    rows = _groups(left, scales, dual)
    columns = rows if right is None else _groups(other, scales, dual)
    values = torch.zeros(len(left), len(other), dtype=torch.float64)
    for first, one in rows:
        for second, two in columns:
            equal = same(numbers[0][first], numbers[1][second])
            block = pairs_reference(one, two, equal, dual, kind=kind, pooling=pooling)
            values = values.index_put((first[:, None], second[None, :]), block)
    return Scaled(values, _units(rows, len(left), pooling), _units(columns, len(other), pooling))


def recurrent_ntk_diagonal(
    sequences: Sequence[Series],
    scales: Scales,
    *,
    activation: Activation = "relu",
    kind: str = "ntk",
    pooling: str = "last",
    backend: str = "auto",
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Return k(x, x) of every sequence as a number and the logarithm of its unit: k = number · exp(2 · logarithm)."""
    check_choice("kind", kind, KINDS)
    check_choice("pooling", pooling, POOLINGS)
    if _chosen(backend, activation, "last", scales, sequences) != "reference":
        return fast.diagonal(sequences, scales, erf=activation == "erf", kind=kind, pooling=pooling)
    dual = dual_for(activation, sequences, scales)
    groups = _groups(sequences, scales, dual)
    values = torch.zeros(len(sequences), dtype=torch.float64)
    for indices, group in groups:
        if pooling == "last":
            own = (group.nngp if kind == "nngp" else group.ntk)[:, -1]
        else:
            own = torch.stack([_alone(group, n, dual, kind) for n in range(len(indices))])
        values = values.index_put((indices,), own)
    return values, _units(groups, len(sequences), pooling)


def _chosen(backend: str, activation: Activation, pooling: str, scales: Scales, *sides: Sequence[Series]) -> str:
    """Settle the backend: compiled code has the closed forms only, no derivative, and on the GPU no mean over steps."""
    check_choice("backend", backend, BACKENDS)
    example = sides[0][0].new_zeros(1)
    closed = isinstance(activation, str)
    if closed and example.is_cuda and HAS_TRITON and backend in ("auto", "gpu") and _plain(scales, sides):
        return "gpu" if pooling == "last" else "cpu"
    if backend == "auto" and not (closed and _plain(scales, sides)):
        return "reference"
    require(
        backend != "cpu" or closed,
        "expected activation='relu' or 'erf' with backend='cpu'",
        f"got {activation!r}",
        "pass backend='auto'",
    )
    return choose_backend(backend, example, built=("cpu",))


def _plain(scales: Scales, sides: tuple[Sequence[Series], ...]) -> bool:
    """Whether nothing is differentiated, forward or backward."""
    tensors = [*vars(scales).values(), *(sequence for side in sides for sequence in side)]
    recording = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return not recording and all(forward_ad.unpack_dual(tensor).tangent is None for tensor in vars(scales).values())


def _alone(group: Profile, n: int, dual: Dual, kind: str) -> Tensor:
    """Return the mean-pooled k(x, x) of one sequence: all its diagonals."""
    one = group.select(n)
    return pairs_reference(one, one, torch.ones(1, 1, dtype=torch.bool), dual, kind=kind, pooling="mean")[0, 0]


def _groups(sequences: Sequence[Series], scales: Scales, dual: Dual) -> list[tuple[Tensor, Profile]]:
    return [
        (torch.tensor(indices), profile(torch.stack([sequences[i] for i in indices]), scales, dual))
        for indices in by_length(sequences).values()
    ]


def _units(groups: list[tuple[Tensor, Profile]], count: int, pooling: str) -> Tensor:
    units = torch.zeros(count, dtype=torch.float64)
    for indices, group in groups:
        units = units.index_put((indices,), group.log_unit[:, -1] if pooling == "last" else pooling_weights(group)[1])
    return units


def dual_for(activation: Activation, sequences: Sequence[Series], scales: Scales) -> Dual:
    """Return the closed form of ``"relu"`` or ``"erf"``, or a function's quadrature, accurate on ``sequences``."""
    if isinstance(activation, str):
        return {"relu": ReLU, "erf": Erf}[activation]()
    from sostenuto.ops.recurrent_ntk.quadrature import Quadrature  # which the closed forms do without

    return Quadrature(activation).fitted(lambda dual: met_variances(dual, sequences, scales))


def met_variances(dual: Dual, sequences: Sequence[Series], scales: Scales) -> Iterable[Tensor]:
    """Yield the variances, of every layer and step, of groups of sequences; those of 0 are left out."""
    plain = Scales(**{name: forward_ad.unpack_dual(value).primal.detach() for name, value in vars(scales).items()})
    with torch.no_grad():
        for indices in by_length(sequences).values():
            for layer in profile(torch.stack([sequences[i].detach() for i in indices]), plain, dual).layers:
                inverse = layer.moments.inverse
                yield inverse[inverse > 0] ** -2
