"""The version and the commit, read by the build and by every run that records them."""

from functools import cache
from pathlib import Path

__version__ = "0.2.0"
UNKNOWN = "unknown"
"""What was not recorded."""


@cache
def commit() -> str:
    """Return the commit of the checkout, with ``+`` where files of it are changed; unknown in an installed package.

    >>> len(commit()) > 0
    True
    """
    import subprocess

    folder = Path(__file__).parents[2]
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
