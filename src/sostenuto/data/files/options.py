"""`Options`: what the caller of `read` says about a file."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from sostenuto.checks import FileFormatError, check_choice
from sostenuto.choices import Task
from sostenuto.data.config import FileOptions


@dataclass(frozen=True, kw_only=True)
class Options(FileOptions):
    """The options of `sostenuto.data.files.read`, checked; without ``labeled`` a file may lack its targets."""

    task: Task | None = None
    labeled: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("task", self.task, (None, *get_args(Task)))

    @classmethod
    def of(cls, **options: Any) -> "Options":
        """Take lists for tuples, and None for what is not said."""
        said: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        said |= {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
        return cls(**said)

    def refuse_marks(self, path: Path) -> None:
        """Refuse a separator or a decimal mark for a file that is not comma-separated text."""
        self._refuse(path, ("separator", "decimal"), "separator and decimal for .csv files alone")

    def refuse_columns(self, path: Path) -> None:
        """Refuse column names, a separator or a decimal mark for a file that has no named columns."""
        self.refuse_marks(path)
        names = [option.name for option in fields(FileOptions) if option.name != "layout"]
        self._refuse(path, names, "column names for .csv and .parquet files alone")

    def _refuse(self, path: Path, names: Iterable[str], expected: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value != getattr(_DEFAULTS, name):
                raise FileFormatError(path, f"expected {expected}", f"got {name}={value!r}", f"leave {name} out")


_DEFAULTS = FileOptions()
