"""Frozen result records of plain numbers, to and from JSON. Nothing here knows torch."""

import json
import math
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sostenuto.choices import DataPart

Numbers = tuple[float, ...]
Outcome = Literal["good", "caution", "bad", "unknown"]
"""How a verdict speaks of what was found."""


@dataclass(frozen=True)
class Record:
    """Base of every result: a frozen record that turns into a dict, JSON, and back.

    >>> score = ClassScore("up", precision=1.0, recall=0.5, f1=2 / 3, support=4)
    >>> ClassScore.from_dict(score.to_dict()) == score
    True
    """

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python: dicts, lists, strings and numbers."""
        return plain(asdict(self))

    def to_json(self, *, indent: int | None = None) -> str:
        """Return strict JSON; what is not finite becomes null."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Record":
        """Rebuild a record from `to_dict`'s output."""
        hints = get_type_hints(cls)
        known = {f.name for f in fields(cls)}
        return cls(**{name: _typed(hints[name], value) for name, value in values.items() if name in known})


@dataclass(frozen=True)
class Example(Record):
    """One sequence shown to the reader: ``values[channel][time]`` and its label."""

    label: str
    values: tuple[Numbers, ...]


@dataclass(frozen=True)
class DataSummary(Record):
    """What the model was given."""

    name: str
    task: str
    num_train: int
    num_validation: int
    num_test: int
    num_channels: int
    shortest: int
    median_length: float
    longest: int
    description: str = ""
    origin: str = ""
    channel_names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()
    target_range: Numbers = ()
    missing_fraction: float = 0.0
    checksum: str = ""
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class LearningCurve(Record):
    """Loss and metric after each epoch, on the training and the validation part."""

    metric: str
    epochs: tuple[int, ...]
    train_loss: Numbers
    validation_loss: Numbers = ()
    validation_metric: Numbers = ()
    learning_rate: Numbers = ()
    best_epoch: int | None = None


@dataclass(frozen=True)
class ClassScore(Record):
    """Precision, recall and F1 of one class."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class ClassificationScores(Record):
    """How well classes were predicted; ``confusion[true][predicted]`` counts sequences."""

    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    log_loss: float
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    per_class: tuple[ClassScore, ...]
    count: int


@dataclass(frozen=True)
class RegressionScores(Record):
    """How well numbers were predicted, in the target's own unit; up to 2000 pairs are kept for the plot."""

    rmse: float
    mae: float
    r2: float
    actual: Numbers
    predicted: Numbers
    count: int
    target_name: str = ""


@dataclass(frozen=True)
class BaselineScore(Record):
    """A cheap method's score on the same split, so that the reader sees whether the model earns its keep."""

    name: str
    description: str
    metric: str
    score: float
    seconds: float


@dataclass(frozen=True)
class KernelSummary(Record):
    """What a fitted kernel looks like on the training part.

    ``picture`` is the Gram matrix over √(k(x,x) k(y,y)), of up to 120 sequences sorted by ``groups`` (their classes);
    ``eigenvalues`` fall; ``alignment`` is the cosine with the labels. ``sensitivities`` holds s(t) on evenly spaced
    points of time for each of ``sigmas`` (values of σ_w), ``spreads`` its standard deviation over its mean, and
    ``suggestion`` the σ_w of the least spread.
    """

    kernel: str
    picture: tuple[Numbers, ...]
    groups: tuple[int, ...]
    eigenvalues: Numbers
    alignment: float
    sigma_w: float
    sigmas: Numbers
    sensitivities: tuple[Numbers, ...]
    spreads: Numbers
    suggestion: float


@dataclass(frozen=True)
class OscillatorSummary(Record):
    """Which oscillators decide, in a fitted `OscillatorClassifier` or `OscillatorRegressor`.

    ``periods`` are the middles of logarithmic bins, in steps; ``by_period[output][bin]``, ``by_channel`` and
    ``by_kind`` are shares of an output's squared weights, by period those of an oscillator there. ``memory`` is the
    number of steps after which two states of the median oscillator under the same input have approached to 1 %,
    ``longest_memory`` that of the slowest; both are exact, for every input. ``unseen_score`` is the score of training
    sequences left out. ``reads`` says what the regression reads: ``"shares"`` of the time above thresholds, or the
    outputs at all ``"steps"`` and recent values.
    """

    units: int
    outputs: tuple[str, ...]
    periods: Numbers
    by_period: tuple[Numbers, ...]
    channels: tuple[str, ...]
    by_channel: tuple[Numbers, ...]
    kinds: tuple[str, ...]
    by_kind: tuple[Numbers, ...]
    memory: float
    longest_memory: float
    unseen_score: float
    reads: str = "shares"


