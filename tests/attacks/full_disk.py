"""A disk that is full, or fails, at any write: one sentence, an earlier run stays, the command ends well later."""

import json
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.attacks.failing_files import BROKEN, FULL, FailingFiles
from tests.attacks.forked import Ended, prepare, run
from tests.attacks.outcome import Bound, Outcome
from tests.cli.small import write_waves

PROMISE = "exit code 1 or 2 and one sentence; an earlier run stays whole; what is done again later equals, to the bit"
NETWORK = ("--model", "gru", "--epochs", "2", "-o", "hidden_size=4", "-o", "num_layers=1")
OFTEN = ("--set", "training.checkpoint_seconds=0")
KEPT = ("model.safetensors", "predictions.csv")


def attack(bound: Bound, folder: Path) -> Outcome:
    """Fail at every write of a fit, of a fit that replaces another, of a prediction and of a Gram matrix."""
    outcome = Outcome("full or failing disk, every write", PROMISE)
    prepare()
    data = write_waves(folder / "waves.npz")
    cases = [
        (kind, error, number)
        for kind in (Fit(data, folder), Replacing(data, folder), Predicting(data, folder), *_grams(data, folder))
        for error in (FULL, BROKEN)
        for number in range(kind.writes())
    ]
    random.Random(bound.seed).shuffle(cases)
    for index in bound.numbers():
        if index == len(cases):
            break
        kind, error, number = cases[index]
        what = f"{kind.name}, write {number}, {os.strerror(error)}"
        ended, problem = kind.struck(error, number)
        if problem:
            outcome.fail("broken promise", f"{what}: {problem}; exit code {ended.code}, said {ended.err[-1500:]!r}")
        else:
            outcome.add("ended well" if ended.code == 0 else "one sentence, then done again")
    return outcome


class Case:
    """A command that writes into a place of its own."""

    name = ""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.place = folder / self.name
        self.log = folder / f"{self.name}.log"
        self.begin()
        assert self.run().code == 0, self.log.with_suffix(".err").read_text()
        self.whole = self.state()

    def command(self) -> list[str]:
        """The command that is struck."""
        raise NotImplementedError

    def state(self) -> dict[str, bytes]:
        """What must be the same, however often the disk was full."""
        raise NotImplementedError

    def begin(self) -> None:
        """Bring the place into the state before the command."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()

    def again(self) -> list[str]:
        """The command that goes on, once there is room again."""
        return self.command()

    def left(self) -> str:
        """What is wrong with what a failure left, or nothing."""
        return ""

    def run(self, before: Callable[[], None] | None = None) -> Ended:
        return run(self.command(), self.log, before)

    def writes(self) -> int:
        """Count the writes of the command when nothing fails."""
        self.begin()
        counted = self.folder / f"{self.name}.count"

        def count() -> None:
            layer = FailingFiles(self.place, 10**9)
            layer.install()
            end = os._exit

            def told(code: int) -> None:
                counted.write_text(str(layer.count))
                end(code)

            os._exit = told

        assert self.run(count).code == 0
        return int(counted.read_text())

    def struck(self, error: int, number: int) -> tuple[Ended, str]:
        """Fail at one write; say how the command ended, and what was wrong."""
        self.begin()
        ended = self.run(lambda: FailingFiles(self.place, number, error, stays=error == FULL).install())
        if ended.code not in (0, 1, 2) or (ended.code and not ended.is_sentence()):
            return ended, "expected exit code 1 or 2 with one sentence"
        if ended.code and (problem := self.left()):
            return ended, problem
        if ended.code:
            after = run(self.again(), self.log)
            if after.code:
                return after, "expected the command to work when there is room again"
        return ended, "" if self.state() == self.whole else "expected the same content in the end"


class Fit(Case):
    """A training with a checkpoint after every step."""

    name = "fit"

    @property
    def run_folder(self) -> Path:
        return self.place / "run"

    def command(self) -> list[str]:
        place = ["--out", str(self.run_folder), "--quiet", "--device", "cpu"]
        return ["fit", str(self.data), *NETWORK, *OFTEN, *place]

    def again(self) -> list[str]:
        if (self.run_folder / "config.toml").is_file():
            return ["fit", "--resume", str(self.run_folder), "--quiet", "--device", "cpu"]
        return self.command()

    def state(self) -> dict[str, bytes]:
        return {name: (self.run_folder / name).read_bytes() for name in KEPT}


class Replacing(Fit):
    """A training that replaces an earlier run."""

    name = "replace"

    def begin(self) -> None:
        super().begin()
        earlier = self.folder / "earlier"
        if not earlier.exists():
            place = ["--out", str(earlier), "--seed", "5", "--quiet", "--device", "cpu"]
            assert run(["fit", str(self.data), *NETWORK, *place], self.log).code == 0
        shutil.copytree(earlier, self.run_folder)

    def command(self) -> list[str]:
        return [*super().command(), "--overwrite"]

    def again(self) -> list[str]:
        return self.command()

    def left(self) -> str:
        """The earlier run, or the new one, or one to go on with."""
        folder, earlier = self.run_folder, self.folder / "earlier"
        if any(folder.glob("checkpoints/*.json")) or not (folder / "model.safetensors").exists():
            kept = folder / ".replaced"
            return "" if _same(kept, earlier) or _same(folder, earlier) else "the earlier run is gone"
        return "" if _same(folder, earlier) or self.state() == self.whole else "neither the earlier run nor the new one"


class Predicting(Case):
    """Predictions into a file."""

    name = "predict"

    def command(self) -> list[str]:
        return ["predict", str(self.folder / "fit-run"), str(self.data), "--out", str(self.place / "a.csv"), "--quiet"]

    def begin(self) -> None:
        super().begin()
        run_folder = self.folder / "fit-run"
        if not run_folder.exists():
            place = ["--out", str(run_folder), "--quiet", "--device", "cpu"]
            assert run(["fit", str(self.data), *NETWORK, *place], self.log).code == 0
        (self.place / "a.csv").write_text("earlier\n")

    def left(self) -> str:
        content = (self.place / "a.csv").read_bytes()
        whole = getattr(self, "whole", {}).get("a.csv")
        return "" if content in (b"earlier\n", whole) else "half a file"

    def state(self) -> dict[str, bytes]:
        return {"a.csv": (self.place / "a.csv").read_bytes()}


class Gram(Case):
    """A Gram matrix, in tiles."""

    def __init__(self, data: Path, folder: Path, suffix: str) -> None:
        self.name = f"gram{suffix}"
        super().__init__(data, folder)

    @property
    def out(self) -> Path:
        return self.place / self.name

    def command(self) -> list[str]:
        return ["gram", str(self.data), "--kernel", "rbf", "--tile-size", "6", "--out", str(self.out), "--quiet"]

    def state(self) -> dict[str, bytes]:
        if self.out.is_file():
            return {"matrix": self.out.read_bytes()}
        attributes = json.loads((self.out / "zarr.json").read_text())["attributes"]
        chunks = {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.glob("c/*/*")}
        return chunks | {"complete": str(attributes["complete"]).encode()}


def _grams(data: Path, folder: Path) -> list[Case]:
    return [partial(Gram, suffix=suffix)(data, folder) for suffix in (".npy", ".zarr")]


def _same(folder: Path, earlier: Path) -> bool:
    return all((folder / n).exists() and (folder / n).read_bytes() == (earlier / n).read_bytes() for n in KEPT)
