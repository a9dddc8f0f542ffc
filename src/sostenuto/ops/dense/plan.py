"""How a GPU scan is cut into programs: tiles of the batch, and slices of the units where the matrices are large."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

FOR_MATRICES = 0.7
"""The part of a multiprocessor's shared memory that matrices may take; the rest is for rows."""
GROUP = 64
"""Units that four warps multiply together: what a program of several for the same rows takes at most."""
ROWS, MOST_ROWS = 8, 64
"""Batch rows a program: at least what the tensor cores multiply, at most what the registers hold."""


class Plan(NamedTuple):
    """How a scan is cut: batch rows and units a program, and how many programs share the same rows."""

    rows: int
    units: int
    slices: int
    width: int


class Chip(NamedTuple):
    """What a GPU has: multiprocessors, and bytes of shared memory that a program may take on one of them."""

    processors: int
    shared: int


def plan(batch: int, hidden: int, matrices: int, precision: str, chip: Chip) -> Plan | None:
    """Cut the batch into tiles and the units into slices, or give None where the chip cannot hold the matrices.

    ``matrices`` of ``hidden`` columns each are held; the exact products hold each of them in two parts.

    >>> hopper = Chip(processors=132, shared=232448)
    >>> plan(128, 128, 2, "tf32", hopper)
    Plan(rows=8, units=128, slices=1, width=128)
    >>> plan(128, 256, 2, "tf32", hopper)
    Plan(rows=8, units=64, slices=4, width=256)
    """
    width = max(1 << (hidden - 1).bit_length(), 16)
    unit = 4 * matrices * width * (1 if precision == "tf32" else 2)
    units = width
    while units * unit > FOR_MATRICES * chip.shared:
        units //= 2
    if units < width:
        units = min(units, GROUP)
    if units < 16:
        return None
    slices, rows = -(-hidden // units), ROWS
    while -(-batch // rows) * slices > chip.processors and rows < MOST_ROWS:
        rows *= 2
    crowded = slices > 1 and -(-batch // rows) * slices > chip.processors
    return None if crowded or rows * width > 1 << 14 else Plan(rows, units, slices, width)


def planned(start: Tensor, weight: Tensor, linear: Tensor, gain: Tensor, precision: str) -> Plan | None:
    """Return the plan of a scan of these tensors, None where there is no kernel for it.

    A state of two components has coefficients for P and Q; of more, or with full matrices, it has no kernel.
    """
    components, hidden = start.shape[1] // weight.shape[0], weight.shape[0]
    full = (linear.shape[0] == start.shape[1]) + (gain.ndim == 2)
    if components > 2 or (components == 2 and full) or components * hidden != start.shape[1]:
        return None
    matrices = components + full
    return plan(start.shape[0], hidden, matrices, precision, _chip(start.device))


@cache
def _chip(device: torch.device) -> Chip:
    """Look a GPU up; programs interpreted on the CPU run one after the other, so that none may wait for another."""
    if device.type != "cuda":
        return Chip(1 << 30, 1 << 40)
    properties = torch.cuda.get_device_properties(device)
    return Chip(properties.multi_processor_count, properties.shared_memory_per_block_optin)
