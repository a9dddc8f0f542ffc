"""Downloads resume, are whole or absent, and archives cannot write where they like."""

import hashlib
import io
import os
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.download import ATTEMPTS, DownloadError, exclusive, extract, fetch, members
from sostenuto.data.files.atomic import atomic

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetches_a_file_whole(site, tmp_path, capsys):
    target = fetch(site.put("a.bin", CONTENT), tmp_path / "deep" / "a.bin", sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert listing(target.parent) == ["a.bin"]
    assert "a.bin" in capsys.readouterr().err


def test_progress_can_be_silenced(site, tmp_path, capsys):
    fetch(site.put("a.bin", CONTENT), tmp_path / "a.bin", progress=False)
    assert capsys.readouterr().err == ""


def test_fetches_nothing_twice(site, tmp_path):
    url = site.put("a.bin", CONTENT)
    for _ in range(2):
        fetch(url, tmp_path / "a.bin", sha256=SHA256.upper(), progress=False)
    assert len(site.requests) == 1


def test_resumes_after_a_break_within_one_call(site, tmp_path):
    site.break_after = [300_000, 200_000]
    fetch(site.put("a.bin", CONTENT), tmp_path / "a.bin", sha256=SHA256, progress=False)
    assert [asked for _, asked in site.requests] == [None, "bytes=300000-", "bytes=500000-"]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_resumes_in_the_next_call(site, tmp_path, sha256):
    url = site.put("a.bin", CONTENT)
    site.break_after = [1000] * ATTEMPTS
    with pytest.raises(DownloadError, match=r"3000 bytes are kept in .*a\.bin\.part and the next try continues"):
        fetch(url, tmp_path / "a.bin", sha256=sha256, progress=False)
    assert not (tmp_path / "a.bin").exists()
    fetch(url, tmp_path / "a.bin", sha256=sha256, progress=False)
    assert site.requests[-1][1] == "bytes=3000-"
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert listing(tmp_path) == ["a.bin"]


def test_starts_again_when_the_file_changed_meanwhile(site, tmp_path):
    url = site.put("a.bin", b"old" * 2000)
    site.break_after = [1000] * ATTEMPTS
    with pytest.raises(DownloadError):
        fetch(url, tmp_path / "a.bin", progress=False)
    site.put("a.bin", CONTENT, etag='"two"')
    assert fetch(url, tmp_path / "a.bin", progress=False).read_bytes() == CONTENT


def test_starts_again_when_nothing_says_it_is_the_same_file(site, tmp_path):
    url = site.put("a.bin", CONTENT, etag='W/"weak"')
    (tmp_path / "a.bin.part").write_bytes(b"something else")
    assert fetch(url, tmp_path / "a.bin", progress=False).read_bytes() == CONTENT
    assert site.requests[0][1] is None


def test_starts_again_when_the_server_cannot_resume(site, tmp_path):
    url = site.put("a.bin", CONTENT)
    site.ignores_ranges = True
    site.break_after = [1000]
    assert fetch(url, tmp_path / "a.bin", sha256=SHA256, progress=False).read_bytes() == CONTENT


def test_a_part_that_is_complete_needs_only_its_name(site, tmp_path):
    url = site.put("a.bin", CONTENT)
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(url, tmp_path / "a.bin", sha256=SHA256, progress=False).read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_thrown_away(site, tmp_path):
    url = site.put("a.bin", CONTENT)
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(url, tmp_path / "a.bin", sha256=SHA256, progress=False).read_bytes() == CONTENT


def test_a_length_need_not_be_told(site, tmp_path):
    site.tells_length = False
    assert fetch(site.put("a.bin", CONTENT), tmp_path / "a.bin", sha256=SHA256, progress=False).exists()


def test_a_wrong_checksum_is_refused_and_nothing_is_left(site, tmp_path):
    url = site.put("a.bin", CONTENT[:-1] + b"!")
    with pytest.raises(DownloadError, match=rf"another file than expected; it was removed \(expected sha256 {SHA256}"):
        fetch(url, tmp_path / "a.bin", sha256=SHA256, progress=False)
    assert listing(tmp_path) == []


def test_a_file_already_there_is_checked_and_left_alone(site, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="delete it to fetch it again"):
        fetch(site.put("a.bin", CONTENT), tmp_path / "a.bin", sha256=SHA256)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


def test_says_when_the_server_refuses_or_is_down(site, no_site, tmp_path):
    with pytest.raises(DownloadError, match="answered 404 Not Found"):
        fetch(site.address + "nothing", tmp_path / "a.bin")
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1.*refused"):
        fetch(no_site + "a.bin", tmp_path / "a.bin")
    assert listing(tmp_path) == []


def test_only_the_web_is_fetched_from(tmp_path):
    with pytest.raises(InputError, match="expected an http or https address"):
        fetch("file:///etc/passwd", tmp_path / "a.bin")


def test_atomic_leaves_nothing_behind_on_an_error(tmp_path):
    with pytest.raises(TypeError), atomic(tmp_path / "a.txt") as temporary:
        temporary.write_text(3)  # pyright: ignore[reportArgumentType]
    assert listing(tmp_path) == []
    with atomic(tmp_path / "a.txt") as temporary:
        temporary.write_text("whole")
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert listing(tmp_path) == ["a.txt"]


def _hold(lock: Path, log: Path) -> None:
    with exclusive(lock):
        with log.open("a") as file:
            file.write("in\n")
        time.sleep(0.1)
        with log.open("a") as file:
            file.write("out\n")


@pytest.mark.skipif(os.name == "nt", reason="needs fcntl")
def test_one_holder_at_a_time(tmp_path):
    workers = [threading.Thread(target=_hold, args=(tmp_path / "lock", tmp_path / "log")) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (tmp_path / "log").read_text().split() == ["in", "out"] * 3
    assert not (tmp_path / "lock").exists()


def _zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def _tar(path: Path, files: dict[str, bytes], link: tuple[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link is not None:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(info)
    return path


@pytest.mark.parametrize(("make", "name"), [(_zip, "a.zip"), (_tar, "a.tar.gz")])
class TestArchives:
    def test_members_are_read_in_order(self, make, name, tmp_path):
        archive = make(tmp_path / name, {"x/one.txt": b"1", "x/y/two.txt": b"22"})
        found = [(str(member), content) for member, content in members(archive, bool)]
        assert found == [("x/one.txt", b"1"), ("x/y/two.txt", b"22")]

    def test_extract_takes_what_is_asked_for(self, make, name, tmp_path):
        archive = make(tmp_path / name, {"x/one.txt": b"1", "x/two.txt": b"22"})
        paths = extract(archive, tmp_path / "out", ["two.txt"])
        assert [path.read_bytes() for path in paths] == [b"22"]
        assert listing(tmp_path / "out") == ["two.txt"]

    def test_extract_says_what_is_missing(self, make, name, tmp_path):
        archive = make(tmp_path / name, {"x/one.txt": b"1"})
        with pytest.raises(FileFormatError, match=r"expected the members one\.txt, two\.txt, missed two\.txt"):
            extract(archive, tmp_path / "out", ["two.txt", "one.txt"])

    @pytest.mark.parametrize("evil", ["../evil.txt", "/evil.txt", "x/../../evil.txt", "..\\evil.txt", "C:/evil.txt"])
    def test_names_cannot_climb(self, make, name, evil, tmp_path):
        archive = make(tmp_path / name, {evil: b"1"})
        with pytest.raises(FileFormatError, match="expected names inside the archive"):
            extract(archive, tmp_path / "out", ["evil.txt"])
        assert listing(tmp_path) == [name]

    def test_a_damaged_archive_is_one_sentence(self, make, name, tmp_path):
        archive = make(tmp_path / name, {"one.txt": os.urandom(100_000)})
        archive.write_bytes(archive.read_bytes()[:50_000])
        with pytest.raises(FileFormatError, match=r"expected a whole archive, got a damaged one .*; delete it"):
            extract(archive, tmp_path / "out", ["one.txt"])


def test_links_are_passed_over(tmp_path):
    archive = _tar(tmp_path / "a.tar.gz", {"one.txt": b"1"}, link=("evil.txt", "/etc/passwd"))
    assert [str(name) for name, _ in members(archive, bool)] == ["one.txt"]
