"""Where Numba keeps compiled code, also without a home and with packages that cannot be written to."""

import os
import stat
import tempfile
import warnings
from pathlib import Path
from typing import Any

from numba import config, njit


def find_cache() -> bool:
    """Find a place for compiled code; without one, code is compiled at every start. Either is said in a warning.

    Numba looks beside the source and in the user's own cache, and fails where it can write to neither. A folder for
    this user among the temporary files serves then: what is in it is executed, so that nobody else may write there.
    """
    if _finds_place():
        return True
    own: Any = config
    own.CACHE_DIR = _own_folder()
    kept = bool(own.CACHE_DIR) and _finds_place()
    if not kept:
        own.CACHE_DIR = ""
    where = f"it is kept in {own.CACHE_DIR}" if kept else "everything is compiled at every start"
    warnings.warn(
        f"expected a place that can be written to for compiled code, got none; {where}. NUMBA_CACHE_DIR names another.",
        RuntimeWarning,
        stacklevel=2,
    )
    return kept


def _finds_place() -> bool:
    try:
        njit(cache=True)(_probe)
    except RuntimeError:
        return False
    return True


def _probe() -> int:
    return 0


def _own_folder() -> str:
    """Make or find a folder that this user alone can enter; empty where it cannot be."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"sostenuto-compiled-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return ""
    is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == user and not stat.S_IMODE(state.st_mode) & 0o077
    return str(folder) if is_own or not hasattr(os, "getuid") else ""


CACHE = find_cache()
"""Whether functions are compiled with a cache."""
