"""Fetch a file over HTTP, verified and whole or not at all, and read archives without trusting their names."""

import contextlib
import hashlib
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sostenuto.checks import FileFormatError, SostenutoError, require, shown
from sostenuto.data.files.atomic import atomic, write_atomically
from sostenuto.data.files.text import most_unpacked, too_large
from sostenuto.types import PathLike
from sostenuto.version import __version__

CHUNK = 1 << 18
TIMEOUT = 30.0
ATTEMPTS = 3
DAMAGED = (OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
"""What a truncated or corrupted compressed file can raise while it is read."""


Used = TypeVar("Used")


class DownloadError(SostenutoError, OSError):
    """A file could not be fetched; the message says which, why, and what is kept."""


class _InterruptedError(Exception):
    """The connection ended before the file did; what came is kept."""


def fetch(url: str, target: PathLike, *, sha256: str | None = None, progress: bool = True) -> Path:
    """Download ``url`` to ``target`` and return its path.

    The bytes go to ``target`` + ``.part``; an interrupted download continues there, in this call (up to three times)
    or in the next. The checksum is verified before the rename, so ``target`` either holds the whole file or is absent;
    a file with the wrong checksum is removed. Without a checksum a partial file is continued only where the server
    confirms that it is still the same file.
    """
    require(url.startswith(("http://", "https://")), "expected an http or https address", f"got {url!r}")
    target = Path(target)
    if target.exists():
        _verify(target, sha256, f"{target} is not the file {url} promises; delete it to fetch it again")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part, tag = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.tag")
    _pull(url, part, tag, progress, verifiable=sha256 is not None)
    try:
        _verify(part, sha256, f"{url} gave another file than expected; it was removed")
    except DownloadError:
        part.unlink()
        raise
    finally:
        tag.unlink(missing_ok=True)
    return part.replace(target)


def fetch_recorded(url: str, target: PathLike, ledger: PathLike, use: Callable[[Path], Used]) -> Used:
    """Download like `fetch` a file whose publisher names no checksum, and return what ``use`` makes of it.

    The checksum of the first file that can be used is recorded in ``ledger``, a JSON object by address; a later
    download has to be the same file. A publisher who replaces a file is noticed, one who gave a wrong one at first is
    not.
    """
    book = Path(ledger)
    known = json.loads(book.read_text(encoding="utf-8")) if book.exists() else {}
    path = fetch(url, target, sha256=known.get(url))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    used = use(path)
    write_atomically(book, json.dumps(known | {url: digest}, indent=1, sort_keys=True))
    return used


def _pull(url: str, part: Path, tag: Path, progress: bool, verifiable: bool) -> None:
    """Bring ``part`` to its full size, going on after an interruption."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _receive(url, part, tag, progress, verifiable)
        except HTTPError as error:
            error.close()
            if error.code != 416 or attempt == ATTEMPTS:
                raise DownloadError(f"{url}: the server answered {error.code} {error.reason}") from error
            if error.headers.get("Content-Range", "") == f"bytes */{_size(part)}":
                return None
            part.unlink(missing_ok=True)
        except URLError as error:
            raise DownloadError(f"{url}: {error.reason}") from error
        except (_InterruptedError, HTTPException, OSError) as error:
            if attempt == ATTEMPTS:
                kept = f"{_size(part)} bytes are kept in {part} and the next try continues there"
                raise DownloadError(f"{url}: the download broke off ({error}); {kept}") from error
    return None


def _receive(url: str, part: Path, tag: Path, progress: bool, verifiable: bool) -> None:
    from tqdm import tqdm

    have = _size(part) if verifiable or tag.exists() else 0
    request = Request(url, headers={"User-Agent": f"sostenuto/{__version__}", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if tag.exists():
            request.add_header("If-Range", tag.read_text(encoding="utf-8"))
    with urlopen(request, timeout=TIMEOUT) as response:
        resumed = response.status == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise _InterruptedError("the server sent another part than was asked for")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        _keep_tag(response.headers.get("ETag", ""), response.headers.get("Last-Modified", ""), tag)
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                desc=part.name.removesuffix(".part"),
                total=total,
                initial=start,
                unit="B",
                unit_scale=True,
                disable=not progress,
            ) as bar,
        ):
            while chunk := response.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    if total is not None and _size(part) != total:
        raise _InterruptedError(f"{_size(part)} of {total} bytes came")


def _keep_tag(etag: str, modified: str, tag: Path) -> None:
    """Remember which version of the file this is; a weak ETag does not promise the same bytes."""
    strong = modified if not etag or etag.startswith("W/") else etag
    if strong:
        tag.write_text(strong, encoding="utf-8")
    else:
        tag.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _verify(path: Path, sha256: str | None, complaint: str) -> None:
    if sha256 is None:
        return
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != sha256.lower():
        raise DownloadError(f"{complaint} (expected sha256 {sha256.lower()}, got {checksum})")


@contextlib.contextmanager
def exclusive(path: PathLike) -> Iterator[None]:
    """Let one process at a time into the block; ``path`` is the lock file, removed afterwards.

    Where the system has no `fcntl` (Windows) nothing is locked; writes are atomic, so at worst a file is fetched twice.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        with contextlib.suppress(ModuleNotFoundError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(PermissionError):  # Windows keeps a file that is open elsewhere
                path.unlink(missing_ok=True)


def members(archive: PathLike, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the name and content of every ``wanted`` regular file in a ``.zip`` or ``.tar.gz``, in archive order.

    A name that is absolute or climbs with ``..`` is refused; links and devices are passed over. Nothing is written.
    """
    archive = Path(archive)
    try:
        yield from _zip_members(archive, wanted) if archive.suffix == ".zip" else _tar_members(archive, wanted)
    except DAMAGED as error:
        raise FileFormatError(
            archive, "expected a whole archive", f"got a damaged one ({error})", "delete it and fetch it again"
        ) from error


def _zip_members(archive: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            name = _inside(archive, info.filename)
            if not info.is_dir() and wanted(name):
                if info.file_size > most_unpacked():
                    raise too_large(archive)
                yield name, opened.read(info)


def _tar_members(archive: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    with tarfile.open(archive, mode="r|gz") as opened:
        for info in opened:
            name = _inside(archive, info.name)
            if info.isfile() and wanted(name) and (file := opened.extractfile(info)) is not None:
                if info.size > most_unpacked():
                    raise too_large(archive)
                yield name, file.read()


def _inside(archive: Path, name: str) -> PurePosixPath:
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or ":" in name.partition("/")[0]:
        raise FileFormatError(archive, "expected names inside the archive", f"got {name!r}", "do not trust it")
    return pure


def extract(archive: PathLike, folder: PathLike, names: Collection[str]) -> list[Path]:
    """Write the members whose last name part is in ``names`` into ``folder``; all of them have to be there."""
    written: set[str] = set()
    for name, content in members(archive, lambda name: name.name in names):
        with atomic(Path(folder) / name.name) as temporary:
            temporary.write_bytes(content)
        written.add(name.name)
    if absent := sorted(set(names) - written):
        raise FileFormatError(archive, f"expected the members {shown(sorted(names))}", f"missed {shown(absent)}")
    return [Path(folder) / name for name in names]
