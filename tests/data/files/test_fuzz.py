"""Whatever bytes a file holds, a reader returns sequences or raises `InputError`, never anything else."""

import gzip
import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.data.files import read, read_parts
from tests.data.files.malformed import npz, parquet, text, ts

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


def read_somehow(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        for labelled in (True, False):
            try:
                parts = read_parts(path, labelled=labelled)
            except InputError:
                continue
            for part in parts.values():
                assert len(part) > 0
                assert all(len(sequence) > 0 and not np.isinf(sequence).any() for sequence in part.sequences)
                assert part.targets is not None or not labelled


@pytest.mark.parametrize("name", GOOD)
@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files(name, data):
    content = data.draw(st.sampled_from(GOOD[name]))()
    read_somehow(name, data.draw(mutated(content)))


@pytest.mark.parametrize("name", [name + packed for name in GOOD for packed in ("", ".gz")])
@settings(max_examples=40)
@given(content=st.binary(max_size=200))
def test_random_bytes(name, content):
    if ".parquet" in name:
        pytest.importorskip("pyarrow")
    read_somehow(name, content)


@pytest.mark.parametrize("name", ["data.ts.gz", "data.npz.gz"])
@settings(max_examples=50)
@given(data=st.data())
def test_damaged_packing(name, data):
    content = gzip.compress(GOOD[name.removesuffix(".gz")][0](), mtime=0)
    read_somehow(name, data.draw(mutated(content)))


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_arrays_in_a_sound_archive(data):
    damaged = io.BytesIO()
    sound = data.draw(st.sampled_from(GOOD["data.npz"]))()
    with zipfile.ZipFile(io.BytesIO(sound)) as source, zipfile.ZipFile(damaged, "w") as target:
        for member in source.namelist():
            content = source.read(member)
            target.writestr(member, data.draw(mutated(content)) if data.draw(st.booleans()) else content)
    read_somehow("data.npz", damaged.getvalue())


@pytest.mark.parametrize("name", GOOD)
def test_the_seeds_are_good(name, tmp_path):
    for build in GOOD[name]:
        path = tmp_path / name
        path.write_bytes(build())
        assert all(len(part) for part in read_parts(path).values())
    if name != "data.npz":
        assert len(read(path)) > 0
