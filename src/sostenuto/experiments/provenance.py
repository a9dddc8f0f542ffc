"""Where a stored number comes from: a digest of the code that computed it, the command that repeats it."""

import ast
import hashlib
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sostenuto.version import __version__

PACKAGE = Path(__file__).parents[1]


def code_digest(source: Path) -> str:
    """Digest the code of a module and of all it imports of this package; comments and docstrings do not count.

    A cell's key has this digest, so that a cell computed by other code is not taken for one of this code's, and an
    edit elsewhere in the library keeps the cells there are.

    >>> code_digest(PACKAGE / "experiments" / "cells.py") == code_digest(PACKAGE / "experiments" / "jobs.py")
    False
    """
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(imported(source)):
        name = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
        digest.update(f"{name}\n{_read(path.read_text(encoding='utf-8'))[2]}".encode())
    return digest.hexdigest()[:12]


def imported(source: Path) -> set[Path]:
    """List the files of this package that a module uses: what it imports, and what those import.

    A file that imports by name at run time brings in its whole folder, ``import sostenuto`` the whole package, and
    every experiment reads its data by `sostenuto.data`. What runs and shows experiments does not count.

    >>> used = {path.relative_to(PACKAGE).as_posix() for path in imported(PACKAGE / "kernels" / "recurrent_ntk.py")}
    >>> "ops/recurrent_ntk/cpu/kernel.py" in used, "nn/dense.py" in used
    (True, False)
    """
    used, left = set[Path](), [source, PACKAGE / "data" / "registry.py"]
    while left:
        path = left.pop()
        if path in used or not path.is_file() or (path != source and _shows(path)):
            continue
        used.add(path)
        names, by_name, _ = _read(path.read_text(encoding="utf-8"))
        left += [file for name in names for file in _files(name)]
        left += path.parent.rglob("*.py") if by_name else ()
    return used


def command(name: str, protocol: str, seed: int, changes: Mapping[str, Any] | None = None) -> str:
    """Write the command that runs an experiment so again.

    >>> command("rusch2021/table-1", "ours", 3, {"seeds": 5})
    'sostenuto reproduce rusch2021/table-1 --protocol ours --seed 3 --set seeds=5'
    """
    words = ["sostenuto", "reproduce", name, "--protocol", protocol, "--seed", str(seed)]
    for key, value in (changes or {}).items():
        words += ["--set", f"{key}={value}"]
    return shlex.join(words)


def _shows(path: Path) -> bool:
    """Return whether a file runs, orders or shows work, and computes none of it."""
    parts = path.relative_to(PACKAGE).parts
    in_the_frame = parts[0] == "experiments" and len(parts) == 2
    return len(parts) == 1 or in_the_frame or parts[0] in ("cli", "report", "benchmarks")


@cache
def _read(text: str) -> tuple[tuple[str, ...], bool, str]:
    """Return a module's imports, whether it imports by name, and its code without comments and docstrings."""
    names, by_name, tree = list[str](), False, ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        by_name |= "import_module" in (getattr(node, "attr", ""), getattr(node, "id", ""))
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return tuple(names), by_name, ast.unparse(tree)


def _files(name: str) -> list[Path]:
    """Return the files that an import of ``name`` reads: the module, and the packages it lies in."""
    first, *rest = name.split(".")
    if first != PACKAGE.name:
        return []
    if not rest:
        return sorted(PACKAGE.rglob("*.py"))
    places = [PACKAGE.joinpath(*rest[:count]) for count in range(1, len(rest) + 1)]
    return [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
