"""Choose among the models that suit a data set, by scores on training sequences they had not seen, in a given time."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sostenuto.checks import InputError, SostenutoError
from sostenuto.data.dataset import Dataset
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide, training_count
from sostenuto.data.targets import task_of
from sostenuto.estimators.oscillators.ridge import MOST_ROWS
from sostenuto.estimators.runs import NETWORK, model_of
from sostenuto.estimators.runs.at_once import fit_estimator, new_estimator
from sostenuto.kernels.recurrent_ntk import RecurrentNTK
from sostenuto.ops.oscillator_bank import THRESHOLDS
from sostenuto.results import Candidate
from sostenuto.training import recipes
from sostenuto.training.config import DataConfig, RunConfig, TrainingConfig
from sostenuto.training.run import fit_parts
from sostenuto.training.tune import cross_validate, folded_parts

GRAMS = 150
"""Gram matrices that the search for the kernel's σ computes, about."""
FOLDS = 3
LEAST_SECONDS = 10.0
"""Time below which a network is not even begun."""
_PRODUCTS, _LEAST_UNITS = 2.5e10, 32
"""Multiply-adds allowed for the oscillators' sums per second of the budget (half of what a core makes), and the fewest
oscillators that are tried however many sequences there are."""
_SAMPLE = 24
_UNTRIED = Candidate("", None, 0.0, 0.0, "not tried: no unseen answer was wrong, so that nothing can lead")


@dataclass(frozen=True)
class Choice:
    """The models considered, cheapest first, and the settings of the one that was chosen."""

    candidates: tuple[Candidate, ...]
    config: RunConfig

    @property
    def name(self) -> str:
        """The name of the chosen model."""
        return self.config.model.layer


def can_choose(dataset: Dataset) -> bool:
    """Say whether there is more than one kind of model for the data: classes or numbers from channels of numbers."""
    return (
        task_of(dataset.train) in ("classification", "regression", "sequence")
        and not dataset.train.is_tokens
        and dataset.batch_transform is None
    )


def choose_model(
    dataset: Dataset, data: DataConfig, *, seed: int = 0, budget: float = 60.0, device: str = "auto"
) -> Choice:
    """Try oscillators, the recurrent NTK and a trained network, each if it fits into what is left of the ``budget``.

    Scores are leave-one-out for the oscillators and cross-validated for the others, on the training part alone. A model
    is chosen over a cheaper one only if it leads by more than one standard error, that of a share of right answers or
    that of R² where errors are normal. The budget is in seconds.
    """
    began = time.perf_counter()
    parts = divide(dataset, replace(data, validation=0.0), seed=seed)
    encoding = Encoding.fit(parts.train, scaling=data.scaling, missing=data.missing)
    configs = candidate_configs(dataset, data, seed=seed, budget=budget)

    def left() -> float:
        return budget - (time.perf_counter() - began)

    how = "cross-validation" if encoding.has_step_targets else "leave-one-out"
    candidates = [_try_estimator(configs["oscillators"], encoding, parts.train, how)]
    if encoding.classes and candidates[0].score == 1:
        # Nothing can lead.
        others = [replace(_UNTRIED, name=name) for name in list(configs)[1:]]
        return Choice((*candidates, *others), configs["oscillators"])
    if "rntk" in configs:
        expected = kernel_seconds(encoding, parts.train)
        if expected <= left():
            candidates.append(_try_estimator(configs["rntk"], encoding, parts.train, "cross-validation"))
        else:
            candidates.append(_not_tried("rntk", expected, left()))
    candidates.append(_try_network(configs[NETWORK], dataset, encoding, left, device))
    best = candidates[0]
    for one in candidates[1:]:
        if one.score is not None and best.score is not None and one.score > best.score + best.standard_error:
            best = one
    return Choice(tuple(candidates), configs[best.name])


def candidate_configs(
    dataset: Dataset, data: DataConfig, *, seed: int = 0, budget: float = 60.0
) -> dict[str, RunConfig]:
    """Give the settings of every model that is considered, by name, cheapest first; rntk has no target per step.

    Very many sequences get fewer oscillators, so that their sums stay within the budget.
    """
    base, task = RunConfig(data=data, training=TrainingConfig(seed=seed)), task_of(dataset.train)
    names = ("oscillators",) if task == "sequence" else ("oscillators", "rntk")
    configs = {name: _defaults(name, base, data) for name in names}
    if task != "sequence" and len(dataset.train) > MOST_ROWS:
        units = {"n_units": units_within(len(dataset.train), budget)}
        configs["oscillators"] = replace(
            configs["oscillators"], model=replace(configs["oscillators"].model, options=units)
        )
    if task == "classification":
        configs["rntk"] = replace(configs["rntk"], model=replace(configs["rntk"].model, options={"search": "evidence"}))
    network = {"model": {"layer": NETWORK}, "training": {"seed": seed}}
    return {**configs, NETWORK: recipes.run_config(data, dataset.train, training_count(dataset, data), network)}


