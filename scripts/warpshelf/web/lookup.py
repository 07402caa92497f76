"""What the web says an address is: title, authors, year, venue; and where a copy is.

A service is asked where one knows the address; else the head of the page itself is read, in
whichever of the usual vocabularies it speaks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx

from warpshelf.readings.identity import strip_tracking, work_identity
from warpshelf.web import fetch, services
from warpshelf.web.fetch import AGENT, Unreachable
from warpshelf.web.services import Endpoints, Metadata, doi_url

CHUNK = 8 * 1024
PENDING = 64 * 1024  # bytes that one tag may hold
SCRIPTS = 8  # blocks of JSON-LD that are looked at
ENCODINGS = re.compile(  # those of pages; Python's own such as unicode_escape are none
    r"utf-?8|utf-16(?:le|be)?|iso-8859-\d{1,2}|windows-125\d|gbk|gb18030|big5|shift_jis|euc-jp"
    r"|iso-2022-jp|euc-kr|koi8-[ru]"
)
WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "iso-8859-1": "windows-1252",
         "us-ascii": "windows-1252", "ascii": "windows-1252"}  # fmt: skip
DATES = ("citation_publication_date", "citation_date", "citation_year", "citation_online_date",
         "article:published_time", "og:article:published_time", "datepublished", "dc.date",
         "dc.date.issued", "dcterms.date", "dcterms.created", "pubdate", "date")  # fmt: skip
POSTS = {"article", "blogposting", "newsarticle", "techarticle", "socialmediaposting"}
KINDS = {"course": "course", "book": "book", "scholarlyarticle": "paper", "videoobject": "talk",
         "video.other": "talk", "video": "talk"}  # fmt: skip
SEPARATORS = r"\s+[|\u2013\u2014\u00b7\u2022:-]\s+"


def parse_page(data: bytes, url: str, charset: str | None = None) -> Metadata | None:
    """What the HTML `data`, found at `url`, says of itself; None where it has no title.

    Highwire's `citation_*` comes first, then JSON-LD, then Open Graph, then plain HTML. `charset`
    is what the server said. Nothing is raised, whatever the data.
    """
    head = _Head(decode_page(data, charset))
    blocks = [*_json_ld_blocks(head.scripts)]
    title = _page_title(head, blocks, url)
    if not title:
        return None
    said = next((_block_kind(block) for block in blocks if _block_kind(block)), None)
    scholarly = bool(head.first_text("citation_title"))
    return Metadata(
        title=title,
        url=_own_url(head.canonical, url),
        authors=_page_authors(head, blocks),
        year=next(filter(None, map(services.parse_year, _page_dates(head, blocks))), None),
        venue=_page_venue(head) or None,
        kind="paper" if scholarly else said or _open_graph_kind(head),
        lang=services.detect_language(head.lang or head.first_text("og:locale"), title),
        also=_related_works(head, url) if scholarly else (),
        about=services.clean_text(head.first_text("og:description", "description")) or None,
    )


def decode_page(data: bytes, charset: str | None) -> str:
    """The text of a page, by its byte order mark, the server's word, its own, or as UTF-8."""
    if data.startswith(b"\xef\xbb\xbf"):
        charset = "utf-8"
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        charset = "utf-16"
    elif not charset:
        own = re.search(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w-]{2,20})", data[:4096], re.I)
        charset = own[1].decode("ascii", "replace") if own else "utf-8"
    known = charset.strip().lower()
    known = WIDER.get(known, known)
    return data.decode(known if ENCODINGS.fullmatch(known) else "utf-8", "replace")


