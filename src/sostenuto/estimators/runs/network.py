"""Runs of trained networks: a layer with a read-out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sostenuto.checks import require
from sostenuto.data.dataset import BatchTransform, Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import training_count
from sostenuto.estimators.runs import Chosen, Conditions, FittedRun
from sostenuto.estimators.runs.sequences import SequenceRuns, fitted_run
from sostenuto.nn import LAYERS
from sostenuto.training import recipes
from sostenuto.training.config import DataConfig, RunConfig
from sostenuto.training.predict import raw_predictions
from sostenuto.training.probes import PROBES
from sostenuto.training.processes import make_accelerator
from sostenuto.training.run import run
from sostenuto.training.run_folder import load_run


class Network(SequenceRuns):
    """A recurrent layer, trained."""

    has_states = True

    def settings(
        self, base: RunConfig, written: dict[str, Any], chosen: Chosen, data: DataConfig, dataset: Dataset | None
    ) -> RunConfig:
        """Take what was not chosen from the config file, and then from the recipe of the layer and the task."""
        assert dataset is not None
        layer = chosen["model"].get("layer", base.model.layer)
        require(
            dataset.train.timespans is None or LAYERS[layer].continuous,
            f"expected evenly spaced times for {layer}, which is a discrete map",
            "got uneven ones",
            "pass timespans='ignore', or choose a model of continuous time such as unicornn",
        )
        model = written.get("model", {}) if layer == base.model.layer else {}
        wanted = {
            "model": {name: value for name, value in model.items() if name != "options"} | chosen["model"],
            "options": {**model.get("options", {}), **chosen["options"]},
            "training": {**written.get("training", {}), **chosen["training"]},
        }
        return recipes.run_config(data, dataset.train, training_count(dataset, data), wanted)

    def fit(self, dataset: Dataset | None, config: RunConfig, folder: Path, conditions: Conditions) -> FittedRun | None:
        """Train; checkpoints let a run that was stopped go on."""
        assert dataset is not None
        result = run(
            dataset,
            config,
            folder,
            resume=conditions.resume,
            retrain=conditions.retrain,
            device=conditions.device,
            probes={name: PROBES[name] for name in conditions.probes},
            progress=conditions.progress,
        )
        return None if result is None else fitted_run(folder, result)

    def load(self, folder: Path, config: RunConfig) -> tuple[nn.Module, Encoding]:
        """Load the model and its encoding."""
        stored = load_run(folder, config)
        return stored.model, stored.encoding

    def raw(
        self,
        folder: Path,
        config: RunConfig,
        sequences: SequenceSet,
        transform: BatchTransform | None,
        conditions: Conditions,
    ) -> tuple[Encoding, torch.Tensor]:
        """Run the network."""
        model, encoding = self.load(folder, config)
        batch = encoding.encode(replace(sequences, targets=None))
        where = make_accelerator(conditions.device).device
        raw = raw_predictions(model.to(where), batch, device=where, transform=transform, progress=conditions.progress)
        return encoding, raw


MODEL = Network()
