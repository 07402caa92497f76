"""Which work a URL leads to, whichever of its many addresses was written down."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import (
    SplitResult,
    parse_qsl,
    quote,
    unquote,
    urlencode,
    urlsplit,
    urlunsplit,
)

from warpshelf.core.markup import href

ARXIV = re.compile(
    r"(?P<id>\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?(?:\.pdf)?/?", re.IGNORECASE
)
ARXIV_HOSTS = {
    "arxiv.org", "export.arxiv.org", "browse.arxiv.org", "ar5iv.org", "ar5iv.labs.arxiv.org",
    "alphaxiv.org", "huggingface.co",
}  # fmt: skip
ARXIV_PAGES = re.compile(r"/(?:[a-z]{2}/)?(?:abs|pdf|html|ps|format|overview|papers)/(?P<rest>.+)")
DOI = re.compile(r"10\.\d{4,9}/\S+")
DOI_ENDINGS = re.compile(r"(?:\.pdf|/(?:abstract|full|fulltext(?:\.html)?|e?pdf|html|meta))$")
IEEE = re.compile(r"/(?:abstract/)?document/(\d+)(?:/.*)?")
YOUTUBE_ID = re.compile(r"[A-Za-z0-9_-]{11}")
YOUTUBE_HOSTS = {
    "youtube.com", "m.youtube.com", "music.youtube.com", "youtube-nocookie.com", "youtu.be",
}  # fmt: skip
ARCHIVED = re.compile(r"/web/\d+[a-z_]*/(https?:/.*)")
# First path segments on github.com that are pages of the site, not owners of repositories.
GITHUB_PAGES = {
    "about", "apps", "collections", "enterprise", "events", "explore", "features", "login",
    "marketplace", "orgs", "search", "settings", "sponsors", "topics", "trending", "users",
}  # fmt: skip
BRANCHES = {"main", "master", "HEAD"}
TRACKING = {
    "_ga", "_gl", "_hsenc", "_hsmi", "dclid", "fbclid", "from_spmid", "gad_source", "gbraid",
    "gclid", "hsctatracking", "igshid", "li_fat_id", "mc_cid", "mc_eid", "mibextid", "mkt_tok",
    "msclkid", "ncid", "ref_src", "ref_url", "share_medium", "share_plat", "share_session_id",
    "share_source", "share_tag", "si", "spm", "spm_id_from", "srsltid", "ttclid", "twclid",
    "vd_source", "wbraid", "yclid",
}  # fmt: skip
UNRESERVED = "!$&'()*+,;=:@~"  # what a path may hold as it stands, besides letters and digits


def tracking(url: str) -> list[str]:
    """The names of the query parameters of `url` that follow the visitor and name no content."""
    names = [name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    return [name for name in names if _tracks(name)]


def clean(url: str) -> str:
    """`url` without its tracking parameters; all else stays as it was written."""
    parts = urlsplit(url)
    kept = [part for part in parts.query.split("&") if part and not _tracks(part.split("=")[0])]
    return urlunsplit(parts._replace(query="&".join(kept))) if tracking(url) else url


@lru_cache(maxsize=65536)
def identity(url: str) -> str:
    """The one name of the work behind `url`.

    `arxiv:2309.06180`, `doi:10.1145/3600006.3613165` (lower case), `ieee:9622813`,
    `youtube:ZLbVdvOoTKM`, `youtube:playlist/PL…`, `openreview:E1EHO0imOb`,
    `github:owner/repo[/path]` (owner and repository in lower case), else `url:` and the normalised
    address: host in lower case without `www.`, no scheme, default port, final slash, `index.html`,
    tracking parameter, or fragment, save one that routes (`#/`). A copy in the Internet Archive has
    the identity of what it copies.

    Raises:
        ValueError: `url` is not an absolute http or https URL.
    """
    href(url)
    parts = urlsplit(url)
    host = _host(parts)
    path = unquote(parts.path)
    if host == "web.archive.org" and (copy := ARCHIVED.fullmatch(parts.path)):
        inner = re.sub(r"^(https?):/+", r"\1://", copy[1])
        return identity(inner + (f"?{parts.query}" if parts.query else ""))
    query = dict(parse_qsl(parts.query))
    return (
        _arxiv(host, path)
        or _doi(host, path, query)
        or _ieee(host, path, query)
        or _youtube(host, path, query)
        or _github(host, path)
        or _openreview(host, path, query)
        or _address(host, parts)
    )


def _tracks(name: str) -> bool:
    return name.lower() in TRACKING or name.lower().startswith("utm_")


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".").removeprefix("www.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise ValueError(f"the host {host!r} cannot be read: {error}") from None
    port = parts.port
    return host if port in (None, 80, 443) else f"{host}:{port}"


def _arxiv(host: str, path: str) -> str | None:
    if host not in ARXIV_HOSTS or not (page := ARXIV_PAGES.fullmatch(path)):
        return None
    name = ARXIV.fullmatch(page["rest"])
    return f"arxiv:{name['id'].lower()}" if name else None


def _doi(host: str, path: str, query: dict[str, str]) -> str | None:
    if host == "nature.com" and (article := re.fullmatch(r"/articles/([a-z0-9.-]+)", path)):
        return f"doi:10.1038/{article[1].removesuffix('.pdf')}"
    resolver = host in ("doi.org", "dx.doi.org")
    publisher = host.endswith("springer.com") or "/doi/" in path
    if not (resolver or publisher):
        return None
    found = DOI.search(path) or DOI.fullmatch(query.get("doi", ""))
    if not found:
        return None
    name = found[0].rstrip("/").lower()
    if not resolver:
        name = DOI_ENDINGS.sub("", name)
    preprint = re.fullmatch(r"10\.48550/arxiv\.(.+)", name)
    known = ARXIV.fullmatch(preprint[1]) if preprint else None
    return f"arxiv:{known['id']}" if known else f"doi:{name}"


def _ieee(host: str, path: str, query: dict[str, str]) -> str | None:
    if host != "ieeexplore.ieee.org":
        return None
    document = IEEE.fullmatch(path)
    number = document[1] if document else query.get("arnumber", "")
    return f"ieee:{int(number)}" if number.isascii() and number.isdigit() else None


def _youtube(host: str, path: str, query: dict[str, str]) -> str | None:
    if host not in YOUTUBE_HOSTS:
        return None
    names = [part for part in path.split("/") if part]
    if host == "youtu.be":
        video = names[0] if names else ""
    elif len(names) > 1 and names[0] in ("embed", "shorts", "live", "v", "e"):
        video = names[1]
    else:
        video = query.get("v", "") if names == ["watch"] else ""
    if YOUTUBE_ID.fullmatch(video) and video != "videoseries":
        return f"youtube:{video}"
    return f"youtube:playlist/{query['list']}" if "list" in query else None


def _github(host: str, path: str) -> str | None:
    names = [part for part in path.split("/") if part]
    if host == "raw.githubusercontent.com" and len(names) > 3:
        names = [*names[:2], "blob", *names[2:]]
        if names[3:5] == ["refs", "heads"]:
            del names[3:5]
    elif host != "github.com" or not names or names[0].lower() in GITHUB_PAGES:
        return None
    if len(names) == 1:
        return f"github:{names[0].lower()}"
    repository = f"github:{names[0].lower()}/{names[1].lower().removesuffix('.git')}"
    rest = names[2:]
    if rest and rest[0] in ("tree", "blob", "raw") and len(rest) > 1:
        # Another branch or tag holds another text, so it stays part of the name.
        rest = rest[2:] if rest[1] in BRANCHES else [f"@{rest[1]}", *rest[2:]]
    if len(rest) == 1 and rest[0].lower() == "readme.md":
        rest = []
    return "/".join([repository, *rest])


def _openreview(host: str, path: str, query: dict[str, str]) -> str | None:
    known = host == "openreview.net" and path in ("/forum", "/pdf")
    return f"openreview:{query['id']}" if known and query.get("id") else None


def _address(host: str, parts: SplitResult) -> str:
    path = re.sub(r"/index\.html?$", "/", quote(unquote(parts.path), safe="/" + UNRESERVED))
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = sorted((name, value) for name, value in pairs if not _tracks(name))
    query = f"?{urlencode(kept)}" if kept else ""
    route = f"#{parts.fragment.rstrip('/')}" if parts.fragment.startswith(("/", "!/")) else ""
    return f"url:{host}{path.rstrip('/')}{query}{route}"
