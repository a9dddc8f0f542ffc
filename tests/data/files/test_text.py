"""Opening files: packed or plain, any line ends, any case of the suffix."""

import gzip
import os
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.download import members
from sostenuto.data.files import read, read_parts
from sostenuto.data.files.text import read_bytes, read_lines
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


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a,target\n1,2\n")
    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: SimpleNamespace(st_size=fstat(number).st_size + 10))
    with pytest.raises(FileFormatError, match="got one that is being written"):
        read_bytes(path)


def test_packed_files_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("SOSTENUTO_MOST_UNPACKED", "100000")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"0" * 1_000_000))
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 100)))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside", b"0" * 1_000_000)
    calls = (
        lambda: read_bytes(tmp_path / "a.csv.gz"),
        lambda: read(tmp_path / "a.npz", labelled=False),
        lambda: list(members(tmp_path / "a.zip", lambda _: True)),
    )
    for call in calls:
        with pytest.raises(FileFormatError, match="expected at most 100,000 bytes in a packed file"):
            call()
    monkeypatch.setenv("SOSTENUTO_MOST_UNPACKED", "1000000")
    assert len(read_bytes(tmp_path / "a.csv.gz")) == 1_000_000
