"""Where the files of a data set are looked for, and where a download puts them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sostenuto.checks import InputError, require, sentence
from sostenuto.data.download import exclusive
from sostenuto.types import PathLike

Form = tuple[str, ...]
"""One way to hold a data set: file paths relative to a data folder, all of them needed."""


@dataclass(frozen=True)
class Places:
    """The data folders in the order they are searched; the last is the user's cache, the only one written to."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, data_dir: PathLike | None = None) -> "Places":
        """Search ``data_dir``, then ``$SOSTENUTO_DATA``, then the cache.

        The cache is ``$SOSTENUTO_CACHE``, or ``sostenuto`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; it need not exist.
        """
        candidates = (("data_dir", data_dir), ("$SOSTENUTO_DATA", os.environ.get("SOSTENUTO_DATA")))
        folders = []
        for name, value in candidates:
            if value is not None and value != "":
                folder = Path(value).expanduser()
                require(folder.is_dir(), f"expected {name} to be a folder", f"got {str(folder)!r}")
                folders.append(folder)
        home = os.environ.get("SOSTENUTO_CACHE")
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        cache = Path(home).expanduser() if home else Path(base).expanduser() / "sostenuto"
        return cls((*folders, cache))

    @property
    def cache(self) -> Path:
        """The folder downloads go to."""
        return self.folders[-1]

    def find(self, forms: Sequence[Form]) -> tuple[Path, ...] | None:
        """Return the files of the first form that is whole in one folder; folders come before forms."""
        for folder in self.folders:
            for form in forms:
                paths = tuple(folder / name for name in form)
                if all(path.is_file() for path in paths):
                    return paths
        return None

    def matching(self, pattern: str) -> list[Path]:
        """List what matches a glob pattern in any folder, sorted within each."""
        return [path for folder in self.folders for path in sorted(folder.glob(pattern))]

    def obtain(
        self, name: str, forms: Sequence[Form], download: Callable[[Path], object] | None, advice: str
    ) -> tuple[Path, ...]:
        """Find the files of the data set ``name``, downloading them into the cache where they are in no folder.

        ``download(cache)`` has to leave one of the ``forms`` in the cache (None: there is no public address);
        ``advice`` tells a person without a connection what to put into a data folder.
        """
        if (paths := self.find(forms)) is not None:
            return paths
        if download is None:
            raise InputError(self._absent(name, "it has no public address to download from", advice))
        try:
            with exclusive(self.cache / f".{name.replace('/', '-')}.lock"):
                # Another process may have fetched it while this one waited.
                if self.find(forms) is None:
                    download(self.cache)
        except OSError as error:
            raise InputError(self._absent(name, str(error), advice)) from error
        paths = self.find(forms)
        assert paths is not None, f"downloading {name} left none of its forms"
        return paths

    def _absent(self, name: str, why: str, advice: str) -> str:
        where = ", ".join(str(folder) for folder in self.folders)
        return sentence(
            f"expected the data set {name!r} on disk",
            f"found it neither in {where} nor online ({why})",
            f"{advice}, under {self.folders[0]}",
        )
