"""Make the model that fits an encoding, from plain options."""

import inspect
from typing import Any

import torch

from sostenuto.checks import InputError, check_choice, require, sentence
from sostenuto.choices import Readout
from sostenuto.data.encoding import Encoding
from sostenuto.models.base import SequenceModel
from sostenuto.models.forecaster import Forecaster
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.models.tokens import TokenClassifier
from sostenuto.nn import LAYERS

_TAKEN = ("input_size", "batch_first", "proj_size", "device", "dtype")


def build_model(
    encoding: Encoding,
    layer: str = "stack",
    *,
    readout: Readout = "last",
    readout_dropout: float = 0.0,
    embedding_size: int = 100,
    embedding_dropout: float = 0.0,
    embedding: torch.Tensor | None = None,
    **options: Any,
) -> SequenceModel:
    """Build layer and read-out for the task, channels and targets of ``encoding``.

    ``options`` go to the layer: hidden_size, num_layers, dropout, bidirectional, step_size and so on. With
    ``half_life_seconds`` the layer's half_life is so much time, which needs data with times.

    >>> import numpy as np
    >>> from sostenuto.data.dataset import SequenceSet
    >>> data = SequenceSet([np.zeros((5, 2))] * 4, np.array(["a", "b", "a", "b"]), "classification")
    >>> type(build_model(Encoding.fit(data), "gru", hidden_size=4)).__name__
    'SequenceClassifier'
    """
    check_choice("layer", layer, LAYERS)
    if encoding.is_tokens:
        one_target = encoding.task in ("classification", "regression")
        require(one_target, "expected one target per sequence for tokens", f"got the task {encoding.task!r}")
    width = embedding_size if encoding.is_tokens else encoding.input_size
    if embedding is not None:
        width = embedding.shape[1]
    model = _with_readout(
        _make_layer(layer, width, _in_steps(options, encoding)), encoding, readout, embedding_dropout, embedding
    )
    model.readout_dropout = readout_dropout
    return model


def _with_readout(
    recurrent: Any, encoding: Encoding, readout: Readout, embedding_dropout: float, embedding: torch.Tensor | None
) -> SequenceModel:
    if encoding.task == "sequence":
        return SequenceToSequence(recurrent, encoding.output_size)
    if encoding.task == "forecast":
        horizon = encoding.target_shape[0] if len(encoding.target_shape) > 1 else 1
        channels = encoding.forecast_channels or None
        return Forecaster(recurrent, encoding.output_size // horizon, horizon, channels=channels)
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


def _in_steps(options: dict[str, Any], encoding: Encoding) -> dict[str, Any]:
    """Turn a half-life in seconds into one in steps of the median time span, the unit of encoded spans."""
    if "half_life_seconds" not in options:
        return options
    step = encoding.time_unit * encoding.median_span
    hint = "give half_life in steps, or name the column of times"
    require(step > 0, "expected data with times for a half-life in seconds", "got steps without times", hint)
    rest = dict(options)
    return {"half_life": rest.pop("half_life_seconds") / step, **rest}


def _make_layer(name: str, width: int, options: dict[str, Any]) -> Any:
    taken = [option for option in _TAKEN if option in options]
    require(not taken, f"expected options of the layer {name!r}", f"got {taken}", "the model sets these itself")
    takes = inspect.signature(LAYERS[name].__init__).parameters
    unknown = [option for option in options if option not in takes]
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        known = sorted(each for each in takes if each not in ("self", *_TAKEN))
        raise InputError(
            sentence(f"expected options of the layer {name!r} among {', '.join(known)}", f"got {unknown[0]}")
        )
    try:
        return LAYERS[name](width, batch_first=True, **options)
    except InputError:
        raise
    # torch's own layers speak of a wrong option in either way.
    except (TypeError, ValueError) as error:
        raise InputError(
            sentence(f"expected options of the layer {name!r}", f"got {sorted(options)} ({error})")
        ) from error
