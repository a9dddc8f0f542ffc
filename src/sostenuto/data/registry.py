"""The data sets known by name. Adding one is adding one file in `sostenuto.data.sources` and its name to `MODULES`."""

import difflib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sostenuto.checks import InputError, sentence
from sostenuto.data.dataset import Dataset
from sostenuto.data.places import Places
from sostenuto.results import Record
from sostenuto.types import PathLike

MODULES = ("digits", "mnist", "cifar10", "ucr", "uea", "tser", "imdb", "fsdd", "google_stock", "synthetic")
"""The files in `sostenuto.data.sources` that define a ``SOURCE``, in listing order."""


@dataclass(frozen=True)
class Entry(Record):
    """What a data set is, for a listing; ``NAME`` in a name stands for every set of an archive.

    ``local`` holds the names that load without a download, ``available`` says whether there is any.
    """

    name: str
    title: str
    task: str
    steps: str
    channels: str
    classes: str
    sizes: str
    origin: str
    license: str
    available: bool = False
    local: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """One data set, with its variants, or one archive of them.

    ``load(name, places)`` builds the data set; ``local(places)`` names what is there without a download, cheaply;
    ``names`` are all names known in advance.
    """

    prefix: str
    entries: tuple[Entry, ...]
    names: tuple[str, ...]
    load: Callable[[str, Places], Dataset]
    local: Callable[[Places], tuple[str, ...]]


def sources() -> Iterator[Source]:
    """Yield one source after the other, each imported when its turn comes."""
    return (importlib.import_module(f"sostenuto.data.sources.{module}").SOURCE for module in MODULES)


def load(name: str, data_dir: PathLike | None = None) -> Dataset:
    """Load the data set ``name``; see `sostenuto.datasets.load`."""
    places = Places.of(data_dir)
    for source in sources():
        if name.split("/")[0] == source.prefix and (name in source.names or name in source.local(places)):
            return source.load(name, places)
    raise InputError(_unknown(name))


def entries(data_dir: PathLike | None = None) -> list[Entry]:
    """List every data set, and which are here; see `sostenuto.datasets.list`."""
    places = Places.of(data_dir)
    return [entry for source in sources() for entry in _marked(source, places)]


def _marked(source: Source, places: Places) -> list[Entry]:
    here = source.local(places)
    marked = []
    for entry in source.entries:
        prefix = entry.name.removesuffix("NAME")
        local = tuple(name for name in here if name == entry.name or (prefix != entry.name and name.startswith(prefix)))
        marked.append(replace(entry, available=bool(local), local=local))
    return marked


def _unknown(name: str) -> str:
    known = {known.lower(): known for source in sources() for known in source.names}
    close = [known[match] for match in difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.6)]
    meant = f"did you mean {' or '.join(repr(match) for match in close)}? " if close else ""
    return sentence(
        "expected the name of a data set", f"got {name!r}", f"{meant}sostenuto.datasets.list() shows what there is"
    )
