"""The command line in forked processes: what a run stands on is imported once, so that an attack strikes the run.

Nothing is computed before a fork, so no thread is lost in one.
"""

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HUNG = 120.0
"""Seconds after which a command counts as hung."""
_NEEDED = (
    "torch._dynamo",
    "sklearn.datasets",
    "sostenuto.audits.sources",
    "sostenuto.cli.fit",
    "sostenuto.cli.gram",
    "sostenuto.cli.predict",
    "sostenuto.estimators.runs.at_once",
    "sostenuto.estimators.runs.network",
    "sostenuto.data.sources.digits",
    "sostenuto.kernels.gram",
    "sostenuto.ops.oscillator.cpu.maximum",
    "sostenuto.ops.oscillator.tile_launch",
    "sostenuto.report.page",
    "sostenuto.training.probes",
    "sostenuto.training.run",
)
"""What the commands import, and when: before the first fork, so that an attack strikes the run and not its imports."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: the signal that killed it) and what it said."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The last line of what was said on standard error."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""

    def is_sentence(self) -> bool:
        """Whether a refusal is one sentence and no traceback; warnings may stand before it."""
        lines = [line for line in self.err.strip().splitlines() if not line.startswith("sostenuto: warning: ")]
        return "Traceback" not in self.err and len(lines) == 1 and lines[0].startswith("sostenuto: ")


def prepare() -> None:
    """Import what the commands need."""
    for name in _NEEDED:
        importlib.import_module(name)


def start(arguments: list[str], log: Path, before: Callable[[], Any] | None = None) -> int:
    """Start the command line in a child after it has called ``before``; what it says goes to files beside ``log``."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        for place, name in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(log.with_suffix(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), place)
        sys.stdout, sys.stderr = (os.fdopen(place, "w", encoding="utf-8") for place in (1, 2))
        sys.argv = ["sostenuto", *arguments]
        if before is not None:
            before()
        code = _called()
    finally:
        os._exit(code)


def _called() -> int:
    import traceback

    from sostenuto.cli import main

    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 1
    return code


def finish(child: int, log: Path, seconds: float = HUNG) -> Ended:
    """Wait for a child; one that hangs is killed, and its code is 124."""
    limit = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            break
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            code = 124
            break
        time.sleep(0.002)
    out, err = (_text(log.with_suffix(name)) for name in (".out", ".err"))
    return Ended(code, out, err)


def run(arguments: list[str], log: Path, before: Callable[[], Any] | None = None, seconds: float = HUNG) -> Ended:
    """Run the command line in a child to its end."""
    return finish(start(arguments, log, before), log, seconds)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
