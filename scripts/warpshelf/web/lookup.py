"""What the web says an address is: title, authors, year, venue; and where a copy is.

A service is asked where one knows the address; else the head of the page itself is read, in
whichever of the usual vocabularies it speaks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx

from warpshelf.readings.identity import strip_tracking, work_identity
from warpshelf.web import fetch, services
from warpshelf.web.fetch import AGENT, Unreachable
from warpshelf.web.services import Endpoints, Metadata, clean_authors, clean_name, doi_url

WEB = Endpoints()
HTML = "text/html, application/xhtml+xml;q=0.9"
CHUNK = 8 * 1024
PENDING = 64 * 1024  # bytes that one tag may hold
SCRIPTS = 8  # blocks of JSON-LD that are looked at
ENCODINGS = re.compile(  # those of pages; Python's own such as unicode_escape are none
    r"utf-?8|utf-16(?:le|be)?|iso-8859-\d{1,2}|windows-125\d|gbk|gb18030|big5|shift_jis|euc-jp"
    r"|iso-2022-jp|euc-kr|koi8-[ru]"
)
WIDER = dict.fromkeys(("gb2312", "gbk"), "gb18030")
WIDER |= dict.fromkeys(("iso-8859-1", "us-ascii", "ascii"), "windows-1252")
CITED = ("citation_publication_date", "citation_date", "citation_year", "citation_online_date")
DATES = ("article:published_time", "og:article:published_time", "datepublished", "dc.date",
         "dc.date.issued", "dcterms.date", "dcterms.created", "pubdate", "date")  # fmt: skip
VENUES = ("citation_conference_title", "citation_journal_title", "citation_inbook_title",
          "og:site_name")  # fmt: skip
POSTS = ("article", "blogposting", "newsarticle", "techarticle", "socialmediaposting")
KINDS = {
    **dict.fromkeys(POSTS, "post"),
    **dict.fromkeys(("videoobject", "video.other", "video"), "talk"),
    "course": "course",
    "book": "book",
    "scholarlyarticle": "paper",
}
SEPARATORS = r"\s+[|\u2013\u2014\u00b7\u2022:-]\s+"

Block = tuple[
    str, dict[str, Any]
]  # of JSON-LD: which kind of work it says the page is, and all else


def parse_page(data: bytes, url: str, charset: str | None = None) -> Metadata | None:
    """What the HTML `data`, found at `url`, says of itself; None where it has no title.

    Highwire's `citation_*` comes first, then JSON-LD, then Open Graph, then plain HTML. `charset`
    is what the server said. Nothing is raised, whatever the data.
    """
    head = _Head(_decode_page(data, charset))
    blocks = list(_parse_blocks(head.scripts))
    if not (title := _page_title(head, blocks, url)):
        return None
    dates = (
        head.first_text(*CITED),
        *(block.get("datePublished") for _, block in blocks),
        *map(head.first_text, DATES),
    )
    venues = (clean_name(head.first_text(key)) for key in VENUES)
    kind = blocks[0][0] if blocks else KINDS.get(head.first_text("og:type").strip().lower())
    scholarly = bool(head.first_text("citation_title"))
    return Metadata(
        title=title,
        url=_own_url(head.canonical, url),
        authors=_page_authors(head, blocks),
        year=next(filter(None, map(services.parse_year, dates)), None),
        venue=next(filter(None, venues), None),
        kind="paper" if scholarly else kind,
        lang=services.detect_language(head.lang or head.first_text("og:locale"), title),
        also=_related_works(head, url) if scholarly else (),
        about=services.clean_text(head.first_text("og:description", "description")) or None,
    )


def _decode_page(data: bytes, charset: str | None) -> str:
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
        with suppress(AssertionError):  # what html.parser says of some malformed declarations
            # In pieces: a parser that waits for the end of a tag is given up, not waited for.
            for start in range(0, len(page), CHUNK):
                self.feed(page[start : start + CHUNK])
                if self._done or len(self.rawdata) > PENDING:
                    break

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


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _parse_blocks(scripts: list[str]) -> Iterator[Block]:
    """The objects of JSON-LD that are a work of a known kind, those of an @graph included."""
    for script in scripts:
        said = None
        with suppress(ValueError, RecursionError):
            said = json.loads(script)
        for item in _as_list(said):
            graph = item.get("@graph") if isinstance(item, dict) else None
            for block in [item, *(graph if isinstance(graph, list) else [])][:50]:
                if isinstance(block, dict):
                    types = (str(one).lower() for one in _as_list(block.get("@type")))
                    kinds = [KINDS[one] for one in types if one in KINDS]
                    yield from ((kind, block) for kind in kinds[:1])


def _page_title(head: _Head, blocks: list[Block], url: str) -> str:
    if exact := services.clean_markup(head.first_text("citation_title")):
        return exact
    for _, block in blocks:
        if headline := services.clean_markup(block.get("headline")):
            return headline
    texts = (head.first_text("og:title", "twitter:title"), head.title)
    title = next(filter(None, map(services.clean_text, texts)), "")
    # Without the site's name behind it, as in `How a warp waits | A blog`.
    host = (urlsplit(url).hostname or "").removeprefix("www.")
    site = head.first_text("og:site_name", "application-name")
    named = {_letters_only(one) for one in (site, host, host.partition(".")[0])} - {""}
    *_, last = (None, *re.finditer(SEPARATORS, title))
    if last and title[: last.start()].strip() and _letters_only(title[last.end() :]) in named:
        return title[: last.start()].strip()
    return title


def _letters_only(words: str) -> str:
    return re.sub(r"\W", "", words).casefold()


def _page_authors(head: _Head, blocks: list[Block]) -> tuple[str, ...]:
    listed = [text for text in head.metas.get("citation_author", []) if text.strip()]
    if len(listed) < 2:
        listed = (head.first_text("citation_authors") or "".join(listed)).split(";")
    groups: list[list[object]] = [[services.given_name_first(clean_name(one)) for one in listed]]
    for _, block in blocks:
        people = _as_list(block.get("author"))
        groups.append([one.get("name") if isinstance(one, dict) else one for one in people])
    keys = ["article:author", "author", "dc.creator"]
    if head.first_text("twitter:label1").lower() == "written by":
        keys.append("twitter:data1")
    groups += [
        [name for text in head.metas.get(key, []) for name in _split_people(text)] for key in keys
    ]
    return next(filter(None, map(clean_authors, groups)), ())


def _split_people(text: str) -> list[str]:
    """`A B, C D and E F` as three; `B, A` as `A B`."""
    parts = [part.strip() for part in re.split(r"[,;]\s+|\s+(?:and|&)\s+", text[:1000])]
    if all(" " in part for part in parts):
        return parts
    return [services.given_name_first(clean_name(text))]


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
    preprint = head.first_text("citation_arxiv_id")
    works = {"published": doi_url(head.first_text("citation_doi"))}
    works["preprint"] = doi_url(f"10.48550/arXiv.{preprint}") if preprint else None
    return tuple(
        (what, work)
        for what, work in works.items()
        if work and work_identity(work) != work_identity(url)
    )


def lookup_work(url: str, client: httpx.Client, endpoints: Endpoints = WEB) -> Metadata | None:
    """What is known of the work at `url`: from arXiv, Crossref, GitHub or YouTube, else its page.

    A DOI that Crossref does not have is looked for on the page that it leads to. None where the
    target tells nothing, such as a PDF, a file within a repository, or a work unknown to arXiv.
    At most two requests and their redirects.

    Raises:
        Unreachable: no answer came, or none that can be read.
        ValueError: `url` is not an absolute http or https URL.
    """
    work = work_identity(url)
    scheme, _, name = work.partition(":")

    def ask(address: str, **query: str | int) -> bytes:
        return _ask_service(
            f"{address}?{urlencode(query)}" if query else address, client, endpoints
        )

    try:
        if scheme == "arxiv":
            return services.parse_arxiv(ask(endpoints.arxiv, id_list=name, max_results=1), work)
        if scheme == "doi":
            try:
                said = ask(f"{endpoints.crossref}/{quote(name, safe='')}")
                found = services.parse_crossref(said, work)
            except Unreachable as error:
                if error.status != 404:  # registered elsewhere, such as with DataCite
                    raise
                found = None
            return found or _ask_page(url, client, endpoints)
        if scheme == "github":
            whole = name.count("/") == 1
            return services.parse_github(ask(f"{endpoints.github}/{name}")) if whole else None
        if scheme == "youtube":
            rest = f"watch?v={name}"
            if name.startswith("playlist/"):
                rest = f"playlist?list={quote(name.removeprefix('playlist/'), safe='')}"
            watch = f"https://www.youtube.com/{rest}"
            return services.parse_youtube(ask(endpoints.youtube, url=watch, format="json"), watch)
        return _ask_page(url, client, endpoints)
    except services.Unreadable as error:
        raise Unreachable(f"the answer is {error}") from None


def archived_copy(url: str, client: httpx.Client, endpoints: Endpoints = WEB) -> str | None:
    """The address of the newest copy of `url` in the Internet Archive, if there is one."""
    asked = f"{endpoints.archive}?{urlencode({'url': url})}"
    with suppress(Unreachable, services.Unreadable):
        return services.parse_archived(_ask_service(asked, client, endpoints))
    return None


def _ask_service(url: str, client: httpx.Client, endpoints: Endpoints) -> bytes:
    agent = AGENT.replace(")", f"; mailto:{endpoints.mailto})")
    answer = fetch.fetch_url(url, client, agent=agent, private=endpoints.private)
    if not answer.whole:
        raise Unreachable(f"{urlsplit(url).hostname} answers more than {fetch.LARGEST} bytes")
    return answer.data


def _ask_page(url: str, client: httpx.Client, endpoints: Endpoints) -> Metadata | None:
    base = endpoints.pages
    asked = f"{base}/{url.partition('://')[2]}" if base else url
    answer = fetch.fetch_url(asked, client, accept=HTML, private=endpoints.private)
    if answer.type not in ("text/html", "application/xhtml+xml"):
        return None
    if base and answer.url.startswith(f"{base}/"):
        url = f"https://{answer.url.removeprefix(f'{base}/')}"
    elif not base:
        url = answer.url
    return parse_page(answer.data, url, answer.charset)
