"""Recurrent networks as scikit-learn estimators: one class or number per sequence or per step."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from sostenuto.checks import SostenutoError, check_choice, require
from sostenuto.choices import Layout, Missing, Task
from sostenuto.data.batch import as_timespans
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import Parts, hold_out
from sostenuto.estimators.inputs import joined_steps, read_sequences, read_step_targets, read_weights
from sostenuto.estimators.settings import run_config
from sostenuto.estimators.state import FITTED, load_estimator, pack, save_estimator, unpack
from sostenuto.models.base import SequenceModel
from sostenuto.training.config import RunConfig
from sostenuto.training.predict import not_finite, raw_predictions
from sostenuto.training.run import fit_parts
from sostenuto.types import PathLike

Estimator = TypeVar("Estimator", bound="RecurrentEstimator")


class RecurrentEstimator(BaseEstimator):
    """A recurrent layer with a read-out, trained by `sostenuto.training`; `RecurrentClassifier` has the parameters.

    Fitted attributes: ``model_`` (the `torch.nn.Module`; predictions are made where it lives), ``encoding_`` (scaling
    and classes), ``config_`` (every setting and the seed), ``history_`` (one dict per epoch), ``uses_timespans_``, and
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
        layer="stack",
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
        raw: Any,
        targets: Any,
        task: Task,
        timespans: Any,
        sample_weight: Any = None,
        class_weights: torch.Tensor | None = None,
    ) -> None:
        task = "sequence" if self.step_targets else task
        data = self._sequences(raw, timespans, reset=True)
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

    def _answer(self, raw: Any, timespans: Any, translate: Callable[[torch.Tensor], np.ndarray]) -> Any:
        """Translate the read-out of every sequence; per step, of unequal lengths, into a list of arrays."""
        check_is_fitted(self)
        require(
            timespans is not None or not self.uses_timespans_,
            "expected timespans, as the estimator was fitted with them",
            "got none",
            "pass timespans= here too (a search needs scikit-learn's metadata routing for that)",
        )
        batch = self.encoding_.encode(self._sequences(raw, timespans, reset=False))
        where = next(self.model_.parameters()).device
        outputs = raw_predictions(self.model_, batch, device=where)
        if message := not_finite(outputs, batch.lengths):
            raise SostenutoError(message)
        answers = translate(outputs)
        if not self.encoding_.has_step_targets or not batch.is_ragged:
            return answers
        return [row[:length] for row, length in zip(answers, batch.lengths.tolist(), strict=True)]

    def _sequences(self, raw: Any, timespans: Any, *, reset: bool) -> SequenceSet:
        layout, missing = cast(Any, self.layout), self.missing
        if not reset:
            layout, missing = cast(Any, self.config_.data.layout), self.config_.data.missing
        check_choice("layout", layout, get_args(Layout))
        check_choice("missing", missing, get_args(Missing))
        sequences = read_sequences(self, raw, layout=layout, allow_nan=missing != "refuse", reset=reset)
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


