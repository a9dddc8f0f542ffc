"""Run what needs a GPU on a machine that is lent for minutes, starts bare and keeps nothing.

    python release/slices.py list                            what is to run, and what has to lie there for it
    python release/slices.py run NAME --to OUT               as much of it as fits into ``--minutes``
    python release/slices.py store NAME --cells OUT          keep finished results under ``results/``

``run`` reads what earlier slices left in ``--cells`` (finished cells, checkpoints of trainings, results) and writes it,
with what it added, to ``--to``, in files small enough to be sent. Code must not change between slices of one name:
cells of other code are computed again.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "slices"
PIECE = 15 * 2**20
"""Bytes of a file that is sent; eight of them at most."""
PIECES, STOPPED, LEAST = 8, 3, 5.0
MISSING = '"verdict": "data missing"'
"""A result without its data is none."""
BENCH = "bench permuted_mnist"
"""Trains for seven minutes and cannot be interrupted: begun where eight are left."""


class Slices(NamedTuple):
    """Commands of ``sostenuto`` in order, the files they read, and what is known of their time."""

    commands: tuple[str, ...]
    data: tuple[str, ...]
    time: str


def _reproduce(item: str, settings: str, *, protocol: str = "ours", jobs: int = 7) -> str:
    changed = " ".join(f"--set {one}" for one in settings.split())
    return f"reproduce {item} --protocol {protocol} --jobs {jobs} {changed}"


MNIST = ("mnist/mnist.npz",)
CIFAR = tuple(f"cifar10/{name}" for name in ("cifar10_train_0.webp", "cifar10_train_1.webp", "cifar10_test.webp"))
_MODELS = ("unicornn_256", "unicornn_128", "lstm", "gru", "exprnn", "cornn", "indrnn")
_OTHERS = ("lipschitz_128", "lipschitz_64", "antisymmetric", "lstm")
QUEUE = {
    "permuted": Slices(
        (_reproduce("rusch2021/table-1", "views=false seeds=5 " + " ".join(f"{one}.epochs=120" for one in _MODELS)),),
        MNIST,
        "35 trainings; UnICORNN took 1 to 3 s an epoch, an LSTM 13",
    ),
    "lipschitz": Slices(
        (
            _reproduce(
                "erichson2021/table-1",
                "views=false seeds=3 " + " ".join(f"{one}.epochs=60" for one in _OTHERS),
            ),
        ),
        MNIST,
        "24 trainings on ordered and permuted pixels, about 15 s an epoch",
    ),
    "cifar": Slices(
        (_reproduce("rusch2021/table-2", "views=false seeds=3 unicornn.epochs=100 cornn.epochs=100 lstm.epochs=100"),),
        (*CIFAR, "cifar10/labels.npz"),
        "9 trainings; UnICORNN took 3 s an epoch beside six others",
    ),
    "imdb": Slices(
        (_reproduce("rusch2021/table-5", "seeds=3"),),
        ("imdb/imdb_train.jsonl.xz", "imdb/imdb_test.jsonl.xz"),
        "12 trainings of half a minute",
    ),
    "fsdd": Slices((_reproduce("rusch2021/task-fsdd", "seeds=5"),), ("fsdd/fsdd.npz",), "10 trainings of a minute"),
    "stack": Slices((BENCH,), MNIST, "one slice of eight minutes"),
    "miniature": Slices(
        (
            _reproduce(
                "rusch2021/table-2", "seeds=2 unicornn.epochs=3 cornn.epochs=3 lstm.epochs=3", protocol="quick", jobs=1
            ),
        ),
        (),
        "half a minute of a CPU",
    ),
}


def run(name: str, cells: Path, to: Path, minutes: float, data: Path) -> int:
    """Go on with the commands of ``name`` until the time is up; 0 once all have ended, 3 where more is to do."""
    began, ended = time.monotonic(), 0
    unpack(cells, RUNS)
    try:
        for number, words in enumerate(QUEUE[name].commands):
            folder, left = RUNS / name / str(number), 60 * minutes - (time.monotonic() - began)
            done = "permuted_mnist.json" if words == BENCH else "result.json"
            if (folder / done).is_file():
                continue
            ended = STOPPED
            if left < (480.0 if words == BENCH else LEAST):
                break
            more = [] if words == BENCH else ["--time-limit", str(round(left))]
            command = [sys.executable, "-m", "sostenuto.cli", *words.split(), "--out", str(folder), *more]
            known = {"SOSTENUTO_DATA": str(data)} if data.is_dir() else {}
            ended = subprocess.run(command, cwd=ROOT, env={**os.environ, **known}, check=False).returncode
            if not ended and MISSING in (folder / done).read_text(encoding="utf-8"):
                (folder / done).unlink()
                ended = 1
            if ended:
                break
    finally:
        pieces = pack(RUNS, to)
        print(f"{name}: {'all done' if not ended else 'more to do' if ended == STOPPED else f'failed ({ended})'}")
        print(f"{sum(map(_size, pieces)) / 2**20:.1f} MiB in {len(pieces)} files: {to}")
    return ended


def pack(runs: Path, to: Path) -> list[Path]:
    """Write a folder as numbered pieces of one archive."""
    to.mkdir(parents=True, exist_ok=True)
    pieces: list[Path] = []
    with tempfile.TemporaryFile() as whole:
        with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as archive:
            if runs.is_dir():
                archive.add(runs, arcname=".")
        whole.seek(0)
        for old in to.glob("cells.*"):
            old.unlink()
        while part := whole.read(PIECE):
            pieces.append(to / f"cells.{len(pieces):02}")
            pieces[-1].write_bytes(part)
    if len(pieces) > PIECES:
        raise SystemExit(f"expected at most {PIECES} pieces, got {len(pieces)}; run fewer seeds at a time")
    return pieces


def unpack(cells: Path, runs: Path) -> None:
    """Put together what `pack` wrote; nothing happens where there is none."""
    pieces = sorted(cells.glob("cells.*"))
    if not pieces:
        return
    with tempfile.TemporaryFile() as whole:
        for piece in pieces:
            whole.write(piece.read_bytes())
        whole.seek(0)
        with tarfile.open(fileobj=whole, mode="r:gz") as archive:
            archive.extractall(runs, filter="data")


def store(name: str, cells: Path, results: Path | None = None) -> list[Path]:
    """Keep the finished results of ``name``; the commit is this checkout's, whose code has to be theirs."""
    from sostenuto.experiments.catalog import find
    from sostenuto.experiments.provenance import code_digest
    from sostenuto.experiments.stored import read_result
    from sostenuto.experiments.stored import store as keep
    from sostenuto.version import UNKNOWN, commit

    unpack(cells, RUNS)
    kept = []
    for path in sorted((RUNS / name).glob("*/result.json")):
        result = read_result(path)
        if result.commit == UNKNOWN:
            now = code_digest(find(result.name).folder / "run.py")
            if result.code != now:
                raise SystemExit(f"expected {result.name} to be of this checkout's code, {now}, got {result.code}")
            result = replace(result, commit=commit())
        kept.append(keep(result, results))
    for path in sorted((RUNS / name).glob("*/permuted_mnist.json")):
        kept.append(ROOT / "results" / path.name)
        kept[-1].write_bytes(path.read_bytes())
    return kept


