"""Whether an address still leads to a page: lychee asks, and its answers are judged over days.

lychee asks a host a few times at once, with a pause between, waits as long as a host's Retry-After
says, and reads no body. A second look of our own is taken only where an answer can mean two things:
a redirect without end (which a cookie may end), and the codes behind which firewalls set their
puzzles.

One bad day does not count. A link is gone only after checks on several days in a row, spread over
most of a week, were told that nothing is there; until then it is failing.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

import httpx

from warpshelf.core.findings import Finding, ShelfError, install_hint, printable_line
from warpshelf.links.health import Health, Redirect, is_barrier, permanent_target

BATCH = 64  # links of one run of lychee
PER_HOST = 8  # of them to one host, so that no host makes a batch long
LONGEST = 180.0  # seconds that one run may take; a host that asks to wait longer is left for later
HOPS = 10  # redirects that are followed
AGENT = "Mozilla/5.0 (compatible; Warpshelf link check; +https://warpshelf.github.io/warpshelf/)"
# Plain bytes, so that a small answer cannot unfold into a large one.
HEADERS = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
UNRESOLVED = "no connection"  # for which the name may be at fault
# lychee has one sentence for several faults, so a name without an address is among the rest.
ERRORS = {
    r"certificate|\btls\b|\bssl\b|handshake|corrupt message": "failed at TLS",
    "refused": "refused the connection",
    "timed? ?out": "timed out",
    "redirect": "redirects without end",
}
DONE = re.compile(r"^\s*\[(\d{3}|ERROR|TIMEOUT)\] \S+ \(at (\d+):\d+\)(?!.*Redirects: )")


@dataclass(frozen=True)
class LinkResponse:
    """What came back for an address: a status code, or what went wrong, and the redirects."""

    code: int | None = None
    trouble: str = ""
    redirects: tuple[Redirect, ...] = ()
    puzzle: bool = False  # a firewall asks for proof of a person


def _host_resolves(host: str) -> bool | None:
    """Whether `host` has an address; None if the lookup failed."""
    try:
        socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        missing = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
        return False if error.errno in missing else None
    except (OSError, UnicodeError):
        return None
    return True


@dataclass(frozen=True)
class WebConfig:
    """How the web is asked. Tests lead addresses to a server of their own by `there` and `back`."""

    timeout: float = 20.0  # seconds for one answer
    pause: float = 1.0  # seconds between two requests to one host
    retries: int = 1
    there: Callable[[str], str] = str  # the address to ask for an address
    back: Callable[[str], str] = str  # the address that was meant by one that was asked
    resolves: Callable[[str], bool | None] = _host_resolves

    def client(self) -> httpx.Client:
        """A client that says who asks, follows nothing by itself, and keeps cookies."""
        return httpx.Client(headers=HEADERS, timeout=self.timeout)


def host_of(url: str) -> str:
    """The host of `url` without `www.`, by which links are counted."""
    return (urlsplit(url).hostname or "").removeprefix("www.")


def batch_urls(urls: list[str]) -> Iterator[list[str]]:
    """Batches in the order of `urls`, but with few of one host in each."""
    while urls:
        batch: list[str] = []
        later: list[str] = []
        count: Counter[str] = Counter()
        for url in urls:
            fits = len(batch) < BATCH and count[host_of(url)] < PER_HOST
            (batch if fits else later).append(url)
            count[host_of(url)] += fits
        yield batch
        urls = later


def _find_lychee() -> str:
    beside = str(Path(sys.executable).parent)
    if found := shutil.which("lychee", path=beside) or shutil.which("lychee"):
        return found
    what = "is not installed in this environment"
    raise ShelfError(Finding("lychee", None, what, install_hint("links")))


def _run_lychee(
    urls: list[str], web: WebConfig, seconds: float
) -> tuple[dict[str, LinkResponse], bool]:
    """What one run of lychee says of `urls`, and whether it came to its end in `seconds`."""
    program = _find_lychee()
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
        try:
            with log.open("wb") as said:
                done = subprocess.run(
                    words, cwd=folder, stdout=subprocess.PIPE, stderr=said, timeout=seconds
                )
            return _parse_report(json.loads(done.stdout), urls, web), True
        except subprocess.TimeoutExpired:
            return _parse_log(log.read_text(encoding="utf-8", errors="replace"), urls), False
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            what = f"ended with {done.returncode} and without a readable answer"
            last = printable_line(lines[-1], 200) if lines else repr(error)
            raise ShelfError(Finding("lychee", None, what, f"it said: {last}")) from None


def _parse_report(
    report: dict[str, Any], urls: list[str], web: WebConfig
) -> dict[str, LinkResponse]:
    found: dict[str, LinkResponse] = {}
    for name in ("success_map", "error_map", "timeout_map"):
        for item in chain.from_iterable(report[name].values()):
            status = item["status"]
            hops = item.get("redirects", {}).get("redirects", [])
            trail = tuple(Redirect(web.back(hop["url"]), hop["code"]) for hop in hops)
            text = f"{status.get('details', '')} {status.get('text', '')}"
            trouble = "timed out" if name == "timeout_map" else _describe_error(text)
            url = urls[item["span"]["line"] - 1]
            found[url] = LinkResponse(status.get("code"), trouble, trail)
    return found


def _parse_log(log: str, urls: list[str]) -> dict[str, LinkResponse]:
    """What lychee had said of links without redirects when its time ran out."""
    found = {}
    for line in log.splitlines():
        if (match := DONE.match(line)) and 0 < int(match[2]) <= len(urls):
            code = int(match[1]) if match[1].isdigit() else None
            trouble = "timed out" if match[1] == "TIMEOUT" else _describe_error(line)
            found[urls[int(match[2]) - 1]] = LinkResponse(code, trouble)
    return found


def _describe_error(text: str) -> str:
    """A network error of lychee's in our words."""
    matching = (says for pattern, says in ERRORS.items() if re.search(pattern, text, re.IGNORECASE))
    return next(matching, UNRESOLVED)