class RecurrentClassifier(ClassifierMixin, RecurrentEstimator):
    """Classify sequences with a recurrent network.

    ``X`` is ``(n, time)`` with one channel, ``(n, time, channel)`` as ``layout`` says, or a list of ``(time, channel)``
    or ``(time,)`` arrays of any lengths.

    Args:
        layer: the recurrence by name: ``"stack"``, ``"damped"``, ``"unicornn"``, ``"lipschitz"``, ``"antisymmetric"``,
            ``"residual"``, ``"stable"``, ``"cornn"``, ``"exprnn"``, ``"indrnn"``, ``"sru"``, ``"residual-gru"``,
            ``"residual-lstm"``, ``"lstm"``, ``"gru"``, ``"rnn"``.
        hidden_size: units of a layer. Here and below, None takes the value of the layer's recipe
            (`sostenuto.training.recipes`).
        num_layers: layers stacked.
        readout: ``"last"``, ``"mean"`` or ``"max"`` of the states.
        layer_options: further options of the layer, such as ``{"dropout": 0.1, "step_size": 0.5}``.
        epochs: passes over the data.
        batch_size: sequences in one step.
        learning_rate: the peak.
        schedule: ``"constant"``, ``"step"``, ``"cosine"`` or ``"one-cycle"``.
        validation_fraction: share of the sequences held out of training; the weights of the best epoch on it are kept.
            None is the share of the command line, 0.15; 0 trains on all and keeps the last weights.
        patience: stop after so many epochs without a better validation score.
        class_weight: None, ``"balanced"``, or a dict from label to weight.
        training_options: further options of `sostenuto.training.config.TrainingConfig`, such as
            ``{"weight_decay": 0.01, "input_noise": 0.1}``.
        step_targets: whether ``y`` has a target for every step: ``(n, time)``, or a list of one array per sequence.
            Predictions then have this form too.
        layout: ``"btc"`` or ``"bct"``: which axis of a 3-D array (and of the items of a list) is time.
        scaling: ``"standard"``, ``"minmax"`` or ``"none"``, per channel, learned in `fit`.
        missing: what becomes of NaN: ``"refuse"``, ``"mask"`` or ``"interpolate"``.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        random_state: a whole number makes `fit` repeatable; None draws a seed from numpy's global generator.
        verbose: 0 is silent, 1 shows a progress bar.

    Fitted attributes: ``classes_`` and those of `RecurrentEstimator`.

    >>> rising = np.linspace(0, 1, 12)
    >>> X = np.stack([rising, rising[::-1]] * 10)
    >>> classifier = RecurrentClassifier(hidden_size=16, num_layers=1, epochs=20, random_state=0)
    >>> classifier.fit(X, ["up", "down"] * 10).predict([rising[:9], rising[::-1]])
    array(['up', 'down'], dtype='<U4')
    """

    classes_: np.ndarray

    def __init__(
        self,
        layer="stack",
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
        class_weight=None,
        training_options=None,
        step_targets=False,
        layout="btc",
        scaling="standard",
        missing="refuse",
        device="auto",
        random_state=None,
        verbose=0,
    ) -> None:
        super().__init__(
            layer,
            hidden_size=hidden_size,
            num_layers=num_layers,
            readout=readout,
            layer_options=layer_options,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            validation_fraction=validation_fraction,
            patience=patience,
            training_options=training_options,
            step_targets=step_targets,
            layout=layout,
            scaling=scaling,
            missing=missing,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> "RecurrentClassifier":  # noqa: N803
        """Learn to tell the classes ``y`` (n labels of any kind) of ``X``.

        ``sample_weight`` says how much each sequence counts in the loss; ``timespans`` holds, for every step of every
        sequence, the time passed since the step before.
        """
        rows = read_step_targets(y) if self.step_targets else None
        labels = validate_data(self, y=y) if rows is None else np.concatenate(rows)
        check_classification_targets(labels)
        check_consistent_length(X, y)
        classes, indices = np.unique(labels, return_inverse=True)
        names = tuple(str(name) for name in classes.tolist())
        got = f"got 1 class, {names[0]!r}" if names else "got no labels"
        require(len(classes) > 1, "expected at least 2 classes", got, "check y")
        weights = None
        if self.class_weight is not None:
            counted = compute_class_weight(self.class_weight, classes=classes, y=labels)
            weights = torch.as_tensor(counted, dtype=torch.float32)
        # Learned on indices, so that the order is that of `classes_` whatever the labels look like.
        targets = indices if rows is None else np.split(indices, np.cumsum([len(row) for row in rows])[:-1])
        self._fit(X, targets, "classification", timespans, sample_weight, weights)
        self.classes_, self.encoding_ = classes, replace(self.encoding_, classes=names)
        return self

    def decision_function(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return one score per class, ``(n, classes)``; for two classes how much the second leads, ``(n,)``."""

        def lead(raw: torch.Tensor) -> np.ndarray:
            scores = raw.double().numpy()
            return scores[..., 1] - scores[..., 0] if scores.shape[-1] == 2 else scores

        return self._answer(X, timespans, lead)

    def predict_proba(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return the probability of every class, ``(n, classes)``, in the order of ``classes_``."""
        return self._answer(X, timespans, lambda raw: raw.double().softmax(-1).numpy())

    def predict(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return the most probable class of every sequence, or of every step."""
        return self._answer(X, timespans, lambda raw: self.classes_[raw.argmax(-1).numpy()])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Return the share of right answers."""
        answers = self.predict(X, timespans=timespans)
        if self.step_targets:
            y, answers, sample_weight = joined_steps(y, answers, sample_weight)
        return float(accuracy_score(y, answers, sample_weight=sample_weight))


class RecurrentRegressor(RegressorMixin, RecurrentEstimator):
    """Predict one or several numbers from each sequence with a recurrent network.

    Sequences and parameters are those of `RecurrentClassifier`, without ``class_weight``. The loss is the squared error
    of targets scaled to unit variance; predictions are in the targets' own unit.

    >>> import numpy as np
    >>> slopes = np.linspace(-1, 1, 40)
    >>> X = slopes[:, None] * np.linspace(0, 1, 8)
    >>> regressor = RecurrentRegressor("gru", hidden_size=8, epochs=20, learning_rate=0.02, random_state=0)
    >>> regressor.fit(X, slopes).score(X, slopes) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> "RecurrentRegressor":  # noqa: N803
        """Learn to predict ``y``, ``(n,)`` or ``(n, targets)``, from ``X``.

        With ``step_targets``, ``y`` is ``(n, time)`` or ``(n, time, targets)``, or a list of one array per sequence.
        ``sample_weight`` says how much each sequence counts in the loss; ``timespans`` holds, for every step of every
        sequence, the time passed since the step before.
        """
        if self.step_targets:
            targets: Any = [row.astype(float) for row in read_step_targets(y, numbers=True)]
        else:
            targets = validate_data(self, y=y, multi_output=True, y_numeric=True)
        check_consistent_length(X, targets)
        self._fit(X, targets, "regression", timespans, sample_weight)
        return self

    def predict(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return the predicted numbers, in the shape of the ``y`` of `fit`."""
        return self._answer(X, timespans, lambda raw: self.encoding_.decode_targets(raw))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Return the coefficient of determination R², averaged over targets."""
        answers = self.predict(X, timespans=timespans)
        if self.step_targets:
            y, answers, sample_weight = joined_steps(y, answers, sample_weight)
        return float(r2_score(y, answers, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