def units_within(rows: int, budget: float, most: int = 700) -> int:
    """Say how many oscillators' sums over so many sequences fit into half of the budget, in seconds.

    >>> [units_within(rows, 60.0) for rows in (5_000, 100_000, 1_000_000)]
    [700, 242, 76]
    """
    features = math.sqrt(_PRODUCTS * budget / rows)
    return int(min(max(features / THRESHOLDS, _LEAST_UNITS), most))


def _defaults(name: str, base: RunConfig, data: DataConfig) -> RunConfig:
    chosen: dict[str, dict[str, Any]] = {"data": {}, "options": {}, "training": {}, "model": {"layer": name}}
    return model_of(name).settings(base, {}, chosen, data, None)


def _try_estimator(config: RunConfig, encoding: Encoding, train: Any, how: str) -> Candidate:
    began = time.perf_counter()
    estimator = new_estimator(encoding, config)
    fit_estimator(estimator, encoding, train)
    score = float(estimator.best_score_)
    if not encoding.classes and config.model.layer == "rntk":
        score = 1 - score**2  # the error is in deviations of the target
    candidate = _candidate(config.model.layer, score, encoding, train, time.perf_counter() - began, how)
    between = getattr(estimator, "best_score_error_", None)
    return candidate if between is None else replace(candidate, standard_error=between)


def kernel_seconds(encoding: Encoding, train: Any) -> float:
    """Estimate how long the recurrent NTK takes, from the Gram matrix of a few sequences; endless where it cannot."""
    if train.timespans is not None:
        return math.inf
    sample = train.take(np.arange(min(_SAMPLE, len(train))))
    sequences = [sequence.numpy() for sequence in encoding.encode(sample).sequences()]
    kernel = RecurrentNTK()
    kernel(sequences[:2])  # compiled, if it was not yet
    began = time.perf_counter()
    kernel(sequences)
    return (time.perf_counter() - began) * (len(train) / len(sequences)) ** 2 * GRAMS


def _try_network(config: RunConfig, dataset: Dataset, encoding: Encoding, left: Any, device: str) -> Candidate:
    """Cross-validate the network if two epochs say that there is time for it."""
    name, began = config.model.layer, time.perf_counter()
    if left() < LEAST_SECONDS:
        return Candidate(name, None, 0.0, 0.0, f"not tried: {max(left(), 0):.0f} s were left")
    try:
        divided = folded_parts(dataset, config, FOLDS)
    except InputError as error:
        return Candidate(name, None, 0.0, 0.0, f"not tried: {error}")
    short = replace(config, training=replace(config.training, epochs=1))
    try:
        fit_parts(divided[0], short, device=device, progress=False)  # compiled, if it was not yet
        trial = fit_parts(divided[0], short, device=device, progress=False)
        expected = trial.progress.seconds * config.training.epochs * len(divided)
        if expected > left():
            return _not_tried(name, expected, left())
        row = cross_validate(divided, config, device, last=config.data.validation == 0)
    except SostenutoError as error:
        return Candidate(name, None, 0.0, time.perf_counter() - began, f"training failed: {error}")
    if row["score"] is None:
        return Candidate(name, None, 0.0, time.perf_counter() - began, f"training failed: {row['reason']}")
    score = float(row["score"])
    if not encoding.classes:
        targets = dataset.train.targets
        joined = np.concatenate(targets) if isinstance(targets, list) else np.asarray(targets, dtype=float)
        spread = float(np.std(np.asarray(joined, dtype=float), axis=0).mean())
        score = 1 - (score / spread) ** 2 if spread > 0 else math.nan
    return _candidate(
        name, score, encoding, dataset.train, time.perf_counter() - began, f"cross-validation, {len(divided)} folds"
    )


def _candidate(name: str, score: float, encoding: Encoding, train: Any, seconds: float, how: str) -> Candidate:
    error = _share_error(score, len(train)) if encoding.classes else (1 - score) * math.sqrt(2 / len(train))
    return Candidate(name, score, error, round(seconds, 2), how)


def _share_error(share: float, count: int) -> float:
    """Give the standard error of a share of right answers, with two more of each kind (Agresti and Coull, 1998).

    Without these, few answers that are all right would be sure to be right for ever.

    >>> round(_share_error(1.0, 30), 3), round(_share_error(0.5, 10_000), 3)
    (0.04, 0.005)
    """
    likely = (share * count + 2) / (count + 4)
    return math.sqrt(likely * (1 - likely) / (count + 4))


def _not_tried(name: str, expected: float, left: float) -> Candidate:
    why = "needs evenly spaced times" if math.isinf(expected) else f"would take about {expected:.0f} s"
    return Candidate(name, None, 0.0, 0.0, f"not tried: {why}, {max(left, 0):.0f} s were left")
