"""lychee, which does the asking: what it is told, and what it says of each address.

It asks a host a few times at once, with a pause between, waits as long as a host's Retry-After
says, and reads no body.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

import httpx

from warpshelf.core.findings import Finding, ShelfError, install, visible
from warpshelf.links.redirects import Redirect

BATCH = 64  # links of one run of lychee
PER_HOST = 8  # of them to one host, so that no host makes a batch long
LONGEST = 180.0  # seconds that one run may take; a host that asks to wait longer is left for later
HOPS = 10  # redirects that are followed
AGENT = "Mozilla/5.0 (compatible; Warpshelf link check; +https://warpshelf.github.io/warpshelf/)"
# Plain bytes, so that a small answer cannot unfold into a large one.
HEADERS = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
UNRESOLVED = "no connection"  # for which the name may be at fault
DONE = re.compile(r"^\s*\[(\d{3}|ERROR|TIMEOUT)\] \S+ \(at (\d+):\d+\)(?!.*Redirects: )")


@dataclass(frozen=True)
class Seen:
    """What came back for an address: a status code, or what went wrong, and the redirects."""

    code: int | None = None
    trouble: str = ""
    redirects: tuple[Redirect, ...] = ()
    puzzle: bool = False  # a firewall asks for proof of a person
    final: bool = False  # a second look has been taken


def _resolves(host: str) -> bool | None:
    """Whether `host` has an address; None where nobody could tell."""
    try:
        socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        missing = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
        return False if error.errno in missing else None
    except (OSError, UnicodeError):
        return None
    return True


@dataclass(frozen=True)
class Web:
    """How the web is asked. Tests lead addresses to a server of their own by `there` and `back`."""

    timeout: float = 20.0  # seconds for one answer
    pause: float = 1.0  # seconds between two requests to one host
    retries: int = 1
    there: Callable[[str], str] = str  # the address to ask for an address
    back: Callable[[str], str] = str  # the address that was meant by one that was asked
    resolves: Callable[[str], bool | None] = _resolves

    def client(self) -> httpx.Client:
        """A client that says who asks, follows nothing by itself, and keeps cookies."""
        return httpx.Client(headers=HEADERS, timeout=self.timeout)


def host_of(url: str) -> str:
    """The host of `url` without `www.`, by which links are counted."""
    return (urlsplit(url).hostname or "").removeprefix("www.")


def batches(urls: list[str]) -> Iterator[list[str]]:
    """Batches in the order of `urls`, but with few of one host in each."""
    while urls:
        batch: list[str] = []
        later: list[str] = []
        count: dict[str, int] = {}
        for url in urls:
            name = host_of(url)
            if len(batch) < BATCH and count.get(name, 0) < PER_HOST:
                batch.append(url)
                count[name] = count.get(name, 0) + 1
            else:
                later.append(url)
        yield batch
        urls = later


def _program() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("lychee", path=str(beside)) or shutil.which("lychee")
    if found is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("lychee", None, what, install("links")))
    return found


def ask(urls: list[str], web: Web, seconds: float) -> tuple[dict[str, Seen], bool]:
    """What one run of lychee says of `urls`, and whether it came to its end.

    If it did not, what it had said after `seconds`.

    Raises:
        ShelfError: lychee is not installed, or failed otherwise than by an address.
    """
    program = _program()
    with tempfile.TemporaryDirectory() as folder:
        # One link a line: lychee says on which line it found what it reports on, and may write the
        # address itself in another way. An empty folder of its own holds no settings of others.
        lines = [f'<a href="{escape(web.there(urldefrag(url).url))}">x</a>' for url in urls]
        page, log = Path(folder) / "links.html", Path(folder) / "log"
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = [
            program, "--no-progress", "-vv", "--format", "json", "--mode", "plain",
            "--host-concurrency", "2", "--host-request-interval", f"{int(web.pause * 1000)}ms",
            "--max-concurrency", "32", "--max-redirects", str(HOPS),
            "--max-retries", str(web.retries), "--retry-wait-time", "2",
            "--timeout", str(max(1, round(web.timeout))), "--user-agent", AGENT, page.name,
        ]  # fmt: skip
        with log.open("wb") as said:
            try:
                done = subprocess.run(
                    words, cwd=folder, stdout=subprocess.PIPE, stderr=said, timeout=seconds
                )
            except subprocess.TimeoutExpired:
                return _said(log.read_text(encoding="utf-8", errors="replace"), urls), False
        try:
            return _read(json.loads(done.stdout), urls, web), True
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            what = f"ended with {done.returncode}, and not with an answer that can be read"
            last = visible(lines[-1], 200) if lines else repr(error)
            raise ShelfError(Finding("lychee", None, what, f"it said: {last}")) from None


def _read(report: dict[str, Any], urls: list[str], web: Web) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    for name in ("success_map", "error_map", "timeout_map"):
        for item in (item for items in report[name].values() for item in items):
            url = urls[item["span"]["line"] - 1]
            status = item["status"]
            hops = item.get("redirects", {}).get("redirects", [])
            trail = tuple(Redirect(web.back(hop["url"]), hop["code"]) for hop in hops)
            text = f"{status.get('details', '')} {status.get('text', '')}"
            trouble = "timed out" if name == "timeout_map" else _trouble(text)
            found[url] = Seen(status.get("code"), trouble, trail)
    return found


def _trouble(text: str) -> str:
    """What a network error of lychee's is in our words.

    lychee has one sentence for several faults, so a name without an address is among the rest.
    """
    if re.search(r"certificate|\btls\b|\bssl\b|handshake|corrupt message", text, re.IGNORECASE):
        return "failed at TLS"
    if re.search(r"refused", text, re.IGNORECASE):
        return "refused the connection"
    if re.search(r"timed? ?out", text, re.IGNORECASE):
        return "timed out"
    if re.search(r"redirect", text, re.IGNORECASE):
        return "redirects without end"
    return UNRESOLVED


def _said(log: str, urls: list[str]) -> dict[str, Seen]:
    """What lychee had said of links without redirects before its time was over."""
    found = {}
    for line in log.splitlines():
        if (match := DONE.match(line)) and 0 < int(match[2]) <= len(urls):
            code = int(match[1]) if match[1].isdigit() else None
            trouble = "timed out" if match[1] == "TIMEOUT" else _trouble(line)
            found[urls[int(match[2]) - 1]] = Seen(code, trouble)
    return found