class _Head(HTMLParser):
    """Metas, links, title and JSON-LD up to the end of the head."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.metas: dict[str, list[str]] = {}
        self.scripts: list[str] = []
        self.title = ""
        self.lang: str | None = None
        self.canonical: str | None = None
        self._in = ""
        self._done = False
        try:
            # In pieces: a parser that waits for the end of a tag is given up, not waited for.
            for start in range(0, len(page), CHUNK):
                self.feed(page[start : start + CHUNK])
                if self._done or len(self.rawdata) > PENDING:
                    break
        except AssertionError:  # what html.parser says of some malformed declarations
            pass

    def first_text(self, *names: str) -> str:
        """The first text of the first of `names` that has one."""
        texts = (text for name in names for text in self.metas.get(name, []) if text.strip())
        return next(texts, "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in reversed(attrs)}
        if self._done or tag == "body":
            self._done = True
        elif tag == "html":
            self.lang = self.lang or said.get("lang") or said.get("xml:lang")
        elif tag == "meta":
            for key in ("name", "property", "itemprop"):
                kept = self.metas.setdefault(said.get(key, "").strip().lower()[:80], [])
                if "content" in said and len(kept) < 200:
                    kept.append(said["content"])
        elif tag == "link" and "canonical" in said.get("rel", "").lower().split():
            self.canonical = self.canonical or said.get("href")
        elif tag == "title" and not self.title:
            self._in = "title"
        elif tag == "script" and said.get("type", "").strip().lower() == "application/ld+json":
            self._in = "script" if len(self.scripts) < SCRIPTS else ""
            self.scripts += [""] if self._in else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("meta", "link"):
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in (self._in, "head"):
            self._in = ""
            self._done = self._done or tag == "head"

    def handle_data(self, data: str) -> None:
        if self._in == "title":
            self.title += data[:2000]
        elif self._in == "script":
            self.scripts[-1] += data


def _json_ld_blocks(scripts: list[str]) -> Iterator[dict[str, Any]]:
    """The objects of the JSON-LD blocks, those of an @graph included."""
    for script in scripts:
        try:
            said = json.loads(script)
        except (ValueError, RecursionError):
            continue
        for item in said if isinstance(said, list) else [said]:
            if isinstance(item, dict):
                graph = item.get("@graph")
                yield from (x for x in [item, *(graph if type(graph) is list else [])][:50]
                            if isinstance(x, dict))  # fmt: skip


def _block_types(block: dict[str, Any]) -> list[str]:
    said = block.get("@type")
    return [str(kind).lower() for kind in (said if isinstance(said, list) else [said])]


def _block_kind(block: dict[str, Any]) -> str | None:
    for kind in _block_types(block):
        if kind in POSTS or kind in KINDS:
            return "post" if kind in POSTS else KINDS[kind]
    return None


def _open_graph_kind(head: _Head) -> str | None:
    said = head.first_text("og:type").strip().lower()
    return "post" if said == "article" else KINDS.get(said)


def _page_title(head: _Head, blocks: list[dict[str, Any]], url: str) -> str:
    if exact := services.clean_markup(head.first_text("citation_title")):
        return exact
    for block in blocks:
        if _block_kind(block) and (headline := services.clean_markup(block.get("headline"))):
            return headline
    title = services.clean_text(
        head.first_text("og:title", "twitter:title")
    ) or services.clean_text(head.title)
    return _strip_site_name(title, [head.first_text("og:site_name", "application-name"), url])


def _strip_site_name(title: str, sites: list[str]) -> str:
    """`title` without the site's name behind it, as in `How a warp waits | A blog`."""
    host = (urlsplit(sites[-1]).hostname or "").removeprefix("www.")
    named = {_letters_only(site) for site in [sites[0], host, host.partition(".")[0]]} - {""}
    last = next(iter([*re.finditer(SEPARATORS, title)][::-1]), None)
    if last and title[: last.start()].strip() and _letters_only(title[last.end() :]) in named:
        return title[: last.start()].strip()
    return title


def _letters_only(words: str) -> str:
    return re.sub(r"\W", "", words).casefold()


def _page_authors(head: _Head, blocks: list[dict[str, Any]]) -> tuple[str, ...]:
    listed = [text for text in head.metas.get("citation_author", []) if text.strip()]
    if len(listed) < 2:
        listed = (head.first_text("citation_authors") or "".join(listed)).split(";")
    if several := services.clean_authors(
        services.given_name_first(services.clean_name(text)) for text in listed
    ):
        return several
    for block in blocks:
        said = block.get("author") if _block_kind(block) else None
        names = [item.get("name") if isinstance(item, dict) else item
                 for item in (said if isinstance(said, list) else [said])]  # fmt: skip
        if several := services.clean_authors(names):
            return several
    for key in ("article:author", "author", "dc.creator", "twitter:data1"):
        if key == "twitter:data1" and head.first_text("twitter:label1").lower() != "written by":
            continue
        if several := services.clean_authors(
            p for text in head.metas.get(key, []) for p in _split_people(text)
        ):
            return several
    return ()


def _split_people(text: str) -> list[str]:
    """`A B, C D and E F` as three; `B, A` as `A B`."""
    parts = [part.strip() for part in re.split(r"[,;]\s+|\s+(?:and|&)\s+", text[:1000])]
    if all(" " in part for part in parts):
        return parts
    return [services.given_name_first(services.clean_name(text))]


def _page_dates(head: _Head, blocks: list[dict[str, Any]]) -> Iterator[object]:
    yield head.first_text(*DATES[:4])
    yield from (block.get("datePublished") for block in blocks if _block_kind(block))
    yield from (head.first_text(key) for key in DATES[4:])


def _page_venue(head: _Head) -> str:
    keys = ("citation_conference_title", "citation_journal_title", "citation_inbook_title")
    return next(
        filter(
            None, (services.clean_name(head.first_text(key)) for key in (*keys, "og:site_name"))
        ),
        "",
    )


