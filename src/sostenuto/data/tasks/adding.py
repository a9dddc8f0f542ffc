"""The adding problem: remember two numbers of many and add them."""

import numpy as np

from sostenuto.checks import check_count
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.parts import dataset


def adding(
    seed: int = 0, *, num_train: int = 10000, num_validation: int = 1000, num_test: int = 1000, num_steps: int = 500
) -> Dataset:
    """Add the two marked numbers of a sequence: ``(num_steps, 2)`` in, one number out.

    Channel 0 is ``U(0, 1)`` noise; channel 1 is 0 but for two ones, the first in the first half and the second in the
    second half of the sequence. The target is the sum of the two marked numbers: mean 1, variance 1/6, so always
    answering 1 has a mean squared error of 0.167.

    Hochreiter & Schmidhuber (*Long short-term memory*, 1997), in the form used for orthogonal and oscillatory RNNs
    (Arjovsky, Shah, Bengio 2016; the authors of rusch2021 in *coRNN*, 2021).

    >>> data = adding(num_train=2, num_validation=0, num_test=0, num_steps=10)
    >>> values, marks = data.train.sequences[0].T
    >>> bool(abs(values @ marks - data.train.targets[0]) < 1e-15)
    True
    """
    check_count("num_steps", num_steps, least=2)
    half = num_steps // 2

    def draw(count: int, rng: np.random.Generator) -> SequenceSet:
        values, marks = rng.uniform(size=(count, num_steps)), np.zeros((count, num_steps))
        rows = np.arange(count)
        first, second = rng.integers(0, half, count), rng.integers(half, num_steps, count)
        marks[rows, first] = marks[rows, second] = 1.0
        return SequenceSet(
            list(np.stack([values, marks], axis=-1)),
            values[rows, first] + values[rows, second],
            "regression",
            channel_names=("value", "mark"),
            target_name="sum",
        )

    return dataset(
        "adding",
        draw,
        seed,
        train=num_train,
        validation=num_validation,
        test=num_test,
        description="Random numbers, two of them marked; the target is the sum of the two.",
        origin="generated: Hochreiter & Schmidhuber (1997)",
    )
