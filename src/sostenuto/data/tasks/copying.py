"""Copying memory: repeat what was said long ago."""

import numpy as np

from sostenuto.checks import check_count
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.parts import dataset

BLANK = 0


def copying(
    seed: int = 0,
    *,
    num_train: int = 5000,
    num_validation: int = 500,
    num_test: int = 1000,
    delay: int = 100,
    num_items: int = 10,
    num_symbols: int = 8,
    tokens: bool = False,
) -> Dataset:
    """Repeat ``num_items`` symbols after ``delay`` blanks: ``delay + 2·num_items`` steps, a class for each.

    Symbols are ``1 … num_symbols``, the blank is 0, the signal to answer ``num_symbols + 1``. Input: the items,
    ``delay − 1`` blanks, the signal, ``num_items`` blanks. Target: ``delay + num_items`` blanks, then the items. Inputs
    are one-hot channels, or ids where ``tokens`` is set. A memory-less model that answers blank and then guesses has a
    cross-entropy of ``num_items · log(num_symbols) / (delay + 2·num_items)`` a step.

    Hochreiter & Schmidhuber (1997), in the form of Arjovsky, Shah, Bengio (*Unitary evolution recurrent neural
    networks*, 2016).

    >>> data = copying(num_train=1, num_validation=0, num_test=0, delay=3, num_items=2, tokens=True)
    >>> item = data.train.sequences[0][:2].tolist()
    >>> data.train.sequences[0].tolist() == item + [0, 0, 9, 0, 0]
    True
    >>> data.train.targets[0].tolist() == [0, 0, 0, 0, 0] + item
    True
    """
    for name, value in (("delay", delay), ("num_items", num_items)):
        check_count(name, value)
    check_count("num_symbols", num_symbols, least=2)
    signal, length = num_symbols + 1, delay + 2 * num_items

    def draw(count: int, rng: np.random.Generator) -> SequenceSet:
        items = rng.integers(1, num_symbols + 1, (count, num_items))
        inputs = np.full((count, length), BLANK)
        inputs[:, :num_items] = items
        inputs[:, num_items + delay - 1] = signal
        targets = np.full((count, length), BLANK)
        targets[:, -num_items:] = items
        symbols = ("blank", *map(str, range(1, num_symbols + 1)), "signal")
        return SequenceSet(
            list(inputs if tokens else np.eye(num_symbols + 2)[inputs]),
            list(targets),
            "sequence",
            channel_names=() if tokens else symbols,
            target_name="symbol",
        )

    return dataset(
        "copying",
        draw,
        seed,
        train=num_train,
        validation=num_validation,
        test=num_test,
        description=f"Repeat {num_items} symbols after {delay} blank steps.",
        origin="generated: Arjovsky, Shah, Bengio (2016)",
    )
