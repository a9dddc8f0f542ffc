"""What `fit` and `predict` are given, read as sequences: arrays by scikit-learn's rules, lists by the house's."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from sostenuto.checks import InputError
from sostenuto.data.batch import Steps, as_sequences, warn_of_exchanged_axes
from sostenuto.types import Layout

_FEATURES = ("n_features_in_", "feature_names_in_")


def read_sequences(estimator: Any, given: Any, *, layout: Layout, allow_nan: bool, reset: bool) -> list[Steps]:
    """Read ``given`` as a list of ``(time, channel)`` arrays.

    An array (or data frame, tensor, nested list of equal lengths) of 2 axes is ``(n, time)`` with one channel: its
    columns are scikit-learn's features, so their number is learned when ``reset`` and required otherwise. With 3 axes
    it is read by ``layout``. A list of arrays holds one sequence each, of any length; what is wrong in one of them is
    refused with its index.
    """
    if hasattr(given, "detach"):
        given = given.detach().cpu().numpy()
    if reset:
        for name in _FEATURES:
            vars(estimator).pop(name, None)
    rules: Any = {"layout": layout, "allow_nan": allow_nan, "nan_hint": _nan_hint(estimator)}
    if is_list_of_sequences(given):
        return _told(as_sequences(list(given), **rules), layout, reset)
    array = check_array(given, allow_nd=True, ensure_all_finite=False, input_name="X", estimator=estimator)
    if array.ndim == 2:
        _check_features(estimator, given, array, reset)
    return _told(as_sequences(array, **rules), layout, reset)


def is_list_of_sequences(given: Any) -> bool:
    """Tell a list of sequences from an array written as nested lists, which has equal lengths and no arrays inside.

    >>> is_list_of_sequences([[1, 2, 3], [4, 5]]), is_list_of_sequences([np.zeros(3), np.zeros(3)])
    (True, True)
    >>> is_list_of_sequences([[1, 2, 3], [4, 5, 6]]), is_list_of_sequences(np.zeros((2, 3)))
    (False, False)
    """
    if isinstance(given, np.ndarray):
        return given.dtype == object and given.ndim == 1 and any(_has_axes(item) for item in given)
    if not isinstance(given, (list, tuple)):
        return False
    if any(_has_axes(item) and not isinstance(item, (list, tuple)) for item in given):
        return True
    lengths = {len(item) for item in given if isinstance(item, (list, tuple))}
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


def _check_features(estimator: Any, given: Any, array: np.ndarray, reset: bool) -> None:
    known = getattr(estimator, "n_features_in_", array.shape[1])
    if not reset and known != array.shape[1]:
        raise InputError(
            f"X has {array.shape[1]} features, but {type(estimator).__name__} is expecting {known} features as input; "
            "pass sequences of another length as a list of arrays or as an array (n, time, 1)."
        )
    if reset or hasattr(estimator, "n_features_in_"):
        named: Any = given if hasattr(given, "shape") else array
        validate_data(estimator, named, reset=reset, skip_check_array=True)
