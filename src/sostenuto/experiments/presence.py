"""Which of the data sets an experiment needs are on this machine."""

from collections.abc import Iterable

from sostenuto.data.registry import entries
from sostenuto.types import PathLike


def absent_data(needed: Iterable[str], data_dir: PathLike | None = None) -> list[str]:
    """List the needed data sets that would have to be fetched; an archive is there when any of its sets is.

    >>> absent_data(["digits"])
    []
    """
    wanted = list(needed)
    local = {name for entry in entries(data_dir) for name in entry.local} if wanted else set()
    return [name for name in wanted if not any(item == name or item.startswith(f"{name}/") for item in local)]
