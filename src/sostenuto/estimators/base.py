"""What the recurrent estimators share: parameters, fitting, raw predictions, tags, and a state without modules."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sostenuto.checks import check_choice, require
from sostenuto.data.batch import as_timespans
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.estimators.sequences import read_sequences
from sostenuto.estimators.settings import run_config
from sostenuto.estimators.state import FITTED, load_estimator, pack, save_estimator, unpack
from sostenuto.estimators.targets import read_weights
from sostenuto.models.base import SequenceModel
from sostenuto.training.config import RunConfig
from sostenuto.training.data import Parts, hold_out
from sostenuto.training.predict import raw_predictions
from sostenuto.training.run import fit_parts
from sostenuto.types import Layout, Missing, PathLike, Task

Estimator = TypeVar("Estimator", bound="RecurrentEstimator")


class RecurrentEstimator(BaseEstimator):
    """A recurrent layer with a read-out, trained by `sostenuto.training`; `RecurrentClassifier` has the parameters.

    Fitted attributes: ``model_`` (the `torch.nn.Module`; predictions are made where it lives), ``encoding_`` (scaling
    and classes), ``config_`` (every setting and the seed), ``history_`` (one dict an epoch), ``uses_timespans_``, and
    ``n_features_in_`` where ``X`` had 2 axes.
    """

    model_: SequenceModel
    encoding_: Encoding
    config_: RunConfig
    history_: list[dict[str, Any]]
    uses_timespans_: bool

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        layer="unicornn",
        *,
        hidden_size=None,
        num_layers=None,
        readout=None,
        layer_options=None,
        epochs=None,
        batch_size=None,
        learning_rate=None,
        schedule=None,
        validation_fraction=None,
        patience=None,
        training_options=None,
        step_targets=False,
        layout="btc",
        scaling="standard",
        missing="refuse",
        device="auto",
        random_state=None,
        verbose=0,
    ) -> None:
        self.layer = layer
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.readout = readout
        self.layer_options = layer_options
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.training_options = training_options
        self.step_targets = step_targets
        self.layout = layout
        self.scaling = scaling
        self.missing = missing
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def save(self, path: PathLike) -> None:
        """Write the fitted estimator into one safetensors file: weights, encoding, parameters; nothing to execute."""
        check_is_fitted(self)
        save_estimator(self, path)

    @classmethod
    def load(cls: type[Estimator], path: PathLike) -> Estimator:
        """Read what `save` wrote, without unpickling; the weights come back on the CPU."""
        return load_estimator(cls, path)

    def _fit(
        self,
        given: Any,
        targets: Any,
        task: Task,
        timespans: Any,
        sample_weight: Any = None,
        class_weights: torch.Tensor | None = None,
    ) -> None:
        task = "sequence" if self.step_targets else task
        data = self._sequences(given, timespans, reset=True)
        data = replace(data, targets=targets, task=task, weights=read_weights(sample_weight, len(targets)))
        config = run_config(self.get_params(deep=False), data)
        train, validation = hold_out(data, config.data, seed=config.training.seed)
        fitted = fit_parts(
            Parts(Dataset("array", data), train, validation, None),
            config,
            device=str(self.device),
            class_weights=class_weights,
            progress=bool(self.verbose),
        )
        self.model_, self.encoding_, self.config_ = fitted.model, fitted.encoding, config
        self.history_, self.uses_timespans_ = fitted.progress.history, timespans is not None

    def _answer(self, given: Any, timespans: Any, translate: Callable[[torch.Tensor], np.ndarray]) -> Any:
        """Translate the read-out of every sequence; per step, of unequal lengths, into a list of arrays."""
        check_is_fitted(self)
        require(
            timespans is not None or not self.uses_timespans_,
            "expected timespans, as the estimator was fitted with them",
            "got none",
            "pass timespans= here too (a search needs scikit-learn's metadata routing for that)",
        )
        batch = self.encoding_.encode(self._sequences(given, timespans, reset=False))
        where = next(self.model_.parameters()).device
        answers = translate(raw_predictions(self.model_, batch, device=where))
        if not self.encoding_.has_step_targets or not batch.is_ragged:
            return answers
        return [row[:length] for row, length in zip(answers, batch.lengths.tolist(), strict=True)]

    def _sequences(self, given: Any, timespans: Any, *, reset: bool) -> SequenceSet:
        layout, missing = cast(Any, self.layout), self.missing
        if not reset:
            layout, missing = cast(Any, self.config_.data.layout), self.config_.data.missing
        check_choice("layout", layout, get_args(Layout))
        check_choice("missing", missing, get_args(Missing))
        sequences = read_sequences(self, given, layout=layout, allow_nan=missing != "refuse", reset=reset)
        spans = None if timespans is None else as_timespans(timespans, [len(sequence) for sequence in sequences])
        return SequenceSet(sequences, timespans=spans)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.missing in ("mask", "interpolate")
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in FITTED}
        return {**state, "_packed": pack(self)} if hasattr(self, "model_") else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = dict(state)
        packed = kept.pop("_packed", None)
        vars(self).update(kept)
        if packed is not None:
            unpack(self, packed, f"a stored {type(self).__name__}")
