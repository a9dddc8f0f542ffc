"""Named data sets: the public face of `sostenuto.data`."""

from sostenuto.data import registry
from sostenuto.data.dataset import Dataset
from sostenuto.data.frame import from_frame
from sostenuto.data.registry import Entry
from sostenuto.types import PathLike

__all__ = ["from_frame", "list", "load"]


def load(name: str, data_dir: PathLike | None = None) -> Dataset:
    """Load a data set by name: its train and test part, raw values and raw targets.

    Files are looked for in ``data_dir``, then ``$SOSTENUTO_DATA``, then the cache (``$SOSTENUTO_CACHE`` or
    ``~/.cache/sostenuto``); what is in none of them is downloaded into the cache from the archive's public address and
    verified. Without a connection the error says which file to put where. Names are those of `list`.

    >>> digits = load("digits")
    >>> len(digits.train), len(digits.test), digits.train.sequences[0].shape, digits.train.targets[:3].tolist()
    (1438, 359, (64, 1), ['5', '0', '1'])
    """
    return registry.load(name, data_dir)


def list(data_dir: PathLike | None = None) -> list[Entry]:  # noqa: A001 - the public name, `datasets.list()`
    """List the data sets: name, what it holds, where it comes from, and what is here without a download.

    >>> [entry.name for entry in list()][:4]
    ['digits', 'digits/permuted', 'digits/noise-padded', 'mnist']
    """
    return registry.entries(data_dir)
