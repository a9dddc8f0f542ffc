"""What a run folder can hold: networks, estimators that are fitted at once, and forecasters; one protocol for all."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset
from sostenuto.data.encoding import Encoding
from sostenuto.data.source import is_file_source
from sostenuto.report.section import Section
from sostenuto.results import FitResult
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig
from sostenuto.types import PathLike

AUTO = "auto"
"""The name that asks for a choice among models."""
NETWORK = ModelConfig.layer
"""The layer that stands for trained networks."""
FORECASTER = "forecaster"
"""The model of a file's series, read whole; for ``task = "forecast"``."""
_HOMES = {
    "oscillators": "sostenuto.estimators.runs.at_once",
    "rntk": "sostenuto.estimators.runs.at_once",
    FORECASTER: "sostenuto.estimators.runs.forecast",
}
"""Where the models live that are no layers; every layer is a network."""

Chosen = dict[str, dict[str, Any]]
"""Settings that were asked for, under ``"data"``, ``"model"``, ``"options"`` (of the layer) and ``"training"``."""


@dataclass(frozen=True)
class Conditions:
    """How a fit or a prediction runs; ``retrain`` lets a resumed training go on with other settings."""

    device: str = "auto"
    data_dir: PathLike | None = None
    resume: bool = False
    retrain: bool = False
    probes: Sequence[str] = ()
    progress: bool = True


@dataclass(frozen=True, eq=False)
class FittedRun:
    """A finished fit: what the command line says of it, and how its page is written.

    ``facts`` is what JSON holds, ``rows`` a table; ``page`` renders the page with further
    sections; ``result`` is the record of a fit on sequences.
    """

    folder: Path
    facts: dict[str, Any]
    rows: list[tuple[str, object]]
    page: Callable[[Sequence[Section]], str]
    result: FitResult | None = None
    diverged: str = ""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a run answers for sequences: as CSV, as values for JSON, and its score where targets are known."""

    csv: str
    facts: dict[str, Any]
    count: int
    score: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)


@runtime_checkable
class Model(Protocol):
    """A kind of model that a run folder holds."""

    has_states: bool
    """Whether there are states and weights to probe."""

    def open(self, data: DataConfig, seed: int, conditions: Conditions) -> Dataset | None:
        """Open the data, or None where the model reads files itself."""
        ...

    def settings(
        self, base: RunConfig, written: dict[str, Any], chosen: Chosen, data: DataConfig, dataset: Dataset | None
    ) -> RunConfig:
        """Fill in what was not ``chosen``; ``written`` stands in the config file that ``base`` was read from."""
        ...

    def fit(self, dataset: Dataset | None, config: RunConfig, folder: Path, conditions: Conditions) -> FittedRun | None:
        """Fit and leave a whole run in ``folder``; None in every process but the first."""
        ...

    def load(self, folder: Path, config: RunConfig) -> Any:
        """Load what was fitted."""
        ...

    def predict(self, folder: Path, config: RunConfig, source: str, conditions: Conditions) -> Answers:
        """Answer for the sequences of ``source``."""
        ...


def model_of(layer: str) -> Model:
    """Find the kind of model that goes by the name ``layer``.

    >>> model_of("gru").has_states, model_of("rntk").has_states
    (True, False)
    """
    return importlib.import_module(_HOMES.get(layer, "sostenuto.estimators.runs.network")).MODEL


def load_fitted(folder: Path, config: RunConfig) -> tuple[Any, Encoding]:
    """Load what a run on sequences fitted, a module or an estimator on encoded sequences, and the encoding."""
    require(
        config.model.layer != FORECASTER,
        "expected a run that answers for sequences",
        "got one of forecaster, whose backtest stands on its own page",
    )
    fitted, encoding = model_of(config.model.layer).load(folder, config)[:2]
    return fitted, encoding


def named_models() -> tuple[str, ...]:
    """Return every name that ``--model`` takes for sequences, the choice among them first."""
    from sostenuto.nn import LAYERS

    return (AUTO, *(name for name in _HOMES if name != FORECASTER), *LAYERS)


def is_plain_forecast(chosen: Chosen, *, looks_inside: bool) -> bool:
    """Return whether a file's series are to be forecast, and nothing was chosen that only a trained network has."""
    data, model = chosen["data"], chosen["model"]
    network = looks_inside or {"window", "test"} & set(data) or set(chosen["training"]) - {"seed"}
    network = network or set(model) - {"layer"} or {"hidden_size", "num_layers"} & set(chosen["options"])
    named = model.get("layer", AUTO) in (AUTO, FORECASTER)
    return bool(data.get("task") == "forecast" and named and not network and is_file_source(data.get("source", "")))
