"""Attack the library and write what happened: ``python -m tests.attacks`` (``make attack``).

Each attack runs in a process of its own, until it has its cases or its share of ``--minutes`` is up; the counts say how
many there were. The outcomes go to ``results/reliability/attacks.json``, and from there into the table of
``docs/reliability.md``.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sostenuto.training.processes import environment
from tests.attacks.outcome import Bound
from tests.attacks.table import write_table

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "results" / "reliability" / "attacks.json"


@dataclass(frozen=True)
class Plan:
    """Where an attack is, how many cases it has at most, and its share of the time."""

    module: str
    function: str
    cases: int
    share: float


ATTACKS = {
    "readers": Plan("readers", "attack", 1_000_000, 0.25),
    "hypothesis": Plan("readers", "hypothesis_attack", 30_000, 0.07),
    "runs": Plan("stored_files", "attack", 12_000, 0.08),
    "kills": Plan("kills", "attack", 100, 0.16),
    "disk": Plan("full_disk", "attack", 10_000, 0.22),
    "memory": Plan("little_memory", "attack", 100, 0.12),
    "writers": Plan("two_writers", "attack", 40, 0.06),
    "workers": Plan("lost_workers", "attack", 40, 0.04),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all attacks together")
    parser.add_argument("--only", choices=list(ATTACKS), action="append", help="this attack alone; repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--one", choices=list(ATTACKS), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--least", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(attacked(given.one, given.seconds, given.seed, given.least)))
        return 0
    names = given.only or list(ATTACKS)
    shares = sum(ATTACKS[name].share for name in names)
    stored: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    outcomes: dict[str, Any] = stored.get("attacks", {})
    for name in names:
        outcomes[name] = apart(name, 60 * given.minutes * ATTACKS[name].share / shares, given.seed)
        shown = {key: outcomes[name][key] for key in ("cases", "outcomes", "failed", "seconds")}
        print(f"{name}: {json.dumps(shown)}", flush=True)
        for failure in outcomes[name]["failures"]:
            print(f"  {failure}", flush=True)
        result = {
            "environment": environment(),
            "attacks": {key: outcomes[key] for key in ATTACKS if key in outcomes},
        }
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if given.out == RESULT:
        write_table(RESULT, ROOT / "docs" / "reliability.md")
    return int(any(outcomes[name]["failed"] for name in names))


def apart(name: str, seconds: float, seed: int, least: int = 1) -> dict[str, Any]:
    """Run an attack in a process of its own; one that dies is a failure of its own."""
    numbers = {"--seconds": seconds, "--seed": seed, "--least": least}
    options = [text for key, value in numbers.items() for text in (key, str(value))]
    command = [sys.executable, "-m", "tests.attacks", "--one", name, *options]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    known = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=known)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def attacked(name: str, seconds: float, seed: int, least: int = 1) -> dict[str, Any]:
    """Run an attack here."""
    plan = ATTACKS[name]
    function = getattr(importlib.import_module(f"tests.attacks.{plan.module}"), plan.function)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = function(Bound(plan.cases, seconds, seed, least), Path(folder))
    outcome.seconds = time.monotonic() - begun
    return outcome.to_dict() | {"seed": seed, "date": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    sys.exit(main())