GLANCE = 65_536  # bytes of a body that a second look reads
GONE = {404, 410}
DOUBTFUL = {202, 503}  # what a firewall's puzzle comes with, and other things too
# Hosts that turn programs away in many ways; from them only "there is no such page" is believed.
UNFRIENDLY = {
    "acm.org", "csdn.net", "ieee.org", "linkedin.com", "medium.com", "openreview.net",
    "researchgate.net", "sciencedirect.com", "twitter.com", "weixin.qq.com", "wiley.com", "x.com",
    "zhihu.com",
}  # fmt: skip
PUZZLE = re.compile(rb"Just a moment\.\.\.|challenge-platform|cf-chl-|_Incapsula_|captcha", re.I)


@dataclass(frozen=True)
class Outcome:
    """What one look at an address found.

    `kind` is alive, moved, gone, blocked or unreachable; `says` puts it in a few words of ours.
    """

    kind: str
    says: str | None = None
    moved_to: str | None = None
    heard: bool = True  # an answer came back, whatever it was


def check_urls(
    urls: Iterable[str],
    web: WebConfig,
    seconds: float,
    tell: Callable[[int], None] = lambda _: None,
) -> dict[str, Outcome]:
    """The answer of each address, by the address, for as many as fit into `seconds`.

    Addresses are asked in their order, mixed by host. One that is missing from the result got no
    answer: the time ran out, or its host asked to wait for longer than a check may last. `tell` is
    called with the number done after each batch.

    Raises ShelfError if lychee is not installed, or failed for a reason other than an address.
    """
    end = time.monotonic() + seconds
    found: dict[str, Outcome] = {}
    slow: set[str] = set()
    resolved: dict[str, bool | None] = {}
    with web.client() as client:
        for batch in batch_urls(list(dict.fromkeys(urls))):
            batch = [url for url in batch if host_of(url) not in slow]
            left = end - time.monotonic()
            if not batch or left <= 0:
                continue
            seen, whole = _run_lychee(batch, web, min(left, LONGEST))
            if not whole:
                slow |= {host_of(url) for url in batch if url not in seen}
            for url, one in seen.items():
                host = host_of(url)
                if one.code is None and one.trouble == UNRESOLVED and host not in resolved:
                    resolved[host] = web.resolves(host)
                doubtful = one.code in DOUBTFUL or (one.code or 0) in range(300, 400)
                if doubtful and time.monotonic() < end:
                    one = _look_again(url, web, client)
                found[url] = judge_response(url, one, resolved.get(host, True))
            tell(len(found))
    return found


