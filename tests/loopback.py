"""A web server on this machine that gives recorded answers; no test asks anybody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from warpshelf.web.services import Endpoints

ANSWERS = Path(__file__).parent / "answers"
Send = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Web:
    """The server: what it answers by path (a query is not part of it), and what it was asked."""

    base: str
    answers: dict[str, tuple[int, dict[str, str], bytes] | Send] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, list[str]], dict[str, str]]] = field(default_factory=list)

    def put(self, path: str, body: bytes | str, kind: str = "text/html", status: int = 200,
            **headers: str) -> None:  # fmt: skip
        """Answer `path` by `body`."""
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = (status, {"content-type": kind, **named}, data)

    def record(self, path: str, name: str, kind: str) -> None:
        """Answer `path` by what is kept in tests/answers/`name`."""
        self.put(path, (ANSWERS / name).read_bytes(), kind)

    def move(self, path: str, to: str, status: int = 301) -> None:
        """Answer `path` by a redirect."""
        self.put(path, b"", status=status, location=to)

    @property
    def endpoints(self) -> Endpoints:
        """All services and pages, here."""
        return Endpoints(
            arxiv=f"{self.base}/arxiv", crossref=f"{self.base}/works", github=f"{self.base}/repos",
            youtube=f"{self.base}/oembed", archive=f"{self.base}/available",
            pages=f"{self.base}/pages", private=True,
        )  # fmt: skip


@contextmanager
def serving() -> Iterator[Web]:
    """A server for as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            web.asked.append((parts.path, parse_qs(parts.query), dict(self.headers)))
            answer = web.answers.get(parts.path, (404, {}, b"no such page"))
            self.close_connection = True
            if callable(answer):
                answer(self)
                return
            status, headers, body = answer
            self.send_response(status)
            own = {"content-length": str(len(body)), "connection": "close"}
            for name, value in {**own, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # who asked may have read enough
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web = Web(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
