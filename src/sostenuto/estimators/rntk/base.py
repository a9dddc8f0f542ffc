"""What estimators with a recurrent NTK share: reading, scaling, the grid of σ; and how they are stored."""

from itertools import product
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float64
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sostenuto.checks import check_choice, check_positive, require
from sostenuto.data.scaling import channel_scale
from sostenuto.estimators.inputs import read_sequences
from sostenuto.estimators.settings import draw_seed
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.kernels.recurrent_ntk import RecurrentNTK
from sostenuto.types import PathLike

Estimator = TypeVar("Estimator", bound="KernelEstimator")
SIGMAS = ("sigma_w", "sigma_u", "sigma_b", "sigma_h")
START = {"num_layers": 1, "sigma_w": 2**0.5, "sigma_u": 1.0, "sigma_b": 0.1, "sigma_h": 0.0}
"""The kernel where nothing is said or searched: a rectifier that neither grows nor shrinks, with a small bias."""


class KernelEstimator(BaseEstimator):
    """A kernel machine on the recurrent NTK; `RNTKClassifier` has the parameters.

    Fitted attributes: ``kernel_`` (a `sostenuto.kernels.RecurrentNTK`), ``sequences_`` (those that predictions are made
    from, scaled), ``seed_``, ``center_`` and ``scale_`` of the channels, and ``n_features_in_`` where ``X`` had 2 axes.
    """

    kernel_: RecurrentNTK
    sequences_: PackedSequences
    center_: np.ndarray
    scale_: np.ndarray
    seed_: int
    scaling: Any
    unit_norm: Any
    layout: Any
    random_state: Any

    _kernel_options: ClassVar[tuple[str, ...]] = ("activation", "kind", "pooling", "normalize")

    def save(self, path: PathLike) -> None:
        """Write the fitted estimator into one safetensors file: sequences, coefficients, parameters; no pickle."""
        check_is_fitted(self)
        require(
            not callable(getattr(self, "activation", None)),
            "expected activation to be 'relu' or 'erf' in a file",
            "got a function",
            "keep the estimator in memory",
        )
        save_kernel_estimator(self, path)

    @classmethod
    def load(cls: type[Estimator], path: PathLike) -> Estimator:
        """Read what `save` wrote, without unpickling."""
        return load_kernel_estimator({cls.__name__: cls}, path)[0]

    def _kernel(self, values: dict[str, Any], **bounds: Any) -> RecurrentNTK:
        """Build the kernel with ``values`` for its layers and σ; σ without bounds are fixed."""
        options = {name: getattr(self, name) for name in self._kernel_options}
        fixed = {f"{name}_bounds": "fixed" for name in (*SIGMAS, "sigma_v")}
        return RecurrentNTK(**options, **{**START, **values}, **{**fixed, **bounds})

    def _refuse_arguments(self, options: dict[str, Any]) -> None:
        """Say of an argument of `fit` that a kernel machine does not take what to do instead."""
        name = type(self).__name__
        if "sample_weight" in options:
            other = name.replace("RNTK", "Recurrent")
            raise TypeError(
                f"{name}.fit takes no sample_weight: its search counts every sequence once; "
                f"repeat the sequences that count more, or use {other}, whose loss has weights"
            )
        if options:
            raise TypeError(f"{name}.fit() got an unexpected keyword argument {next(iter(options))!r}")

    def _learn_sequences(self, raw: Any) -> list[np.ndarray]:
        """Read the sequences of `fit`, learn the scale of their channels, and apply it."""
        check_choice("scaling", self.scaling, ("standard", "minmax", "none"))
        self.seed_ = draw_seed(self.random_state)
        sequences = self._read(raw, reset=True)
        center, scale = channel_scale(sequences, self.scaling)
        self.center_, self.scale_ = np.asarray(center), np.asarray(scale)
        return self._scaled(sequences)

    def _new_sequences(self, raw: Any) -> list[np.ndarray]:
        """Read and scale the sequences of a prediction."""
        check_is_fitted(self)
        sequences = self._read(raw, reset=False)
        ours, theirs = len(self.center_), sequences[0].shape[1]
        require(ours == theirs, f"expected {ours} channels, as in fit", f"got {theirs}")
        return self._scaled(sequences)

    def _read(self, raw: Any, *, reset: bool) -> list[np.ndarray]:
        return read_sequences(self, raw, layout=self.layout, allow_nan=False, reset=reset)

    def _scaled(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        done = [(sequence.astype(np.float64) - self.center_) / self.scale_ for sequence in sequences]
        return [unit_norm(sequence) for sequence in done] if self.unit_norm else done

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def unit_norm(sequence: Float64[np.ndarray, "time channel"]) -> Float64[np.ndarray, "time channel"]:
    """Divide by ‖x‖ over all steps and channels, as alemohammad2021 does (appendix A.1); zeros stay zeros.

    >>> unit_norm(np.array([[3.0], [4.0]])).ravel()
    array([0.6, 0.8])
    """
    largest = float(np.abs(sequence).max())
    if largest == 0:
        return sequence
    # By its largest value first: squares of 1e200 would overflow.
    scaled = sequence / largest
    return scaled / np.linalg.norm(scaled)


def grid_axis(name: str, value: Any, default: tuple[Any, ...]) -> tuple[Any, ...]:
    """Read a parameter of a grid: None for the default, one number, or several.

    >>> grid_axis("sigma_b", [0, 0.1], (1.0,)), grid_axis("sigma_b", None, (1.0,)), grid_axis("num_layers", 2, (1,))
    ((0.0, 0.1), (1.0,), (2,))
    """
    if value is None:
        return default
    values = tuple(np.ravel(np.asarray(value)).tolist())
    require(len(values) > 0, f"expected {name} to be a number or several to try", "got none")
    if name == "num_layers":
        return values
    for each in values:
        check_positive(name, each, zero=name not in ("C", "alpha"))
    return tuple(float(each) for each in values)


def grid_points(axes: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """List the points of a grid, the last parameter changing fastest.

    >>> grid_points({"sigma_w": (1.4, 1.5), "sigma_b": (0.0,)})
    [{'sigma_w': 1.4, 'sigma_b': 0.0}, {'sigma_w': 1.5, 'sigma_b': 0.0}]
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def kernel_starts(estimator: Any, bounds: dict[str, tuple[float, float]]) -> list[RecurrentNTK]:
    """Return the kernels a search by marginal likelihood starts from; without ``bounds`` the one kernel that was given.

    A σ that is a number stays as it is; one that is None is free where ``bounds`` has a range for it; two numbers are a
    range. Starts lie at three places each in the ranges of σ_w and σ_b, which matter most.
    """
    values: dict[str, Any] = {}
    free: dict[str, Any] = {}
    for name in ("num_layers", *SIGMAS):
        value = getattr(estimator, name)
        if np.size(value) == 2 and bounds:
            low, high = grid_axis(name, value, ())
            require(0 < low < high, f"expected {name} to be two rising numbers above 0", f"got {value!r}")
            free[f"{name}_bounds"] = (low, high)
        elif value is not None:
            search = getattr(estimator, "search", "evidence")
            expected = f"expected {name} to be one number with search={search!r}"
            require(np.ndim(value) == 0, expected, f"got {value!r}")
            values[name] = grid_axis(name, value, ())[0]
        elif name in bounds:
            free[f"{name}_bounds"] = bounds[name]
    if not free:
        return [estimator._kernel(values)]
    places = {"sigma_w_bounds": (0.5, 0.25, 0.75), "sigma_b_bounds": (0.9, 0.6, 0.3)}
    choices = [places.get(name, (0.5,)) for name in free]
    starts = []
    for shares in product(*choices):
        inside = {
            name.removesuffix("_bounds"): _between(low, high, share)
            for (name, (low, high)), share in zip(free.items(), shares, strict=True)
        }
        starts.append(estimator._kernel({**values, **inside}, **free))
    return starts


def _between(low: float, high: float, share: float) -> float:
    """Go the given share of the way from low to high, in logarithms, as the search does."""
    return float(low ** (1 - share) * high**share)
