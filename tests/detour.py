"""A detour: addresses of any host, led to the server on this machine that plays all of them."""

from __future__ import annotations

import shutil
import socket
import sys
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from loopback import Web

from warpshelf.links import liveness
from warpshelf.links.survey import Means

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

    def there(self, url: str) -> str:
        """The address on this machine."""
        scheme, _, rest = url.partition("://")
        base = self.elsewhere.get(urlsplit(url).hostname or "", f"{self.web.base}/{scheme}")
        return f"{base}/{rest}"

    def back(self, url: str) -> str:
        """The address that was meant."""
        for base in (self.web.base, *self.elsewhere.values()):
            for scheme in ("https", "http"):
                if url.startswith(f"{base}/{scheme}/"):
                    return f"{scheme}://{url.removeprefix(f'{base}/{scheme}/')}"
        return url

    def put(self, url: str, status: int = 200, body: bytes | str = "a page", **headers: str) -> str:
        """Answer `url`, which is given back."""
        # The server closes each connection, and who asks again should know it.
        self.web.put(self.path(url), body, status=status, connection="close", **headers)
        return url

    def move(self, url: str, to: str, status: int = 301) -> str:
        """Answer `url` by a redirect; it is given back."""
        return self.put(url, status, "", location=self.there(to))

    def path(self, url: str) -> str:
        """Where the server has `url`."""
        return urlsplit(self.there(url)).path

    def times(self, url: str) -> int:
        """How often `url` was asked for."""
        return sum(path == self.path(url) for path, _, _ in self.web.asked)

    def asker(self, **changes: object) -> liveness.Web:
        """What asks through this detour, in a hurry."""
        settings: dict = {"timeout": 1.0, "pause": 0.0, "retries": 0, **changes}
        return liveness.Web(
            there=self.there, back=self.back, resolves=lambda host: self.known.get(host, True),
            **settings,
        )  # fmt: skip

    def means(self, today: str, **changes: object) -> Means:
        """Everything that a survey asks, here; the canaries answer."""
        for url in CANARIES:
            self.put(url)
        return Means(
            web=self.asker(**changes), canaries=CANARIES,
            endpoints=self.web.endpoints, pauses={"arxiv": 0.0, "doi": 0.0, "github": 0.0},
            today=date.fromisoformat(today),
        )  # fmt: skip
