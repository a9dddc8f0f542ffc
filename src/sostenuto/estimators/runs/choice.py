"""Choose among the models that suit a data set, by errors on training sequences they had not seen, in a given time."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from sostenuto.checks import InputError, SostenutoError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import Parts, divide, training_count
from sostenuto.data.targets import task_of
from sostenuto.estimators.oscillators.ridge import MOST_ROWS
from sostenuto.estimators.runs import NETWORK, model_of
from sostenuto.estimators.runs.at_once import ESTIMATORS, fit_estimator, new_estimator, raw_answers
from sostenuto.kernels.recurrent_ntk import RecurrentNTK
from sostenuto.ops.oscillator_bank import THRESHOLDS
from sostenuto.results import Candidate
from sostenuto.training import recipes
from sostenuto.training.config import DataConfig, RunConfig, TrainingConfig
from sostenuto.training.objective import Objective
from sostenuto.training.predict import raw_predictions
from sostenuto.training.run import fit_parts
from sostenuto.training.tune import folded_parts

FOLDS = 3
LEAD = 2.0
"""Standard errors of the paired difference by which another model has to lead the default."""
RULE = (
    "The default is oscillators: another model takes their place if its errors on the same unseen training sequences "
    f"are fewer by more than {LEAD:g} standard errors of the paired difference, and of several the one that leads most."
)
GRAMS = 150
"""Gram matrices that the search for the kernel's σ computes, about."""
_SHARES = {"oscillators": 1 / 3, "rntk": 1 / 2, NETWORK: 1.0}
"""Share of the time that is left which a model may take."""
_MARGIN = 0.8
"""Share of the time left that a network's epochs are planned for: the estimate comes from a few batches."""
_LEAST = 0.1
"""Share of its recipe's epochs below which a network is not tried."""
_PRODUCTS, _LEAST_UNITS = 2.5e10, 32
"""Multiply-adds allowed for the oscillators' sums per second of the budget (half of what a core makes), and the fewest
oscillators that are tried however many sequences there are."""
_TICK = 1e-6
"""What a clock that shows no time has passed may have missed, in seconds."""
_SAMPLE, _BATCHES = 24, 4
"""Sequences that say how long a Gram matrix takes, and batches that say how long an epoch does."""


@dataclass(frozen=True)
class Choice:
    """The models considered, cheapest first, and the settings of the one that was chosen."""

    candidates: tuple[Candidate, ...]
    config: RunConfig

    @property
    def name(self) -> str:
        """The name of the chosen model."""
        return self.config.model.layer


Errors = tuple[Float64[np.ndarray, " _"], ...]
"""What a model did wrong on each sequence of each held-out part: 1 less the share of right answers, or the squared
error over the variance of the target. 1 less its mean is an accuracy, or R²."""


@dataclass(frozen=True)
class Tried:
    """How a model did on held-out parts, none where it was not tried, and what that took; ``note`` says how, or why."""

    errors: Errors
    seconds: float
    note: str

    @property
    def score(self) -> float | None:
        """Accuracy or R² on the held-out sequences."""
        return 1 - float(np.concatenate(self.errors).mean()) if self.errors else None


def can_choose(dataset: Dataset) -> bool:
    """Say whether there is more than one kind of model for the data: classes or numbers from channels of numbers."""
    return (
        task_of(dataset.train) in ("classification", "regression", "sequence")
        and not dataset.train.is_tokens
        and dataset.batch_transform is None
    )


