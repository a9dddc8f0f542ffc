"""Cells: what an experiment computes once and remembers, so that a run can be stopped, killed and taken up again."""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sostenuto.checks import InputError, sentence
from sostenuto.data.files.atomic import write_atomically
from sostenuto.version import UNKNOWN

try:
    import fcntl
except ImportError:
    fcntl = None

_KEY = re.compile(r"[\w][\w.,=+-]*(/[\w][\w.,=+-]*)*")


@dataclass(frozen=True)
class CellStore:
    """A folder of cells, one JSON file each, named by its key and by a digest of what its value depends on.

    Other settings give other files: nothing that was computed is lost when a setting is changed and changed back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     store = CellStore(Path(name))
    ...     cell = store.write("lstm/seed=0", {"epochs": 3}, {"accuracy": 0.9}, seconds=1.5, device="cpu")
    ...     store.read("lstm/seed=0", {"epochs": 3})["value"], store.read("lstm/seed=0", {"epochs": 4})
    ({'accuracy': 0.9}, None)
    """

    folder: Path

    def path(self, key: str, depends: Mapping[str, Any]) -> Path:
        """Return the file of a cell."""
        if not _KEY.fullmatch(key):
            expected = "expected a cell's key of letters, digits and . , = + - parted by /"
            raise InputError(sentence(expected, f"got {key!r}"))
        text = json.dumps(dict(depends), sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return self.folder / f"{key}.{digest}.json"

    @contextmanager
    def claimed(self, key: str, depends: Mapping[str, Any], *, wait: bool) -> Iterator[bool]:
        """Hold a cell against other processes on this folder; without ``wait``, say False where another holds it.

        The system lets go of a claim when its process ends, however it ends. Where the system has no such locks
        (Windows) every claim is granted, and a run there is one process (`sostenuto.experiments.jobs`).
        """
        if fcntl is None:
            yield True
            return
        path = self.folder.parent / "claims" / self.path(key, depends).relative_to(self.folder).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True

    def read(self, key: str, depends: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a stored cell, or None; a damaged file is told of and counts as none."""
        path = self.path(key, depends)
        if not path.is_file():
            return None
        try:
            cell = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(cell, dict) or cell["key"] != key or not {"value", "seconds", "device"} <= cell.keys():
                raise KeyError("value")
        except (ValueError, KeyError) as error:
            warnings.warn(f"{path} is damaged ({error!r}); the cell {key} is computed again", stacklevel=3)
            return None
        return cell

    def write(
        self,
        key: str,
        depends: Mapping[str, Any],
        value: Any,
        *,
        seconds: float,
        device: str,
        commit: str = UNKNOWN,
        tests: bool = False,
    ) -> dict[str, Any]:
        """Store a cell whole or not at all, and return it as it will be read back: tuples are lists from then on."""
        cell = {"key": key, "seconds": seconds, "device": device, "commit": commit, "tests": tests}
        cell |= {"depends": dict(depends), "value": value}
        try:
            text = json.dumps(cell, indent=1, default=_plain)
        except TypeError as error:
            expected = f"expected the cell {key} to return plain numbers, strings, lists and dicts"
            raise InputError(sentence(expected, f"got something that JSON cannot hold ({error})")) from error
        write_atomically(self.path(key, depends), text)
        return json.loads(text)

    def test_evaluations(self) -> int:
        """Count the cells that scored a model on the test part, those of other settings too."""
        paths = self.folder.rglob("*.json") if self.folder.is_dir() else ()
        return sum('"tests": true' in path.read_text(encoding="utf-8")[:2000] for path in paths)


def _plain(value: Any) -> Any:
    """Turn arrays, tensors and their scalars into lists and numbers."""
    convert: Callable[[], Any] | None = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"{type(value).__name__} is not plain")
    return convert()
