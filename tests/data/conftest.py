"""A local web server that can resume, break off and change its mind, and folders that hold no data."""

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class Site:
    """What a local server serves, and what it was asked for."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)
    ignores_ranges: bool = False
    tells_length: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def put(self, path: str, content: bytes, etag: str = '"one"') -> str:
        self.files["/" + path], self.etags["/" + path] = content, etag
        return self.address + path


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site, asked = self.site, self.headers.get("Range")
        site.requests.append((self.path, asked))
        path = self.path.partition("?")[0]
        content = site.files.get(path)
        if content is None:
            self.send_error(404)
            return
        etag = site.etags[path]
        condition = self.headers.get("If-Range")
        start = 0
        if asked and not site.ignores_ranges and condition in (None, etag):
            match = re.fullmatch(r"bytes=(\d+)-", asked)
            assert match is not None
            start = int(match[1])
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if etag:
            self.send_header("ETag", etag)
        if site.tells_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if site.break_after:
            rest = rest[: site.break_after.pop(0)]
        with contextlib.suppress(ConnectionError):
            self.wfile.write(rest)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def site() -> Iterator[Site]:
    """Serve ``site.files`` on 127.0.0.1 for the length of a test."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    served = Site(f"http://127.0.0.1:{server.server_port}/")
    handler.site = served
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def no_site() -> str:
    """Give an address where nobody listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.server_close()
    return f"http://127.0.0.1:{server.server_port}/"


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty data folder, with no other data in sight and an empty cache beside it."""
    monkeypatch.delenv("SOSTENUTO_DATA", raising=False)
    monkeypatch.setenv("SOSTENUTO_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    return data
