"""Where a stored number comes from: the commit, a digest of the code that computed it, the command that repeats it."""

import ast
import hashlib
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sostenuto.version import __version__

PACKAGE = Path(__file__).parents[1]
UNKNOWN = "unknown"
"""What was not recorded."""
_SHOWN_BY = {"cli", "report", "experiments", "benchmarks"}
"""Packages that show or order work; what an experiment computes itself is digested by what it imports."""


@cache
def commit() -> str:
    """Return the commit of the checkout, with ``+`` where files of it are changed; unknown in an installed package.

    >>> len(commit()) > 0
    True
    """
    folder = PACKAGE.parents[1]
    if not (folder / ".git").exists():
        return UNKNOWN

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN


def code_digest(source: Path) -> str:
    """Digest a module with all it imports of the experiments, and the library below them.

    A cell's key has this digest, so that a cell computed by other code is not taken for one of this code's.

    >>> code_digest(PACKAGE / "experiments" / "cells.py") == code_digest(PACKAGE / "experiments" / "jobs.py")
    False
    """
    digest = hashlib.sha256(library_digest().encode())
    for path in sorted(_imported(source, set())):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def library_digest() -> str:
    """Digest the version and every source file of the library that can change a computed value."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in _SHOWN_BY:
            digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def command(name: str, protocol: str, seed: int, changes: Mapping[str, Any] | None = None) -> str:
    """Write the command that runs an experiment so again.

    >>> command("rusch2021/table-1", "ours", 3, {"seeds": 5})
    'sostenuto reproduce rusch2021/table-1 --protocol ours --seed 3 --set seeds=5'
    """
    words = ["sostenuto", "reproduce", name, "--protocol", protocol, "--seed", str(seed)]
    for key, value in (changes or {}).items():
        words += ["--set", f"{key}={value}"]
    return shlex.join(words)


def _imported(source: Path, known: set[Path]) -> set[Path]:
    known.add(source)
    for name in _names(ast.parse(source.read_text(encoding="utf-8"))):
        path = PACKAGE.parent / (name.replace(".", "/") + ".py")
        is_part = name.startswith("sostenuto.experiments.") and path.parent != PACKAGE / "experiments"
        if is_part and path.is_file() and path not in known:
            _imported(path, known)
    return known


def _names(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
