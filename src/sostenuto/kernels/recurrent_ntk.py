"""The recurrent neural tangent kernel: what an RNN becomes when its width goes to infinity."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from sostenuto.checks import InputError, check_choice, check_count, require
from sostenuto.kernels.base import Bounds, Diagonal, Matrix, SequenceKernel, Steps, checked_sequences
from sostenuto.ops.recurrent_ntk import (
    KINDS,
    POOLINGS,
    Scaled,
    Scales,
    dual_for,
    met_variances,
    recurrent_ntk,
    recurrent_ntk_diagonal,
)
from sostenuto.ops.recurrent_ntk.covariances import Covariances, covariances
from sostenuto.ops.recurrent_ntk.fast import slopes

Sigma = float | Sequence[float] | np.ndarray
DIFFERENCE = 3e-3
"""Steps of log σ times those of time in numerical derivatives: units grow as σ_w^T."""


class RecurrentNTK(SequenceKernel):
    """Compare sequences as an infinitely wide RNN of ``num_layers`` layers does: by its NTK Θ or its GP kernel 𝒦.

    The network is g^ℓ_t = σ_w/√n·W h^ℓ_{t−1} + σ_u/√n·U h^{ℓ−1}_t + σ_b b (h⁰_t = x_t, and √m of m channels for √n),
    h = φ(g), h_0 ~ N(0, σ_h²) drawn for each distinct sequence, read out by σ_v/√n·v at the last step or from the mean
    over steps. Θ(x, y) = ⟨∇f(x), ∇f(y)⟩ at initialization, as n → ∞ (alemohammad2021, Theorem 1, as corrected in
    docs/errata.md, alemohammad2021.1 to 4). Lengths may differ and nothing is padded: sequences meet at
    their ends.

    Args:
        num_layers: L.
        activation: ``"relu"`` or ``"erf"``, in closed form; or any function on tensors such as ``torch.tanh``, by a
            quadrature that is fitted to the variances and split at kinks; `quadrature_error` states its accuracy, and
            an error above 1e-4 is refused.
        sigma_w: recurrent weights, a number or one per layer. A rectifier neither grows nor shrinks at √2.
        sigma_u: input weights, a number or one per layer.
        sigma_b: biases, a number or one per layer.
        sigma_h: the initial state, a number or one per layer.
        sigma_v: the read-out; it multiplies the kernel by σ_v².
        kind: ``"ntk"`` for Θ, training of all weights; ``"nngp"`` for 𝒦, of the read-out alone.
        pooling: ``"last"`` step, or ``"mean"`` over steps, which costs T times as much.
        normalize: divide by √(k(x,x) k(y,y)), finite for every length and σ; else a value beyond float64 is an error.
        sigma_w_bounds, sigma_u_bounds, sigma_b_bounds, sigma_h_bounds, sigma_v_bounds: lowest and highest values in a
            search, or ``"fixed"``. A σ of 0 has no logarithm, so it is fixed too.

    >>> kernel = RecurrentNTK(sigma_w=1.4, sigma_b=0.1)
    >>> kernel([[1.0, -1.0, 1.0], [0.6, 0.8]]).round(4)  # two sequences of one channel, of 3 steps and of 2
    array([[4.4347, 0.7583],
           [0.7583, 1.1939]])
    >>> RecurrentNTK(normalize=True).diag([[1.0] * 300])
    array([1.])
    """

    parameters = ("sigma_w", "sigma_u", "sigma_b", "sigma_h", "sigma_v")
    may_be_zero = ("sigma_w", "sigma_u", "sigma_b", "sigma_h")

    def __init__(
        self,
        num_layers: int = 1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        sigma_w: Sigma = 2**0.5,
        sigma_u: Sigma = 1.0,
        sigma_b: Sigma = 0.0,
        sigma_h: Sigma = 0.0,
        sigma_v: float = 1.0,
        *,
        kind: str = "ntk",
        pooling: str = "last",
        normalize: bool = False,
        sigma_w_bounds: Bounds = (0.5, 2.0),
        sigma_u_bounds: Bounds = (1e-2, 1e2),
        sigma_b_bounds: Bounds = (1e-3, 1e1),
        sigma_h_bounds: Bounds = (1e-3, 1e1),
        sigma_v_bounds: Bounds = (1e-2, 1e2),
    ) -> None:
        self.num_layers, self.activation = num_layers, activation
        self.sigma_w, self.sigma_u, self.sigma_b, self.sigma_h = sigma_w, sigma_u, sigma_b, sigma_h
        self.sigma_v = sigma_v
        self.kind, self.pooling, self.normalize = kind, pooling, normalize
        self.sigma_w_bounds, self.sigma_u_bounds, self.sigma_b_bounds = sigma_w_bounds, sigma_u_bounds, sigma_b_bounds
        self.sigma_h_bounds, self.sigma_v_bounds = sigma_h_bounds, sigma_v_bounds
        self.check_parameters()

    def check_parameters(self) -> None:
        """Refuse options out of range, and as many σ as there are no layers."""
        check_count("num_layers", self.num_layers)
        if not callable(self.activation):
            check_choice("activation", self.activation, ("relu", "erf"))
        check_choice("kind", self.kind, KINDS)
        check_choice("pooling", self.pooling, POOLINGS)
        super().check_parameters()
        for name in self.parameters:
            most = 1 if name == "sigma_v" else self.num_layers
            size = np.size(getattr(self, name))
            require(
                size in (1, most), f"expected {name} to be a number or one for each of {most} layers", f"got {size}"
            )

    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return Θ or 𝒦 of every pair."""
        with torch.no_grad():
            return self._matrix(left, right, self._scales()).numpy()

    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and its derivatives by log σ, one per layer where there are several.

        σ_v is a factor. One layer of rectifiers carries the derivatives through its pairs beside the kernel. Those of
        the other closed forms are differences of fourth order in log σ; those of other activations are forward-mode.
        """
        if self._carries_derivatives():
            return self._carried(sequences, names)
        matrix = self.gram(sequences, sequences)
        by_name: dict[str, np.ndarray] = {}
        for name in names:
            value = getattr(self, name)
            columns = [self._derivative(sequences, matrix, name, index) for index in range(np.size(value))]
            by_name[name] = np.stack(columns, axis=2) if np.ndim(value) else columns[0]
        return matrix, by_name

    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return k(x, x)."""
        with torch.no_grad():
            values, units = self._own(sequences, self._scales())
            if self.normalize:
                return (~torch.isinf(units) & (values > 0)).to(torch.float64).numpy()
            scaled = (values * torch.exp(2 * units)).numpy()
        bad = np.flatnonzero(~np.isfinite(scaled))
        if len(bad):
            raise _too_large(f"of sequence {bad[0]}", float(torch.log(values[bad[0]]) + 2 * units[bad[0]]))
        return scaled

    def log_diag(self, X: Any) -> Diagonal:  # noqa: N803
        """Return log k(x, x) of every sequence, before any normalization; it is finite where k(x, x) is not.

        >>> RecurrentNTK(sigma_w=1.47).log_diag([[1.0] * 20000]).round(1)
        array([1559.3])
        """
        self.check_parameters()
        with torch.no_grad():
            values, units = self._own(checked_sequences(X, "X"), self._scales())
            return (torch.log(values) + 2 * units).numpy()

    def covariances(self, x: Any, y: Any) -> Covariances:
        """Return Σ and Π of one pair, tensors (layer, t, t′), and 𝒦 (alemohammad2021, eqs. (8), (9), (13)–(18)).

        >>> pair = RecurrentNTK(sigma_w=1.4, sigma_b=0.1).covariances([1.0, -1.0, 1.0], [0.6, 0.8])
        >>> pair.sigma.shape, round(float(pair.ntk), 4)
        (torch.Size([1, 3, 2]), 0.7583)
        """
        self.check_parameters()
        one, other = self._pair(x, y)
        with torch.no_grad():
            scales = self._scales()
            dual = dual_for(self.activation, [one, other], scales)
            return covariances(one, other, scales, dual, pooling=self.pooling)

    def sensitivity(self, x: Any, y: Any) -> Diagonal:
        """Return s(t) = ‖∇_{x_t} Θ(x, y)‖ at every step of x, over the largest (alemohammad2021, eq. (20), Figure 3).

        A flat s(t) weighs all steps alike: choose σ for it where nothing is known of the data (section 3.4).

        >>> RecurrentNTK().sensitivity([1.0, -1.0, 1.0], [0.6, 0.8, 0.1]).round(3)
        array([1.   , 0.235, 0.25 ])
        """
        self.check_parameters()
        one, other = self._pair(x, y)
        one = one.clone().requires_grad_()
        scaled = self._scaled([one], [other], self._scales())
        value, logarithm = scaled.values[0, 0], scaled.rows[0]
        slope, growth = (
            torch.autograd.grad(part, one, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
            # What erf needs no unit for has a constant one.
            if part.requires_grad
            else torch.zeros_like(one)
            for part in (value, logarithm)
        )
        size = torch.linalg.vector_norm(slope + value.detach() * growth, dim=1)
        return (size / size.max().clamp(min=1e-300)).numpy()

    def quadrature_error(self, X: Any) -> float:  # noqa: N803
        """Return the largest relative error of the activation's averages on X, a bound; 0 of a closed form.

        >>> RecurrentNTK(activation=torch.tanh, sigma_u=0.5, sigma_w=1.0).quadrature_error([[1.0, -1.0, 2.0]]) < 1e-8
        True
        """
        self.check_parameters()
        sequences, scales = [torch.from_numpy(sequence) for sequence in checked_sequences(X, "X")], self._scales()
        if isinstance(self.activation, str):
            return 0.0
        dual: Any = dual_for(self.activation, sequences, scales)
        with torch.no_grad():
            met = torch.cat(list(met_variances(dual, sequences, scales)))
            return float(dual.error(met).max()) if len(met) else 0.0

    def _pair(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        one, other = checked_sequences([x], "x")[0], checked_sequences([y], "y")[0]
        ours, theirs = one.shape[1], other.shape[1]
        require(ours == theirs, f"y: expected {ours} channels as in x", f"got {theirs}")
        return torch.from_numpy(one), torch.from_numpy(other)

    def _carries_derivatives(self) -> bool:
        """Whether the compiled pairs carry derivatives by log σ beside the kernel."""
        return self.activation == "relu" and self.num_layers == 1 and self.pooling == "last"

    def _scales(self) -> Scales:
        groups = (self.sigma_w, self.sigma_u, self.sigma_b, self.sigma_h)
        w, u, b, h = (torch.as_tensor(np.broadcast_to(np.ravel(g), self.num_layers).astype(float)) for g in groups)
        return Scales(w, u, b, h, torch.tensor(float(np.ravel(self.sigma_v)[0]), dtype=torch.float64))

    def _scaled(self, left: list[Tensor], right: list[Tensor] | None, scales: Scales) -> Scaled:
        return recurrent_ntk(left, right, scales, activation=self.activation, kind=self.kind, pooling=self.pooling)

    def _own(self, sequences: list[Steps], scales: Scales) -> tuple[Tensor, Tensor]:
        tensors = [torch.from_numpy(sequence) for sequence in sequences]
        return recurrent_ntk_diagonal(tensors, scales, activation=self.activation, kind=self.kind, pooling=self.pooling)

    def _matrix(self, left: list[Steps], right: list[Steps], scales: Scales) -> Tensor:
        rows = [torch.from_numpy(sequence) for sequence in left]
        columns = None if right is left else [torch.from_numpy(sequence) for sequence in right]
        return self._finished(self._scaled(rows, columns, scales), left, right, scales)

    def _finished(self, scaled: Scaled, left: list[Steps], right: list[Steps], scales: Scales) -> Tensor:
        """Normalize, or bring back the units and refuse what float64 cannot hold."""
        if self.normalize:
            sides = [self._own(side, scales) for side in ((left,) if right is left else (left, right))]
            inverse = [torch.where(torch.isinf(units) | (values == 0), 0.0, values**-0.5) for values, units in sides]
            return scaled.values * inverse[0][:, None] * inverse[-1][None, :]
        matrix = scaled.values * torch.exp(scaled.rows[:, None] + scaled.columns[None, :])
        bad = (~torch.isfinite(matrix.detach())).nonzero()
        if len(bad):
            i, j = bad[0].tolist()
            logarithm = float(scaled.values[i, j].detach().abs().log() + scaled.rows[i] + scaled.columns[j])
            raise _too_large(f"of sequences {i} of X and {j} of Y", logarithm)
        return matrix

    def _carried(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and its derivatives in one pass over the pairs."""
        letters = [name[-1] for name in names if name != "sigma_v"]
        scales, moved = self._scales(), dict[str, np.ndarray]()
        if letters:
            result = slopes([torch.from_numpy(sequence) for sequence in sequences], scales, letters, kind=self.kind)
            matrix = self._finished(result.scaled, sequences, sequences, scales).numpy()
            units = result.scaled.rows.numpy()
            for index, letter in enumerate(letters):
                factor, growth = np.exp(units), result.units[index]
                if self.normalize:
                    factor, growth = result.own**-0.5, -0.5 * result.own_slopes[index] / result.own
                    factor = np.where(np.isinf(units), 0.0, factor)
                moved[letter] = result.values[index] * np.outer(factor, factor) + matrix * np.add.outer(growth, growth)
        else:
            matrix = self.gram(sequences, sequences)
        moved["v"] = np.zeros_like(matrix) if self.normalize else 2 * matrix
        both = {name: moved[name[-1]] for name in names}
        return matrix, {n: each[:, :, None] if np.ndim(getattr(self, n)) else each for n, each in both.items()}

    def _derivative(self, sequences: list[Steps], matrix: Matrix, name: str, index: int) -> np.ndarray:
        letter = name[-1]
        if letter == "v":
            return np.zeros_like(matrix) if self.normalize else 2 * matrix
        base = self._scales()
        direction = torch.ones_like(base.w)
        if np.size(getattr(self, name)) > 1:
            direction = torch.nn.functional.one_hot(torch.tensor(index), self.num_layers).to(torch.float64)

        def shifted(step: Tensor) -> Tensor:
            moved = getattr(base, letter) * torch.exp(step * direction)
            parts = {key: moved if key == letter else getattr(base, key) for key in "wubhv"}
            return self._matrix(sequences, sequences, Scales(**parts))

        if not isinstance(self.activation, str):
            return _forward_mode(shifted)
        return _differences(shifted, min(1e-3, DIFFERENCE / max(map(len, sequences))))


def _differences(function: Callable[[Tensor], Tensor], step: float) -> np.ndarray:
    """Differentiate at 0 by four values: the error is 4/5! h⁴ f⁗′."""
    with torch.no_grad():
        one, other = (
            function(torch.tensor(k * step, dtype=torch.float64))
            - function(torch.tensor(-k * step, dtype=torch.float64))
            for k in (1.0, 2.0)
        )
        return ((8 * one - other) / (12 * step)).numpy()


def _forward_mode(function: Callable[[Tensor], Tensor]) -> np.ndarray:
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    with warnings.catch_warnings():
        # The first forward-mode derivative of a process makes torch 2.13 warn of a part of itself.
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        with forward_ad.dual_level():
            matrix, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(zero, one)))
    return np.zeros(tuple(matrix.shape)) if tangent is None else tangent.numpy()


def _too_large(which: str, logarithm: float) -> InputError:
    return InputError(
        f"expected values that float64 can hold, got exp({logarithm:.4g}) for the kernel {which}; "
        "pass normalize=True, scale the sequences, or lower sigma_w."
    )
