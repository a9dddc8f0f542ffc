"""`RNTKClassifier` on real data sets: the paper's grid and likelihood, accuracy on the test part and time.

Nothing is chosen on the test part: σ and C come from cross-validation, or a likelihood, on the training part.
"""

import time
from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto import datasets
from sostenuto.estimators import RNTKClassifier

TITLE = "RNTKClassifier: the paper's grid against leave-one-out likelihood, test accuracy and seconds"

SETS = (
    "ucr/Coffee",
    "ucr/GunPoint",
    "ucr/Trace",
    "ucr/ECG200",
    "ucr/Plane",
    "ucr/SmoothSubspace",
    "uea/JapaneseVowels",
)


def run(
    progress: bool = True, sets: tuple[str, ...] = SETS, data_dir: str | None = None, **options: Any
) -> dict[str, Any]:
    """Return accuracy in percent and seconds of `fit` for each set and search; ``options`` go to the classifier."""
    # Compiled code is loaded before the clock starts.
    RNTKClassifier("evidence", folds=2, random_state=0).fit(np.random.default_rng(0).normal(size=(8, 5)), [0, 1] * 4)
    record: dict[str, Any] = {}
    for name in tqdm(sets, disable=not progress):
        data = datasets.load(name, data_dir=data_dir)
        assert data.test is not None
        measured = {search: _measured(search, data, options) for search in ("grid", "evidence")}
        ratio = measured["grid"]["seconds"] / measured["evidence"]["seconds"]
        record[name] = {**measured, "grid_over_evidence_seconds": ratio}
    return record


def _measured(search: str, data: Any, options: dict[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    learned = RNTKClassifier(search, random_state=0, **options).fit(
        data.train.sequences, np.asarray(data.train.targets)
    )
    seconds = time.perf_counter() - begun
    kernel = learned.kernel_
    return {
        "test_accuracy": 100 * learned.score(data.test.sequences, np.asarray(data.test.targets)),
        "cross_validated": 100 * learned.best_score_,
        "seconds": seconds,
        "sigma_w": float(np.ravel(kernel.sigma_w)[0]),
        "sigma_b": float(np.ravel(kernel.sigma_b)[0]),
        "sigma_h": float(np.ravel(kernel.sigma_h)[0]),
        "C": learned.C_,
        "machines": len(learned.costs_),
    }