def choose_model(
    dataset: Dataset,
    data: DataConfig,
    *,
    seed: int = 0,
    budget: float = 60.0,
    device: str = "auto",
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Try oscillators, the recurrent NTK and a trained network on the same held-out parts of the training part.

    Each gets what fits into its share of the ``budget``, in seconds of the ``clock``: three parts, or one, and a
    network as few epochs as a tenth of its recipe's. `RULE` decides. A network that is chosen is then trained by its
    whole recipe, or for as many epochs as fit into the budget once more. What is compiled once is not counted.
    """
    whole = divide(dataset, replace(data, validation=0.0), seed=seed)
    encoding = Encoding.fit(whole.train, scaling=data.scaling, missing=data.missing)
    configs = candidate_configs(dataset, data, seed=seed, budget=budget)
    default, *others = configs
    try:
        parts = _held_out_parts(dataset, configs[default])
    except InputError as error:
        untried = tuple(Candidate(name, None, 0.0, 0.0, 0.0, f"not tried: {error}") for name in configs)
        return Choice(untried, configs[default])
    trial = _Trial(parts, encoding, device, clock, clock() + budget)
    tried = {default: trial.estimator(configs[default])}
    for name in others:
        if tried[default].score == 1 and encoding.classes:
            tried[name] = Tried((), 0.0, "not tried: no unseen answer was wrong, so that nothing can lead")
        else:
            tried[name] = trial.network(configs[name]) if name == NETWORK else trial.kernel_machine(configs[name])
    candidates = {name: _candidate(name, outcome, tried[default]) for name, outcome in tried.items()}
    best = max(candidates, key=lambda name: candidates[name].lead if _is_shown(candidates[name]) else 0.0)
    config = configs[best]
    if best == NETWORK:
        epochs = min(config.training.epochs, max(1, int(budget / (trial.epoch_seconds * len(whole.train)))))
        config = replace(config, training=replace(config.training, epochs=epochs))
    return Choice(tuple(candidates.values()), config)


def _is_shown(candidate: Candidate) -> bool:
    return candidate.lead > LEAD * candidate.standard_error


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


def _held_out_parts(dataset: Dataset, config: RunConfig) -> list[Parts]:
    """Give the parts that all models are tried on; where the latest sequences are held out there is one."""
    held_out = replace(config.data, validation=config.data.validation or DataConfig.validation)
    return folded_parts(dataset, replace(config, data=held_out), FOLDS)


def paired_lead(reference: Errors, other: Errors) -> tuple[float, float]:
    """Say by how much ``other`` errs less than ``reference`` on the parts that both had, and the standard error of it.

    Two differences are added for it, half of the largest one each way and otherwise none (Agresti and Min, 2005, for
    pairs of right and wrong answers): without them, few answers that differ one way would be sure to do so for ever.

    >>> wrong, right = np.ones(3), np.zeros(97)
    >>> lead, error = paired_lead((np.concatenate([wrong, right]),), (np.zeros(100),))
    >>> round(lead, 3), round(error, 3)
    (0.03, 0.019)
    """
    pairs = list(zip(reference, other, strict=False))
    if not pairs:
        return 0.0, 0.0
    less = np.concatenate([first - second for first, second in pairs])
    count = len(less) + 2
    square = (np.square(less).sum() + np.abs(less).max() ** 2) / count
    return float(less.mean()), math.sqrt(max(square - (less.sum() / count) ** 2, 0.0) / count)


def _candidate(name: str, tried: Tried, default: Tried) -> Candidate:
    lead, error = (0.0, 0.0) if tried is default else paired_lead(default.errors, tried.errors)
    return Candidate(name, tried.score, lead, error, round(tried.seconds, 2), tried.note)


@dataclass
class _Trial:
    """Held-out parts of the training part, the same for every model, and the time until which models are tried."""

    parts: Sequence[Parts]
    encoding: Encoding
    device: str
    clock: Callable[[], float]
    ends: float
    epoch_seconds: float = math.nan
    """Time of the network per sequence and epoch."""

    def estimator(self, config: RunConfig) -> Tried:
        return self._run(config, len(self.parts), self._allowed(config), "")

    def kernel_machine(self, config: RunConfig) -> Tried:
        allowed = self._allowed(config)
        expected = kernel_seconds(self.encoding, self.parts[0].train, self.clock)
        if expected > allowed:
            return _not_tried("needs evenly spaced times" if math.isinf(expected) else _too_long(expected, allowed))
        return self._run(config, len(self.parts) if expected * len(self.parts) <= allowed else 1, allowed, "")

    def network(self, config: RunConfig) -> Tried:
        """Train on every part, or on one and for fewer epochs, with the whole schedule in them."""
        train, wanted = self.parts[0].train, config.training.epochs
        rows = np.random.default_rng(config.training.seed).permutation(len(train))
        try:
            self._compile(config, train.take(rows[: config.training.batch_size]))
            few = train.take(rows[: _BATCHES * config.training.batch_size])
            self.epoch_seconds = max(self._timed_epoch(config, few), _TICK) / len(few)
        except SostenutoError as error:
            return Tried((), 0.0, f"failed: {error}")
        left = max(self._allowed(config), 0.0)
        seconds = self.epoch_seconds * len(train)
        affordable, count = _MARGIN * left / seconds, len(self.parts)
        if affordable < count * wanted / 2:
            count = 1
        epochs = min(wanted, int(affordable / count))
        if epochs < _LEAST * wanted:
            return _not_tried(_too_long(math.ceil(_LEAST * wanted) * seconds / _MARGIN, left))
        short = replace(config, training=replace(config.training, epochs=epochs))
        return self._run(short, count, left, f", {epochs} of {wanted} epochs" if epochs < wanted else "")

    def _allowed(self, config: RunConfig) -> float:
        return _SHARES[config.model.layer] * (self.ends - self.clock())

    def _run(self, config: RunConfig, count: int, allowed: float, note: str) -> Tried:
        """Fit on as many parts as fit into the time that is allowed, at least on one."""
        began, errors = self.clock(), []
        try:
            for parts in self.parts[:count]:
                taken = self.clock() - began
                if errors and taken * (1 + 1 / len(errors)) > allowed:
                    break
                errors.append(self._errors(config, parts))
        except SostenutoError as error:
            return Tried((), self.clock() - began, f"failed: {error}")
        said = f"{len(errors)} of {len(self.parts)} parts held out{note}"
        return Tried(tuple(errors), self.clock() - began, said)

    def _errors(self, config: RunConfig, parts: Parts) -> Float64[np.ndarray, " _"]:
        assert parts.validation is not None
        exact = config.model.layer in ESTIMATORS
        batch = self.encoding.encode(parts.validation, dtype=torch.float64 if exact else None)
        if exact:
            estimator = new_estimator(self.encoding, config)
            fit_estimator(estimator, self.encoding, parts.train)
            raw = _all_classes(raw_answers(estimator, batch), estimator, self.encoding)
        else:
            fitted = self._trained(config, parts)
            raw = raw_predictions(fitted.model, batch, device=fitted.device)
        objective = Objective.of(self.encoding, config.training, batch)
        each = (objective.metrics(raw, batch) / objective.units(batch)).double().numpy()
        errors = 1 - each if self.encoding.classes else each / np.square(self.encoding.target_scale).mean()
        if not np.isfinite(errors).all():
            raise SostenutoError("expected finite answers, got NaN or infinity")
        return errors

    def _trained(self, config: RunConfig, parts: Parts) -> Any:
        """Train without a look at the held-out part; the last epoch's weights are kept."""
        alone = replace(parts, validation=None)
        return fit_parts(alone, config, encoding=self.encoding, device=self.device, progress=False)

    def _compile(self, config: RunConfig, few: SequenceSet) -> None:
        """Run an epoch over a batch, which is not counted: what it compiles is there the next time."""
        began = self.clock()
        self._timed_epoch(config, few)
        self.ends += self.clock() - began

    def _timed_epoch(self, config: RunConfig, few: SequenceSet) -> float:
        short = replace(config, training=replace(config.training, epochs=1))
        began = self.clock()
        self._trained(short, replace(self.parts[0], train=few))
        return self.clock() - began


def _all_classes(raw: torch.Tensor, estimator: Any, encoding: Encoding) -> torch.Tensor:
    """Put scores of the classes that a fold has into the columns of all classes; the others are never the answer."""
    if not encoding.classes or raw.shape[-1] == len(encoding.classes):
        return raw
    full = raw.new_full((*raw.shape[:-1], len(encoding.classes)), float(raw.min()) - 1)
    full[..., torch.as_tensor(np.asarray(estimator.classes_, dtype=np.int64))] = raw
    return full


def kernel_seconds(encoding: Encoding, train: SequenceSet, clock: Callable[[], float] = time.perf_counter) -> float:
    """Estimate how long the recurrent NTK takes, from the Gram matrix of a few sequences; endless where it cannot."""
    if train.timespans is not None:
        return math.inf
    sample = train.take(np.arange(min(_SAMPLE, len(train))))
    sequences = [sequence.numpy() for sequence in encoding.encode(sample).sequences()]
    kernel = RecurrentNTK()
    kernel(sequences)  # compiled, if it was not yet
    began = clock()
    kernel(sequences)
    return (clock() - began) * (len(train) / len(sequences)) ** 2 * GRAMS


def _not_tried(why: str) -> Tried:
    return Tried((), 0.0, f"not tried: {why}")


def _too_long(expected: float, left: float) -> str:
    return f"would take about {expected:.0f} s, {max(left, 0):.0f} s were left for it"
