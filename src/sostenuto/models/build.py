"""Make the model that fits an encoding, from plain options."""

from typing import Any

import torch

from sostenuto.checks import InputError, check_choice, sentence
from sostenuto.data.encoding import Encoding
from sostenuto.models.base import SequenceModel
from sostenuto.models.classifier import SequenceClassifier
from sostenuto.models.forecaster import Forecaster
from sostenuto.models.readout import Readout
from sostenuto.models.regressor import SequenceRegressor
from sostenuto.models.sequence import SequenceToSequence
from sostenuto.models.tokens import TokenClassifier
from sostenuto.nn import LAYERS


def build_model(
    encoding: Encoding,
    layer: str = "unicornn",
    *,
    readout: Readout = "last",
    embedding_size: int = 100,
    embedding_dropout: float = 0.0,
    embedding: torch.Tensor | None = None,
    **options: Any,
) -> SequenceModel:
    """Build layer and read-out for the task, channels and targets of ``encoding``.

    ``options`` go to the layer: hidden_size, num_layers, dropout, bidirectional, step_size and so on.

    >>> import numpy as np
    >>> from sostenuto.data.dataset import SequenceSet
    >>> data = SequenceSet([np.zeros((5, 2))] * 4, np.array(["a", "b", "a", "b"]), "classification")
    >>> type(build_model(Encoding.fit(data), "gru", hidden_size=4)).__name__
    'SequenceClassifier'
    """
    check_choice("layer", layer, LAYERS)
    width = embedding_size if encoding.is_tokens else encoding.input_size
    if embedding is not None:
        width = embedding.shape[1]
    try:
        recurrent = LAYERS[layer](width, batch_first=True, **options)
    except TypeError as error:
        raise InputError(
            sentence(f"expected options of the layer {layer!r}", f"got {sorted(options)} ({error})")
        ) from error
    if encoding.task == "sequence":
        return SequenceToSequence(recurrent, encoding.output_size)
    if encoding.task == "forecast":
        horizon = encoding.target_shape[0] if len(encoding.target_shape) > 1 else 1
        return Forecaster(recurrent, encoding.output_size // horizon, horizon)
    if encoding.is_tokens:
        return TokenClassifier(
            recurrent,
            encoding.vocabulary_size,
            encoding.output_size,
            readout,
            embedding_dropout=embedding_dropout,
            embedding=embedding,
        )
    kind = SequenceClassifier if encoding.task == "classification" else SequenceRegressor
    return kind(recurrent, encoding.output_size, readout)