def _own_url(canonical: str | None, url: str) -> str:
    """The address that a page gives as its own, if it is on the same host; else `url`."""
    try:
        own = strip_tracking(urljoin(url, (canonical or url).strip()))
        work_identity(own)
        parts, asked = urlsplit(own), urlsplit(url)
        same = parts.scheme == "https" and parts.netloc == asked.netloc
        # A page that gives its site's front page as its own address means nothing by it.
        deep = parts.path.strip("/") or not asked.path.strip("/")
        return own if same and deep and len(own) <= services.URL else url
    except ValueError:
        return url


def _related_works(head: _Head, url: str) -> tuple[tuple[str, str], ...]:
    works = (("published", doi_url(head.first_text("citation_doi"))),
             ("preprint", doi_url(f"10.48550/arXiv.{head.first_text('citation_arxiv_id')}")
              if head.first_text("citation_arxiv_id") else None))  # fmt: skip
    return tuple(
        (what, work) for what, work in works if work and work_identity(work) != work_identity(url)
    )


WEB = Endpoints()
HTML = "text/html, application/xhtml+xml;q=0.9"


def lookup_work(url: str, client: httpx.Client, endpoints: Endpoints = WEB) -> Metadata | None:
    """What is known of the work at `url`: from arXiv, Crossref, GitHub or YouTube, else its page.

    A DOI that Crossref does not have is looked for on the page that it leads to. None where the
    target tells nothing, such as a PDF, a file within a repository, or a work unknown to arXiv.
    At most two requests and their redirects; see `fetch.get` for the limits.

    Raises:
        Unreachable: no answer came, or none that can be read; `str()` is the one reason, `status`
            the HTTP status where there was one.
        ValueError: `url` is not an absolute http or https URL.
    """
    work = work_identity(url)
    ask = _ServiceClient(client, endpoints)
    scheme, _, name = work.partition(":")
    try:
        if scheme == "arxiv":
            query = urlencode({"id_list": name, "max_results": 1})
            return services.parse_arxiv(ask.ask_service(f"{endpoints.arxiv}?{query}"), work)
        if scheme == "doi":
            return ask.ask_crossref(name, work) or ask.ask_page(url)
        if scheme == "github":
            whole = name.count("/") == 1
            return (
                services.parse_github(ask.ask_service(f"{endpoints.github}/{name}"))
                if whole
                else None
            )
        if scheme == "youtube":
            watch = _watch_url(name)
            query = urlencode({"url": watch, "format": "json"})
            return services.parse_youtube(ask.ask_service(f"{endpoints.youtube}?{query}"), watch)
        return ask.ask_page(url)
    except services.Unreadable as error:
        raise Unreachable(f"the answer is {error}") from None


def archived_copy(url: str, client: httpx.Client, endpoints: Endpoints = WEB) -> str | None:
    """The address of the newest copy of `url` in the Internet Archive.

    None where there is none, or nobody answered.
    """
    query = urlencode({"url": url})
    try:
        return services.parse_archived(
            _ServiceClient(client, endpoints).ask_service(f"{endpoints.archive}?{query}")
        )
    except (Unreachable, services.Unreadable):
        return None


def _watch_url(name: str) -> str:
    if name.startswith("playlist/"):
        listed = quote(name.removeprefix("playlist/"), safe="")
        return f"https://www.youtube.com/playlist?list={listed}"
    return f"https://www.youtube.com/watch?v={name}"


class _ServiceClient:
    """Requests with one client, at one set of endpoints."""

    def __init__(self, client: httpx.Client, endpoints: Endpoints) -> None:
        self.client, self.endpoints = client, endpoints

    def ask_service(self, url: str) -> bytes:
        """The whole body of an answer of one of the services."""
        agent = AGENT.replace(")", f"; mailto:{self.endpoints.mailto})")
        answer = fetch.fetch_url(url, self.client, agent=agent, private=self.endpoints.private)
        if not answer.whole:
            raise Unreachable(f"{urlsplit(url).hostname} answers more than {fetch.LARGEST} bytes")
        return answer.data

    def ask_crossref(self, name: str, work: str) -> Metadata | None:
        try:
            data = self.ask_service(f"{self.endpoints.crossref}/{quote(name, safe='')}")
        except Unreachable as error:
            if error.status == 404:  # registered elsewhere, such as with DataCite
                return None
            raise
        return services.parse_crossref(data, work)

    def ask_page(self, url: str) -> Metadata | None:
        asked, base = url, self.endpoints.pages
        if base:
            asked = f"{base}/{url.partition('://')[2]}"
        answer = fetch.fetch_url(asked, self.client, accept=HTML, private=self.endpoints.private)
        if answer.type not in ("text/html", "application/xhtml+xml"):
            return None
        if base and answer.url.startswith(f"{base}/"):
            url = f"https://{answer.url.removeprefix(f'{base}/')}"
        elif not base:
            url = answer.url
        return parse_page(answer.data, url, answer.charset)
