"""The learning rate as a function of how far training has come: no state, so nothing to restore."""

import math

from sostenuto.training.config import TrainingConfig

WARM_UP = 0.3
START, END = 1 / 25, 1e-4


def learning_rate(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Give the learning rate of optimizer step number ``step`` (from 0).

    >>> config = TrainingConfig(epochs=2, learning_rate=1.0, schedule="step", step_epochs=(1,))
    >>> [learning_rate(config, step, 2) for step in range(4)]
    [1.0, 1.0, 0.1, 0.1]
    """
    return config.learning_rate * _factor(config, step, steps_per_epoch)


def _factor(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "step":
        passed = sum(step // steps_per_epoch >= epoch for epoch in config.step_epochs)
        return config.step_factor**passed
    progress = step / max(config.epochs * steps_per_epoch - 1, 1)
    if config.schedule == "cosine":
        return _cosine(1.0, 0.0, progress)
    if progress < WARM_UP:
        return _cosine(START, 1.0, progress / WARM_UP)
    return _cosine(1.0, END, (progress - WARM_UP) / (1 - WARM_UP))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
