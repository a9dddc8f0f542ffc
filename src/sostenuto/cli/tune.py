"""``sostenuto tune``: search for settings by cross-validation."""

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import (
    CategoricalOption,
    DataArgument,
    DataDirOption,
    DeviceOption,
    GroupOption,
    IgnoreOption,
    JsonOption,
    LayerOption,
    LayoutOption,
    QuietOption,
    SeriesOption,
    TargetOption,
    TaskOption,
    TimeOption,
    TimespansOption,
    named_values,
)
from sostenuto.cli.tables import table


@guarded
def tune(
    data: DataArgument = None,
    model: Annotated[str, typer.Option(help="The layer to tune.")] = "unicornn",
    trials: Annotated[int, typer.Option(help="Settings to try.")] = 20,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each trial.")] = None,
    folds: Annotated[int, typer.Option(help="Parts of the training data, each held out once.")] = 3,
    sampler: Annotated[str, typer.Option(help="random, or optuna (needs the extra 'tune').")] = "random",
    out: Annotated[
        Path | None, typer.Option(help="Folder for trials.jsonl and best.toml; an earlier search goes on.")
    ] = None,
    task: TaskOption = "",
    layout: LayoutOption = "btc",
    target: TargetOption = "",
    series: SeriesOption = "",
    time: TimeOption = "",
    group: GroupOption = "",
    ignore: IgnoreOption = None,
    categorical: CategoricalOption = None,
    timespans: TimespansOption = "use",
    missing: Annotated[str, typer.Option(help="What to do with NaN: refuse, mask or interpolate.")] = "",
    option: LayerOption = None,
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the search and of every trial.")] = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Try the recipe and then settings at random, choose by cross-validation, write best.toml for fit --config."""
    from sostenuto.checks import check_choice
    from sostenuto.data.parts import training_count
    from sostenuto.data.source import open_dataset
    from sostenuto.nn import LAYERS
    from sostenuto.training import recipes
    from sostenuto.training.config import DataConfig
    from sostenuto.training.tune import search

    check_choice("model", model, LAYERS)
    said = {"source": data, "task": task, "target": target, "series": series, "time": time, "group": group}
    said["missing"] = missing
    columns: dict[str, Any] = {"ignore": tuple(ignore or ()), "categorical": tuple(categorical or ())}
    given = {name: value for name, value in said.items() if value}
    settings = DataConfig(layout=cast(Any, layout), timespans=cast(Any, timespans), **columns, **given)
    dataset = open_dataset(settings, data_dir=data_dir, seed=seed)
    chosen = {
        "model": {"layer": model},
        "options": named_values(option),
        "training": {"seed": seed} | ({} if epochs is None else {"epochs": epochs}),
    }
    config = recipes.run_config(settings, dataset.train, training_count(dataset, settings), chosen)
    folder = out or Path("runs") / f"tune-{dataset.name.replace('/', '-')}-{model}"
    folder.mkdir(parents=True, exist_ok=True)
    shows = not quiet and not as_json
    ranked = search(dataset, config, folder, trials=trials, sampler=sampler, folds=folds, device=device, progress=shows)
    if as_json:
        print(json.dumps({"best": ranked[0], "trials": len(ranked), "config": str(folder / "best.toml")}))
        return
    best = [row for row in ranked[:5] if row["score"] is not None]
    rows = [(row["trial"], row["score"], json.dumps(row["settings"]) if row["trial"] else "the recipe") for row in best]
    print(table(rows, ("trial", "mean validation score", "settings")))
    print(f"\nbest settings in {folder / 'best.toml'}: sostenuto fit --config {folder / 'best.toml'}")
