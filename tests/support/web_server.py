"""A web server on this machine that gives recorded answers; no test asks anybody else.

A detour leads addresses of any host to it, so that it plays all of them.
"""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from warpshelf.links import liveness
from warpshelf.links.check_links import CheckServices
from warpshelf.web.services import Endpoints

ANSWERS = yaml.safe_load(Path(__file__).with_name("answers.yml").read_text(encoding="utf-8"))
Send = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Web:
    """The server: what it answers by path (a query is not part of it), and what it was asked."""

    base: str
    answers: dict[str, tuple[int, dict[str, str], bytes] | Send] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, list[str]], dict[str, str]]] = field(default_factory=list)

    def set_answer(self, path: str, body: bytes | str, kind: str = "text/html", status: int = 200,
            **headers: str) -> None:  # fmt: skip
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = (status, {"content-type": kind, **named}, data)

    def set_recorded_answer(self, path: str, name: str, kind: str) -> None:
        """Answer `path` by what answers.yml keeps under a name."""
        self.set_answer(path, ANSWERS[name], kind)

    def set_redirect(self, path: str, to: str, status: int = 301) -> None:
        self.set_answer(path, b"", status=status, location=to)

    @property
    def endpoints(self) -> Endpoints:
        """All services and pages, here."""
        return Endpoints(
            arxiv=f"{self.base}/arxiv", crossref=f"{self.base}/works", github=f"{self.base}/repos",
            youtube=f"{self.base}/oembed", archive=f"{self.base}/available",
            pages=f"{self.base}/pages", private=True,
        )  # fmt: skip


@contextmanager
def serve_web() -> Iterator[Web]:
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


PROGRAM = shutil.which("lychee", path=str(Path(sys.executable).parent)) or shutil.which("lychee")
needs_lychee = pytest.mark.skipif(
    PROGRAM is None, reason="lychee is not installed; it comes with the extra `links`"
)
CANARIES = tuple(f"https://canary-{name}.example.org/" for name in "abc")


def closed_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@dataclass
class Detour:
    """`https://<host>/<path>` is asked for as `/<host>/<path>` of `web`, if not told otherwise."""

    web: Web
    elsewhere: dict[str, str] = field(default_factory=dict)  # another base, by host
    known: dict[str, bool | None] = field(default_factory=dict)  # whether a host has an address

    def route_here(self, url: str) -> str:
        """The address on this machine."""
        scheme, _, rest = url.partition("://")
        base = self.elsewhere.get(urlsplit(url).hostname or "", f"{self.web.base}/{scheme}")
        return f"{base}/{rest}"

    def restore_address(self, url: str) -> str:
        """The address that was meant."""
        for base in (self.web.base, *self.elsewhere.values()):
            for scheme in ("https", "http"):
                if url.startswith(f"{base}/{scheme}/"):
                    return f"{scheme}://{url.removeprefix(f'{base}/{scheme}/')}"
        return url

    def set_answer(
        self, url: str, status: int = 200, body: bytes | str = "a page", **headers: str
    ) -> str:
        """Answer `url`, which is given back."""
        # The server closes each connection, and who asks again should know it.
        self.web.set_answer(
            self.locate_path(url), body, status=status, connection="close", **headers
        )
        return url

    def set_redirect(self, url: str, to: str, status: int = 301) -> str:
        """Answer `url` by a redirect; it is given back."""
        return self.set_answer(url, status, "", location=self.route_here(to))

    def locate_path(self, url: str) -> str:
        """Where the server has `url`."""
        return urlsplit(self.route_here(url)).path

    def count_requests(self, url: str) -> int:
        """How often `url` was asked for."""
        return sum(path == self.locate_path(url) for path, _, _ in self.web.asked)

    def make_config(self, **changes: object) -> liveness.WebConfig:
        """What asks through this detour, in a hurry."""
        settings: dict = {"timeout": 1.0, "pause": 0.0, "retries": 0, **changes}
        return liveness.WebConfig(
            there=self.route_here, back=self.restore_address,
            resolves=lambda host: self.known.get(host, True),
            **settings,
        )  # fmt: skip

    def make_services(self, today: str, **changes: object) -> CheckServices:
        """Everything that a survey asks, here; the canaries answer."""
        for url in CANARIES:
            self.set_answer(url)
        return CheckServices(
            web=self.make_config(**changes), canaries=CANARIES,
            endpoints=self.web.endpoints, pauses={"arxiv": 0.0, "doi": 0.0, "github": 0.0},
            today=date.fromisoformat(today),
        )  # fmt: skip
