"""What `fit` and `predict` are given: sequences, targets for every step, and weights."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_array, validate_data

from sostenuto.checks import InputError, require
from sostenuto.choices import Layout
from sostenuto.data.batch import Steps, as_sequences, warn_of_exchanged_axes

_FEATURES = ("n_features_in_", "feature_names_in_")


def read_sequences(estimator: Any, raw: Any, *, layout: Layout, allow_nan: bool, reset: bool) -> list[Steps]:
    """Read ``raw`` as a list of ``(time, channel)`` arrays.

    An array (or data frame, tensor, nested list of equal lengths) of 2 axes is ``(n, time)`` with one channel: its
    columns are scikit-learn's features, so their number is learned when ``reset`` and required otherwise. With 3 axes
    it is read by ``layout``. A list of arrays holds one sequence each, of any length; what is wrong in one of them is
    refused with its index.
    """
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    if reset:
        for name in _FEATURES:
            vars(estimator).pop(name, None)
    rules: Any = {"layout": layout, "allow_nan": allow_nan, "nan_hint": _nan_hint(estimator)}
    if is_list_of_sequences(raw):
        return _told(as_sequences(list(raw), **rules), layout, reset)
    array = check_array(raw, allow_nd=True, ensure_all_finite=False, input_name="X", estimator=estimator)
    if array.ndim == 2:
        _check_features(estimator, raw, array, reset)
    return _told(as_sequences(array, **rules), layout, reset)


def is_list_of_sequences(raw: Any) -> bool:
    """Tell a list of sequences from an array written as nested lists, which has equal lengths and no arrays inside.

    >>> is_list_of_sequences([[1, 2, 3], [4, 5]]), is_list_of_sequences([np.zeros(3), np.zeros(3)])
    (True, True)
    >>> is_list_of_sequences([[1, 2, 3], [4, 5, 6]]), is_list_of_sequences(np.zeros((2, 3)))
    (False, False)
    """
    if isinstance(raw, np.ndarray):
        return raw.dtype == object and raw.ndim == 1 and any(_has_axes(item) for item in raw)
    if not isinstance(raw, (list, tuple)):
        return False
    if any(_has_axes(item) and not isinstance(item, (list, tuple)) for item in raw):
        return True
    lengths = {len(item) for item in raw if isinstance(item, (list, tuple))}
    return len(lengths) > 1


def _told(sequences: list[np.ndarray], layout: Layout, reset: bool) -> list[np.ndarray]:
    """Warn, in `fit`, of sequences whose axes look exchanged."""
    if reset:
        warn_of_exchanged_axes(max(len(sequence) for sequence in sequences), sequences[0].shape[1], layout)
    return sequences


def _nan_hint(estimator: Any) -> str:
    if hasattr(estimator, "missing"):
        return "pass missing='mask' or missing='interpolate'"
    return f"fill them in first: {type(estimator).__name__} has no rule for missing values"


def _has_axes(item: Any) -> bool:
    return isinstance(item, (list, tuple)) or len(getattr(item, "shape", ())) > 0


def _check_features(estimator: Any, raw: Any, array: np.ndarray, reset: bool) -> None:
    known = getattr(estimator, "n_features_in_", array.shape[1])
    if not reset and known != array.shape[1]:
        raise InputError(
            f"X has {array.shape[1]} features, but {type(estimator).__name__} is expecting {known} features as input; "
            "pass sequences of another length as a list of arrays or as an array (n, time, 1)."
        )
    if reset or hasattr(estimator, "n_features_in_"):
        named: Any = raw if hasattr(raw, "shape") else array
        validate_data(estimator, named, reset=reset, skip_check_array=True)


def read_step_targets(raw: Any, *, numbers: bool = False) -> list[np.ndarray]:
    """Read ``y`` with a target for every step: ``(n, time)``, or a list of one array per sequence.

    Where targets are ``numbers``, each step may have several: ``(n, time, targets)``.

    >>> [row.tolist() for row in read_step_targets([["a", "b"], ["a"]])]
    [['a', 'b'], ['a']]
    """
    rows = [np.asarray(row.detach().cpu() if hasattr(row, "detach") else row) for row in raw]
    for index, row in enumerate(rows):
        if row.ndim != 1 and not (numbers and row.ndim == 2):
            raise InputError(
                f"sequence {index}: expected a target for every step, as step_targets=True says, "
                f"got an array of shape {row.shape}; pass y of shape (n, time) or a list of arrays."
            )
        if numbers and row.dtype.kind not in "fiub":
            raise InputError(f"sequence {index}: expected numbers as targets, got {row.dtype} data.")
    require(len(rows) > 0, "expected at least one sequence", "got none")
    return rows


def joined_steps(actual: Any, answers: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Join the steps of all sequences for a score; the weight of a sequence is that of each of its steps."""
    rows = [np.asarray(row) for row in actual]
    lengths = [len(row) for row in rows]
    got = [len(row) for row in answers]
    require(lengths == got, "expected a target for every step of every sequence", "got y of other lengths")
    repeated = None if weights is None else np.repeat(np.asarray(weights), lengths)
    return np.concatenate(rows), np.concatenate(list(answers)), repeated


def read_weights(raw: Any, count: int) -> Float[np.ndarray, " n"] | None:
    """Check ``sample_weight``, one number of at least 0 per sequence, and scale it to a mean of 1.

    >>> read_weights([1, 3], 2)
    array([0.5, 1.5])
    """
    if raw is None:
        return None
    weights = check_array(raw, ensure_2d=False, dtype="float64", input_name="sample_weight")
    require(weights.shape == (count,), f"expected sample_weight of shape {(count,)}", f"got {weights.shape}")
    require(bool(weights.min() >= 0), "expected sample_weight of at least 0", f"got {weights.min()}")
    require(bool(weights.any()), "expected sample_weight to contain at least one non-zero number", "got only zeros")
    return weights / weights.mean()
