"""``sostenuto predict``: a run's answers for new sequences."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import DataDirOption, DeviceOption, JsonOption, QuietOption

if TYPE_CHECKING:
    from sostenuto.data.encoding import Encoding
    from sostenuto.training.predict import Predictions


@guarded
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by sostenuto fit.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file, or a data-set name (its test part is used).")],
    out: Annotated[Path | None, typer.Option(help="Write the CSV here instead of printing it.")] = None,
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict with a trained run; scaling, classes and columns are those stored in the run."""
    from sostenuto.training.data import open_for_prediction
    from sostenuto.training.predict import predictions, raw_predictions
    from sostenuto.training.processes import make_accelerator
    from sostenuto.training.run_folder import MODEL, load_model, open_folder

    folder, config = open_folder(run)
    sequences, transform = open_for_prediction(config.data, data, data_dir=data_dir, seed=config.training.seed)
    if config.model.layer == "rntk":
        from sostenuto.estimators.kernel_run import predict_kernel

        _tell(folder, *predict_kernel(folder, sequences), sequences.targets, as_json=as_json, out=out)
        return
    stored = load_model(folder / MODEL)
    batch = stored.encoding.encode(sequences)
    where = make_accelerator(device).device
    model = stored.model.to(where)
    raw = raw_predictions(model, batch, device=where, transform=transform, progress=not quiet and not as_json)
    answers = predictions(stored.encoding, raw, batch.lengths)
    _tell(folder, stored.encoding, answers, sequences.targets, as_json=as_json, out=out)


def _tell(
    folder: Path, encoding: "Encoding", answers: "Predictions", targets: Any, *, as_json: bool, out: Path | None
) -> None:
    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.training.run_folder import predictions_csv

    count = len(answers.labels)
    if as_json:
        print(json.dumps({"run": str(folder), "count": count, "predictions": _plain(answers.labels)}))
        return
    text = predictions_csv(encoding, answers, targets)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
        typer.echo(f"{count} predictions in {out}", err=True)


def _plain(labels: Any) -> list[Any]:
    return [row.tolist() if hasattr(row, "tolist") else row for row in labels]
