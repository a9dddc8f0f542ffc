"""`RecurrentClassifier`: one class per sequence or per step, the scikit-learn way."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from sostenuto.checks import require
from sostenuto.estimators.base import RecurrentEstimator
from sostenuto.estimators.targets import joined_steps, read_step_targets


class RecurrentClassifier(ClassifierMixin, RecurrentEstimator):
    """Classify sequences with a recurrent network.

    ``X`` is ``(n, time)`` with one channel, ``(n, time, channel)`` as ``layout`` says, or a list of ``(time, channel)``
    or ``(time,)`` arrays of any lengths.

    Args:
        layer: the recurrence by name: ``"unicornn"``, ``"lipschitz"``, ``"antisymmetric"``, ``"residual"``,
            ``"stable"``, ``"cornn"``, ``"exprnn"``, ``"indrnn"``, ``"sru"``, ``"residual-gru"``, ``"residual-lstm"``,
            ``"lstm"``, ``"gru"``, ``"rnn"``.
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
    >>> classifier = RecurrentClassifier(hidden_size=8, num_layers=1, epochs=10, random_state=0)
    >>> classifier.fit(X, ["up", "down"] * 10).predict([rising[:9], rising[::-1]])
    array(['up', 'down'], dtype='<U4')
    """

    classes_: np.ndarray

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
        """Give one score per class, ``(n, classes)``; for two classes how much the second leads, ``(n,)``."""

        def lead(raw: torch.Tensor) -> np.ndarray:
            scores = raw.double().numpy()
            return scores[..., 1] - scores[..., 0] if scores.shape[-1] == 2 else scores

        return self._answer(X, timespans, lead)

    def predict_proba(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Give the probability of every class, ``(n, classes)``, in the order of ``classes_``."""
        return self._answer(X, timespans, lambda raw: raw.double().softmax(-1).numpy())

    def predict(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Give the most probable class of every sequence, or of every step."""
        return self._answer(X, timespans, lambda raw: self.classes_[raw.argmax(-1).numpy()])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Give the share of right answers."""
        answers = self.predict(X, timespans=timespans)
        if self.step_targets:
            y, answers, sample_weight = joined_steps(y, answers, sample_weight)
        return float(accuracy_score(y, answers, sample_weight=sample_weight))
