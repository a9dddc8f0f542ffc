"""``sostenuto tune``: search for settings by cross-validation."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import (
    FILE_OPTIONS,
    DataArgument,
    DataDirOption,
    DeviceOption,
    JsonOption,
    LayerOption,
    QuietOption,
    named_values,
    takes_settings,
)
from sostenuto.cli.tables import table


@guarded
@takes_settings(data=("task", *FILE_OPTIONS, "timespans", "missing", "most_unpacked"), training=("epochs", "seed"))
def tune(
    settings: dict[str, dict[str, Any]],
    data: DataArgument = None,
    model: Annotated[str, typer.Option(help="The layer to tune, or oscillators.")] = "stack",
    trials: Annotated[int, typer.Option(help="Number of settings to try.")] = 20,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 3,
    sampler: Annotated[str, typer.Option(help="random, or optuna (needs the extra 'tune').")] = "random",
    out: Annotated[
        Path | None, typer.Option(help="Folder for trials.jsonl and best.toml; an earlier search in it is resumed.")
    ] = None,
    option: LayerOption = None,
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Search the recipe and random settings by cross-validation, and write best.toml for fit --config.

    Oscillators are scored by leave-one-out instead.
    """
    from sostenuto.checks import check_choice, require
    from sostenuto.data.parts import training_count
    from sostenuto.data.source import open_dataset, with_checksum
    from sostenuto.estimators.runs import model_of
    from sostenuto.estimators.runs.tune import SPACES, leave_one_out
    from sostenuto.nn import LAYERS
    from sostenuto.training import recipes
    from sostenuto.training.config import DataConfig, RunConfig, overlaid
    from sostenuto.training.tune import search

    check_choice("model", model, (*SPACES, *LAYERS))
    require(sampler == "random" or model in LAYERS, f"expected the sampler 'random' for {model}", f"got {sampler!r}")
    chosen = {"model": {"layer": model}, "options": named_values(option), "training": settings["training"]}
    source = overlaid(DataConfig(), settings["data"] | ({} if data is None else {"source": data}))
    dataset = open_dataset(source, data_dir=data_dir, seed=settings["training"].get("seed", 0))
    source = with_checksum(source, dataset.train)
    how: dict[str, Any] = {"folds": folds, "device": device}
    if model in SPACES:
        config = model_of(model).settings(RunConfig(), {}, chosen | {"data": settings["data"]}, source, dataset)
        how = {"space": SPACES[model], "evaluate": leave_one_out(dataset, config)}
    else:
        config = recipes.run_config(source, dataset.train, training_count(dataset, source), chosen)
    folder = out or Path("runs") / f"tune-{dataset.name.replace('/', '-')}-{model}"
    folder.mkdir(parents=True, exist_ok=True)
    shows = not quiet and not as_json
    ranked = search(dataset, config, folder, trials=trials, sampler=sampler, progress=shows, **how)
    if as_json:
        print(json.dumps({"best": ranked[0], "trials": len(ranked), "config": str(folder / "best.toml")}))
        return
    best = [row for row in ranked[:5] if row["score"] is not None]
    rows = [(row["trial"], row["score"], json.dumps(row["settings"]) if row["trial"] else "the recipe") for row in best]
    score = "leave-one-out score" if model in SPACES else "mean validation score"
    print(table(rows, ("trial", score, "settings")))
    print(f"\nbest settings in {folder / 'best.toml'}: sostenuto fit --config {folder / 'best.toml'}")
