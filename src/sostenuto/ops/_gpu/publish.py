"""Rows published between programs through memory that is EMPTY beforehand: a word that is not EMPTY has arrived.

So no flag, fence or atomic is needed, and one trip through the L2 cache is all that a step waits for. The programs
must run at once: never more of them than multiprocessors, in a cooperative launch.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

EMPTY = tl.constexpr(-1)
"""The bits of a number that has not arrived: a NaN that no arithmetic gives."""
NOT_A_NUMBER = tl.constexpr(0x7FC00000)


def empty(like: Float[Tensor, "B S"], steps: int, *, shared: bool) -> Float[Tensor, "T B S"]:
    """Allocate rows at every step, EMPTY where programs will wait for each other's.

    >>> empty(torch.zeros(2, 3), 5, shared=True).isnan().all().item()
    True
    """
    rows = like.new_empty((steps, *like.shape))
    if shared:
        rows.view(torch.int32).fill_(EMPTY.value)
    return rows


@no_type_check
@triton.jit
def publish(at, b_x, m_x):
    """Store what others wait for: never the bits that mean nothing has arrived."""
    b_bits = b_x.to(tl.int32, bitcast=True)
    tl.store(at, tl.where(b_bits == EMPTY, NOT_A_NUMBER, b_bits).to(tl.float32, bitcast=True), mask=m_x)


@no_type_check
@triton.jit
def spin_load(at, m_x):
    """Load what other programs publish, again until all of it has arrived."""
    b_x = tl.load(at, mask=m_x, other=0.0, volatile=True)
    while tl.max((b_x.to(tl.int32, bitcast=True) == EMPTY).to(tl.int32)) > 0:
        b_x = tl.load(at, mask=m_x, other=0.0, volatile=True)
    return b_x
