"""Linear functionals with a given memory: the targets whose forgetting is known exactly."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float

from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.parts import dataset

Memory = Callable[[np.ndarray], np.ndarray]


def linear_functional(
    seed: int = 0,
    *,
    num_train: int = 1000,
    num_validation: int = 200,
    num_test: int = 200,
    num_steps: int = 100,
    memory: Literal["exponential", "polynomial"] | Memory = "exponential",
    decay: float = 0.9,
    exponent: float = 1.1,
    step_size: float = 1.0,
) -> Dataset:
    """Predict a weighted sum of all inputs so far: ``(num_steps, 1)`` in, ``(num_steps, 1)`` out.

    ``y_t = step_size · Σ_{s=0}^{t} ρ(s·step_size) · x_{t−s}`` with the memory function ρ: ``"exponential"`` is
    ``decay^t``, ``"polynomial"`` is ``(t + 1)^−exponent``, or any function of an array of times. It is the discrete
    form of wang2024 (Wang, Li, Li: *Inverse approximation theory for nonlinear recurrent neural networks*), eq. (3),
    with the memories of its Appendix D, (118): ``0.9^t`` and ``(t + 1)^−1.1``; its nonlinear experiments use exponent
    1.5 and ``step_size`` 0.1. The paper fits ρ itself and names no inputs: here they are independent N(0, 1).

    >>> data = linear_functional(num_train=1, num_validation=0, num_test=0, memory="polynomial")
    >>> x, y = data.train.sequences[0][:, 0], data.train.targets[0][:, 0]
    >>> bool(abs(y[1] - (x[1] + 2**-1.1 * x[0])) < 1e-12)
    True
    """
    check_count("num_steps", num_steps, least=2)
    for name, value in (("decay", decay), ("exponent", exponent), ("step_size", step_size)):
        check_positive(name, value)
    weights = step_size * memory_function(memory, step_size * np.arange(num_steps), decay=decay, exponent=exponent)

    def draw(count: int, rng: np.random.Generator) -> SequenceSet:
        inputs = rng.normal(size=(count, num_steps))
        return SequenceSet(
            list(inputs[:, :, None]),
            list(convolve(inputs, weights)[:, :, None]),
            "sequence",
            channel_names=("x",),
            target_name="y",
        )

    kind = memory if isinstance(memory, str) else "given"
    return dataset(
        "linear_functional",
        draw,
        seed,
        train=num_train,
        validation=num_validation,
        test=num_test,
        description=f"White noise and its convolution with a memory function ({kind}).",
        origin="generated: wang2024, eq. (3) and Appendix D",
    )


def memory_function(
    memory: str | Memory, times: Float[np.ndarray, " time"], *, decay: float = 0.9, exponent: float = 1.1
) -> Float[np.ndarray, " time"]:
    """Evaluate ρ at ``times``: by name, or a function of the array.

    >>> memory_function("exponential", np.array([0.0, 1.0, 2.0])).round(2).tolist()
    [1.0, 0.9, 0.81]
    """
    if callable(memory):
        values = np.asarray(memory(times), dtype=float)
        good = values.shape == times.shape and bool(np.isfinite(values).all())
        require(good, f"expected memory to give {len(times)} finite numbers", f"got shape {values.shape}")
        return values
    check_choice("memory", memory, ("exponential", "polynomial"))
    return decay**times if memory == "exponential" else (times + 1) ** -exponent


def convolve(inputs: Float[np.ndarray, "n time"], weights: Float[np.ndarray, " time"]) -> Float[np.ndarray, "n time"]:
    """Convolve causally, ``y_t = Σ_{s ≤ t} weights_s · inputs_{t−s}``, by the fast Fourier transform."""
    size = 2 * inputs.shape[1]
    spectrum = np.fft.rfft(inputs, size) * np.fft.rfft(weights, size)
    return np.fft.irfft(spectrum, size)[:, : inputs.shape[1]]