@dataclass(frozen=True)
class Candidate(Record):
    """A model that could have been chosen: its score on training sequences it had not seen, and what that cost.

    ``score`` is an accuracy or R², None where the model was not tried; ``note`` says how it was measured, or why not.
    ``lead`` is by how much more of it the model has than the first one, on the sequences that both were tried on, and
    ``standard_error`` that of this difference.
    """

    name: str
    score: float | None
    lead: float
    standard_error: float
    seconds: float
    note: str


@dataclass(frozen=True)
class FitResult(Record):
    """Everything a training run has to say; the report is made from it alone.

    ``diverged`` says why training was given up, and is empty where it was not.
    """

    run: str
    model: str
    num_parameters: int
    metric: str
    score: float
    higher_is_better: bool
    evaluated_on: DataPart
    seconds: float
    data: DataSummary
    curve: LearningCurve
    classification: ClassificationScores | None = None
    regression: RegressionScores | None = None
    baselines: tuple[BaselineScore, ...] = ()
    diverged: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ForecastErrors(Record):
    """Errors of one way to forecast: over all horizons, and by horizon, nearest first.

    ``mase`` is the mean absolute error over that of the seasonal-naive forecast (the previous value where there is no
    season) one step ahead on the training part; channels are averaged.
    """

    name: str
    rmse: float
    mae: float
    mase: float
    rmse_by_horizon: Numbers
    mae_by_horizon: Numbers
    mase_by_horizon: Numbers


@dataclass(frozen=True)
class BacktestResult(Record):
    """Forecasts from the past of a series beside what came: the forecaster first in ``methods``, then simple ones.

    ``covered`` is the share of values inside the intervals, by horizon; ``coverage`` is what they aim at.
    """

    horizon: int
    season: int
    folds: int
    origins: int
    coverage: float
    covered: float
    covered_by_horizon: Numbers
    methods: tuple[ForecastErrors, ...]
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentNumber(Record):
    """One number of an experiment beside the paper's, or a law and whether it held.

    ``spread`` is the standard deviation over ``count`` repetitions, whose seeds are ``seeds``; ``better`` is
    ``"higher"``, ``"lower"`` or empty. ``recipe`` says in words how it came about, ``why`` why it was not judged.
    ``headline`` numbers decide the verdict of the experiment as a whole.
    """

    name: str
    verdict: str
    value: float | None = None
    spread: float | None = None
    count: int = 1
    unit: str = ""
    expected: float | None = None
    tolerance: float | None = None
    better: str = ""
    law: str = ""
    evidence: str = ""
    remark: str = ""
    headline: bool = True
    recipe: str = ""
    why: str = ""
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExperimentTable(Record):
    """A table that an experiment adds to its page."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ExperimentResult(Record):
    """What an experiment found beside what its paper says, and where it comes from.

    ``data`` holds the checksum of every data set read, ``commit`` and ``code`` name the code that ran, ``command``
    repeats it. ``test_evaluations`` counts how often a trained model was scored on the test part: ``made``, all that
    the run's folder holds, and ``shown``, those behind this result; it is empty where they were not counted.
    """

    name: str
    title: str
    paper: str
    what: str
    protocol: str
    verdict: str
    date: str
    seed: int
    seconds: float
    numbers: tuple[ExperimentNumber, ...]
    tables: tuple[ExperimentTable, ...] = ()
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    recipe: str = ""
    command: str = ""
    commit: str = "unknown"
    code: str = "unknown"
    test_evaluations: dict[str, int] = field(default_factory=dict)


def plain(value: Any) -> Any:
    """Turn nested values into what strict JSON holds; numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _typed(hint: Any, value: Any) -> Any:
    """Read ``value`` as ``hint``: nested records, tuples, and null as NaN where a number is meant."""
    if is_dataclass(hint) and isinstance(value, dict):
        return hint.from_dict(value)  # pyright: ignore[reportAttributeAccessIssue]
    if get_origin(hint) is tuple:
        return tuple(_typed(get_args(hint)[0], item) for item in value)
    if get_origin(hint) is dict and isinstance(value, dict):
        return {key: _typed(get_args(hint)[1], item) for key, item in value.items()}
    if hint is float:
        return math.nan if value is None else float(value)
    if value is not None and type(None) in get_args(hint):
        return _typed(next(arg for arg in get_args(hint) if arg is not type(None)), value)
    return value