def listing(data: Path) -> str:
    """Say what each name runs, what it reads, how large that is and how long it took."""
    rows = []
    for name, one in QUEUE.items():
        rows.append(f"{name}: {one.time}")
        rows += [f"    sostenuto {words}" for words in one.commands]
        for file in one.data:
            size = f"{_size(data / file) / 2**20:.1f} MiB" if (data / file).is_file() else "not here"
            rows.append(f"    reads {file} ({size})")
    return "\n".join(rows)


def _size(path: Path) -> int:
    return path.stat().st_size


def main() -> int:
    """Parse, call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("list", "run", "store"))
    parser.add_argument("name", nargs="?", choices=tuple(QUEUE), help="what to run or store")
    parser.add_argument("--cells", type=Path, default=ROOT / ".carry" / "cells", help="what earlier slices left")
    parser.add_argument("--to", type=Path, default=ROOT / ".carry" / "cells", help="where this one leaves it")
    parser.add_argument("--minutes", type=float, default=8.5, help="time of a slice, without the start of the machine")
    parser.add_argument("--data", type=Path, default=ROOT / ".carry" / "data", help="a folder of data sets")
    asked = parser.parse_args()
    if asked.action == "list":
        print(listing(asked.data))
        return 0
    if asked.name is None:
        parser.error("expected a name")
    if asked.action == "run":
        return run(asked.name, asked.cells, asked.to, asked.minutes, asked.data)
    print("\n".join(map(str, store(asked.name, asked.cells))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
