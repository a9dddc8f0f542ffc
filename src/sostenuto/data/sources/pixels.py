"""Images read as sequences of pixels, in reading order or in a fixed permutation."""

import numpy as np
import torch
from jaxtyping import Int, Real, Shaped

from sostenuto.data.dataset import SequenceSet


def fixed_permutation(size: int, seed: int) -> Int[np.ndarray, " time"]:
    """Return what ``torch.manual_seed(seed); torch.randperm(size)`` gives, without touching the global generator.

    >>> fixed_permutation(784, 5544)[:5].tolist()
    [327, 72, 48, 129, 109]
    """
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed)).numpy()


def pixel_set(
    images: Real[np.ndarray, "image time channel"],
    labels: Shaped[np.ndarray, " image"],
    *,
    highest: int,
    order: Int[np.ndarray, " time"] | None = None,
    channel_names: tuple[str, ...] = (),
) -> SequenceSet:
    """Scale pixels by 1/``highest`` to [0, 1], read them in ``order`` where one is given, and name the classes.

    Step t of a permuted sequence is pixel ``order[t]``; every image is permuted alike.
    """
    values = (images if order is None else images[:, order]).astype(np.float32)
    values /= highest
    return SequenceSet(
        sequences=list(values), targets=labels.astype(str), task="classification", channel_names=channel_names
    )
