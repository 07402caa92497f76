"""What the web itself says an address is: title, authors, year, venue; and where a copy is."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

import httpx

from warpshelf.readings.identity import identity
from warpshelf.web import fetch, services, webpage
from warpshelf.web.fetch import AGENT, Unreachable
from warpshelf.web.metadata import Metadata
from warpshelf.web.services import Endpoints

WEB = Endpoints()
HTML = "text/html, application/xhtml+xml;q=0.9"


def lookup(url: str, client: httpx.Client, endpoints: Endpoints = WEB) -> Metadata | None:
    """What is known of the work at `url`: from arXiv, Crossref, GitHub or YouTube, else its page.

    A DOI that Crossref does not have is looked for on the page that it leads to. None where the
    target tells nothing, such as a PDF, a file within a repository, or a work unknown to arXiv.
    At most two requests and their redirects; see `fetch.get` for the limits.

    Raises:
        Unreachable: no answer came, or none that can be read; `str()` is the one reason, `status`
            the HTTP status where there was one.
        ValueError: `url` is not an absolute http or https URL.
    """
    work = identity(url)
    ask = _Asking(client, endpoints)
    scheme, _, name = work.partition(":")
    try:
        if scheme == "arxiv":
            query = urlencode({"id_list": name, "max_results": 1})
            return services.arxiv(ask.service(f"{endpoints.arxiv}?{query}"), work)
        if scheme == "doi":
            return ask.crossref(name, work) or ask.page(url)
        if scheme == "github":
            whole = name.count("/") == 1
            return services.github(ask.service(f"{endpoints.github}/{name}")) if whole else None
        if scheme == "youtube":
            watch = _watch(name)
            query = urlencode({"url": watch, "format": "json"})
            return services.youtube(ask.service(f"{endpoints.youtube}?{query}"), watch)
        return ask.page(url)
    except services.Unreadable as error:
        raise Unreachable(f"the answer is {error}") from None


def archived(url: str, client: httpx.Client, endpoints: Endpoints = WEB) -> str | None:
    """The address of the newest copy of `url` in the Internet Archive.

    None where there is none, or nobody answered.
    """
    query = urlencode({"url": url})
    try:
        return services.archived(_Asking(client, endpoints).service(f"{endpoints.archive}?{query}"))
    except (Unreachable, services.Unreadable):
        return None


def _watch(name: str) -> str:
    if name.startswith("playlist/"):
        listed = quote(name.removeprefix("playlist/"), safe="")
        return f"https://www.youtube.com/playlist?list={listed}"
    return f"https://www.youtube.com/watch?v={name}"


class _Asking:
    """Requests with one client, at one set of endpoints."""

    def __init__(self, client: httpx.Client, endpoints: Endpoints) -> None:
        self.client, self.endpoints = client, endpoints

    def service(self, url: str) -> bytes:
        """The whole body of an answer of one of the services."""
        agent = AGENT.replace(")", f"; mailto:{self.endpoints.mailto})")
        answer = fetch.get(url, self.client, agent=agent, private=self.endpoints.private)
        if not answer.whole:
            raise Unreachable(f"{urlsplit(url).hostname} answers more than {fetch.LARGEST} bytes")
        return answer.data

    def crossref(self, name: str, work: str) -> Metadata | None:
        try:
            data = self.service(f"{self.endpoints.crossref}/{quote(name, safe='')}")
        except Unreachable as error:
            if error.status == 404:  # registered elsewhere, such as with DataCite
                return None
            raise
        return services.crossref(data, work)

    def page(self, url: str) -> Metadata | None:
        asked, base = url, self.endpoints.pages
        if base:
            asked = f"{base}/{url.partition('://')[2]}"
        answer = fetch.get(asked, self.client, accept=HTML, private=self.endpoints.private)
        if answer.type not in ("text/html", "application/xhtml+xml"):
            return None
        if base and answer.url.startswith(f"{base}/"):
            url = f"https://{answer.url.removeprefix(f'{base}/')}"
        elif not base:
            url = answer.url
        return webpage.read(answer.data, url, answer.charset)
