"""Settings of oscillators, searched by the score of training sequences that are left out."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sostenuto.checks import SostenutoError
from sostenuto.data.dataset import Dataset
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide
from sostenuto.estimators.runs.at_once import check_usable, fit_estimator, new_estimator
from sostenuto.training.config import RunConfig
from sostenuto.training.tune import Choice

SPACES: dict[str, dict[str, Choice]] = {
    "oscillators": {
        "options.n_units": ("choice", (350, 700, 1400)),
        "options.quality": ("choice", ([0.3, 8.0], [0.1, 3.0], [0.3, 30.0], [1.0, 8.0], [1.0, 30.0])),
        "options.longest_period": ("choice", (0.25, 0.5, 1.0, 2.0)),
    }
}
"""What is searched for each model that is fitted at once."""


def leave_one_out(dataset: Dataset, config: RunConfig) -> Callable[[RunConfig], dict[str, Any]]:
    """Return what judges a config: accuracy, or R², of training sequences that are left out one by one."""
    check_usable(dataset, config.model.layer)
    train = divide(dataset, replace(config.data, validation=0.0), seed=config.training.seed).train
    encoding = Encoding.fit(train, scaling=config.data.scaling, missing=config.data.missing)
    metric = "accuracy" if encoding.classes else "r2"

    def evaluate(tried: RunConfig) -> dict[str, Any]:
        began = time.perf_counter()
        estimator = new_estimator(encoding, tried)
        try:
            fit_estimator(estimator, encoding, train)
        except SostenutoError as error:
            return {"score": None, "reason": str(error)}
        score = float(estimator.best_score_)
        return {"score": score, metric: score, "seconds": round(time.perf_counter() - began, 2)}

    return evaluate
