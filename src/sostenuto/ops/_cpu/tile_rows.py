"""Rows of a tile on the CPU: Numba, copies for the kernels that multiply and scan chunks of steps in the cache."""

from typing import no_type_check

from sostenuto.ops._cpu.columns import copy_row
from sostenuto.ops._cpu.compiled import procedure


@no_type_check
@procedure
def gather_chunk(u, u_step, u_row, start, k, low, R, bottom):
    """Copy the input of a chunk, row by row."""
    channels = bottom.shape[1]
    for t in range(k):
        for r in range(R):
            at = (start + t) * u_step + (low + r) * u_row
            source, target = u[at : at + channels], bottom[t * R + r]
            for c in range(channels):
                target[c] = source[c]


@no_type_check
@procedure
def scatter_chunk(d_below, wide, d_u, start, k, low, R, channels):
    """Write the gradient of a chunk's input."""
    for t in range(k):
        row = d_u[start + t]
        for r in range(R):
            at = (t * R + r) * wide
            copy_row(row[(low + r) * channels :], d_below[at : at + channels])


@no_type_check
@procedure
def copy_outputs(out, out_at, k, n, masks, layer, first, hidden):
    """Copy a layer's outputs for the layer above, without what is dropped."""
    for t in range(k):
        row, target = out[out_at[0] + t, out_at[1] : out_at[1] + n], hidden[t]
        if masks.shape[0] > 0:
            mask = masks[layer, first : first + n]
            for i in range(n):
                target[i] = row[i] * mask[i]
        else:
            copy_row(target, row)


@no_type_check
@procedure
def compact(flat, wide, rows, columns):
    """Close the gaps that whole vectors leave behind each row."""
    if wide != columns:
        for row in range(1, rows):
            for c in range(columns):
                flat[row * columns + c] = flat[row * wide + c]


@no_type_check
@procedure
def pad_rows(flat, rows, H, spread):
    """Lay rows out apart from each other."""
    for row in range(rows):
        source, target = flat[row * H : (row + 1) * H], spread[row]
        for c in range(H):
            target[c] = source[c]


@no_type_check
@procedure
def gather_spans(spans, start, low, H, span):
    """Spread the time spans of a chunk over the units; where there are none, all are 1 already."""
    for t in range(min(len(span), len(spans) - start)):
        for i in range(span.shape[1]):
            span[t, i] = spans[start + t, low + i // H]


@no_type_check
@procedure
def scale_steps(step, span, scaled):
    """Multiply a layer's steps by the time spans of a chunk."""
    for t in range(len(span)):
        row, target = span[t], scaled[t]
        for i in range(len(step)):
            target[i] = step[i] * row[i]
