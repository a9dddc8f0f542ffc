"""The settings of one run: a protocol's values from ``item.toml``, read by name and never changed."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from sostenuto.checks import InputError, sentence


class Settings(Mapping[str, Any]):
    """Settings by name, as attributes or as a mapping.

    >>> settings = Settings({"epochs": 10, "widths": [32, 64]})
    >>> settings.epochs, settings["widths"], settings.changed({"epochs": 1}).epochs
    (10, [32, 64], 1)
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(_unknown(name, values))
        return values[name]

    def __repr__(self) -> str:
        return f"Settings({self._values!r})"

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """Return the settings with some values replaced; a name that is not there is refused."""
        for name in changes:
            if name not in self._values:
                raise InputError(_unknown(name, self._values))
        return Settings(self._values | dict(changes))


def _unknown(name: str, values: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, values, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return sentence("expected the name of a setting", f"got {name!r}", f"{meant}there are {', '.join(values)}")
