"""How the address of a work is written on the shelf, and what is wrong with others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlencode, urlsplit

from warpshelf.readings.identity import BRANCHES, YOUTUBE_HOSTS, clean, identity, tracking

SHORTENERS = {
    "1drv.ms", "adf.ly", "amzn.to", "b23.tv", "bit.ly", "bitly.com", "buff.ly", "cutt.ly",
    "dlvr.it", "dwz.cn", "fb.me", "g.co", "goo.gl", "goo.gle", "hubs.la", "hubs.ly", "is.gd",
    "j.mp", "lnkd.in", "mrw.so", "nvda.ws", "ow.ly", "qr.ae", "rb.gy", "rebrand.ly", "s.id",
    "shorturl.at", "spoti.fi", "suo.im", "t.cn", "t.co", "t.ly", "tiny.cc", "tinyurl.com",
    "trib.al", "url.cn", "v.gd", "w.wiki",
}  # fmt: skip
SEARCHES = (  # host, path, the parameter that holds the question ("" for any)
    (r"(?:.+\.)?google\.[a-z.]+", r"/(?:search|scholar|url|imgres)", ""),
    (r"(?:.+\.)?(?:bing|yahoo|yandex|sogou|ecosia)\.[a-z.]+", r"/(?:search|web)/?.*", ""),
    (r"(?:.+\.)?duckduckgo\.com", r"/(?:html/?)?", "q"),
    (r"(?:.+\.)?baidu\.com", r"/(?:s|link)", ""),
    (r"github\.com", r"/search/?.*|/[^/]+/[^/]+/search", ""),
    (r"youtube\.com", r"/results", ""),
    (r"arxiv\.org", r"/search/?.*", ""),
    (r"semanticscholar\.org", r"/search", ""),
    (r"dl\.acm\.org", r"/action/doSearch", ""),
    (r"ieeexplore\.ieee\.org", r"/search/.*", ""),
    (r"huggingface\.co", r"/(?:models|datasets|spaces|papers)/?", "search"),
    (r"(?:openreview\.net|medium\.com|reddit\.com|stackoverflow\.com|x\.com|twitter\.com)",
     r"/search", ""),
    (r"search\.bilibili\.com|so\.csdn\.net", r"/.*", ""),
    (r"(?:.+\.)?(?:zhihu|csdn)\.(?:com|net)", r"/search", ""),
)  # fmt: skip
# Hosts, and all below them, that are known to serve https: what can be changed without asking.
SECURE = {
    "aclanthology.org", "acm.org", "arxiv.org", "bilibili.com", "cnblogs.com", "csdn.net",
    "doi.org", "github.com", "github.io", "githubusercontent.com", "gitlab.com", "google.com",
    "hal.science", "huggingface.co", "ieee.org", "jmlr.org", "medium.com", "mlr.press",
    "mlsys.org", "nature.com", "neurips.cc", "nips.cc", "nvidia.com", "openai.com",
    "openreview.net", "pytorch.org", "readthedocs.io", "reddit.com",
    "sciencedirect.com", "springer.com", "stackoverflow.com", "substack.com", "thecvf.com",
    "usenix.org", "web.archive.org", "wikipedia.org", "wiley.com", "youtu.be", "youtube.com",
    "youtube-nocookie.com", "zhihu.com",
}  # fmt: skip
BARE = {"aclanthology.org", "arxiv.org", "doi.org", "github.com", "huggingface.co",
        "openreview.net"}  # fmt: skip
NAMES = {"arxiv": "arXiv", "doi": "a DOI", "ieee": "IEEE Xplore", "github": "GitHub",
         "youtube": "YouTube", "openreview": "OpenReview"}  # fmt: skip
ARXIV = re.compile(r"/(\d{4}\.\d{4,5}|[A-Za-z-]+(?:\.[A-Za-z]{2})?/\d{7})")
ARTICLE = re.compile(  # publishers' pages whose address is the DOI and nothing more
    r"dl\.acm\.org/doi/(?:(?:abs|e?pdf|full|fullHtml)/)?(10\.\d{4,9}/[^/?#]+)/?"
    r"|link\.springer\.com/(?:article|chapter|book)/(10\.\d{4,9}/[^/?#]+)/?"
)


@lru_cache(maxsize=65536)
def canonical(url: str, main: bool = True) -> str:
    """`url` as it is written on the shelf; the same text where nothing is to be changed.

    Without tracking parameters, default port and capitals in the host; https where the host is
    known to serve it; arXiv as /abs/ without version, a DOI through doi.org, YouTube as /watch, a
    repository by its root. The work stays the same: both have one `identity`.

    `main` is False for an address beside the work's own, such as an annotated copy: there the pages
    and files of arXiv and of publishers are left alone.

    Raises:
        ValueError: `url` is not an absolute http or https URL.
    """
    name = identity(url)
    parts = _plain(urlsplit(url))
    if parts.netloc.removeprefix("www.") != "web.archive.org":  # there it is the copied address
        parts = _formed(parts._replace(query=urlsplit(clean(url)).query), name, main)
    form = parts.geturl()
    try:
        return form if identity(form) == name else url
    except ValueError:
        return url


def _plain(parts: SplitResult) -> SplitResult:
    host, scheme, port = (parts.hostname or "").rstrip("."), parts.scheme.lower(), parts.port
    shown = "" if port in (None, {"http": 80, "https": 443}[scheme]) else f":{port}"
    if not shown and any(host == known or host.endswith(f".{known}") for known in SECURE):
        scheme = "https"
    return parts._replace(scheme=scheme, netloc=host + shown)


def _formed(parts: SplitResult, name: str, main: bool) -> SplitResult:
    host = parts.netloc.removeprefix("www.")
    if host in BARE:
        parts = parts._replace(netloc=host)
    family, _, rest = name.partition(":")
    if family == "arxiv" and main:
        written = ARXIV.search(parts.path)  # with the capitals of math.GT/0309136
        wanted = written[1] if written and written[1].lower() == rest else rest
        return urlsplit(f"https://arxiv.org/abs/{wanted}")
    if family == "ieee" and main:
        return urlsplit(f"https://ieeexplore.ieee.org/document/{rest}")
    if family == "openreview" and main:
        query = urlencode({"id": rest})
        return parts._replace(scheme="https", path="/forum", query=query, fragment="")
    if family == "doi" and main and (found := ARTICLE.fullmatch(host + unquote(parts.path))):
        return urlsplit(f"https://doi.org/{found[1] or found[2]}")
    if host == "dx.doi.org":
        return parts._replace(netloc="doi.org")
    if host in YOUTUBE_HOSTS:
        return _youtube(parts, family, rest)
    return _github(parts) if host == "github.com" and family == "github" else parts


def _youtube(parts: SplitResult, family: str, rest: str) -> SplitResult:
    short = parts.netloc == "youtu.be"
    parts = parts if short else parts._replace(netloc="www.youtube.com")
    if family != "youtube":
        return parts
    parts = parts._replace(netloc="www.youtube.com")
    asked = parse_qsl(parts.query)
    if rest.startswith("playlist/"):
        query = urlencode({"list": rest.removeprefix("playlist/")})
        return parts._replace(path="/playlist", query=query, fragment="")
    if (
        not short
        and parts.path == "/watch"
        and {n for n, _ in asked} <= {"v", "list", "index", "t"}
    ):
        return parts
    given = {"t" if name == "start" else name: value for name, value in asked}
    kept = {"v": rest} | {name: given[name] for name in ("list", "t") if name in given}
    return parts._replace(path="/watch", query=urlencode(kept))


def _github(parts: SplitResult) -> SplitResult:
    names = [part for part in parts.path.split("/") if part]
    query = "&".join(part for part in parts.query.split("&") if part != "tab=readme-ov-file")
    if len(names) > 1:
        names[1] = names[1].removesuffix(".git")
    where, branch, rest = names[2:3], names[3:4], [name.lower() for name in names[4:]]
    if (
        branch
        and branch[0] in BRANCHES
        and (where, rest)
        in (
            (["tree"], []),
            (["blob"], ["readme.md"]),
        )
    ):
        names = names[:2]
    fragment = "" if len(names) == 2 and parts.fragment == "readme" else parts.fragment
    return parts._replace(path="/" + "/".join(names), query=query, fragment=fragment)


def problems(url: str, main: bool = True) -> Iterator[tuple[str, str]]:
    """What is wrong with a URL that can be read, and the mend of each; `main` as in `canonical`."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    wanted, cleaned = canonical(url, main), url if host == "web.archive.org" else clean(url)
    reasons = []
    if parts.scheme.lower() == "http":
        if wanted.startswith("https:"):
            reasons.append("is http")
        else:
            mend = f"write https:{cleaned[5:]}; a site without https is linked through an archived"
            yield f"the url {url} is http", f"{mend} copy"
    if cleaned != url:
        names = tracking(url)
        follow = "follows" if len(names) == 1 else "follow"
        reasons.append(f"carries {', '.join(names)}, which {follow} the reader")
    if wanted not in (url, cleaned, re.sub("^http:", "https:", cleaned, flags=re.IGNORECASE)):
        known = NAMES.get(identity(url).partition(":")[0])
        reasons.append(f"is not in the form that {known or 'an address'} has here")
    if reasons:
        yield f"the url {', and '.join(reasons)}", f"write {wanted}"
    if host in SHORTENERS:
        yield f"{host} hides where the url leads", "open it and write the address it ends at"
    asked = parse_qs(parts.query)
    for hosts, paths, name in SEARCHES:
        if (
            re.fullmatch(hosts, host)
            and re.fullmatch(paths, parts.path)
            and (not name or name in asked)
        ):
            yield f"the url is a search on {host}", "write the address of what was meant"
