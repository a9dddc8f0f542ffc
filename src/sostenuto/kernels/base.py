"""The shared contract of every kernel on sequences: a scikit-learn Gaussian-process kernel in float64."""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from sostenuto.checks import InputError, check_positive, require
from sostenuto.data.batch import as_sequences

Steps = Float64[np.ndarray, "_ channel"]
Matrix = Float64[np.ndarray, "row column"]
Gradient = Float64[np.ndarray, "row row parameter"]
Diagonal = Float64[np.ndarray, " row"]
Bounds = tuple[float, float] | str
"""Lowest and highest value of a parameter in a search, or ``"fixed"``."""


class SequenceKernel(Kernel):
    """A positive semi-definite function of two sequences; subclasses define `gram`, `gradients` and `diagonal`.

    ``kernel(X, Y=None)`` is the matrix of k(x, y) in float64. X and Y are an array ``(n, time)`` of one channel, an
    array ``(n, time, channel)``, or a list of ``(time, channel)`` arrays of any lengths. What is empty, not finite or
    of other channels than the first is refused with its index.

    As scikit-learn's kernels do, it adds, multiplies and is raised to a power, clones, and shows its parameters as
    ``theta``, their logarithms, within ``bounds``; so it works in `GaussianProcessRegressor` and
    `GaussianProcessClassifier`. These take 2-D arrays as they are; bring ragged or multi-channel sequences through
    `sostenuto.kernels.as_objects`.

    ``parameters`` names the constructor's arguments that can be fitted: numbers above 0 (or 0, if in ``may_be_zero``),
    or several of them in a sequence, each with an argument ``<name>_bounds`` beside it. The constructor stores every
    argument as it came and ends with `check_parameters`.
    """

    parameters: ClassVar[tuple[str, ...]] = ()
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be 0; a 0 has no logarithm, so it stays out of ``theta``."""

    @abstractmethod
    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return k(x, y) for every pair of checked sequences."""

    @abstractmethod
    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and, for each parameter in ``names``, the derivative of K by the parameter's logarithm.

        A derivative is ``(n, n)``, or ``(n, n, count)`` for a parameter of several numbers.
        """

    @abstractmethod
    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return k(x, x) for every checked sequence, without the rest of the matrix."""

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:  # noqa: N803
        """Return K(X, Y), or K(X, X) without Y; with ``eval_gradient`` also its gradient by ``theta``, (n, n, p)."""
        self.check_parameters()
        left = checked_sequences(X, "X")
        if eval_gradient:
            require(Y is None, "expected Y=None with eval_gradient=True", "got a Y", "ask for the gradient of K(X)")
            return self._with_gradient(left)
        if Y is None:
            return self.gram(left, left)
        right = checked_sequences(Y, "Y")
        ours, theirs = left[0].shape[1], right[0].shape[1]
        require(ours == theirs, f"Y: expected {ours} channels as in X", f"got {theirs}")
        return self.gram(left, right)

    def diag(self, X: Any) -> Diagonal:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Return k(x, x) for every sequence of X."""
        self.check_parameters()
        return self.diagonal(checked_sequences(X, "X"))

    def is_stationary(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return whether k(x, y) depends on x − y alone."""
        return False

    @property
    def requires_vector_input(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Tell scikit-learn that inputs need not be rows of equal length."""
        return False

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """Describe the parameters that can be fitted, in the order of ``theta``."""
        return [self._hyperparameter(name) for name in self.parameters]

    def check_parameters(self) -> None:
        """Refuse parameters that are not above 0 and bounds that are not ``"fixed"`` or two rising positive numbers."""
        for name in self.parameters:
            for value in np.ravel(getattr(self, name)).tolist():
                check_positive(name, value, zero=name in self.may_be_zero)
            _check_bounds(f"{name}_bounds", getattr(self, f"{name}_bounds"))

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.get_params().items() if not name.endswith("_bounds")}
        return f"{type(self).__name__}({', '.join(f'{name}={_short(value)}' for name, value in shown.items())})"

    def _hyperparameter(self, name: str) -> Hyperparameter:
        value = getattr(self, name)
        bounds = "fixed" if np.any(np.asarray(value) == 0) else getattr(self, f"{name}_bounds")
        return Hyperparameter(name, "numeric", bounds, int(np.size(value)))

    def _with_gradient(self, sequences: list[Steps]) -> tuple[Matrix, Gradient]:
        free = [parameter.name for parameter in self.hyperparameters if not parameter.fixed]
        matrix, derivatives = self.gradients(sequences, free)
        square = (len(sequences), len(sequences))
        columns = [derivatives[name].reshape(*square, -1) for name in free]
        return matrix, np.concatenate([np.empty((*square, 0)), *columns], axis=2)


class SequenceObject:
    """One sequence that numpy takes for a single object; ``np.asarray`` gives its ``(time, channel)`` values back."""

    __slots__ = ("values",)

    def __init__(self, values: Steps) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values."""
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return f"SequenceObject{self.values.shape}"


def as_objects(sequences: Any) -> np.ndarray:
    """Put sequences into a one-dimensional array of objects, one per sequence.

    scikit-learn's Gaussian processes take a 2-D array ``(n, time)`` as it is, but refuse ragged lists, lists of arrays
    and 3-D arrays before a kernel sees them. An array of objects passes; every kernel here reads it like the list.

    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from sostenuto.kernels import RBF
    >>> X = as_objects([[[0.0]], [[0.0], [3.0]], [[4.0], [4.0], [4.0]]])
    >>> X.shape
    (3,)
    >>> GaussianProcessRegressor(RBF(length_scale_bounds="fixed")).fit(X, [0.0, 1.0, 2.0]).predict(X).round(6)
    array([0., 1., 2.])
    """
    checked = checked_sequences(sequences, "sequences")
    objects = np.empty(len(checked), dtype=object)
    for index, sequence in enumerate(checked):
        objects[index] = SequenceObject(sequence)
    return objects


def checked_sequences(sequences: Any, name: str) -> list[Steps]:
    """Bring an argument called ``name`` to float64 sequences, or say which of them is at fault."""
    try:
        checked = as_sequences(sequences, allow_nan=True)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    for index, sequence in enumerate(checked):
        if np.isnan(sequence).any():
            raise InputError(
                f"{name}: sequence {index}: expected no missing values, got NaN; fill them in or drop the sequence."
            )
    # A copy: torch takes no array with a negative stride, such as x[::-1].
    return [np.array(sequence, dtype=np.float64, order="C") for sequence in checked]


def zero_padded(sequences: list[Steps], steps: int) -> Matrix:
    """Lay each sequence out as one row, (time, channel) flattened, with zeros up to ``steps`` time steps.

    >>> zero_padded([np.ones((2, 1)), np.ones((1, 1))], 3)
    array([[1., 1., 0.],
           [1., 0., 0.]])
    """
    rows = np.zeros((len(sequences), steps * sequences[0].shape[1]))
    for row, sequence in zip(rows, sequences, strict=True):
        row[: sequence.size] = sequence.ravel()
    return rows


def _check_bounds(name: str, bounds: Any) -> None:
    if isinstance(bounds, str) and bounds == "fixed":
        return
    try:
        rows = np.atleast_2d(np.asarray(bounds, dtype=float))
    except (TypeError, ValueError):
        rows = np.empty((1, 0))
    good = rows.shape[1:] == (2,) and bool((rows > 0).all() and np.isfinite(rows).all() and (np.diff(rows) >= 0).all())
    require(good, f"expected {name} to be 'fixed' or (low, high) above 0", f"got {bounds!r}")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"[{', '.join(map(_short, np.ravel(value).tolist()))}]" if np.ndim(value) else repr(value)
