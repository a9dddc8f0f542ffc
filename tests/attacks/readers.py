"""Damaged data files: a reader returns sequences or raises `InputError`, and never anything else."""

import gzip
import io
import itertools
import os
import random
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.data.files import read_parts
from tests.attacks.outcome import Bound, Outcome
from tests.data.files.malformed import npz, parquet, text, ts

PROMISE = "sequences, or one sentence that names the file"
WAVES = np.sin(np.arange(24.0))
GOOD = {
    "data.ts": [
        ts("1,2.5,?:3,4,5:a", "1,2e3:3,NaN:b", dimensions=2),
        text(
            "# x", "@univariate true", "@equalLength true", "@seriesLength 2", "@targetLabel true", "@data", "1,2:0.5"
        ),
    ],
    "data.tsv": [text("1\t2.5\tNaN\t3", "2\t3\t4\tNaN"), text("1,2,3", "2,3,4")],
    "data.csv": [
        text("target,group,0,1,2", "a,g,1,2,3", '"b,c",h,4,,'),
        text("series,time,target,group,x,y", "s,0,1,g,1,2", "s,2,1,g,,3", "r,1,2,h,4,5", "s,1,1,g,0,0"),
        text("series,time,target,x", "s,2024-01-01,1.5,1", "s,2024-01-02T10:00,1.5,2"),
    ],
    "data.npz": [
        npz(X=WAVES.reshape(2, 4, 3), y=["a", "b"], lengths=[4, 2], timespans=np.ones((2, 4)), groups=[1, 2]),
        npz(X_train=WAVES.reshape(4, 6), y_train=[0, 1, 0, 1], X_test=WAVES.reshape(4, 6), y_test=[0, 1, 0, 1]),
    ],
    "data.parquet": [
        parquet(target=["a", "b"], x=[1.0, 2.0], y=[1, None]),
        parquet(series=["s", "s"], time=["2024-01-01", "2024-01-02"], target=[1, 1], x=[0.5, 1.5]),
    ],
}
TOKENS = [b"", b"\n", b",", b"\t", b":", b"nan", b"inf", b"-1e999", b'"', b"@data", b"\xff", b"\0", b"_", b"1" * 5000]
_LENGTH_TOKENS = [
    b"1" * 400,
    b"9" * 20,
    b"1e308",
    b"-0",
    b"0x1",
    b"\r",
    b"\r\n\r\n",
    b"\x00" * 8,
    b"\x1f\x8b",
    b"PK\x03\x04",
]
_MOST_CHANGES = 6
_AT_ONCE = 2000


@st.composite
def mutated(draw, content: bytes) -> bytes:
    """Cut, drop, double, overwrite or insert at a few places."""
    mutant = content
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(mutant)))
        stop = min(len(mutant), start + draw(st.integers(0, 12)))
        piece = draw(
            st.one_of(st.binary(max_size=6), st.sampled_from(TOKENS), st.just(mutant[start:stop] * 2), st.just(None))
        )
        mutant = mutant[:start] if piece is None else mutant[:start] + piece + mutant[stop:]
    return mutant


