"""Opening files: packed or plain, any line ends, any case of the suffix."""

import gzip
import os
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.config import DataConfig
from sostenuto.data.download import members
from sostenuto.data.files import read, read_parts
from sostenuto.data.files.text import opened, read_bytes, read_lines
from sostenuto.data.source import open_dataset, open_for_prediction
from tests.data.files.malformed import npz, text

TABLE = text("target,0,1", "a,1,2", "b,3,4")


@pytest.mark.parametrize("name", ["data.csv", "DATA.CSV", "data.csv.gz", "Data.Csv.GZ", "a.b.csv"])
def test_suffix_in_any_case_and_packed(name, tmp_path):
    path = tmp_path / name
    content = TABLE()
    path.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    assert read(str(path)).targets.tolist() == ["a", "b"]


def test_packed_npz(tmp_path):
    path = tmp_path / "data.npz.gz"
    path.write_bytes(gzip.compress(npz(X=np.ones((2, 3)), y=[0.5, 1.5])()))
    assert read(path).targets.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("last", [True, False], ids=["closed", "open"])
def test_line_ends_and_byte_order_mark(end, mark, last, tmp_path):
    lines = ["target,0,1", "a,1,2", "b,3,4"] + ([""] if last else [])
    path = tmp_path / "data.csv"
    path.write_bytes(mark + end.join(lines).encode())
    data = read(path)
    assert data.targets.tolist() == ["a", "b"]
    assert [sequence.ravel().tolist() for sequence in data.sequences] == [[1, 2], [3, 4]]
    assert read_lines(path)[:3] == lines[:3]


def test_several_gzip_members_are_one_file(tmp_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"target,0\n") + gzip.compress(b"a,1\nb,2\n"))
    assert len(read(path)) == 2


def test_a_file_the_system_refuses(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_bytes(TABLE())

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(FileFormatError, match="the system says 'Permission denied'"):
        read_bytes(path)


@pytest.mark.parametrize("name", ["data.ts", "data.tsv", "data.npz"])
def test_column_names_belong_to_tables(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"1\t2\t3\n")
    with pytest.raises(InputError, match=r"column names for \.csv and \.parquet files alone, got group='g'"):
        read(path, group="g")


def test_files_without_parts_are_a_training_part(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(TABLE())
    parts = read_parts(path)
    assert list(parts) == ["train"]
    assert parts["train"].checksum() == read(path).checksum()


def test_pipes_and_devices_are_refused(tmp_path):
    pipe = tmp_path / "a.csv"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(FileFormatError, match="expected a file, got a pipe or a device"):
            read_bytes(path)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, name):
    path = tmp_path / name
    content = b"a,target\n1,2\n"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    def read_while_it_grows():
        with opened(path) as file:
            assert file.read() == content
            with path.open("ab") as more:
                more.write(b"3,4\n")

    with pytest.raises(FileFormatError, match="got one that is being written"):
        read_while_it_grows()


@pytest.mark.parametrize("name", ["X.npz", "wide.csv", "long.csv"])
def test_reading_holds_the_numbers_once_and_no_copy_of_the_file(tmp_path, name):
    path, rng = tmp_path / name, np.random.default_rng(0)
    if name == "X.npz":
        np.savez(path, X=rng.normal(size=(800, 500, 2)), y=np.arange(800) % 2)
    elif name == "wide.csv":
        rows = [f"{row % 2}," + ",".join(f"{value:.4f}" for value in rng.normal(size=400)) for row in range(2000)]
        path.write_text("\n".join(["target," + ",".join(f"s{step}" for step in range(400)), *rows]) + "\n")
    else:
        rows = [f"patient{row // 500},{row % 500},{row // 500 % 2},{row % 97}.125,{row % 89}" for row in range(200_000)]
        path.write_text("\n".join(["series,time,target,x,y", *rows]) + "\n")
    tracemalloc.start()
    try:
        found = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numbers = 8 * sum(sequence.size for sequence in found.sequences)
    # A chunk of text cells on the way to numbers takes some 4 MB; of a long table there are times and an order besides.
    most = {"X.npz": 1.2 * numbers, "wide.csv": 1.5 * numbers + 6e6, "long.csv": 9 * numbers + 6e6}[name]
    assert peak < most, (peak, numbers)


def test_the_limit_of_packed_files_is_an_option(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"target,0\n" + b"a,1\n" * 100 + b"b,2\n" * 100))
    data = DataConfig(source=str(path), most_unpacked=500)
    with pytest.raises(FileFormatError, match="expected at most 500 bytes in a packed file"):
        open_dataset(data)
    with pytest.raises(FileFormatError, match="pass a larger --most-unpacked, or set SOSTENUTO_MOST_UNPACKED"):
        open_for_prediction(data, str(path))
    assert len(open_dataset(replace(data, most_unpacked=5000)).train) == 200


def test_packed_files_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("SOSTENUTO_MOST_UNPACKED", "100000")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"0" * 1_000_000))
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 100)))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside", b"0" * 1_000_000)
    calls = (
        lambda: read_bytes(tmp_path / "a.csv.gz"),
        lambda: read(tmp_path / "a.npz", labeled=False),
        lambda: list(members(tmp_path / "a.zip", lambda _: True)),
    )
    for call in calls:
        with pytest.raises(FileFormatError, match="expected at most 100,000 bytes in a packed file"):
            call()
    monkeypatch.setenv("SOSTENUTO_MOST_UNPACKED", "1000000")
    assert len(read_bytes(tmp_path / "a.csv.gz")) == 1_000_000
