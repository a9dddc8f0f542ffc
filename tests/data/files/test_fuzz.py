"""Whatever bytes a file holds, a reader returns sequences or raises `InputError`; tests/attacks damages sound files."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sostenuto.data.files import read, read_parts
from tests.attacks.readers import GOOD, read_one


@pytest.mark.parametrize("name", [name + packed for name in GOOD for packed in ("", ".gz")])
@settings(max_examples=40)
@given(content=st.binary(max_size=200))
def test_random_bytes(name, content):
    if ".parquet" in name:
        pytest.importorskip("pyarrow")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        read_one(path)


@pytest.mark.parametrize("name", GOOD)
def test_the_seeds_are_good(name, tmp_path):
    for build in GOOD[name]:
        path = tmp_path / name
        path.write_bytes(build())
        assert all(len(part) for part in read_parts(path).values())
    if name != "data.npz":
        assert len(read(path)) > 0
