"""Which redirects say that a page has moved, and which are a site's everyday ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from warpshelf.links.health import address
from warpshelf.readings.identity import clean, identity

PERMANENT = {301, 308}
# Pages that a site puts before what was asked for: the address behind them is still the right one.
BARRIER = re.compile(
    r"/(?:log-?in|log-?on|sign-?in|sign-?up|sso|auth|oauth2?|account/begin|captcha|challenge|"
    r"verify|unhuman|consent|cookie-?consent|privacy-?gate|checkpoint)(?:[/.?]|$)",
    re.IGNORECASE,
)
GATES = ("accounts.", "auth.", "captcha.", "consent.", "login.", "passport.", "signin.", "sso.")
LOCALE = re.compile(r"[a-z]{2}(?:[-_][A-Za-z]{2})?")


class Redirect(NamedTuple):
    """One step: the address that was led to, and the status code that led there."""

    url: str
    code: int


def moved(url: str, redirects: Sequence[Redirect]) -> str | None:
    """Where the page behind `url` has its address now, if that is elsewhere for good.

    Only permanent redirects count, up to the first that is not. Another scheme, `www.`, a final
    slash, a language in the path, another spelling of one work's address, the entrance of a site
    and pages that stand before others (logins, consents) are no move. The new address comes without
    tracking parameters.
    """
    target = None
    for redirect in redirects:
        if redirect.code not in PERMANENT or barrier(redirect.url):
            break
        target = redirect.url
    if target is None or _same(url, target):
        return None
    target = clean(re.sub(r"^http://", "https://", target))
    return target if address(target) is None else None


def barrier(url: str) -> bool:
    """Whether `url` is a page that stands before others: a login, a consent, a puzzle."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(BARRIER.search(parts.path)) or (parts.hostname or "").startswith(GATES)


def _same(url: str, target: str) -> bool:
    try:
        if identity(url) == identity(target):
            return True
    except ValueError:
        return True  # to what is no address nobody moves
    here, there = urlsplit(url), urlsplit(target)
    if _host(here.hostname) != _host(there.hostname):
        return False
    return not here.path.strip("/") or _words(here.path) == _words(there.path)


def _host(host: str | None) -> str:
    return (host or "").removeprefix("www.")


def _words(path: str) -> list[str]:
    names = [name for name in unquote(path).lower().split("/") if name]
    return [
        re.sub(r"\.html?$", "", n) for n in names if not LOCALE.fullmatch(n) and n != "index.html"
    ]
