"""The parts of a generated data set, each from its own stream of random numbers."""

from collections.abc import Callable

import numpy as np

from sostenuto.checks import check_count
from sostenuto.data.dataset import Dataset, SequenceSet

Draw = Callable[[int, np.random.Generator], SequenceSet]


def dataset(
    name: str, draw: Draw, seed: int, *, train: int, validation: int, test: int, description: str, origin: str
) -> Dataset:
    """Draw the three parts of ``task/name``; a size of 0 leaves validation or test out.

    Each part has its own generator, spawned from ``seed``: changing the size of one leaves the others as they were.
    """
    check_count("num_train", train)
    check_count("num_validation", validation, least=0)
    check_count("num_test", test, least=0)
    streams = np.random.default_rng(seed).spawn(3)
    return Dataset(
        name=f"task/{name}",
        train=draw(train, streams[0]),
        validation=draw(validation, streams[1]) if validation else None,
        test=draw(test, streams[2]) if test else None,
        description=description,
        origin=origin,
    )
