"""Sequential digits: scikit-learn's 8×8 handwritten digits read pixel by pixel. Real data, no download."""

from dataclasses import replace

import numpy as np

from sostenuto.data.dataset import Dataset
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.pixels import fixed_permutation, pixel_set

SPLIT_SEED = 1797
PERMUTATION_SEED = 64
NOISE_SEED, NOISE_STEPS = 500, 500
TEST_FRACTION = 0.2

_ORIGIN = "UCI optical recognition of handwritten digits (Alpaydin and Kaynak 1998), the copy inside scikit-learn"


def load(name: str, places: Places) -> Dataset:  # noqa: ARG001 - embedded, no file to look for
    """Build ``digits`` or one of its variants: 64 steps of one channel in [0, 1], 1438 / 359, stratified.

    Step t of a sequence of ``digits/permuted`` is pixel ``extras["order"][t]``. In ``digits/noise-padded`` standard
    normal noise, drawn once for every image, follows until 500 steps: the answer has to be remembered.
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
    if name == "digits/noise-padded":
        noise = np.random.RandomState(NOISE_SEED).normal(size=(len(labels), NOISE_STEPS - 64, 1)).astype(np.float32)
        whole = replace(whole, sequences=[np.concatenate(pair) for pair in zip(whole.sequences, noise, strict=True)])
    train, test = _stratified(labels)
    return Dataset(
        name=name,
        train=whole.take(train),
        test=whole.take(test),
        description="8×8 handwritten digits, one pixel per step" + _VARIANTS[name],
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


def _entry(name: str, title: str, steps: int = 64) -> Entry:
    return Entry(
        name=name,
        title=title,
        task="classification",
        steps=str(steps),
        channels="1",
        classes="10",
        sizes="1438 / 359",
        origin=_ORIGIN,
        license="CC BY 4.0",
    )


_VARIANTS = {
    "digits": "",
    "digits/permuted": ", in one fixed permuted order",
    "digits/noise-padded": f", and noise until {NOISE_STEPS} steps",
}
_NAMES = tuple(_VARIANTS)
SOURCE = Source(
    prefix="digits",
    entries=(
        _entry("digits", "Handwritten digits, pixel by pixel"),
        _entry("digits/permuted", "Handwritten digits, pixels in a fixed permuted order"),
        _entry("digits/noise-padded", "Handwritten digits, then noise", NOISE_STEPS),
    ),
    names=_NAMES,
    load=load,
    local=lambda places: _NAMES,  # noqa: ARG005 - embedded, always here
)
