"""Runs of a `Forecaster`: fitted on the series of a file, backtested, asked for what comes."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.files.cells import plain_text
from sostenuto.data.source import read_file, with_checksum
from sostenuto.estimators.forecast.forecaster import Forecaster
from sostenuto.estimators.forecast.series import next_times, read_times
from sostenuto.estimators.runs import FORECASTER, Answers, Chosen, Conditions, FittedRun
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.report.contents.forecast import ForecastPicture, forecast_page
from sostenuto.report.numbers import counted
from sostenuto.report.section import Section
from sostenuto.results import BacktestResult, ForecastErrors, plain
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from sostenuto.training.run_folder import MARK, check_mark, run_mark
from sostenuto.training.run_folder import MODEL as MODEL_FILE

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


class ForecasterRuns:
    """A `Forecaster` of the series of a file, read whole and not as windows."""

    has_states = False

    def open(self, data: DataConfig, seed: int, conditions: Conditions) -> None:
        """Leave the file to `fit`."""

    def settings(
        self,
        base: RunConfig,
        written: dict[str, Any],  # noqa: ARG002
        chosen: Chosen,
        data: DataConfig,
        dataset: Dataset | None = None,  # noqa: ARG002
    ) -> RunConfig:
        """Take the forecaster's own defaults."""
        options = {**(base.model.options if base.model.layer == FORECASTER else {}), **chosen["options"]}
        training = TrainingConfig(seed=chosen["training"].get("seed", base.training.seed))
        return RunConfig(data, ModelConfig(layer=FORECASTER, options=options), training)

    def fit(self, dataset: Dataset | None, config: RunConfig, folder: Path, conditions: Conditions) -> FittedRun:  # noqa: ARG002
        """Fit, backtest and forecast; leave a whole run in ``folder``."""
        part = read_file(config.data, config.data.source)["train"]
        config = replace(config, data=with_checksum(config.data, part))
        material = _material(part)
        options = {"horizon": config.data.horizon, "random_state": config.training.seed, **config.model.options}
        forecaster = Forecaster(**options).fit(**_arguments(material))
        result = _backtested(options, material)
        write_atomically(folder / "config.toml", config.to_toml())
        notes = {"channels": material.channels, "covariates": material.covariate_names, MARK: run_mark(config)}
        save_kernel_estimator(forecaster, folder / MODEL_FILE, notes)
        forecast = _forecast(forecaster, material)
        write_atomically(folder / "predictions.csv", forecast_csv(forecast))
        write_atomically(folder / "result.json", result.to_json(indent=1))
        return _fitted_run(folder, config, result, forecast)

    def load(self, folder: Path, config: RunConfig) -> tuple[Forecaster, dict[str, Any]]:
        """Load the forecaster and the names of its columns."""
        forecaster, notes = load_kernel_estimator({Forecaster.__name__: Forecaster}, folder / MODEL_FILE)
        check_mark(folder / MODEL_FILE, notes, config)
        forecaster.seasons_, forecaster.lags_ = tuple(forecaster.seasons_), tuple(forecaster.lags_)
        return forecaster, notes

    def predict(self, folder: Path, config: RunConfig, source: str, conditions: Conditions) -> Answers:  # noqa: ARG002
        """Forecast what comes after each series of another file, or of the same."""
        forecaster, notes = self.load(folder, config)
        material = _material(read_file(config.data, source)["train"])
        for what, ours, theirs in (
            ("columns to forecast", tuple(notes["channels"]), material.channels),
            ("columns beside them", tuple(notes["covariates"]), material.covariate_names),
        ):
            require(ours == theirs, f"{source}: expected the {what} of the run, {ours}", f"got {theirs}")
        forecast = _forecast(forecaster, material)
        return Answers(forecast_csv(forecast), forecast_facts(forecast), len(material.names))


def _fitted_run(folder: Path, config: RunConfig, result: BacktestResult, forecast: Forecast) -> FittedRun:
    material, source, report = forecast.material, Path(config.data.source).name, folder / "report.html"
    methods = {method.name: method.rmse for method in result.methods}
    facts = {"run": str(folder), "model": FORECASTER, "metric": "rmse", "score": result.methods[0].rmse}
    facts |= {"methods": methods, "covered": result.covered, "report": str(report)}
    rows: list[tuple[str, object]] = [
        ("data", f"{source}: {len(material.names)} series, {', '.join(material.channels)}"),
        ("model", f"{FORECASTER}, {counted(config.data.horizon, 'step')} ahead"),
        *((f"rmse {name}", f"{value:.4g}") for name, value in methods.items()),
        ("inside intervals", f"{result.covered:.1%} of {result.coverage:.0%}"),
        ("forecast", folder / "predictions.csv"),
        ("report", report),
    ]
    pictures = _pictures(forecast, max(4 * config.data.horizon, 2 * result.season))

    def page(more: Sequence[Section]) -> str:  # noqa: ARG001
        return forecast_page(folder.resolve().name, source, result, pictures)

    return FittedRun(
        folder, {**facts, "methods": methods, "covered": result.covered, "report": str(report)}, rows, page
    )


def _pictures(forecast: Forecast, shown: int) -> list[ForecastPicture]:
    """Give what is drawn of every series and channel: its last ``shown`` steps, and what comes."""
    material, pictures = forecast.material, []
    for i, series in enumerate(material.names):
        steps = np.arange(len(material.values[i])) if material.times is None else np.asarray(material.times[i])
        past = read_times(steps, len(steps))
        pictures += [
            ForecastPicture(
                f"{series}, {channel}" if len(material.names) > 1 else channel,
                past[-shown:],
                material.values[i][-shown:, c],
                forecast.times[i],
                *(part[i, :, c] for part in (forecast.values, forecast.low, forecast.high)),
            )
            for c, channel in enumerate(material.channels)
        ]
    return pictures


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


def forecast_facts(forecast: Forecast) -> dict[str, Any]:
    """Give a forecast as JSON holds it."""
    facts = {
        "series": forecast.material.names,
        "channels": list(forecast.material.channels),
        "times": [[moment_text(moment) for moment in times] for times in forecast.times],
        "forecast": forecast.values.tolist(),
        "low": forecast.low.tolist(),
        "high": forecast.high.tolist(),
    }
    return plain(facts)


def moment_text(moment: Any) -> str:
    """Write a moment: a date without the clock at midnight, a number without its point where it is whole.

    >>> moment_text(np.datetime64("2024-01-31T00:00:00")), moment_text(np.float64(3.0))
    ('2024-01-31', '3')
    """
    if np.asarray(moment).dtype.kind == "M":
        return str(moment).removesuffix(".000000").removesuffix("T00:00:00")
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
    arguments = _arguments(material)
    shape = (len(material.names), forecaster.horizon, len(material.channels))
    values = forecaster.predict(**arguments).reshape(shape)
    ends = forecaster.predict_interval(**arguments).reshape(shape[0], 2, *shape[1:])
    times = [
        len(series) + np.arange(forecaster.horizon, dtype=np.float64)
        if material.times is None
        else next_times(read_times(material.times[i], len(series)), forecaster.horizon)
        for i, series in enumerate(material.values)
    ]
    return Forecast(material, values, ends[:, 0], ends[:, 1], times)


MODEL = ForecasterRuns()
