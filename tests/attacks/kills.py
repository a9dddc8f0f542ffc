"""SIGKILL at random moments: what is resumed ends with the same content, to the bit, as what was left alone."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

from tests.attacks.forked import finish, prepare, run, start
from tests.attacks.full_disk import KEPT, NETWORK, OFTEN
from tests.attacks.outcome import Bound, Outcome
from tests.cli.small import write_waves

PROMISE = "resumed, it ends with the same model, predictions and matrix, to the bit"
ENDED = "ended before it was struck"
EPOCHS = 6
GRU = (*NETWORK, "--epochs", str(EPOCHS))


def attack(bound: Bound, folder: Path) -> Outcome:
    """Kill fits (few and many checkpoints, replacing a run or not) and Gram matrices."""
    outcome = Outcome("SIGKILL at a random moment", PROMISE)
    prepare()
    rng = random.Random(bound.seed)
    data = write_waves(folder / "waves.npz", 60)
    kinds = [("few", GRU, False), ("often", (*GRU, *OFTEN), False), ("replace", GRU, True)]
    jobs = [Training(data, folder, *kind) for kind in kinds]
    jobs += [Matrix(data, folder, suffix) for suffix in (".npy", ".zarr")]
    for number in bound.numbers():
        job = jobs[number % len(jobs)]
        struck, problem = job.killed(rng)
        if problem:
            outcome.fail("broken promise", f"{job.name}: {problem}")
        else:
            outcome.add(f"killed with {struck}, equal" if struck != ENDED else f"{ENDED}, equal")
    return outcome


class Training:
    """A fit, killed once or twice."""

    def __init__(self, data: Path, folder: Path, name: str, options: tuple[str, ...], replaces: bool) -> None:
        self.name, self.replaces = name, replaces
        self.run, self.log, whole = folder / name, folder / f"{name}.log", folder / f"{name}-whole"
        self.earlier = folder / f"{name}-earlier"
        quiet = ("--quiet", "--device", "cpu")
        self.command = ["fit", str(data), *options, *quiet]
        child = start([*self.command, "--out", str(whole)], self.log)
        self.seconds = -_wait_for(whole / "config.toml", child)
        assert finish(child, self.log).code == 0, self.log.with_suffix(".err").read_text()
        self.seconds += time.monotonic()
        self.whole = [(whole / name).read_bytes() for name in KEPT]
        if replaces:
            assert run([*self.command, "--seed", "5", "--out", str(self.earlier)], self.log).code == 0

    def killed(self, rng: random.Random) -> tuple[str, str]:
        shutil.rmtree(self.run, ignore_errors=True)
        if self.replaces:
            shutil.copytree(self.earlier, self.run)
        kills = rng.randint(1, 2)
        for _ in range(kills):
            child = start(self._next(), self.log)
            # One in five is struck before it has a config, the others while they train and write.
            if rng.random() < 0.8:
                _wait_for(self.run / "config.toml", child)
            time.sleep(rng.uniform(0.0, 0.9) * self.seconds)
            os.kill(child, signal.SIGKILL)
            ended = finish(child, self.log)
            if ended.code not in (0, -signal.SIGKILL):
                return "", f"exit code {ended.code} before the kill, said {ended.err[-800:]!r}"
            if problem := self._lost():
                return "", problem
        there = "checkpoints" if any(self.run.glob("checkpoints/*.json")) else "nothing yet"
        there = ENDED if self._is_whole() else there
        if there != ENDED:
            after = run(self._next(), self.log)
            if after.code:
                return "", f"going on ended with {after.code}: {after.err[-800:]!r}"
        if [(self.run / name).read_bytes() for name in KEPT] != self.whole:
            return there, "expected the same bytes in the end"
        rows = [json.loads(line)["epoch"] for line in (self.run / "metrics.jsonl").read_text().splitlines()]
        tidy = rows == list(range(1, EPOCHS + 1)) and not list(self.run.rglob("*.tmp"))
        return there, "" if tidy else f"expected each of {EPOCHS} epochs once and nothing left behind, got {rows}"

    def _next(self) -> list[str]:
        """Begin, go on, or begin again, as a person would from what is there."""
        new = (self.run / "config.toml").is_file() and (not self.replaces or self._is_begun())
        if new:
            return ["fit", "--resume", str(self.run), "--quiet", "--device", "cpu"]
        return [*self.command, "--out", str(self.run), *(["--overwrite"] if self.replaces else [])]

    def _is_begun(self) -> bool:
        return (self.run / ".replaced").is_dir() or self._is_whole()

    def _is_whole(self) -> bool:
        return (self.run / "report.html").exists() and (self.run / KEPT[0]).read_bytes() == self.whole[0]

    def _lost(self) -> str:
        """What is wrong with the run that was to be replaced: it, or the new one, is always there."""
        if not self.replaces or self._is_whole():
            return ""
        places = (self.run, self.run / ".replaced")
        is_kept = any(
            (place / name).exists() and (place / name).read_bytes() == (self.earlier / name).read_bytes()
            for place in places
            for name in KEPT[:1]
        )
        return "" if is_kept else "the earlier run is gone before the new one stands"


def _wait_for(path: Path, child: int) -> float:
    """Wait until a file is there, or the child has ended; give the time."""
    while not path.exists() and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.002)
    return time.monotonic()


class Matrix:
    """A Gram matrix, killed once."""

    def __init__(self, data: Path, folder: Path, suffix: str) -> None:
        self.name, self.place, self.log = f"gram{suffix}", folder / f"gram-{suffix[1:]}", folder / f"gram{suffix}.log"
        self.out = self.place / f"gram{suffix}"
        self.command = ["gram", str(data), "--kernel", "rbf", "--tile-size", "3", "--out", str(self.out), "--quiet"]
        for _ in range(2):  # the first one imports and compiles
            shutil.rmtree(self.place, ignore_errors=True)
            begun = time.monotonic()
            assert run(self.command, self.log).code == 0, self.log.with_suffix(".err").read_text()
        self.seconds = time.monotonic() - begun
        self.whole = self._content()

    def killed(self, rng: random.Random) -> tuple[str, str]:
        shutil.rmtree(self.place)
        self.place.mkdir()
        child = start(self.command, self.log)
        time.sleep(rng.uniform(0.1, 1.0) * self.seconds)
        os.kill(child, signal.SIGKILL)
        ended = finish(child, self.log)
        if ended.code not in (0, -signal.SIGKILL):
            return "", f"exit code {ended.code} before the kill, said {ended.err[-800:]!r}"
        there = "a matrix begun" if any(self.place.iterdir()) else "nothing yet"
        after = run(self.command, self.log)
        if after.code:
            return "", f"going on ended with {after.code}: {after.err[-800:]!r}"
        return there, "" if self._content() == self.whole else "expected the same numbers in the end"

    def _content(self) -> dict[str, bytes]:
        if self.out.is_file():
            return {"matrix": self.out.read_bytes()}
        assert json.loads((self.out / "zarr.json").read_text())["attributes"]["complete"]
        return {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.glob("c/*/*")}
