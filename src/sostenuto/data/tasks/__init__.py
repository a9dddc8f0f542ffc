"""Synthetic tasks, generated from a seed: one task per file, with its equation and its paper."""

import inspect
from collections.abc import Callable
from typing import Any

from sostenuto.checks import check_choice
from sostenuto.data.dataset import Dataset
from sostenuto.data.tasks.adding import adding
from sostenuto.data.tasks.copying import copying
from sostenuto.data.tasks.forecast import forecast, last_windows, windows
from sostenuto.data.tasks.linear_functional import linear_functional
from sostenuto.data.tasks.lorenz96 import lorenz96
from sostenuto.data.tasks.pendulum import pendulum
from sostenuto.data.tasks.sinusoid import sinusoid
from sostenuto.data.tasks.spirals import spirals

__all__ = [
    "TASKS",
    "adding",
    "copying",
    "forecast",
    "generate",
    "last_windows",
    "linear_functional",
    "lorenz96",
    "pendulum",
    "sinusoid",
    "spirals",
    "windows",
]

TASKS: dict[str, Callable[..., Dataset]] = {
    function.__name__: function
    for function in (adding, copying, linear_functional, lorenz96, pendulum, sinusoid, spirals)
}
"""Every task by name; each is a function of ``seed`` and keyword sizes."""


def generate(name: str, seed: int = 0, **sizes: Any) -> Dataset:
    """Generate the task ``name`` (one of `TASKS`) from ``seed``.

    >>> generate("adding", seed=3, num_train=5, num_test=2, num_validation=0, num_steps=20).name
    'task/adding'
    """
    check_choice("task", name, TASKS)
    for size in sizes:
        check_choice(
            f"option of task {name!r}", size, [p for p in inspect.signature(TASKS[name]).parameters if p != "seed"]
        )
    return TASKS[name](seed, **sizes)
