"""`Options`: what the caller of `read` says about a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from sostenuto.checks import FileFormatError, check_choice
from sostenuto.choices import Layout, Task


@dataclass(frozen=True)
class Options:
    """The options of `sostenuto.data.files.read`, checked."""

    task: Task | None = None
    layout: Layout = "btc"
    target: str | None = None
    series: str | None = None
    time: str | None = None
    group: str | None = None
    labelled: bool = True
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("task", self.task, (None, *get_args(Task)))
        check_choice("layout", self.layout, get_args(Layout))

    def refuse_columns(self, path: Path) -> None:
        """Refuse column names for a file that has no named columns."""
        for name in ("target", "series", "time", "group", "ignore", "categorical"):
            column = getattr(self, name)
            if column:
                raise FileFormatError(
                    path,
                    "expected column names for .csv and .parquet files alone",
                    f"got {name}={column!r}",
                    f"leave {name} out",
                )
