"""The levels of signatures on the CPU: Numba, up to 64 paths side by side, so that every operation is a vector's.

A block of paths keeps its levels as one row of numbers, word after word and, within a word, path after path. Words are
in the order of their first letter, then their second, …: joining a letter to all words of a level is then one product
of whole rows, whatever the number of channels. A letter's increments are repeated along a tile as wide as these
products' strides. Counts and places are unsigned, which spares each access the question whether it is negative, and
lets the compiler make vectors. All arithmetic is in float64.
"""

from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.threads import run_blocks

MOST_LANES = 64
WIDTH = 64
"""Numbers in a row of a tile, at least; lanes and tiles measured best on an AMD EPYC."""
CACHED = 2**15
"""Numbers that the levels of one block of paths may have, where there are several paths."""
KEPT = 2**20
"""Numbers of one block's earlier levels that the backward pass keeps at a time, where a path is longer than that."""


def forward(increments: Float[Tensor, "B T d"], level: int, prefixes: bool) -> Float[Tensor, "B *T_size"]:
    """Give the levels of whole paths, or of every prefix."""
    read, place, first = _numbers(increments), *_places(increments.shape[2], level)
    (B, T, _), size = increments.shape, len(place)
    result = torch.empty((B, T if prefixes else 1, size), dtype=increments.dtype)
    lanes = _lanes(B, size)
    written = result.numpy()

    def kernel(start: int, stop: int) -> None:
        for block in range(start, stop):
            _forward(read, place, first, written, block * lanes, lanes, _width(lanes))

    run_blocks(kernel, -(-B // lanes), 1)
    return result if prefixes else result[:, 0]


def backward(
    increments: Float[Tensor, "B T d"], level: int, prefixes: bool, gradient: Float[Tensor, "B *T_size"]
) -> Float[Tensor, "B T d"]:
    """Give the gradient of the increments; the levels on the way are computed again, not kept from the forward pass."""
    read, place, first = _numbers(increments), *_places(increments.shape[2], level)
    (B, T, _), size = increments.shape, len(place)
    arriving = _numbers(gradient if prefixes else gradient[:, None])
    d_increments = torch.empty((B, T, increments.shape[2]), dtype=increments.dtype)
    lanes = _lanes(B, size)
    kept = max(1, min(T, max(KEPT // (size * lanes), int(np.ceil(np.sqrt(T))))))
    written = d_increments.numpy()

    def kernel(start: int, stop: int) -> None:
        for block in range(start, stop):
            _backward(read, place, first, arriving, written, kept, block * lanes, lanes, _width(lanes))

    run_blocks(kernel, -(-B // lanes), 1)
    return d_increments


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _places(channels: int, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Give the place of every word, first letter fastest, and where each level begins (level 1 at index 1)."""
    first = np.zeros(level + 2, np.uint64)
    places = []
    for k in range(1, level + 1):
        first[k + 1] = first[k] + np.uint64(channels**k)
        words = np.arange(channels**k).reshape((channels,) * k).T
        places.append(words.ravel() + int(first[k]))
    return np.concatenate(places).astype(np.uint64), first


def _lanes(batch: int, size: int) -> int:
    """Share the paths out evenly, a block for each thread at least and no block beyond the cache."""
    most = max(1, min(MOST_LANES, CACHED // size))
    blocks = max(-(-batch // most), min(torch.get_num_threads(), -(-batch // 8)), 1)
    return max(1, -(-batch // blocks))


def _width(lanes: int) -> int:
    """Give the least multiple of ``lanes`` from `WIDTH` on."""
    return lanes * -(-WIDTH // lanes)


@no_type_check
@njit(**OPTIONS)
def _forward(increments, place, first, result, start, lanes_, width):
    T, d, level = increments.shape[1], increments.shape[2], len(first) - 2
    lanes, count = np.uint64(lanes_), len(place)
    rows = np.zeros(count * lanes_)
    one, two, tile = np.empty(count * lanes_), np.empty(count * lanes_), np.zeros((d, width))
    stop = min(start + lanes_, increments.shape[0])
    for t in range(T):
        if _fill(tile, increments, t, start, stop, lanes_):
            _join(rows, tile, one, two, first, level, lanes)
        if result.shape[1] == T:
            _write(rows, place, result, t, start, stop, lanes)
    if result.shape[1] != T:
        _write(rows, place, result, 0, start, stop, lanes)


@no_type_check
@njit(**OPTIONS)
def _backward(increments, place, first, arriving, written, kept, start, lanes_, width):
    T, d, level = increments.shape[1], increments.shape[2], len(first) - 2
    lanes, size = np.uint64(lanes_), len(place) * lanes_
    one, two, three = np.empty(size), np.empty(size), np.empty(size)
    tile, gathered = np.zeros((d, width)), np.zeros((d, width))
    stop = min(start + lanes_, increments.shape[0])
    parts = (T + kept - 1) // kept
    # The levels at the beginning of each part; within a part they are found again from there.
    begins, states, cotangent = np.zeros((parts, size)), np.empty((kept, size)), np.zeros(size)
    for part in range(1, parts):
        begins[part] = begins[part - 1]
        for t in range((part - 1) * kept, part * kept):
            if _fill(tile, increments, t, start, stop, lanes_):
                _join(begins[part], tile, one, two, first, level, lanes)
    for part in range(parts - 1, -1, -1):
        begin, end = part * kept, min((part + 1) * kept, T)
        states[0] = begins[part]
        for t in range(begin, end - 1):
            states[t - begin + 1] = states[t - begin]
            if _fill(tile, increments, t, start, stop, lanes_):
                _join(states[t - begin + 1], tile, one, two, first, level, lanes)
        for t in range(end - 1, begin - 1, -1):
            if arriving.shape[1] == T:
                _read(cotangent, place, arriving, t, start, stop, lanes)
            elif t == T - 1:
                _read(cotangent, place, arriving, 0, start, stop, lanes)
            _fill(tile, increments, t, start, stop, lanes_)
            _pull(cotangent, states[t - begin], tile, gathered, one, two, three, first, level, lanes)
            _sum_up(gathered, written, t, start, stop, lanes_)


@no_type_check
@njit(**OPTIONS)
def _fill(tile, increments, t, start, stop, lanes):
    """Repeat the increments of step t along the tile; say whether any path moves."""
    moves = False
    for j in range(tile.shape[0]):
        for q in range(stop - start):
            tile[j, q] = increments[start + q, t, j]
            moves |= tile[j, q] != 0
        for begin in range(lanes, tile.shape[1], lanes):
            for q in range(lanes):
                tile[j, begin + q] = tile[j, q]
    return moves


@no_type_check
@njit(**OPTIONS)
def _write(rows, place, result, t, start, stop, lanes):
    for q in range(stop - start):
        for i in range(len(place)):
            result[start + q, t, i] = rows[place[i] * lanes + np.uint64(q)]


@no_type_check
@njit(**OPTIONS)
def _read(rows, place, result, t, start, stop, lanes):
    """Add one row a path to the rows of the block."""
    for q in range(stop - start):
        for i in range(len(place)):
            rows[place[i] * lanes + np.uint64(q)] += result[start + q, t, i]


@no_type_check
@njit(**OPTIONS)
def _sum_up(gathered, written, t, start, stop, lanes):
    """Add what each path has along the tile."""
    for j in range(gathered.shape[0]):
        for q in range(stop - start):
            total = 0.0
            for m in range(q, gathered.shape[1], lanes):
                total += gathered[j, m]
            written[start + q, t, j] = total


@no_type_check
@njit(**OPTIONS)
def _join(x, tile, one, two, first, level, lanes):
    """Make X ⊗ exp(a) of X by Horner's scheme, the highest level first: it needs the lower ones as they were."""
    d, width, zero = np.uint64(tile.shape[0]), np.uint64(tile.shape[1]), np.uint64(0)
    for k in range(level, 1, -1):
        _begin(one, x, tile, k, d, lanes)
        n = d * lanes
        for low in range(2, k):
            weight = 1.0 / (k - low + 1)
            for j in range(d):
                to, by = j * n, first[low] * lanes + j * n
                for c in range(zero, n, width):
                    for m in range(min(width, n - c)):
                        two[to + c + m] = one[c + m] * weight * tile[j, m] + x[by + c + m]
            one, two = two, one
            n *= d
        for j in range(d):
            to = first[k] * lanes + j * n
            for c in range(zero, n, width):
                for m in range(min(width, n - c)):
                    x[to + c + m] += one[c + m] * tile[j, m]
    for j in range(d):
        for q in range(lanes):
            x[j * lanes + q] += tile[j, q]


@no_type_check
@njit(**OPTIONS)
def _begin(out, x, tile, k, d, lanes):
    """Write a/k + X¹, with which the scheme of level k begins."""
    weight = 1.0 / k
    for j in range(d):
        for q in range(lanes):
            out[j * lanes + q] = tile[j, q] * weight + x[j * lanes + q]


@no_type_check
@njit(**OPTIONS)
def _pull(cotangent, x, tile, gathered, sums, one, two, first, level, lanes):
    """Turn the gradient of X ⊗ exp(a) into that of X, in place, and gather that of a; x holds X."""
    d, width, zero = np.uint64(tile.shape[0]), np.uint64(tile.shape[1]), np.uint64(0)
    gathered[:] = 0.0
    for j in range(d):
        for q in range(lanes):
            gathered[j, q] = cotangent[j * lanes + q]
    for k in range(2, level + 1):
        _begin(sums, x, tile, k, d, lanes)
        n = d * lanes
        for low in range(2, k):
            weight, by = 1.0 / (k - low + 1), first[low - 1] * lanes
            for j in range(d):
                to = first[low] * lanes + j * n
                for c in range(zero, n, width):
                    for m in range(min(width, n - c)):
                        sums[to + c + m] = sums[by + c + m] * weight * tile[j, m] + x[to + c + m]
            n *= d
        _contract(cotangent, first[k] * lanes, sums, first[k - 1] * lanes, tile, gathered, one, n, 1.0)
        _add(cotangent, first[k - 1] * lanes, one, n)
        for low in range(k - 2, 0, -1):
            n //= d
            _contract(one, zero, sums, first[low] * lanes, tile, gathered, two, n, 1.0 / (k - low))
            _add(cotangent, first[low] * lanes, two, n)
            one, two = two, one
        weight = 1.0 / k
        for j in range(d):
            for q in range(lanes):
                gathered[j, q] += weight * one[j * lanes + q]


@no_type_check
@njit(**OPTIONS)
def _contract(cotangent, at, sums, low, tile, gathered, out, n, weight):
    """Give w·Σ_j bar_j·a_j, the gradient of the words below, and gather w·Σ_i sums_i·bar_ji, that of each letter."""
    d, width = np.uint64(tile.shape[0]), np.uint64(tile.shape[1])
    for c in range(np.uint64(0), n, width):
        count = min(width, n - c)
        for m in range(count):
            out[c + m] = weight * tile[0, m] * cotangent[at + c + m]
        for j in range(np.uint64(1), d):
            by = at + j * n + c
            for m in range(count):
                out[c + m] += weight * tile[j, m] * cotangent[by + m]
        for j in range(d):
            by = at + j * n + c
            for m in range(count):
                gathered[j, m] += weight * sums[low + c + m] * cotangent[by + m]


@no_type_check
@njit(**OPTIONS)
def _add(cotangent, at, values, n):
    for m in range(n):
        cotangent[at + m] += values[m]
