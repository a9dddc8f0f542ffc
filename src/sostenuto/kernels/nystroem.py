"""Landmark features: a kernel on n sequences at the price of n·m values instead of n²."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from sostenuto.checks import check_choice, check_count, require
from sostenuto.kernels.base import SequenceKernel, Steps, checked_sequences
from sostenuto.kernels.gram import gram

_POOL = 10
"""Candidates a landmark in a greedy choice: more of them cost more and gain next to nothing."""


@dataclass(frozen=True, eq=False)
class NystroemFeatures:
    """Φ(x) = k(x, Z) K(Z, Z)^(−½), so that ⟨Φ(x), Φ(y)⟩ = k(x, Z) K(Z, Z)⁺ k(Z, y) ≈ k(x, y), exactly on landmarks.

    ``indices`` says which of the sequences became landmarks; ``whitening`` is K(Z, Z)^(−½), (m, m), in which
    eigenvalues below rounding are cut to 0 instead of being inverted; ``rank`` counts those that are left.
    """

    kernel: Any
    landmarks: list[Steps]
    indices: Int64[np.ndarray, " landmark"]
    whitening: Float64[np.ndarray, "landmark landmark"]
    rank: int

    def transform(self, X: Any, *, chunk: int = 4096) -> Float64[np.ndarray, "n landmark"]:  # noqa: N803
        """Return the features of ``X``, (n, m), ``chunk`` sequences at a time."""
        check_count("chunk", chunk)
        sequences = checked_sequences(X, "X")
        ours, theirs = self.landmarks[0].shape[1], sequences[0].shape[1]
        require(ours == theirs, f"X: expected {ours} channels as in the landmarks", f"got {theirs}")
        features = np.empty((len(sequences), len(self.landmarks)))
        for start in range(0, len(sequences), chunk):
            part = sequences[start : start + chunk]
            features[start : start + len(part)] = _rows(self.kernel, part, self.landmarks) @ self.whitening
        return features


def nystroem(
    kernel: Any,
    X: Any,  # noqa: N803
    count: int,
    *,
    choice: str = "random",
    seed: int = 0,
) -> NystroemFeatures:
    """Choose ``count`` landmarks among the sequences ``X`` (all, where there are fewer) and learn their features.

    ``choice="random"`` draws them evenly. ``"greedy"`` draws each with a probability in proportion to what the ones
    before it leave unexplained of it, k(x, x) − ‖Φ(x)‖²: k-means++ in the kernel's space, but with the distance to the
    span of the landmarks instead of to the nearest one (randomly pivoted Cholesky). It looks at 10 candidates a
    landmark, so it costs O(m²) values of the kernel whatever the number of sequences.

    >>> from sostenuto.kernels import RBF
    >>> X = np.linspace(0, 1, 50)[:, None] * np.ones(4)
    >>> features = nystroem(RBF(), X, 8, choice="greedy").transform(X)
    >>> features.shape, bool(np.abs(features @ features.T - RBF()(X)).max() < 1e-4)
    ((50, 8), True)
    """
    check_count("count", count)
    check_count("seed", seed, least=0)
    check_choice("choice", choice, ("random", "greedy"))
    sequences = checked_sequences(X, "X")
    generator = np.random.default_rng(seed)
    count = min(count, len(sequences))
    if choice == "random":
        indices = np.sort(generator.choice(len(sequences), count, replace=False))
    else:
        pool = np.sort(generator.choice(len(sequences), min(_POOL * count, len(sequences)), replace=False))
        indices = pool[_pivots(kernel, [sequences[i] for i in pool], count, generator)]
    landmarks = [sequences[i] for i in indices]
    whitening, rank = inverse_root(gram(kernel, landmarks, progress=False))
    return NystroemFeatures(kernel, landmarks, indices.astype(np.int64), whitening, rank)


def inverse_root(matrix: Float64[np.ndarray, "m m"]) -> tuple[Float64[np.ndarray, "m m"], int]:
    """Return M^(−½) on the span of the eigenvectors that rounding leaves meaning to, and how many there are.

    >>> inverse_root(np.diag([4.0, 1e-20]))
    (array([[0.5, 0. ],
           [0. , 0. ]]), 1)
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > len(values) * np.finfo(np.float64).eps * max(values.max(initial=0.0), 0.0)
    vectors = vectors[:, kept]
    return (vectors / np.sqrt(values[kept])) @ vectors.T, int(kept.sum())


def _pivots(kernel: Any, pool: list[Steps], count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw pivots of a partial Cholesky factor F of K(pool) by the residual diagonal k(x, x) − Σ_j F_xj²."""
    residual = np.array(kernel.diag(pool), dtype=np.float64)
    least = np.finfo(np.float64).eps * len(pool) * residual.max(initial=0.0)
    factor = np.zeros((len(pool), count))
    chosen: list[int] = []
    while len(chosen) < count and residual.max() > least:
        pivot = int(generator.choice(len(pool), p=residual / residual.sum()))
        column = _rows(kernel, pool, [pool[pivot]])[:, 0] - factor @ factor[pivot]
        factor[:, len(chosen)] = column / np.sqrt(column[pivot])
        residual = np.clip(residual - factor[:, len(chosen)] ** 2, 0.0, None)
        residual[pivot] = 0.0
        chosen.append(pivot)
    # What is left is explained already: any will do, to keep the number that was asked for.
    rest = np.setdiff1d(np.arange(len(pool)), chosen)
    return np.sort(np.array([*chosen, *rest[: count - len(chosen)]], dtype=np.int64))


def _rows(kernel: Any, left: list[Steps], right: list[Steps]) -> np.ndarray:
    return kernel.gram(left, right) if isinstance(kernel, SequenceKernel) else np.asarray(kernel(left, right))
