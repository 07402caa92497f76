"""Whether an address still leads to a page: what lychee says of it, judged.

A second look of our own is taken only where an answer can mean two things: a redirect without end
(which a cookie may end), and the codes behind which firewalls set their puzzles.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urldefrag

import httpx

from warpshelf.links import lychee
from warpshelf.links.lychee import HOPS, UNRESOLVED, Seen, Web, host_of
from warpshelf.links.redirects import Redirect, barrier, moved

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


def outcomes(
    urls: Iterable[str], web: Web, seconds: float, tell: Callable[[int], None] = lambda _: None
) -> dict[str, Outcome]:
    """The answer of each address, by the address, for as many as fit into `seconds`.

    Addresses are asked in their order, mixed by host. One that is missing from the result was not
    answered for: the time was over, or its host asked to wait for longer than a check may last.
    `tell` hears the number of those done after each batch.

    Raises:
        ShelfError: lychee is not installed, or failed otherwise than by an address.
    """
    end = time.monotonic() + seconds
    found: dict[str, Outcome] = {}
    slow: set[str] = set()
    resolved: dict[str, bool | None] = {}
    with web.client() as client:
        for batch in lychee.batches(list(dict.fromkeys(urls))):
            batch = [url for url in batch if host_of(url) not in slow]
            left = end - time.monotonic()
            if not batch or left <= 0:
                continue
            seen, whole = lychee.ask(batch, web, min(left, lychee.LONGEST))
            if not whole:
                slow |= {host_of(url) for url in batch if url not in seen}
            for url, one in seen.items():
                host = host_of(url)
                if one.code is None and one.trouble == UNRESOLVED and host not in resolved:
                    resolved[host] = web.resolves(host)
                if _doubtful(one) and time.monotonic() < end:
                    one = _look(url, web, client)
                found[url] = judge(url, one, resolved.get(host, True))
            tell(len(found))
    return found


def judge(url: str, seen: Seen, resolves: bool | None = True) -> Outcome:
    """What `seen` means for `url`; `resolves` tells whether its host's name still does."""
    if seen.code is None:
        if seen.trouble == UNRESOLVED and resolves is False:
            return Outcome("gone", "has a host without an address", heard=False)
        kind = "blocked" if _unfriendly(url) else "unreachable"
        says = "gave no answer" if seen.trouble == UNRESOLVED else seen.trouble
        return Outcome(kind, says, heard=False)
    code, says = seen.code, f"answered {seen.code}"
    end = seen.redirects[-1].url if seen.redirects else url
    if code in GONE:
        return Outcome("gone", says)
    if seen.puzzle or (code >= 300 and _unfriendly(url)):
        return Outcome("blocked", says)
    if 200 <= code < 300:
        if barrier(end) and not barrier(url):
            return Outcome("blocked", "asks for a login")
        target = moved(url, seen.redirects)
        return Outcome("moved", None, target) if target else Outcome("alive")
    if 300 <= code < 400:
        return Outcome("unreachable", "redirects without end")
    if 400 <= code < 500 and code != 408 or code == 999:
        return Outcome("blocked", says)
    return Outcome("unreachable", says)


def _doubtful(seen: Seen) -> bool:
    if seen.final or seen.code is None:
        return False
    return seen.code in DOUBTFUL or 300 <= seen.code < 400


def _unfriendly(url: str) -> bool:
    host = host_of(url)
    return any(host == name or host.endswith(f".{name}") for name in UNFRIENDLY)


def _look(url: str, web: Web, client: httpx.Client) -> Seen:
    """A second look, which keeps cookies and glances at the page."""
    trail: list[Redirect] = []
    here = urldefrag(url).url
    try:
        for _ in range(HOPS + 1):
            asked = web.there(here)
            with client.stream("GET", asked) as response:
                code, location = response.status_code, response.headers.get("location")
                if response.is_redirect and location and len(trail) < HOPS:
                    here = web.back(str(response.url.join(location)))
                    trail.append(Redirect(here, code))
                    continue
                return Seen(code, "", tuple(trail), _puzzle(response), final=True)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        timed = isinstance(error, httpx.TimeoutException)
        return Seen(None, "timed out" if timed else "gave no answer", tuple(trail), final=True)
    return Seen(302, "", tuple(trail), final=True)


def _puzzle(response: httpx.Response) -> bool:
    headers = response.headers
    if "cf-mitigated" in headers or headers.get("x-amzn-waf-action") in ("challenge", "captcha"):
        return True
    if response.status_code not in DOUBTFUL | {403, 429}:
        return False
    glance = b""
    for piece in response.iter_raw():
        glance += piece
        if len(glance) >= GLANCE:
            break
    return PUZZLE.search(glance[:GLANCE]) is not None
