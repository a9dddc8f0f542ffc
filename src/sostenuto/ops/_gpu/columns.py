"""How Triton scans over columns are launched, and how they load the rows of steps to come."""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from sostenuto.ops._gpu.tanh import INTERPRETED


@no_type_check
@triton.jit
def load_rows(p_x, stride: tl.constexpr, m_ok, U: tl.constexpr):
    """Load the rows of ``U`` steps, a stride apart, as a tuple."""
    rows = ()
    for u in tl.static_range(U):
        rows = rows + (tl.load(p_x + u * stride, mask=m_ok, other=0.0).to(tl.float32),)
    return rows


@no_type_check
@triton.jit
def prefetch_l2(p_x):
    """Prefetch a row's lines into the L2 cache; past the ends it does nothing, and never faults."""
    if not INTERPRETED:
        address = p_x.to(tl.int64, bitcast=True)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
        )


def grid(columns: int) -> Any:
    """Give as many programs as there are blocks of columns."""
    return lambda meta: (triton.cdiv(columns, meta["BLOCK"]),)


def on_device(x: Tensor) -> Any:
    """Make the device of ``x`` the current one; nothing changes where kernels are interpreted on the CPU."""
    return torch.cuda.device(x.device) if x.is_cuda else torch.no_grad()
