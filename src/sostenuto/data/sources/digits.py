"""Sequential digits: scikit-learn's 8×8 handwritten digits read pixel by pixel. Real data, no download."""

import numpy as np

from sostenuto.data.dataset import Dataset
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.pixels import fixed_permutation, pixel_set

SPLIT_SEED = 1797
PERMUTATION_SEED = 64
TEST_FRACTION = 0.2

_ORIGIN = "UCI optical recognition of handwritten digits (Alpaydin and Kaynak 1998), the copy inside scikit-learn"


def load(name: str, places: Places) -> Dataset:  # noqa: ARG001 - embedded, no file to look for
    """Build ``digits`` or ``digits/permuted``: 64 steps of one channel in [0, 1], 1438 / 359, stratified.

    Step t of a permuted sequence is pixel ``extras["order"][t]``.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = fixed_permutation(64, PERMUTATION_SEED) if name == "digits/permuted" else None
    whole = pixel_set(
        images[:, :, None],
        labels,
        highest=16,
        order=order,
        channel_names=("intensity",),
    )
    train, test = _stratified(labels)
    return Dataset(
        name=name,
        train=whole.take(train),
        test=whole.take(test),
        description="8×8 handwritten digits, one pixel a step"
        + (", in one fixed permuted order" if order is not None else ""),
        origin=_ORIGIN,
        extras={} if order is None else {"order": order},
    )


def _stratified(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split 80 / 20 within each class; RandomState's stream is frozen, so the split is the same in every version."""
    random = np.random.RandomState(SPLIT_SEED)
    train, test = [], []
    for label in np.unique(labels):
        shuffled = random.permutation(np.flatnonzero(labels == label))
        cut = round(TEST_FRACTION * len(shuffled))
        test.append(shuffled[:cut])
        train.append(shuffled[cut:])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(test))


def _entry(name: str, title: str) -> Entry:
    return Entry(
        name=name,
        title=title,
        task="classification",
        steps="64",
        channels="1",
        classes="10",
        sizes="1438 / 359",
        origin=_ORIGIN,
        license="CC BY 4.0",
    )


_NAMES = ("digits", "digits/permuted")
SOURCE = Source(
    prefix="digits",
    entries=(
        _entry("digits", "Handwritten digits, pixel by pixel"),
        _entry("digits/permuted", "Handwritten digits, pixels in a fixed permuted order"),
    ),
    names=_NAMES,
    load=load,
    local=lambda places: _NAMES,  # noqa: ARG005 - embedded, always here
)
