"""Too little memory (RLIMIT_AS): a command ends well or in one sentence, and what it leaves can be gone on with."""

import random
import resource
import shutil
from pathlib import Path

import numpy as np

from tests.attacks.forked import prepare, run
from tests.attacks.full_disk import KEPT, NETWORK, OFTEN
from tests.attacks.outcome import Bound, Outcome
from tests.cli.small import write_waves

PROMISE = "done, or exit code 1 or 2 and one sentence; a small fit then works with more memory"
_MOST = 300 << 20


def attack(bound: Bound, folder: Path) -> Outcome:
    """Let commands have at most some hundred MB beyond what the imports took."""
    outcome = Outcome("too little memory", PROMISE)
    prepare()
    rng = random.Random(bound.seed)
    small, large = write_waves(folder / "waves.npz"), _large(folder / "large.npz")
    table = _table(folder / "large.csv")
    quiet = ("--quiet", "--device", "cpu")
    made, log = folder / "made", folder / "memory.log"
    assert run(["fit", str(small), *NETWORK, *quiet, "--out", str(made)], log).code == 0
    expected = [(made / name).read_bytes() for name in KEPT]
    place = folder / "out"
    commands = {
        "fit": ["fit", str(small), *NETWORK, *OFTEN, *quiet, "--out", str(place)],
        "fit of much data": ["fit", str(large), *NETWORK, "--epochs", "1", *quiet, "--out", str(place)],
        "fit of a large table": ["fit", str(table), *NETWORK, "--epochs", "1", *quiet, "--out", str(place)],
        "predict": ["predict", str(made), str(large), *quiet, "--out", str(place / "a.csv")],
        "gram": ["gram", str(large), "--kernel", "rbf", "--out", str(place / "gram.npy"), "--quiet"],
    }
    for number in bound.numbers():
        name = list(commands)[number % len(commands)]
        shutil.rmtree(place, ignore_errors=True)
        room = int(_MOST * rng.random() ** 2)
        ended = run(commands[name], log, lambda room=room: limit(room))
        what = f"{name} with {room >> 20} MB: exit code {ended.code}, said {ended.err[-1500:]!r}"
        if ended.code == 0:
            outcome.add("done")
        elif ended.code not in (1, 2) or not ended.is_sentence():
            outcome.fail("broken promise", what)
        elif name == "fit":
            going_on = (place / "config.toml").is_file()
            again = ["fit", "--resume", str(place), *quiet] if going_on else commands[name]
            after = run(again, log)
            same = after.code == 0 and [(place / kept).read_bytes() for kept in KEPT] == expected
            if same:
                outcome.add("one sentence, then done again")
            else:
                outcome.fail("broken promise", f"{what}; then {after.code}, {after.err[-800:]!r}")
        else:
            outcome.add("one sentence")
    return outcome


def limit(room: int) -> None:
    """Let this process take at most ``room`` bytes more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _large(path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(path, X=rng.normal(size=(4000, 500, 2)), y=np.arange(4000) % 2)
    return path


def _table(path: Path) -> Path:
    rows = [f"{row % 2}," + ",".join(f"{value:.3f}" for value in np.sin(np.arange(200) + row)) for row in range(4000)]
    path.write_text("\n".join(["target," + ",".join(f"s{step}" for step in range(200)), *rows]) + "\n")
    return path
