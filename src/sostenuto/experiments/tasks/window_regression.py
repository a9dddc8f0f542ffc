"""Forecasts from windows of unequal length by kernel ridge regression (alemohammad2021, section 4 and Figure 4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from sostenuto.data.dataset import SequenceSet
from sostenuto.data.tasks.sinusoid import sinusoid
from sostenuto.estimators.rntk.base import grid_points
from sostenuto.experiments.settings import Settings
from sostenuto.experiments.tasks.contest import standard_error as mean_error
from sostenuto.experiments.tasks.contest import unsure
from sostenuto.experiments.tasks.ucr_kernels import KERNELS, grid_of, kernel_of
from sostenuto.experiments.workbench import Workbench
from sostenuto.report.figures.plot import lines

RANK = 1e-12
"""Eigenvalues below this part of the largest are rounding: without a ridge they are left out, not divided by."""


def ridge_weights(
    matrices: Float64[np.ndarray, "kernel n n"], targets: Float64[np.ndarray, " n"], ridges: Sequence[float]
) -> Float64[np.ndarray, "kernel ridge n"]:
    """Return (K + λI)⁻¹y for every kernel and λ from one eigendecomposition each; for λ = 0 the pseudo-inverse.

    >>> ridge_weights(np.eye(2)[None], np.array([1.0, 3.0]), [0.0, 1.0])[0]
    array([[1. , 3. ],
           [0.5, 1.5]])
    """
    values, vectors = np.linalg.eigh(matrices)
    terms = values[:, None, :] + np.asarray(ridges)[None, :, None]
    kept = terms > RANK * values[:, -1:, None]
    inverse = np.where(kept, 1 / np.where(kept, terms, 1.0), 0.0)
    turned = np.einsum("knj,n->kj", vectors, targets)
    return np.einsum("knj,krj->krn", vectors, inverse * turned[:, None, :])


def choose_ridge(
    matrices: Float64[np.ndarray, "kernel n n"],
    targets: Float64[np.ndarray, " n"],
    ridges: Sequence[float],
    folds: Int[np.ndarray, " n"],
) -> tuple[int, int]:
    """Return the kernel and the ridge term of the least squared error over folds.

    >>> near = np.exp(-np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    >>> choose_ridge(np.stack([np.eye(6), near]), np.arange(6.0), [0.0, 100.0], np.arange(6) % 3)
    (1, 0)
    """
    errors = np.zeros((len(matrices), len(ridges)))
    for fold in np.unique(folds):
        train, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        weights = ridge_weights(matrices[:, train[:, None], train], targets[train], ridges)
        predicted = np.einsum("khn,krn->krh", matrices[:, held[:, None], train], weights)
        errors += ((predicted - targets[held]) ** 2).sum(axis=2)
    kernel, ridge = np.unravel_index(np.argmin(np.where(np.isfinite(errors), errors, np.inf)), errors.shape)
    return int(kernel), int(ridge)


PREVIOUS = "previous step"
COLUMNS = (*KERNELS, PREVIOUS)
TRAIN_DAYS = 700
Ratios = dict[str, Float64[np.ndarray, "point run"]]


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows with the value after each."""

    sequences: list[Float64[np.ndarray, "_ 1"]]
    targets: Float64[np.ndarray, " n"]

    @classmethod
    def of(cls, part: SequenceSet) -> "Windows":
        """Read a part of one channel and one step ahead."""
        return cls(
            [np.asarray(sequence, dtype=np.float64) for sequence in part.sequences], np.ravel(np.asarray(part.targets))
        )


Draw = Callable[[int], tuple[Windows, Windows]]
"""Training and test windows of a seed."""


def sine_windows(settings: Settings, variation: int, noise: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows from one noisy period of a sine; where there are fewer than ``num_test`` left, all of them test."""
    lengths = range(settings.shortest, settings.shortest + variation + 1)
    there = sum(settings.num_samples - length for length in lengths)
    data = sinusoid(
        seed,
        num_train=settings.num_train,
        num_test=min(settings.num_test, there - settings.num_train),
        num_samples=settings.num_samples,
        shortest=settings.shortest,
        variation=variation,
        noise=noise,
    )
    assert data.test is not None
    return Windows.of(data.train), Windows.of(data.test)


def stock_windows(
    closes: Float64[np.ndarray, " day"], shortest: int, variation: int, num_train: int, seed: int
) -> tuple[Windows, Windows]:
    """Draw training windows from the first 700 days; the test part has one window for each later day that can have one.

    Prices are divided by the mean of the first 700 days: one factor, so that zeros stay zeros when windows are padded.
    """
    scaled, random = closes / closes[:TRAIN_DAYS].mean(), np.random.default_rng(seed)
    lengths = random.integers(shortest, shortest + variation + 1, size=num_train)
    ends = np.array([random.integers(length, TRAIN_DAYS) for length in lengths])
    days = np.arange(TRAIN_DAYS + shortest + variation, len(scaled))
    back = random.integers(shortest, shortest + variation + 1, size=len(days))
    return _cut(scaled, ends, lengths), _cut(scaled, days, back)


def stock_prices(settings: Settings, bench: Workbench) -> Float64[np.ndarray, " day"]:
    """Return 975 closing prices of Google from 2014-01-02 on, or a random walk in their place."""
    if settings.stand_in:
        walk = np.random.default_rng(bench.seed).normal(0.0007, 0.015, size=975)
        return 550 * np.exp(np.cumsum(walk))
    data = bench.data("google-stock")
    bench.note(f"The 975 days are the first from {data.extras['dates'][0]} on; the paper does not name its own.")
    return np.asarray(data.extras["series"])[:, data.extras["columns"].index("Close")]


def _cut(series: np.ndarray, ends: np.ndarray, lengths: np.ndarray) -> Windows:
    pairs = zip(ends.tolist(), lengths.tolist(), strict=True)
    return Windows([series[end - length : end, None] for end, length in pairs], series[ends])


def signal_to_noise(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Return 10 log₁₀(Σy² / Σ(y − ŷ)²) in decibels.

    >>> round(signal_to_noise(np.array([1.0, 1.0]), np.array([0.9, 1.1])), 3)
    20.0
    """
    return float(10 * np.log10((targets**2).sum() / ((targets - predicted) ** 2).sum()))


def ratios(settings: Settings, draw: Draw, seeds: Sequence[int]) -> list[dict[str, float]]:
    """Return the signal-to-noise ratio of every kernel and of the previous step, for each seed.

    Kernel and ridge term are chosen by ``folds`` folds of the training windows; the test windows are seen once.
    """
    results = []
    for seed in seeds:
        train, test = draw(seed)
        folds = np.random.default_rng(seed).permutation(len(train.targets)) % settings.folds
        row = {PREVIOUS: signal_to_noise(test.targets, np.array([each[-1, 0] for each in test.sequences]))}
        for column in KERNELS:
            kernels = [kernel_of(column, point) for point in grid_points(grid_of(column, settings.every))]
            matrices = np.stack([kernel.gram(train.sequences, train.sequences) for kernel in kernels])
            best, ridge = choose_ridge(matrices, train.targets, settings.ridges, folds)
            weights = ridge_weights(matrices[best : best + 1], train.targets, [settings.ridges[ridge]])[0, 0]
            predicted = kernels[best].gram(test.sequences, train.sequences) @ weights
            row[column] = signal_to_noise(test.targets, predicted)
        results.append(row)
    return results


def sweep(settings: Settings, bench: Workbench, name: str, points: Sequence[float], draw: Callable[..., Any]) -> Ratios:
    """Run ``ratios`` at every point of a figure's axis, in cells of ``block`` runs; ``draw(point, seed)`` is data."""
    needed = {key: value for key, value in settings.items() if key not in ("runs", "points")}
    rows = []
    for point in bench.progress(points, name):
        runs: list[dict[str, float]] = []
        for first in range(0, settings.runs, settings.block):
            seeds = list(bench.seeds(settings.runs))[first : first + settings.block]
            measure = partial(ratios, settings, partial(draw, point), seeds)
            runs += bench.cell(f"{name}={point:g}/run={seeds[0]}-{seeds[-1]}", measure, depends=needed)
        rows.append(runs)
    return {column: np.array([[run[column] for run in runs] for runs in rows]) for column in COLUMNS}


def show(bench: Workbench, results: Ratios, points: Sequence[float], label: str, *, log: str = "") -> None:
    """Draw the figure and the table of means and standard errors."""
    means = {name: values.mean(axis=1).tolist() for name, values in results.items()}
    errors = {name: standard_error(values).tolist() for name, values in results.items()}
    count = results["RNTK"].shape[1]
    bench.figure(
        "Signal-to-noise ratio",
        lambda axes: lines(axes, list(points), means, spreads=errors, labels=(label, "SNR, dB"), log=log, marks=True),
        caption=f"Mean over {count} runs, with its standard error.",
        width=520,
        height=320,
    )
    rows = [
        (f"{point:g}", *(f"{means[name][i]:.2f} ± {errors[name][i]:.2f}" for name in results))
        for i, point in enumerate(points)
    ]
    bench.table("Signal-to-noise ratio in dB, mean ± standard error", (label, *results), rows)


def standard_error(values: Float64[np.ndarray, "point run"]) -> Float64[np.ndarray, " point"]:
    """Return the standard error of the mean over runs; of one run, nothing is known and 0 is returned."""
    count = values.shape[1]
    return values.std(axis=1, ddof=1) / count**0.5 if count > 1 else np.zeros(len(values))


def judge_ahead(bench: Workbench, law: str, results: Ratios, leader: str, others: Sequence[str]) -> None:
    """Judge whether ``one`` has the highest mean at every point, run by run against the next."""
    means = np.array([results[name].mean(axis=1) for name in others])
    rivals = [others[int(place)] for place in means.argmax(axis=0)]
    gaps = [results[leader][point] - results[rival][point] for point, rival in enumerate(rivals)]
    judge_gaps(bench, law, gaps, ", ".join(f"{gap.mean():+.2f}" for gap in gaps) + " dB from point to point")


def judge_gaps(bench: Workbench, law: str, gaps: Sequence[Float64[np.ndarray, " run"]], said: str) -> None:
    """Judge whether the means over runs of all differences are above 0; two standard errors decide."""
    doubts = [unsure(float(gap.mean()), [mean_error(gap.tolist())]) for gap in gaps]
    lost = any(gap.mean() < 0 and not doubt for gap, doubt in zip(gaps, doubts, strict=True))
    bench.law(law, not lost, said, undecided="" if lost else next((doubt for doubt in doubts if doubt), ""))
