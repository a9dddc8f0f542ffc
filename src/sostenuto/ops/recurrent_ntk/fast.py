"""Sequences of any lengths to and from the compiled kernels: sorted, profiled, paired, put back in order."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from sostenuto.ops.recurrent_ntk.ragged import Series, identities
from sostenuto.ops.recurrent_ntk.scales import Scaled, Scales


@dataclass(frozen=True)
class Side:
    """Sequences sorted by length, longest first: ``order`` says where each came from."""

    order: np.ndarray
    numbers: np.ndarray
    profiles: Any


def matrix(
    left: Sequence[Series],
    right: Sequence[Series] | None,
    scales: Scales,
    *,
    erf: bool,
    kind: str,
    pooling: str,
    gpu: bool = False,
) -> Scaled:
    """Return the kernel of every pair, computed on the CPU or on the sequences' GPU."""
    numbers = _numbers(scales, left, right)
    one = _side(left, numbers[0], scales, erf)
    two = one if right is None else _side(right, numbers[1], scales, erf)
    options = {"layers": len(scales.w), "erf": erf, "bias": bool(scales.b.any()), "kind": kind}
    options["mode"] = "upper" if right is None else "all"
    if gpu:
        values = _on_gpu(one, two, left[0].device, options)
    else:
        matrix = _cpu().pairs(one.profiles, two.profiles, (one.numbers, two.numbers), pooling=pooling, **options)
        if right is None:
            matrix = np.triu(matrix) + np.triu(matrix, 1).T
        values = np.empty_like(matrix)
        values[np.ix_(one.order, two.order)] = matrix
        values = torch.from_numpy(values)
    return Scaled(values, _units(one, scales, pooling), _units(two, scales, pooling))


def diagonal(
    sequences: Sequence[Series], scales: Scales, *, erf: bool, kind: str, pooling: str
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Return k(x, x) of every sequence, and the logarithm of its unit."""
    side = _side(sequences, np.arange(len(sequences)), scales, erf)
    if pooling == "last":
        own = side.profiles.own[:, int(kind == "ntk")]
    else:
        own = _cpu().pairs(
            side.profiles, side.profiles, (side.numbers, side.numbers), layers=len(scales.w),
            erf=erf, bias=bool(scales.b.any()), kind=kind, pooling=pooling, mode="own",
        )[:, 0]  # fmt: skip
    values = np.empty(len(sequences))
    values[side.order] = own
    return torch.from_numpy(values), _units(side, scales, pooling)


@dataclass(frozen=True)
class Slopes:
    """A matrix and its derivatives by logarithms of σ: of ``scaled.values``, of the units, and of A + p of x with x."""

    scaled: Scaled
    values: Float64[np.ndarray, "parameter n n"]
    units: Float64[np.ndarray, "parameter n"]
    own: Float64[np.ndarray, "n"]
    own_slopes: Float64[np.ndarray, "parameter n"]


def slopes(sequences: Sequence[Series], scales: Scales, letters: Sequence[str], *, kind: str) -> Slopes:
    """Return the kernel of one layer of rectifiers, last step read out, with its derivatives by log σ of ``letters``.

    What a σ does to single sequences is found by differences of fourth order, at O(nT); the derivatives go through the
    pairs exactly, in the pass that computes the kernel. A step of log σ is small against 1/T, for units grow as
    σ_w^T: the error is below 1e-10 of a derivative.
    """
    numbers = _numbers(scales, sequences, None)
    side = _side(sequences, numbers[0], scales, False)
    used, which = side.profiles.parts + 1, int(kind == "ntk")
    step = min(1e-3, 3e-3 / side.profiles.table.shape[1])
    differences = []
    for letter in letters:
        moved = []
        for shift in (1.0, -1.0, 2.0, -2.0):
            parts = {**vars(scales), letter: getattr(scales, letter) * float(np.exp(shift * step))}
            near = _side(sequences, numbers[0], Scales(**parts), False).profiles
            moved.append((near.table[:, :, :used], near.log_unit[:, -1], near.own[:, which]))
        with np.errstate(invalid="ignore"):
            differences.append([(8 * (a - b) - (c - d)) / (12 * step) for a, b, c, d in zip(*moved, strict=True)])
    tangents, units, own = (np.stack(part) for part in zip(*differences, strict=True))
    compiled = importlib.import_module("sostenuto.ops.recurrent_ntk.cpu.tangents")
    pairs = compiled.pairs_with_tangents(side.profiles, tangents, side.numbers, kind=kind)
    back = np.argsort(side.order)
    values, moving = pairs[0][np.ix_(back, back)], pairs[1][:, back][:, :, back]
    unit = _units(side, scales, "last")
    # The unit of a sequence of zeros is 0 for every σ.
    units = np.where(np.isfinite(units), units, 0.0)[:, back]
    return Slopes(
        Scaled(torch.from_numpy(values), unit, unit), moving, units, side.profiles.own[back, which], own[:, back]
    )


def _on_gpu(one: Side, two: Side, device: torch.device, options: dict[str, Any]) -> Tensor:
    kernels = importlib.import_module("sostenuto.ops.recurrent_ntk.gpu")
    sides = [one] if two is one else [one, two]
    tables = [torch.from_numpy(side.profiles.table).to(device).permute(1, 2, 0).contiguous() for side in sides]
    lengths = [torch.from_numpy(side.profiles.lengths).to(device) for side in sides]
    numbers = [torch.from_numpy(side.numbers).to(device) for side in sides]
    parts = one.profiles.parts
    matrix = kernels.pairs(
        tables[0], tables[-1], (lengths[0], lengths[-1]), (numbers[0], numbers[-1]), parts=parts, **options
    )
    if options["mode"] == "upper":
        matrix = matrix.triu() + matrix.triu(1).mT
    rows, columns = (torch.from_numpy(side.order).to(device) for side in (one, two))
    values = torch.empty_like(matrix)
    values[rows[:, None], columns] = matrix
    return values.cpu()


def _side(sequences: Sequence[Series], numbers: np.ndarray, scales: Scales, erf: bool) -> Side:
    lengths = np.array([len(sequence) for sequence in sequences])
    order = np.argsort(-lengths, kind="stable")
    x = torch.cat([sequences[index] for index in order]).cpu().numpy()
    sigmas = torch.stack([scales.w, scales.u, scales.b, scales.h]).numpy()
    profiles = importlib.import_module("sostenuto.ops.recurrent_ntk.cpu.profile").profiles(
        x, lengths[order], sigmas, erf
    )
    return Side(order, numbers[order], profiles)


def _numbers(scales: Scales, left: Sequence[Series], right: Sequence[Series] | None) -> list[np.ndarray]:
    """Give equal sequences equal numbers where it matters: only the start's term asks."""
    if bool(scales.h.any()):
        return [numbers.numpy() for numbers in identities(left, left if right is None else right)]
    count = len(left)
    return [np.arange(count), np.arange(count) if right is None else np.arange(count, count + len(right))]


def _units(side: Side, scales: Scales, pooling: str) -> Tensor:
    unit = side.profiles.log_unit[:, -1] if pooling == "last" else side.profiles.shares()[1]
    units = np.empty(len(side.order))
    with np.errstate(divide="ignore"):
        units[side.order] = unit + np.log(scales.v.numpy())
    return torch.from_numpy(units)


def _cpu() -> Any:
    return importlib.import_module("sostenuto.ops.recurrent_ntk.cpu.kernel")
