"""The synthetic tasks under data-set names: ``task/adding``, ``task/spirals`` and so on, drawn from seed 0."""

from sostenuto.data.dataset import Dataset
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.tasks import TASKS, generate

_ORIGIN = "generated from a seed"
_FACTS = {
    "adding": ("add the two marked numbers", "regression", "500", "2", "–", "10000 / 1000"),
    "copying": ("repeat symbols after a delay", "sequence", "120", "10", "9", "5000 / 1000"),
    "linear_functional": ("a weighted sum of all inputs so far", "sequence", "100", "1", "–", "1000 / 200"),
    "lorenz96": ("the chaotic Lorenz-96 system, 25 steps ahead", "sequence", "2000", "5", "–", "128 / 128"),
    "pendulum": ("every next state of a pendulum", "sequence", "100", "2", "–", "100 / 100"),
    "sinusoid": ("the value after a noisy window", "forecast", "10–20", "1", "–", "20 / 5000"),
    "spirals": ("which way a spiral turns", "classification", "100", "2", "2", "50 / 1000"),
}
_NAMES = tuple(f"task/{name}" for name in TASKS)


def load(name: str, places: Places) -> Dataset:  # noqa: ARG001
    """Generate ``task/NAME`` with its default sizes from seed 0; `sostenuto.data.tasks.generate` takes others."""
    return generate(name.removeprefix("task/"))


def _entry(name: str) -> Entry:
    title, task, steps, channels, classes, sizes = _FACTS[name]
    return Entry(f"task/{name}", title, task, steps, channels, classes, sizes, _ORIGIN, "none: generated")


SOURCE = Source(
    prefix="task",
    entries=tuple(_entry(name) for name in TASKS),
    names=_NAMES,
    load=load,
    local=lambda places: _NAMES,  # noqa: ARG005
)
