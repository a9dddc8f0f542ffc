"""Noisy sinusoid: predict the next observation from windows of unequal length."""

import math

import numpy as np

from sostenuto.checks import check_count, check_positive, require
from sostenuto.data.dataset import Dataset, SequenceSet


def sinusoid(
    seed: int = 0,
    *,
    num_train: int = 20,
    num_validation: int = 0,
    num_test: int = 5000,
    num_samples: int = 1000,
    shortest: int = 10,
    variation: int = 10,
    noise: float = 0.05,
) -> Dataset:
    """Forecast the observation after a window: ``(shortest … shortest + variation, 1)`` in, ``(1, 1)`` out.

    One series ``x_i = sin(2π·i / num_samples) + noise·N(0, 1)``, one period; every window is a different pair of start
    and length, drawn without replacement, so no window of one part is in another.

    alemohammad2021 (Alemohammad, Wang, Balestriero, Baraniuk: *The recurrent neural tangent kernel*), Section 4, "Time
    series regression": 1000 samples, noise 0.05, 20 windows to train and 5000 to test, lengths from 10 to 10 + T_var
    (10 by default there). All windows come from the same noisy series, as in the paper: parts overlap in time.

    >>> data = sinusoid(num_test=3)
    >>> len(data.train), data.train.targets.shape, min(map(len, data.train.sequences)) >= 10
    (20, (20, 1, 1), True)
    """
    for name, value in (("num_train", num_train), ("num_samples", num_samples), ("shortest", shortest)):
        check_count(name, value)
    for name, value in (("num_validation", num_validation), ("num_test", num_test), ("variation", variation)):
        check_count(name, value, least=0)
    check_positive("noise", noise, zero=True)
    rng = np.random.default_rng(seed)
    series = np.sin(2 * math.pi * np.arange(num_samples) / num_samples) + noise * rng.normal(size=num_samples)
    lengths = np.arange(shortest, shortest + variation + 1)
    pairs = [(start, length) for length in lengths.tolist() for start in range(num_samples - length)]
    wanted = num_train + num_validation + num_test
    require(len(pairs) >= wanted, f"expected at most {len(pairs)} windows", f"got {wanted}", "ask for fewer")
    order = rng.permutation(len(pairs)).tolist()

    def cut(first: int, count: int) -> SequenceSet | None:
        chosen = [pairs[index] for index in order[first : first + count]]
        if not chosen:
            return None
        return SequenceSet(
            [series[start : start + length, None] for start, length in chosen],
            np.array([series[start + length] for start, length in chosen]).reshape(-1, 1, 1),
            "forecast",
            channel_names=("x",),
            target_name="next x",
        )

    train = cut(0, num_train)
    assert train is not None
    return Dataset(
        name="task/sinusoid",
        train=train,
        test=cut(num_train, num_test),
        validation=cut(num_train + num_test, num_validation),
        description="Windows of unequal length from one noisy period of a sine; the target is the next observation.",
        origin="generated: alemohammad2021, Section 4",
    )
