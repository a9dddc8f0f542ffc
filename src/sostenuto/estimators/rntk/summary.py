"""What a fitted kernel looks like: its matrix, its spectrum, how it fits the labels, and which steps it looks at."""

from typing import Any

import numpy as np
from jaxtyping import Float64
from sklearn.base import clone

from sostenuto.kernels.gram import gram
from sostenuto.kernels.recurrent_ntk import RecurrentNTK
from sostenuto.results import KernelSummary

MOST_SHOWN = 120
"""Sequences in the picture of the matrix, evenly spaced among all."""
_SHARES = (-0.06, -0.04, -0.02, 0.0, 0.02, 0.04, 0.06)
"""By how much σ_w is varied around its value for the sensitivity."""
_STEPS = 1500
_MOVED = 256
_POINTS = 64


def kernel_summary(
    kernel: RecurrentNTK, sequences: list[np.ndarray], groups: Any = None, targets: Any = None
) -> KernelSummary:
    """Describe the kernel on the training sequences, as it is and beside others of nearby σ_w.

    ``groups`` holds the class of every sequence, in the order they are shown in; ``targets`` the numbers to predict.
    Without classes the sequences are sorted by the first target.
    """
    matrix = np.asarray(gram(kernel, sequences, progress=False))
    order = np.argsort(groups if groups is not None else np.ravel(targets[:, 0]), kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(MOST_SHOWN, len(order))).round().astype(int))]
    unit = np.sqrt(np.clip(np.diag(matrix)[shown], np.finfo(float).tiny, None))
    labels = np.where(groups[:, None] == np.unique(groups), 1.0, 0.0) if groups is not None else targets
    sigmas, curves = sensitivities(kernel, sequences)
    spread = [float(np.std(curve) / max(np.mean(curve), np.finfo(float).tiny)) for curve in curves]
    return KernelSummary(
        kernel=repr(kernel),
        picture=tuple(tuple(row) for row in (matrix[np.ix_(shown, shown)] / np.outer(unit, unit)).tolist()),
        groups=() if groups is None else tuple(np.asarray(groups)[shown].tolist()),
        eigenvalues=tuple(np.clip(np.linalg.eigvalsh(matrix)[::-1], 0.0, None).tolist()),
        alignment=alignment(matrix, np.asarray(labels, dtype=np.float64)),
        sigma_w=float(np.ravel(kernel.sigma_w)[0]),
        sigmas=tuple(sigmas),
        sensitivities=tuple(tuple(curve.tolist()) for curve in curves),
        spreads=tuple(spread),
        suggestion=float(sigmas[int(np.argmin(spread))]),
    )


def alignment(matrix: Float64[np.ndarray, "n n"], labels: Float64[np.ndarray, "n column"]) -> float:
    """Return the cosine between the centered Gram matrix and the centered matrix of label products, −1 to 1.

    A = ⟨HKH, HYYᵀH⟩ / ‖HKH‖‖HYYᵀH‖ with H = I − 11ᵀ/n (Cortes, Mohri & Rostamizadeh, 2012). 1: the kernel alone
    tells the labels.

    >>> y = np.array([[1.0], [1.0], [-1.0]])
    >>> round(alignment(y @ y.T, y), 6)
    1.0
    """
    ours, theirs = (_centered(each) for each in (matrix, labels @ labels.T))
    size = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    return float((ours * theirs).sum() / size) if size > 0 else 0.0


def sensitivities(
    kernel: RecurrentNTK, sequences: list[np.ndarray]
) -> tuple[list[float], list[Float64[np.ndarray, " point"]]]:
    """Return σ_w around the kernel's own and, for each, s(t) of eq. (20), averaged over pairs, on 64 points of time.

    Each curve is divided by its largest value, as in Figure 3 of alemohammad2021. Pairs are sequences of like length,
    few where they are long.
    """
    order = np.argsort([len(sequence) for sequence in sequences], kind="stable")
    longest = len(sequences[order[-1]])
    count = int(np.clip(_STEPS // longest, 1, min(6, len(sequences) // 2)))
    firsts = np.linspace(0, len(order) - 2, count).round().astype(int)
    pairs = [(sequences[order[i]], sequences[order[i + 1]]) for i in firsts]
    grid = np.linspace(0, 1, min(_POINTS, longest))
    sigmas, curves = [], []
    for share in _SHARES:
        varied: Any = clone(kernel)
        varied.set_params(sigma_w=np.asarray(kernel.sigma_w) * (1 + share))
        if np.ndim(kernel.sigma_w) == 0:
            varied.set_params(sigma_w=float(varied.sigma_w))
        total = np.zeros(len(grid))
        for one, other in pairs:
            steps = step_sensitivity(varied, one, other)
            total += np.interp(grid, np.linspace(0, 1, len(steps)) if len(steps) > 1 else [0.0], steps)
        sigmas.append(float(np.ravel(varied.sigma_w)[0]))
        curves.append(total / max(float(total.max()), np.finfo(float).tiny))
    return sigmas, curves


def step_sensitivity(
    kernel: RecurrentNTK, one: Float64[np.ndarray, "time channel"], other: Float64[np.ndarray, "_ channel"]
) -> Float64[np.ndarray, " time"]:
    """Return s(t) = ‖∂k(x, y)/∂x_t‖ at every step of x = ``one``, from k itself with one value of x moved either way.

    It agrees with `RecurrentNTK.sensitivity` up to its scale, and takes a pair of compiled code for each move, where
    the exact derivative takes the reference's time.
    """
    step = 1e-5 * max(float(np.abs(one).max()), 1e-3)
    slopes = np.empty(one.size)
    for start in range(0, one.size, _MOVED):
        places = range(start, min(start + _MOVED, one.size))
        moved = np.repeat(one.reshape(1, -1), 2 * len(places), axis=0)
        for row, place in enumerate(places):
            moved[2 * row, place] += step
            moved[2 * row + 1, place] -= step
        values = kernel.gram(list(moved.reshape(-1, *one.shape)), [other])[:, 0]
        slopes[start : start + len(places)] = (values[::2] - values[1::2]) / (2 * step)
    return np.linalg.norm(slopes.reshape(one.shape), axis=1)


def _centered(matrix: np.ndarray) -> np.ndarray:
    rows = matrix - matrix.mean(axis=0, keepdims=True)
    return rows - rows.mean(axis=1, keepdims=True)
