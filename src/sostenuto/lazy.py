"""Packages whose public names are imported when they are first used."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

Value = TypeVar("Value")


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package from the imports under its ``if TYPE_CHECKING:``.

    Type checkers read the same lines, so that each name and its home stand in one place.

    >>> import sostenuto.kernels
    >>> sostenuto.kernels.RBF.__module__
    'sostenuto.kernels.rbf'
    """

    def get(name: str) -> Any:
        home = _homes(file).get(name)
        if home is not None and home != package:
            return getattr(importlib.import_module(home), name)
        try:
            if not name.startswith("_"):
                return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
        known = ", ".join(sys.modules[package].__all__)
        raise AttributeError(f"module {package!r} has no attribute {name!r}; public names are: {known}")

    return get, lambda: list(sys.modules[package].__all__)


@cache
def _homes(file: str) -> dict[str, str | None]:
    import ast

    with open(file, encoding="utf-8") as source:  # noqa: PTH123 - pathlib takes longer to import than this to run
        tree = ast.parse(source.read())
    blocks = (node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (line for block in blocks for line in block if isinstance(line, ast.ImportFrom))
    return {name.name: line.module for line in imports for name in line.names}


class LazyTable(Mapping[str, Value]):
    """A table of names, each of an attribute of a package, which is imported when the name is looked up."""

    def __init__(self, package: str, attributes: dict[str, str]) -> None:
        self._package, self._attributes = package, attributes

    def __getitem__(self, name: str) -> Value:
        return getattr(importlib.import_module(self._package), self._attributes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)
