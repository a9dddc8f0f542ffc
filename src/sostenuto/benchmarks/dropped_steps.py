"""What it costs `OscillatorClassifier` to miss steps at random: read at irregular times, or resampled to the grid.

Of every series of both parts a share of the steps is dropped, anew in each of `DRAWS` draws. Either the rest is read
with its times (``timespans``), or the dropped values are put back by straight lines. Beside them stands the accuracy on
whole series. Sets are those of the archive at hand with at most `MOST` values; default settings.
"""

from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto.benchmarks.oscillator_features import at_hand, parts
from sostenuto.estimators import OscillatorClassifier

TITLE = "OscillatorClassifier with steps dropped at random: irregular times against a resampled grid"
SHARE, DRAWS, MOST = 0.3, 3, 200_000


def run(
    progress: bool = True, sets: tuple[str, ...] | None = None, draws: int = DRAWS, data_dir: str | None = None
) -> dict[str, Any]:
    """Return accuracies per set and draw, and the mean differences with standard errors over sets."""
    rows: dict[str, dict[str, Any]] = {}
    for name in tqdm(sets or at_hand(data_dir), desc=TITLE, unit="set", disable=not progress):
        data = parts(name, data_dir)
        if sets or data["train"].size + data["test"].size <= MOST:
            rows[name] = measure(data, draws)
    table = {way: np.array([np.mean(row[way]) for row in rows.values()]) for way in ("whole", "irregular", "grid")}
    pairs = (("irregular", "grid"), ("whole", "irregular"), ("whole", "grid"))
    return {
        "share": SHARE,
        "draws": draws,
        "sets": rows,
        "mean": {way: float(scores.mean()) for way, scores in table.items()},
        "differences": {f"{one} − {other}": difference(table[one], table[other]) for one, other in pairs},
    }


def measure(data: dict[str, Any], draws: int) -> dict[str, Any]:
    """Return the accuracy on whole series and, for each draw, on the steps that are left."""
    scores: dict[str, Any] = {
        "whole": _score(data, data["train"], data["test"], 0, {}, {}),
        "irregular": [],
        "grid": [],
    }
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        train, test = (_dropped(data[side], generator) for side in ("train", "test"))
        times = [{"timespans": side[1]} for side in (train, test)]
        scores["irregular"].append(_score(data, train[0], test[0], draw, *times))
        scores["grid"].append(_score(data, train[2], test[2], draw, {}, {}))
    return scores


def _dropped(series: np.ndarray, generator: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray], Any]:
    """Return what is left of each series, the time before each of these steps, and the series with straight lines."""
    length = series.shape[1]
    kept = [np.sort(generator.permutation(length)[: round((1 - SHARE) * length)]) for _ in series]
    left = [row[steps] for row, steps in zip(series, kept, strict=True)]
    spans = [np.diff(steps, prepend=-1).astype(float) for steps in kept]
    grid = np.stack([np.interp(np.arange(length), steps, row) for steps, row in zip(kept, left, strict=True)])
    return left, spans, grid


def _score(data: dict[str, Any], train: Any, test: Any, seed: int, fitted: Any, asked: Any) -> float:
    model = OscillatorClassifier(random_state=seed).fit(train, data["train_labels"], **fitted)
    return float(np.mean(model.predict(test, **asked) == data["test_labels"]))


def difference(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Return the mean difference, its standard error over sets, and on how many of them each is ahead."""
    lead = one - other
    error = float(lead.std(ddof=1)) / len(lead) ** 0.5 if len(lead) > 1 else float("inf")
    counts = {"ahead": int((lead > 0).sum()), "behind": int((lead < 0).sum())}
    return {"mean": float(lead.mean()), "standard_error": error, **counts}
