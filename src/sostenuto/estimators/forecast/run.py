"""A run folder whose model is a `Forecaster`: fitted on the series of a file, backtested, asked for what comes."""

import csv
import io
import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import require
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.files.cells import plain_text
from sostenuto.estimators.forecast.forecaster import Forecaster
from sostenuto.estimators.forecast.series import next_times, read_times
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.results import BacktestResult, ForecastErrors
from sostenuto.training.config import ModelConfig, RunConfig, TrainingConfig
from sostenuto.training.data import read_file
from sostenuto.training.run_folder import MODEL, discard_folder

NAME = "forecaster"
"""The name of this model on the command line and in ``config.toml``."""
FOLDS = 3
MOST_BACKTESTS = 12
"""Series that are backtested at the most: each takes several fits."""


@dataclass(frozen=True, eq=False)
class Material:
    """What is forecast: names of series and channels, values, covariates beside them, and moments as texts."""

    names: list[str]
    channels: tuple[str, ...]
    covariate_names: tuple[str, ...]
    values: list[np.ndarray]
    covariates: list[np.ndarray] | None
    times: list[np.ndarray] | None


@dataclass(frozen=True, eq=False)
class Forecast:
    """What comes after each series: (series, horizon, channel), with the ends of intervals and moments."""

    material: Material
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    times: list[np.ndarray]


def run_forecaster(config: RunConfig, folder: Path, *, resume: bool = False) -> tuple[BacktestResult, Forecast]:
    """Fit, backtest and forecast the series of ``config.data.source``; leave a whole run in ``folder``."""
    try:
        material = _material(read_file(config.data, config.data.source)["train"])
        options = {"horizon": config.data.horizon, "random_state": config.training.seed, **config.model.options}
        forecaster = Forecaster(**options).fit(**_arguments(material))
        result = _backtested(options, material)
    except Exception:
        if not resume:
            discard_folder(folder)
        raise
    write_atomically(folder / "config.toml", config.to_toml())
    notes = {"channels": material.channels, "covariates": material.covariate_names}
    save_kernel_estimator(forecaster, folder / MODEL, notes)
    forecast = _forecast(forecaster, material)
    write_atomically(folder / "predictions.csv", forecast_csv(forecast))
    write_atomically(folder / "result.json", result.to_json(indent=1))
    return result, forecast


def predict_forecaster(folder: Path, config: RunConfig, source: str) -> Forecast:
    """Forecast what comes after each series of another file, or of the same."""
    forecaster, notes = load_kernel_estimator({Forecaster.__name__: Forecaster}, folder / MODEL)
    forecaster.seasons_, forecaster.lags_ = tuple(forecaster.seasons_), tuple(forecaster.lags_)
    material = _material(read_file(config.data, source)["train"])
    for what, ours, theirs in (
        ("columns to forecast", tuple(notes["channels"]), material.channels),
        ("columns beside them", tuple(notes["covariates"]), material.covariate_names),
    ):
        require(ours == theirs, f"{source}: expected the {what} of the run, {ours}", f"got {theirs}")
    return _forecast(forecaster, material)


def forecaster_config(data: Any, seed: int, options: dict[str, Any]) -> RunConfig:
    """Make the config of such a run."""
    return RunConfig(data, ModelConfig(layer=NAME, options=options), TrainingConfig(seed=seed))


