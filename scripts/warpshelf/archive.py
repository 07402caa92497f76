"""Archive: the copy of a page that the Internet Archive keeps, for a link that fails."""

from __future__ import annotations

import json
from urllib.parse import urlencode, urlsplit

import httpx

from warpshelf import fetch, health

AVAILABLE = "https://archive.org/wayback/available"


def copy(
    url: str, client: httpx.Client, available: str = AVAILABLE, *, private: bool = False
) -> str | None:
    """The address of the newest copy of `url`; None where there is none, or nobody answered.

    `private` lets `available` be an address that is not on the public internet.
    """
    try:
        answer = fetch.get(f"{available}?{urlencode({'url': url})}", client, private=private)
        found = json.loads(answer.data)["archived_snapshots"]["closest"]
        there = str(found["url"]) if found["available"] is True else ""
    except (fetch.Unreachable, ValueError, KeyError, TypeError, RecursionError):
        return None
    there = "https://" + there.partition("://")[2]
    kept = health.address(there) is None and urlsplit(there).hostname == health.ARCHIVE
    return there if kept else None
