"""Spirals: tell which way a plane curve turns."""

import math

import numpy as np

from sostenuto.checks import check_count
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.parts import dataset

CLASSES = ("clockwise", "counterclockwise")


def spirals(
    seed: int = 0, *, num_train: int = 50, num_validation: int = 0, num_test: int = 1000, num_steps: int = 100
) -> Dataset:
    """Classify the direction in which a two-dimensional spiral turns: ``(num_steps, 2)`` each, two classes.

    ``X_t = (± cos(s + v·t), sin(s + v·t)) / (1 + w·t)`` on ``num_steps`` equal steps of ``t ∈ [0, 4π]``, with
    ``s ~ U(0, 2π)``, ``v, w ~ U(0, 1)``; the mirror image (minus) turns clockwise. The classes are balanced.

    fermanian2021 (Fermanian, Marion, Vert, Biau: *Framing RNN as a kernel method*), Section 4, which only says
    "2-dimensional spirals"; the equation and the sizes are those of its published experiment
    (`docs/errata.md`, fermanian2021.7).

    >>> data = spirals(seed=1, num_train=4, num_test=0)
    >>> data.train.sequences[0].shape, sorted(data.train.targets.tolist())
    ((100, 2), ['clockwise', 'clockwise', 'counterclockwise', 'counterclockwise'])
    """
    check_count("num_steps", num_steps, least=2)

    def draw(count: int, rng: np.random.Generator) -> SequenceSet:
        start, width, speed = rng.uniform(size=(3, count, 1)) * [[[2 * math.pi]], [[1.0]], [[1.0]]]
        direction = rng.permutation(np.arange(count) % 2)
        time = np.linspace(0.0, 4 * math.pi, num_steps)
        angle, radius = start + speed * time, 1 / (1 + width * time)
        mirror = 2 * direction[:, None] - 1
        points = np.stack([mirror * radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
        return SequenceSet(
            list(points), np.array(CLASSES)[direction], "classification", channel_names=("x", "y"), target_name="turn"
        )

    return dataset(
        "spirals",
        draw,
        seed,
        train=num_train,
        validation=num_validation,
        test=num_test,
        description="Plane spirals of random width and speed; the class is the direction in which they turn.",
        origin="generated: fermanian2021, Section 4",
    )