def forecast_csv(forecast: Forecast) -> str:
    """Write a forecast as a table: a row for each series, moment and channel."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["series", "time", "channel", "forecast", "low", "high"])
    for i, name in enumerate(forecast.material.names):
        for h, moment in enumerate(forecast.times[i]):
            for c, channel in enumerate(forecast.material.channels):
                numbers = (part[i, h, c] for part in (forecast.values, forecast.low, forecast.high))
                text = (plain_text(name), moment_text(moment), plain_text(channel))
                writer.writerow([*text, *(f"{value:.8g}" for value in numbers)])
    return buffer.getvalue()


def forecast_json(forecast: Forecast) -> str:
    """Write a forecast as JSON."""
    return json.dumps(
        {
            "series": forecast.material.names,
            "channels": list(forecast.material.channels),
            "times": [[moment_text(moment) for moment in times] for times in forecast.times],
            "forecast": forecast.values.tolist(),
            "low": forecast.low.tolist(),
            "high": forecast.high.tolist(),
        }
    )


def moment_text(moment: Any) -> str:
    """Write a moment: a date without the clock at midnight, a number without its point where it is whole.

    >>> moment_text(np.datetime64("2024-01-31T00:00:00")), moment_text(np.float64(3.0))
    ('2024-01-31', '3')
    """
    if np.asarray(moment).dtype.kind == "M":
        return str(moment).removesuffix("T00:00:00")
    return f"{float(moment):.10g}"


def _material(part: SequenceSet) -> Material:
    """Tell the columns that are forecast from those that are read beside them."""
    part = part.numbered()
    width = part.sequences[0].shape[1]
    names = part.channel_names or tuple(f"channel {index + 1}" for index in range(width))
    wanted = [names.index(part.target_name)] if part.target_name in names else list(range(width))
    beside = [index for index in range(width) if index not in wanted]
    assert part.ids is not None
    return Material(
        [str(name) for name in part.ids],
        tuple(names[index] for index in wanted),
        tuple(names[index] for index in beside),
        [sequence[:, wanted] for sequence in part.sequences],
        [sequence[:, beside] for sequence in part.sequences] if beside else None,
        None if part.times is None else [_moments(times) for times in part.times],
    )


def _moments(times: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(times, dtype=np.float64)
    except ValueError:
        return np.asarray(times)


def _arguments(material: Material) -> dict[str, Any]:
    """Give the series as `Forecaster` takes them: one alone, or a list."""

    def form(parts: list[np.ndarray] | None) -> Any:
        return parts if parts is None or len(parts) > 1 else parts[0]

    return {"y": form(material.values), "covariates": form(material.covariates), "times": form(material.times)}


def _backtested(options: dict[str, Any], material: Material) -> BacktestResult:
    """Backtest each series by itself, `MOST_BACKTESTS` evenly spaced ones of many, and average their errors."""
    every = -(-len(material.names) // MOST_BACKTESTS)
    results = []
    for i in range(0, len(material.names), every):
        one = replace(
            material,
            values=material.values[i : i + 1],
            covariates=None if material.covariates is None else material.covariates[i : i + 1],
            times=None if material.times is None else material.times[i : i + 1],
        )
        results.append(Forecaster(**options).backtest(**_arguments(one), folds=FOLDS))
    return results[0] if len(results) == 1 else _averaged(results)


def _averaged(results: list[BacktestResult]) -> BacktestResult:
    """Average errors over series; origins are added up, and the season is the one found most often."""

    def mean(rows: list[Any]) -> Any:
        averaged = np.mean(rows, axis=0)
        return tuple(averaged.tolist()) if np.ndim(averaged) else float(averaged)

    names = [method.name for method in results[0].methods]
    shared = [name for name in names if all(name in {m.name for m in result.methods} for result in results)]
    errors = [field.name for field in fields(ForecastErrors) if field.name != "name"]
    methods = []
    for name in shared:
        own = [next(method for method in result.methods if method.name == name) for result in results]
        methods.append(ForecastErrors(name, **{key: mean([getattr(each, key) for each in own]) for key in errors}))
    return replace(
        results[0],
        season=max({result.season for result in results}, key=[result.season for result in results].count),
        origins=sum(result.origins for result in results),
        covered=mean([result.covered for result in results]),
        covered_by_horizon=mean([result.covered_by_horizon for result in results]),
        methods=tuple(methods),
    )


def _forecast(forecaster: Forecaster, material: Material) -> Forecast:
    given = _arguments(material)
    shape = (len(material.names), forecaster.horizon, len(material.channels))
    values = forecaster.predict(**given).reshape(shape)
    ends = forecaster.predict_interval(**given).reshape(shape[0], 2, *shape[1:])
    times = [
        len(series) + np.arange(forecaster.horizon, dtype=np.float64)
        if material.times is None
        else next_times(read_times(material.times[i], len(series)), forecaster.horizon)
        for i, series in enumerate(material.values)
    ]
    return Forecast(material, values, ends[:, 0], ends[:, 1], times)
