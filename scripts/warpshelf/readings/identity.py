"""Which work a URL leads to, whichever of its many addresses was written down.

And how its address is written on the shelf, and what is wrong with others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from urllib import parse
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from warpshelf.core.markup import quote_href

ARXIV = re.compile(
    r"(?P<id>\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?(?:\.pdf)?/?", re.IGNORECASE
)
ARXIV_HOSTS = {
    "arxiv.org", "export.arxiv.org", "browse.arxiv.org", "ar5iv.org", "ar5iv.labs.arxiv.org",
    "alphaxiv.org", "huggingface.co",
}  # fmt: skip
ARXIV_PAGES = re.compile(r"/(?:[a-z]{2}/)?(?:abs|pdf|html|ps|format|overview|papers)/(?P<rest>.+)")
DOI = re.compile(r"10\.\d{4,9}/\S+")
DOI_HOSTS = ("doi.org", "dx.doi.org")
DOI_ENDINGS = re.compile(r"(?:\.pdf|/(?:abstract|full|fulltext(?:\.html)?|e?pdf|html|meta))$")
IEEE = re.compile(r"/(?:abstract/)?document/(\d+)(?:/.*)?")
YOUTUBE_ID = re.compile(r"(?!videoseries$)[A-Za-z0-9_-]{11}")
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


def tracking_params(url: str) -> list[str]:
    """The names of the query parameters of `url` that track the visitor and select no content."""
    names = [name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    return [name for name in names if _is_tracking(name)]


def strip_tracking(url: str) -> str:
    """`url` without its tracking parameters; all else stays as it was written."""
    if not tracking_params(url):
        return url
    parts = urlsplit(url)
    kept = [one for one in parts.query.split("&") if one and not _is_tracking(one.split("=")[0])]
    return parts._replace(query="&".join(kept)).geturl()


def _is_tracking(name: str) -> bool:
    return name.lower() in TRACKING or name.lower().startswith("utm_")


@lru_cache(maxsize=65536)
def work_identity(url: str) -> str:
    """The one name of the work behind `url`.

    `arxiv:2309.06180`, `doi:10.1145/3600006.3613165` (lower case), `ieee:9622813`,
    `youtube:ZLbVdvOoTKM`, `youtube:playlist/PL…`, `openreview:E1EHO0imOb`,
    `github:owner/repo[/path]` (owner and repository in lower case), else `url:` and the normalised
    address: host in lower case without `www.`, no scheme, default port, final slash, `index.html`,
    tracking parameter, or fragment, save one that routes (`#/`). A copy in the Internet Archive has
    the identity of what it copies. Raises ValueError if `url` is not an absolute http or https URL.
    """
    quote_href(url)
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").removeprefix("www.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise ValueError(f"the host {host!r} cannot be read: {error}") from None
    host += "" if parts.port in (None, 80, 443) else f":{parts.port}"
    if host == "web.archive.org" and (copy := ARCHIVED.fullmatch(parts.path)):
        inner = re.sub(r"^(https?):/+", r"\1://", copy[1])
        return work_identity(inner + (f"?{parts.query}" if parts.query else ""))
    path, query = unquote(parts.path), dict(parse_qsl(parts.query))
    if known := _paper_identity(host, path, query) or _site_identity(host, path, query):
        return known
    path = re.sub(r"/index\.html?$", "/", parse.quote(path, safe="/" + UNRESERVED))
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = urlencode(sorted(pair for pair in pairs if not _is_tracking(pair[0])))
    route = f"#{parts.fragment.rstrip('/')}" if parts.fragment.startswith(("/", "!/")) else ""
    return f"url:{host}{path.rstrip('/')}{kept and f'?{kept}'}{route}"


def _paper_identity(host: str, path: str, query: dict[str, str]) -> str | None:
    page = ARXIV_PAGES.fullmatch(path) if host in ARXIV_HOSTS else None
    if page and (number := ARXIV.fullmatch(page["rest"])):
        return f"arxiv:{number['id'].lower()}"
    if host == "nature.com" and (article := re.fullmatch(r"/articles/([a-z0-9.-]+)", path)):
        return f"doi:10.1038/{article[1].removesuffix('.pdf')}"
    if host in DOI_HOSTS or host.endswith("springer.com") or "/doi/" in path:
        found = DOI.search(path) or DOI.fullmatch(query.get("doi", ""))
        name = found[0].rstrip("/").lower() if found else ""
        if host not in DOI_HOSTS:
            name = DOI_ENDINGS.sub("", name)
        if number := ARXIV.fullmatch(name.removeprefix("10.48550/arxiv.")):
            return f"arxiv:{number['id']}"
        if name:
            return f"doi:{name}"
    if host == "ieeexplore.ieee.org":
        document = IEEE.fullmatch(path)
        text = document[1] if document else query.get("arnumber", "")
        if text.isascii() and text.isdigit():
            return f"ieee:{int(text)}"
    if host == "openreview.net" and path in ("/forum", "/pdf") and query.get("id"):
        return f"openreview:{query['id']}"
    return None


def _site_identity(host: str, path: str, query: dict[str, str]) -> str | None:
    """A video or playlist, a repository or a file of one."""
    names = [part for part in path.split("/") if part]
    if host in YOUTUBE_HOSTS:
        video = query.get("v", "") if names == ["watch"] else ""
        if host == "youtu.be":
            video = names[0] if names else ""
        elif len(names) > 1 and names[0] in ("embed", "shorts", "live", "v", "e"):
            video = names[1]
        if YOUTUBE_ID.fullmatch(video):
            return f"youtube:{video}"
        return f"youtube:playlist/{query['list']}" if "list" in query else None
    if host == "raw.githubusercontent.com" and len(names) > 3:
        branch = names[4:] if names[2:4] == ["refs", "heads"] else names[2:]
        names = [*names[:2], "blob", *branch]
    elif host != "github.com" or not names or names[0].lower() in GITHUB_PAGES:
        return None
    owner, rest = names[0].lower(), names[2:]
    if len(names) == 1:
        return f"github:{owner}"
    if len(rest) > 1 and rest[0] in ("tree", "blob", "raw"):
        # Another branch or tag holds another text, so it stays part of the name.
        rest = rest[2:] if rest[1] in BRANCHES else [f"@{rest[1]}", *rest[2:]]
    if len(rest) == 1 and rest[0].lower() == "readme.md":
        rest = []
    return "/".join([f"github:{owner}/{names[1].lower().removesuffix('.git')}", *rest])


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
    (r"dl\.acm\.org", r"/action/doSearch", ""),
    (r"ieeexplore\.ieee\.org", r"/search/.*", ""),
    (r"huggingface\.co", r"/(?:models|datasets|spaces|papers)/?", "search"),
    (r"(?:openreview\.net|semanticscholar\.org|(?:medium|reddit|stackoverflow|x|twitter)\.com"
     r"|(?:.+\.)?(?:zhihu|csdn)\.(?:com|net))", r"/search", ""),
    (r"search\.bilibili\.com|so\.csdn\.net", r"/.*", ""),
)  # fmt: skip
SEARCHED = re.compile("|".join(hosts for hosts, _, _ in SEARCHES))  # asked first: it is faster
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
ARXIV_PATH = re.compile(r"/(\d{4}\.\d{4,5}|[A-Za-z-]+(?:\.[A-Za-z]{2})?/\d{7})")
ARTICLE = re.compile(  # publishers' pages whose address is the DOI and nothing more
    r"dl\.acm\.org/doi/(?:(?:abs|e?pdf|full|fullHtml)/)?(10\.\d{4,9}/[^/?#]+)/?"
    r"|link\.springer\.com/(?:article|chapter|book)/(10\.\d{4,9}/[^/?#]+)/?"
)


@lru_cache(maxsize=65536)
def canonical_url(url: str, main: bool = True) -> str:
    """`url` as it is written on the shelf; the same text where nothing is to be changed.

    Without tracking parameters, default port and capitals in the host; https where the host is
    known to serve it; arXiv as /abs/ without version, a DOI through doi.org, YouTube as /watch, a
    repository by its root. The work stays the same: both have one `work_identity`.

    `main` is False for an address beside the work's own, such as an annotated copy: there the pages
    and files of arXiv and of publishers are left alone. Raises ValueError as `work_identity` does.
    """
    name, parts = work_identity(url), urlsplit(url)
    host, scheme, port = (parts.hostname or "").rstrip("."), parts.scheme.lower(), parts.port
    shown = "" if port in (None, {"http": 80, "https": 443}[scheme]) else f":{port}"
    labels = host.split(".")
    if not shown and any(".".join(labels[n:]) in SECURE for n in range(len(labels))):
        scheme = "https"
    parts = parts._replace(scheme=scheme, netloc=host + shown)
    if parts.netloc.removeprefix("www.") != "web.archive.org":  # there it is the copied address
        parts = parts._replace(query=urlsplit(strip_tracking(url)).query)
        family, _, rest = name.partition(":")
        form = (main and _work_form(parts, family, rest)) or _site_form(parts, family, rest)
    else:
        form = parts.geturl()
    try:
        return form if work_identity(form) == name else url
    except ValueError:
        return url


def _work_form(parts: SplitResult, family: str, rest: str) -> str | None:
    """The address of a paper by its number, however else it was reached."""
    host = parts.netloc.removeprefix("www.")
    if family == "arxiv":
        written = ARXIV_PATH.search(parts.path)  # with the capitals of math.GT/0309136
        number = written[1] if written and written[1].lower() == rest else rest
        return f"https://arxiv.org/abs/{number}"
    if family == "ieee":
        return f"https://ieeexplore.ieee.org/document/{rest}"
    if family == "openreview":
        return f"https://openreview.net/forum?{urlencode({'id': rest})}"
    if family == "doi" and (found := ARTICLE.fullmatch(host + unquote(parts.path))):
        return f"https://doi.org/{found[1] or found[2]}"
    return None


def _site_form(parts: SplitResult, family: str, rest: str) -> str:
    """An address on its site as it is usually written there."""
    host = parts.netloc.removeprefix("www.")
    if host in BARE or host == "dx.doi.org":
        parts = parts._replace(netloc=host.removeprefix("dx."))
    elif host in YOUTUBE_HOSTS:
        parts = _youtube_form(parts, family, rest)
    if host == "github.com" and family == "github":
        names = [part for part in parts.path.split("/") if part]
        if len(names) > 1:
            names[1] = names[1].removesuffix(".git")
        where, branch, inner = names[2:3], names[3:4], [name.lower() for name in names[4:]]
        is_root = (where, inner) in ((["tree"], []), (["blob"], ["readme.md"]))
        if is_root and {*branch} & BRANCHES:
            names = names[:2]
        query = "&".join(one for one in parts.query.split("&") if one != "tab=readme-ov-file")
        fragment = "" if len(names) == 2 and parts.fragment == "readme" else parts.fragment
        parts = parts._replace(path="/" + "/".join(names), query=query, fragment=fragment)
    return parts.geturl()


def _youtube_form(parts: SplitResult, family: str, rest: str) -> SplitResult:
    short = parts.netloc == "youtu.be"
    if family != "youtube" and short:
        return parts
    parts = parts._replace(netloc="www.youtube.com")
    asked = parse_qsl(parts.query)
    if rest.startswith("playlist/"):
        query = urlencode({"list": rest.removeprefix("playlist/")})
        return parts._replace(path="/playlist", query=query, fragment="")
    known = {name for name, _ in asked} <= {"v", "list", "index", "t"}
    usual = not short and parts.path == "/watch" and known
    if family != "youtube" or usual:
        return parts
    given = {"t" if name == "start" else name: value for name, value in asked}
    kept = {"v": rest} | {name: given[name] for name in ("list", "t") if name in given}
    return parts._replace(path="/watch", query=urlencode(kept))


def url_problems(url: str, main: bool = True) -> Iterator[tuple[str, str]]:
    """What is wrong with a legible URL, and the mend of each; `main` as in `canonical_url`."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    wanted = canonical_url(url, main)
    cleaned = url if host == "web.archive.org" else strip_tracking(url)
    reasons = []
    if parts.scheme.lower() == "http":
        if wanted.startswith("https:"):
            reasons.append("is http")
        else:
            mend = f"write https:{cleaned[5:]}; a site without https is linked through an archived"
            yield f"the url {url} is http", f"{mend} copy"
    if cleaned != url:
        names = tracking_params(url)
        follow = "follows" if len(names) == 1 else "follow"
        reasons.append(f"carries {', '.join(names)}, which {follow} the reader")
    if wanted not in (url, cleaned, re.sub("^http:", "https:", cleaned, flags=re.IGNORECASE)):
        known = NAMES.get(work_identity(url).partition(":")[0], "an address")
        reasons.append(f"is not in the usual form of {known}")
    if reasons:
        yield f"the url {', and '.join(reasons)}", f"write {wanted}"
    if host in SHORTENERS:
        yield f"{host} hides where the url leads", "open it and write the address it ends at"
    asked = parse.parse_qs(parts.query)
    for hosts, paths, name in SEARCHES if SEARCHED.fullmatch(host) else ():
        there = re.fullmatch(hosts, host) and re.fullmatch(paths, parts.path)
        if there and (not name or name in asked):
            yield f"the url is a search on {host}", "write the address of what was meant"
