"""``sostenuto predict``: a run's answers for new sequences."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import DataDirOption, DeviceOption, JsonOption, QuietOption, check_output, takes_settings


@guarded
@takes_settings(data=("ignore", "layout", "separator", "decimal", "most_unpacked"))
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by sostenuto fit.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file, or a data-set name (its test part is used).")],
    settings: dict[str, dict[str, Any]],
    out: Annotated[Path | None, typer.Option(help="Write the CSV here instead of printing it.")] = None,
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict with a trained run; scaling, classes and columns are those stored in the run.

    If DATA has targets, the score is printed too. Forecasts start at the end of every series.
    """
    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.estimators.runs import Conditions, model_of
    from sostenuto.training.config import overlaid
    from sostenuto.training.run_folder import open_folder

    if out is not None:
        check_output(out, data, run)
    folder, config = open_folder(run)
    settings["data"]["ignore"] = (*config.data.ignore, *settings["data"].get("ignore", ()))
    config = replace(config, data=overlaid(config.data, settings["data"]))
    conditions = Conditions(device, data_dir, progress=not quiet and not as_json)
    answers = model_of(config.model.layer).predict(folder, config, data, conditions)
    for warning in answers.warnings:
        warnings.warn(warning, stacklevel=2)
    text = json.dumps(answers.facts, allow_nan=False) + "\n" if as_json else answers.csv
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
        typer.echo(f"{answers.count} predictions in {out}", err=True)
    if answers.score and not quiet and not as_json:
        counted = f"{answers.score['count']} of {answers.count} sequences"
        typer.echo(f"{answers.score['metric']} {answers.score['value']:.4f} on {counted}", err=True)
