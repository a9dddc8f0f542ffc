"""A training as a cell: it checkpoints, stops at the time limit and goes on; choosing and testing are two cells."""

from collections.abc import Mapping
from typing import Any

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset
from sostenuto.data.parts import Parts, divide
from sostenuto.experiments.workbench import Workbench
from sostenuto.training.config import RunConfig
from sostenuto.training.predict import raw_predictions
from sostenuto.training.probes import Probe
from sostenuto.training.run import fit_parts
from sostenuto.training.run_folder import MODEL, StoredModel, count_parameters, load_model, save_model
from sostenuto.training.summary import score


def fit_cell(
    bench: Workbench, key: str, dataset: Dataset, config: RunConfig, *, probes: dict[str, Probe] | None = None
) -> dict[str, Any]:
    """Train ``config``'s model as the cell ``key``, and score it on the validation part alone.

    Returns ``validation`` (its best metric: accuracy, or root mean square error), ``best_epoch``, ``parameters``,
    ``seconds`` of training and ``history``, one row an epoch with the numbers of the ``probes``. The weights stay in
    ``bench.scratch``, for `score_cell` and `fitted_model`. The cell depends on ``config`` and the data, not on the
    experiment's other settings; the seed is ``config.training.seed``.
    """
    depends = _depends(bench, dataset, config)

    def train() -> dict[str, Any]:
        parts = divide(dataset, config.data, seed=config.training.seed)
        folder = bench.scratch(key, depends=depends)
        fitted = fit_parts(
            parts,
            config,
            folder=folder,
            resume=True,
            device=bench.device,
            probes=probes,
            after_checkpoint=bench.check_time,
            progress=bench.shows_bars,
        )
        save_model(folder / MODEL, StoredModel(fitted.model, fitted.encoding, config.model))
        metric = f"validation_{fitted.objective.metric}"
        pick = max if fitted.objective.higher_is_better else min
        return {
            "validation": pick((row[metric] for row in fitted.progress.history if metric in row), default=None),
            "best_epoch": fitted.progress.best_epoch,
            "parameters": count_parameters(fitted.model),
            "seconds": fitted.progress.seconds,
            "history": fitted.progress.history,
        }

    return bench.cell(key, train, depends=depends)


def score_cell(bench: Workbench, key: str, dataset: Dataset, config: RunConfig) -> float:
    """Score the model of the cell ``key`` on the test part: accuracy, or root mean square error. Once, when chosen."""
    depends = _depends(bench, dataset, config)

    def measure() -> float:
        stored = fitted_model(bench, key, dataset, config)
        parts: Parts = divide(dataset, config.data, seed=config.training.seed)
        require(parts.test is not None, f"expected a test part of {dataset.name}", "got none")
        assert parts.test is not None
        data = stored.encoding.encode(parts.test)
        model = stored.model.to(bench.device)
        raw = raw_predictions(model, data, device=bench.device, transform=dataset.batch_transform)
        classification, regression = score(stored.encoding, raw, data)
        if classification is not None:
            return classification.accuracy
        assert regression is not None
        return regression.rmse

    return bench.cell(f"{key}/test", measure, depends=depends)


def fitted_model(bench: Workbench, key: str, dataset: Dataset, config: RunConfig) -> StoredModel:
    """Load what `fit_cell` trained."""
    path = bench.scratch(key, depends=_depends(bench, dataset, config)) / MODEL
    cure = f"remove the cell {key} to train it again"
    require(path.is_file(), f"expected the weights of the cell {key} in {path}", "found none", cure)
    return load_model(path)


def _depends(bench: Workbench, dataset: Dataset, config: RunConfig) -> Mapping[str, Any]:
    return {"config": config.to_dict(), "data": bench.checksums.get(dataset.name, dataset.name)}
