"""``sostenuto fit --task forecast`` without a network: a forecaster for the series of a file, and its page."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sostenuto.cli.tables import table

if TYPE_CHECKING:
    from sostenuto.estimators.forecast.run import Forecast
    from sostenuto.report.contents.forecast import ForecastPicture

FORECASTER = "forecaster"
"""The model of plain forecasts (`sostenuto.estimators.forecast.run`)."""


def is_plain_forecast(said: dict[str, dict[str, Any]], *, looks_inside: bool) -> bool:
    """Say whether a file's series are to be forecast, and nothing was said that only a trained network has."""
    from sostenuto.data.source import is_file_source

    data, model = said["data"], said["model"]
    network = looks_inside or {"window", "test"} & set(data) or set(said["training"]) - {"seed"}
    network = network or set(model) - {"layer"} or {"hidden_size", "num_layers"} & set(said["options"])
    named = model.get("layer", "auto") in ("auto", FORECASTER)
    return bool(data.get("task") == "forecast" and named and not network and is_file_source(data.get("source", "")))


def fit_forecaster(
    said: dict[str, dict[str, Any]],
    out: Path | None,
    *,
    resume: Path | None = None,
    overwrite: bool = False,
    as_json: bool = False,
) -> None:
    """Fit a `Forecaster` to the series of a file, and write its page."""
    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.data.source import absolute
    from sostenuto.estimators.forecast.run import forecaster_config, run_forecaster
    from sostenuto.report.contents.forecast import forecast_page
    from sostenuto.training.config import DataConfig, RunConfig, overlaid
    from sostenuto.training.run_folder import create_folder, open_folder

    if resume is not None:
        folder, config = open_folder(resume)
    else:
        data = absolute(overlaid(DataConfig(), said["data"]))
        seed = said["training"].get("seed", RunConfig().training.seed)
        config = forecaster_config(data, seed, said["options"])
        folder = create_folder(out or free_folder(Path(data.source).stem, FORECASTER), overwrite=overwrite)
    result, forecast = run_forecaster(config, folder, resume=resume is not None)
    material = forecast.material
    pictures = _pictures(forecast, max(4 * config.data.horizon, 2 * result.season))
    page = forecast_page(folder.resolve().name, Path(config.data.source).name, result, pictures)
    report = write_atomically(folder / "report.html", page)
    methods = {method.name: method.rmse for method in result.methods}
    if as_json:
        facts = {"run": str(folder), "model": FORECASTER, "metric": "rmse", "score": result.methods[0].rmse}
        print(json.dumps({**facts, "methods": methods, "covered": result.covered, "report": str(report)}))
        return
    rows: list[tuple[str, object]] = [
        ("data", f"{Path(config.data.source).name}: {len(material.names)} series, {', '.join(material.channels)}"),
        ("model", f"{FORECASTER}, {config.data.horizon} steps ahead"),
        *((f"rmse {name}", f"{value:.4g}") for name, value in methods.items()),
        ("inside intervals", f"{result.covered:.1%} of {result.coverage:.0%}"),
        ("forecast", folder / "predictions.csv"),
        ("report", report),
    ]
    print(table(rows))


def _pictures(forecast: "Forecast", shown: int) -> "list[ForecastPicture]":
    """Give what is drawn of every series and channel: its last ``shown`` steps, and what comes."""
    import numpy as np

    from sostenuto.report.contents.forecast import ForecastPicture

    material = forecast.material
    pictures = []
    for i, series in enumerate(material.names):
        steps = np.arange(len(material.values[i])) if material.times is None else np.asarray(material.times[i])
        past = steps.astype("datetime64[s]" if steps.dtype.kind in "US" else float)
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


def free_folder(data: str, model: str) -> Path:
    """Name a folder that does not exist yet: runs/DATA-MODEL, then runs/DATA-MODEL-2 and so on."""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{data}-{model}")
    folder, number = Path("runs") / stem, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{stem}-{number}"
    return folder