def judge_response(url: str, seen: LinkResponse, resolves: bool | None = True) -> Outcome:
    """What `seen` means for `url`; `resolves` tells whether its host's name still does."""
    host, code, says = host_of(url), seen.code, f"answered {seen.code}"
    unfriendly = any(host == name or host.endswith(f".{name}") for name in UNFRIENDLY)
    if code is None:
        if seen.trouble == UNRESOLVED and resolves is False:
            return Outcome("gone", "has a host without an address", heard=False)
        says = "gave no answer" if seen.trouble == UNRESOLVED else seen.trouble
        return Outcome("blocked" if unfriendly else "unreachable", says, heard=False)
    if code in GONE:
        return Outcome("gone", says)
    if seen.puzzle or (code >= 300 and unfriendly):
        return Outcome("blocked", says)
    if 200 <= code < 300:
        if seen.redirects and is_barrier(seen.redirects[-1].url) and not is_barrier(url):
            return Outcome("blocked", "asks for a login")
        target = permanent_target(url, seen.redirects)
        return Outcome("moved", None, target) if target else Outcome("alive")
    if 300 <= code < 400:
        return Outcome("unreachable", "redirects without end")
    refused = 400 <= code < 500 and code != 408 or code == 999
    return Outcome("blocked" if refused else "unreachable", says)


def _look_again(url: str, web: WebConfig, client: httpx.Client) -> LinkResponse:
    """A second look, which keeps cookies and glances at the page."""
    trail: list[Redirect] = []
    here = urldefrag(url).url
    try:
        while True:
            with client.stream("GET", web.there(here)) as response:
                code, location = response.status_code, response.headers.get("location")
                if not (response.is_redirect and location and len(trail) < HOPS):
                    return LinkResponse(code, "", tuple(trail), _is_puzzle(response))
                here = web.back(str(response.url.join(location)))
                trail.append(Redirect(here, code))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        timed = isinstance(error, httpx.TimeoutException)
        return LinkResponse(None, "timed out" if timed else "gave no answer", tuple(trail))


def _is_puzzle(response: httpx.Response) -> bool:
    headers = response.headers
    if "cf-mitigated" in headers or headers.get("x-amzn-waf-action") in ("challenge", "captcha"):
        return True
    glance = b""
    if response.status_code in DOUBTFUL | {403, 429}:
        for piece in response.iter_raw():
            glance += piece
            if len(glance) >= GLANCE:
                break
    return PUZZLE.search(glance[:GLANCE]) is not None


ROW = 3  # checks in a row, on different days
SPAN = 6  # days from the first of them to the last
RENEWED = 28  # days after which an alive link's date is rewritten: a stable file, a fresh date
TROUBLES = ("failing", "gone", "unreachable")


def next_state(before: Health | None, answer: Outcome, today: date) -> Health:
    """The state after `answer`, which was given `today`, for a link that was in `before`."""
    day = today.isoformat()
    before = before or Health("")
    alive, title = before.last_alive, before.title_there
    if answer.kind in ("alive", "moved"):
        stale = alive is None or (today - date.fromisoformat(alive)).days >= RENEWED
        alive = day if stale or before.state != answer.kind else alive
    if answer.kind == "alive":
        return Health("alive", last_alive=alive, title_there=title)
    if answer.kind in ("moved", "blocked"):
        # A refusal says nothing about the page, so it ends a row of failures.
        same = before.state == answer.kind and before.moved_to == answer.moved_to
        since, says = before.since if same else day, answer.says
        return Health(
            answer.kind, since, alive, moved_to=answer.moved_to, title_there=title, says=says
        )
    if before.state not in TROUBLES:
        before = Health("failing", day, alive, title_there=title)
    absent = answer.kind == "gone"
    if before.state == "gone" or (before.state == "unreachable" and not absent):
        return before  # settled: nothing is counted on, so that the file stays as it is
    failures, absences, counted = before.failures, before.absences, before.counted
    if counted is None or counted < day:
        failures, absences, counted = failures + 1, absences + absent, day
    state = "failing"
    if (today - date.fromisoformat(before.since or day)).days >= SPAN:
        silences = failures - absences
        state = "gone" if absences >= ROW else "unreachable" if silences >= ROW else state
    return replace(
        before, state=state, says=answer.says, failures=failures, absences=absences, counted=counted
    )
