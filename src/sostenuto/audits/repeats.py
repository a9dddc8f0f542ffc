"""Sequences that are the same, or as good as: a copy that was moved a little shows nothing new."""

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree

NEAR = 0.01
"""Sequences nearer to each other than this share of the usual distance between two count as one."""
DIRECTIONS = 16
"""Random directions along which sequences are compared instead of at every step."""
PAIRS = 4096

Sketches = Float[np.ndarray, "batch direction"]


def sketched(steps: Float[torch.Tensor, "batch time channel"], deviations: Float[torch.Tensor, " channel"]) -> Sketches:
    """Project sequences, in deviations of each channel, on random directions, which keeps distances about as they are.

    Padding must be zero; longer batches are projected alike.
    """
    count, length, channels = steps.shape
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(length, channels, DIRECTIONS, generator=generator, dtype=torch.float64)
    scale = torch.where(deviations > 0, deviations, 1.0).double()
    found = torch.zeros(count, DIRECTIONS, dtype=torch.float64)
    for rows in torch.arange(count).split(256):
        found[rows] = (steps[rows].double() / scale).flatten(1) @ directions.flatten(0, 1)
    return found.numpy()


def grouped(sketches: Sketches) -> Int[np.ndarray, " batch"]:
    """Give every sequence the number of the first one that it is near to.

    >>> grouped(np.array([[0.0], [5.0], [0.001], [9.0]])).tolist()
    [0, 1, 0, 2]
    """
    count = len(sketches)
    pairs = np.random.default_rng(0).integers(0, count, (2, PAIRS))
    pairs = pairs[:, pairs[0] != pairs[1]]
    apart = np.linalg.norm(sketches[pairs[0]] - sketches[pairs[1]], axis=1)
    near = NEAR * float(np.median(apart)) if len(apart) else 0.0
    order = np.argsort(sketches[:, 0], kind="stable")
    ends = np.searchsorted(sketches[order, 0], sketches[order, 0] + near, side="right")
    leader = np.full(count, -1)
    for place, row in enumerate(order):
        if leader[row] < 0:
            around = order[place : ends[place]]
            around = around[leader[around] < 0]
            leader[around[np.linalg.norm(sketches[around] - sketches[row], axis=1) <= near]] = row
    return np.unique(leader, return_inverse=True)[1]


def copied(sketches: Sketches, known: Float[np.ndarray, "known direction"]) -> int:
    """Count the sequences that are copies of known ones: nearer than a hundredth of what known ones lie apart.

    >>> copied(np.array([[0.001], [2.0]]), np.array([[0.0], [1.0], [3.0]]))
    1
    """
    different = known[np.unique(grouped(known), return_index=True)[1]]
    apart = KDTree(different).query(different, k=2)[0][:, 1] if len(different) > 1 else np.zeros(1)
    return int(np.sum(KDTree(known).query(sketches)[0] <= NEAR * np.median(apart)))