def mutate(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Damage a file at one to six places: flip bits, cut, double, insert, exchange, or splice in a piece of another."""
    mutant = bytearray(content)
    for _ in range(1 if rng.random() < 0.6 else rng.randint(2, _MOST_CHANGES)):
        start = rng.randrange(len(mutant) + 1)
        stop = min(len(mutant), start + rng.randrange(16))
        kind = rng.randrange(8)
        if kind == 0 and start < len(mutant):
            mutant[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutant[start:stop] = rng.randbytes(rng.randrange(6))
        elif kind == 2:
            del mutant[start:stop]
        elif kind == 3:
            mutant[start:start] = mutant[start:stop] * rng.randint(1, 3)
        elif kind == 4:
            mutant[start:start] = rng.choice(TOKENS if rng.random() < 0.7 else _LENGTH_TOKENS)
        elif kind == 5 and rng.random() < 0.3:
            del mutant[start:]
        elif kind == 6:
            begin = rng.randrange(len(other))
            mutant[start:stop] = other[begin : begin + rng.randrange(24)]
        else:
            again = rng.randrange(len(mutant) + 1)
            mutant[again:again] = mutant[start:stop]
    return bytes(mutant)


def read_one(path: Path) -> str:
    """Read a file both as one to learn from and as one to predict; say how it ended."""
    ended = "refused"
    for labeled in (True, False):
        try:
            parts = read_parts(path, labeled=labeled)
        except InputError as error:
            if str(path) not in str(error):
                raise AssertionError(f"a refusal that does not name the file: {error}") from error
            continue
        ended = "read"
        for part in parts.values():
            assert len(part) > 0
            assert all(len(sequence) > 0 and not np.isinf(sequence).any() for sequence in part.sequences)
            assert part.targets is not None or not labeled
    return ended


def attack(bound: Bound, folder: Path) -> Outcome:
    """Damage sound files of every format at random and read them."""
    return _attack(bound, folder, "readers, mutated bytes", _mutants(bound.seed))


def hypothesis_attack(bound: Bound, folder: Path) -> Outcome:
    """Let hypothesis choose the damage, and shrink what breaks the promise."""
    outcome = Outcome("readers, hypothesis", PROMISE)
    limit = time.monotonic() + bound.seconds
    names, each = itertools.cycle(_sound()), min(_AT_ONCE, -(-bound.cases // len(_sound())))
    with tempfile.TemporaryDirectory(dir=_fast(folder)) as place:
        while outcome.cases < bound.cases and (outcome.cases == 0 or time.monotonic() < limit):
            name, count = next(names), min(each, bound.cases - outcome.cases)
            try:
                _examples(name, count, bound.seed + outcome.cases, Path(place), outcome)
            except Exception:
                outcome.fail("traceback", f"{name}: {traceback.format_exc()[-1500:]}")
    return outcome


def _examples(name: str, count: int, seed: int, place: Path, outcome: Outcome) -> None:
    """Run ``count`` examples on one format."""

    def example(content: bytes) -> None:
        path = place / name
        path.write_bytes(content)
        outcome.add(read_one(path))

    damaged = st.sampled_from(_sound()[name]).flatmap(mutated)
    chosen = settings(max_examples=count, database=None, derandomize=False, deadline=None)
    hypothesis_seed(seed)(chosen(given(damaged)(example)))()


def _mutants(seed: int) -> Callable[[int], tuple[str, bytes]]:
    rng = random.Random(seed)
    sound = _sound()
    every = [content for contents in sound.values() for content in contents]
    names = list(sound)

    def mutant(number: int) -> tuple[str, bytes]:
        name = names[number % len(names)]
        content = rng.choice(sound[name])
        # One in eight is packed, and then either the content or the packing is damaged.
        if number // len(names) % 8:
            if name.endswith(".npz") and rng.random() < 0.5:
                return name, _repacked(content, rng)
            return name, mutate(content, rng, rng.choice(every))
        if rng.random() < 0.5:
            return f"{name}.gz", gzip.compress(mutate(content, rng, rng.choice(every)), 1, mtime=0)
        return f"{name}.gz", mutate(gzip.compress(content, 1, mtime=0), rng, rng.choice(every))

    return mutant


def _repacked(content: bytes, rng: random.Random) -> bytes:
    """Damage an array inside its archive, whose checksums are right again."""
    damaged = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(damaged, "w") as target:
        members = {name: source.read(name) for name in source.namelist()}
        struck = rng.choice(list(members))
        for name, member in members.items():
            target.writestr(name, mutate(member, rng, member) if name == struck else member)
    return damaged.getvalue()


def _sound() -> dict[str, list[bytes]]:
    return {name: [build() for build in builders] for name, builders in GOOD.items() if _is_readable(name)}


def _attack(bound: Bound, folder: Path, name: str, mutant: Callable[[int], tuple[str, bytes]]) -> Outcome:
    outcome = Outcome(name, PROMISE)
    with tempfile.TemporaryDirectory(dir=_fast(folder)) as place:
        for number in bound.numbers():
            filename, content = mutant(number)
            path = Path(place, filename)
            path.write_bytes(content)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    warnings.filterwarnings("ignore", category=UserWarning, module="sostenuto")
                    outcome.add(read_one(path))
            except Exception:
                outcome.fail("traceback", f"{filename} {content[:2000]!r}: {traceback.format_exc()[-1500:]}")
    return outcome


def _is_readable(name: str) -> bool:
    return not name.endswith(".parquet") or find_spec("pyarrow") is not None


def _fast(folder: Path) -> Path:
    """A folder in memory where there is one: a million files wear a disk out."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else folder
