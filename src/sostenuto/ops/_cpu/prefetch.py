"""Rows of memory that a kernel will need soon, prefetched a line at a time while a product computes.

A product from the cache keeps the arithmetic units busy and the memory idle; what comes before and after it, copies
and scans of long rows, does the opposite. So the product prefetches, at every column of its left factor, a line of what
they will read and write. In bunches, between blocks of the product, that saved half as much.

A list of rows to prefetch is an array with a line for each region: the address of the next row, the bytes from a row to
the next, the bytes of a row, the rows left, and the bytes of the row that were prefetched.
"""

from typing import no_type_check

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils

from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.workspace import LINE

MOST_BYTES = 1 << 17
"""Larger regions are left out: with all that a chunk works on they would not stay in the second cache."""
LEAST_BYTES, LEAST_DEPTH = 1 << 19, 16
"""Arrays so small are in the second cache anyway; in products of so few steps to ask takes longer than to wait."""


@no_type_check
@njit(inline="always", **OPTIONS)
def new_prefetch_list(regions):
    """Give a list of rows with room for so many regions, and none to ask for."""
    return np.zeros((regions, 5), np.int64)


@no_type_check
@njit(inline="always", **OPTIONS)
def worth_prefetching(rows, size, depth):
    """Give the list for a product of such a depth, or an empty one: where ``size`` bytes in all are too few to ask."""
    return rows if size >= LEAST_BYTES and depth >= LEAST_DEPTH else rows[:0]


@no_type_check
@procedure
def add_prefetch(rows, region, address, stride, width, count):
    """Put ``count`` rows of ``width`` bytes, ``stride`` bytes apart, on the list; an empty one takes none."""
    if region < len(rows):
        left = count if 0 < count * width <= MOST_BYTES else 0
        for field, value in enumerate((np.int64(address), stride, width, left, 0)):
            rows[region, field] = value


@no_type_check
@njit(inline="always", **OPTIONS)
def next_lines(rows, most):
    """Take up to ``most`` lines from the list: where they begin and how many they are, 0 where nothing is left."""
    for region in range(len(rows)):
        if rows[region, 3] > 0:
            begin, rest = rows[region, 0] + rows[region, 4], rows[region, 2] - rows[region, 4]
            lines = min(-(-rest // LINE), most)
            rows[region, 4] += lines * LINE
            if rows[region, 4] >= rows[region, 2]:
                rows[region, 0] += rows[region, 1]
                rows[region, 3] -= 1
                rows[region, 4] = 0
            return begin, lines
    return 0, 0


@no_type_check
def emit_prefetch(builder, addresses, level):
    """Write instructions that ask for what is needed soon, into the first cache or the second."""
    kind, place = ir.IntType(32), ir.IntType(8).as_pointer()
    form = ir.FunctionType(ir.VoidType(), [place, kind, kind, kind])
    prefetch = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
    for address in addresses:
        hints = [ir.Constant(kind, hint) for hint in (0, 4 - level, 1)]  # to read, how near, numbers
        builder.call(prefetch, [builder.inttoptr(address, place), *hints])
