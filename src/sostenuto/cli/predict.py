"""``sostenuto predict``: a run's answers for new sequences."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import (
    ESTIMATORS,
    DataDirOption,
    DeviceOption,
    IgnoreOption,
    JsonOption,
    LayoutOption,
    QuietOption,
)

if TYPE_CHECKING:
    from torch import Tensor

    from sostenuto.data.dataset import SequenceSet
    from sostenuto.data.encoding import Encoding
    from sostenuto.training.predict import Predictions


@guarded
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by sostenuto fit.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file, or a data-set name (its test part is used).")],
    out: Annotated[Path | None, typer.Option(help="Write the CSV here instead of printing it.")] = None,
    ignore: IgnoreOption = None,
    layout: LayoutOption = "",
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict with a trained run; scaling, classes and columns are those stored in the run.

    Where DATA has targets, the score is said too. A forecast is made of the end of every series.
    """
    import torch

    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.data.source import open_for_prediction
    from sostenuto.training.predict import predictions
    from sostenuto.training.run_folder import open_folder, predictions_csv

    folder, config = open_folder(run)
    ignored = (*config.data.ignore, *(ignore or ()))
    settings = replace(config.data, ignore=ignored, layout=layout or config.data.layout)
    if config.model.layer == "forecaster":
        from sostenuto.estimators.forecast.run import forecast_csv, forecast_json, predict_forecaster

        forecast = predict_forecaster(folder, replace(config, data=settings), data)
        text = forecast_json(forecast) + "\n" if as_json else forecast_csv(forecast)
        print(text, end="") if out is None else write_atomically(out, text)
        return
    sequences, transform = open_for_prediction(settings, data, data_dir=data_dir, seed=config.training.seed)
    if config.model.layer in ESTIMATORS:
        from sostenuto.estimators.estimator_run import predict_estimator

        encoding, raw = predict_estimator(folder, sequences)
    else:
        encoding, raw = _run_network(folder, sequences, device, transform, progress=not quiet and not as_json)
    answers = predictions(encoding, raw, torch.tensor([len(sequence) for sequence in sequences.sequences]))
    score = _score(encoding, raw, sequences)
    if as_json:
        print(json.dumps({"run": str(folder), **_facts(encoding, answers, sequences), "score": score}))
        return
    text = predictions_csv(encoding, answers, sequences)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
        typer.echo(f"{len(sequences)} predictions in {out}", err=True)
    if score and not quiet:
        counted = f"{score['count']} of {len(sequences)} sequences"
        typer.echo(f"{score['metric']} {score['value']:.4f} on {counted}", err=True)


def _run_network(
    folder: Path, sequences: "SequenceSet", device: str, transform: Any, *, progress: bool
) -> "tuple[Encoding, Tensor]":
    from sostenuto.training.predict import raw_predictions
    from sostenuto.training.processes import make_accelerator
    from sostenuto.training.run_folder import MODEL, load_model

    stored = load_model(folder / MODEL)
    batch = stored.encoding.encode(replace(sequences, targets=None))
    where = make_accelerator(device).device
    raw = raw_predictions(stored.model.to(where), batch, device=where, transform=transform, progress=progress)
    return stored.encoding, raw


def _score(encoding: "Encoding", raw: "Tensor", sequences: "SequenceSet") -> dict[str, Any] | None:
    """Score what has a target of a known class, and warn of the others; None where there is nothing to score."""
    import numpy as np

    from sostenuto.checks import shown
    from sostenuto.training.summary import score

    if sequences.targets is None:
        return None
    unknown, affected = encoding.unknown_classes(sequences)
    if unknown:
        names = shown([repr(name) for name in unknown])
        warnings.warn(
            f"{int(affected.sum())} of {len(sequences)} sequences have a class that training did not know ({names}): "
            "predicted, but not scored",
            stacklevel=2,
        )
    known = np.flatnonzero(~affected)
    if len(known) == 0:
        return None
    batch = encoding.encode(sequences.take(known))
    rows = raw[known][:, : batch.values.shape[1]] if encoding.has_step_targets else raw[known]
    classification, regression = score(encoding, rows, batch)
    metric, scores = ("accuracy", classification) if classification else ("rmse", regression)
    return {"metric": metric, "value": getattr(scores, metric), "count": len(known), "unknown_classes": unknown}


def _facts(encoding: "Encoding", answers: "Predictions", sequences: "SequenceSet") -> dict[str, Any]:
    """Give the predictions with what they belong to, as JSON holds it."""
    numbered = sequences.numbered()
    facts = {"count": len(sequences), "sequences": _plain(numbered.ids), "predictions": _plain(answers.labels)}
    if sequences.times is not None and encoding.has_step_targets:
        facts["times"] = _plain(sequences.times)
    elif sequences.times is not None and encoding.task == "forecast":
        facts["last_times"] = [str(times[-1]) for times in sequences.times]
    if answers.probabilities is not None:
        facts |= {"classes": list(encoding.classes), "probabilities": _plain(answers.probabilities)}
    return facts


def _plain(rows: Any) -> list[Any]:
    return [row.tolist() if hasattr(row, "tolist") else row for row in rows]
