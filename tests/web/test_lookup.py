"""What an address says of itself is read from recorded answers, and nothing but the work's own.

The head of a page: which of its words count, in which encoding, and what cannot hurt. The copy in
the Internet Archive, or nothing: an answer of any kind ends no check.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from web_server import Web

from warpshelf.links import health
from warpshelf.web import fetch, lookup
from warpshelf.web.fetch import Unreachable
from warpshelf.web.services import Endpoints, Metadata

URL = "https://blog.example.org/2024/waits"


def parse_head(head: str, url: str = URL) -> Metadata:
    found = lookup.parse_page(f"<!doctype html><html><head>{head}</head><body>".encode(), url)
    assert found
    return found


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title>How a warp\n waits</title>", "How a warp waits"),
        ("<title>Waits &amp; stalls</title><title>Not this</title>", "Waits & stalls"),
        ("<title>A</title><meta property=og:title content='B'>", "B"),
        ("<meta name='citation_title' content='C'><meta property=og:title content='B'>", "C"),
        ('<title>A</title><script type="application/ld+json">{"@type":"BlogPosting","headline":'
         '"D &amp; E"}</script>', "D & E"),
        ("<title>Waits | example.org</title>", "Waits | example.org"),
        ("<title>Waits - blog.example.org</title>", "Waits"),
        ("<title>Waits | A Blog</title><meta property=og:site_name content='a blog'>", "Waits"),
        ("<title>A - B | A Blog</title><meta property=og:site_name content='A Blog'>", "A - B"),
        ("<title>A Blog</title><meta property=og:site_name content='A Blog'>", "A Blog"),
        ("<title>Softmax: a tour | Part 2</title>", "Softmax: a tour | Part 2"),
        ("<svg><title>icon</title></svg><meta name=twitter:title content=T>", "T"),
    ],
)  # fmt: skip
def test_title(head: str, title: str) -> None:
    assert parse_head(head).title == title


@pytest.mark.parametrize("data", [b"", b"<p>no head", b"<title> </title>", b"\x00", b"<title>"])
def test_a_page_without_a_title_tells_nothing(data: bytes) -> None:
    assert lookup.parse_page(data, URL) is None


def test_what_stands_in_the_body_does_not_count() -> None:
    body = "<html><body><title>No</title><meta name=author content='Ada Lovelace'>"
    assert lookup.parse_page(body.encode(), URL) is None
    late = "<head><title>Yes</title></head><meta name=author content='Ada Lovelace'>"
    assert (found := lookup.parse_page(late.encode(), URL)) and found.authors == ()


@pytest.mark.parametrize(
    ("head", "authors"),
    [
        ("<meta name=citation_author content='Lovelace, Ada'>"
         "<meta name=citation_author content=Bob>",
         ("Ada Lovelace", "Bob")),
        ("<meta name=citation_authors content='Ada Lovelace; Babbage, Charles'>",
         ("Ada Lovelace", "Charles Babbage")),
        ("<meta name=author content='Ada Lovelace'>", ("Ada Lovelace",)),
        ("<meta name=author content='Ada Lovelace, Charles Babbage and Al Turing'>",
         ("Ada Lovelace", "Charles Babbage", "Al Turing")),
        ("<meta name=author content='Lovelace, Ada'>", ("Ada Lovelace",)),
        ("<meta name=author content='ada@x.org'>", ()),
        ("<meta property=article:author content='https://x.org/ada'>", ()),
        ("<meta name=twitter:label1 content='Written by'><meta name=twitter:data1 content='Ada L'>",
         ("Ada L",)),
        ("<meta name=twitter:label1 content='Est. reading time'>"
         "<meta name=twitter:data1 content='9 minutes'>", ()),
        ('<script type="application/ld+json">[{"@type":"Article",'
         '"author":[{"name":"Ada L"},"Bo B"]}]</script>', ("Ada L", "Bo B")),
        ('<script type="application/ld+json">{"@type":"WebSite","author":"Site"}</script>', ()),
    ],
)  # fmt: skip
def test_authors(head: str, authors: tuple[str, ...]) -> None:
    assert parse_head(f"<title>T</title>{head}").authors == authors


@pytest.mark.parametrize(
    ("head", "year", "kind"),
    [
        ("<meta name=citation_title content=T><meta name=citation_date content=2023/07>",
         2023, "paper"),
        ("<meta property=og:type content=article>"
         "<meta property=article:published_time content=2013-12-04T20:11:13Z>", 2013, "post"),
        ('<script type="application/ld+json">{"@graph":[{"@type":"TechArticle","datePublished":'
         '"2020-01-01"}]}</script><meta name=date content=1999>', 2020, "post"),
        ("<meta itemprop=datePublished content=2021-02-03>", 2021, None),
        ("<meta property=og:type content=website><meta name=date content=soon>", None, None),
        ("<meta property=og:type content=book>", None, "book"),
        ('<script type="application/ld+json">{"@type":["A","Course"]}</script>', None, "course"),
    ],
)  # fmt: skip
def test_year_and_kind(head: str, year: int | None, kind: str | None) -> None:
    found = parse_head(f"<title>T</title>{head}")
    assert (found.year, found.kind) == (year, kind)


@pytest.mark.parametrize(
    ("canonical", "url"),
    [
        ("/2024/waits/", "https://blog.example.org/2024/waits/"),
        (f"{URL}?utm_source=x&p=1", f"{URL}?p=1"),
        ("https://elsewhere.org/a", URL),
        ("http://blog.example.org/2024/waits", URL),
        ("https://blog.example.org/", URL),
        ("javascript:alert(1)", URL),
        ("//[", URL),
        ("a b", URL),
        ("x" * 600, URL),
        ("", URL),
    ],
)
def test_address(canonical: str, url: str) -> None:
    assert parse_head(f"<title>T</title><link rel='canonical' href='{canonical}'>").url == url


def test_versions() -> None:
    head = ("<meta name=citation_title content=T><meta name=citation_doi content=10.1145/1.2>"
            "<meta name=citation_arxiv_id content=1805.02867>")  # fmt: skip
    assert parse_head(head).also == (
        ("published", "https://doi.org/10.1145/1.2"),
        ("preprint", "https://arxiv.org/abs/1805.02867"),
    )
    own = parse_head(head, "https://dl.acm.org/doi/10.1145/1.2")
    assert own.also == (("preprint", "https://arxiv.org/abs/1805.02867"),)


@pytest.mark.parametrize(
    ("data", "charset", "title"),
    [
        ("<title>é</title>".encode("cp1252"), "iso-8859-1", "é"),
        ("<title>流水线</title>".encode("gb18030"), "GB2312", "流水线"),
        ("<meta charset=gbk><title>流水线</title>".encode("gbk"), None, "流水线"),
        ('<meta http-equiv=Content-Type content="text/html; charset=euc-jp"><title>ソフト</title>'
         .encode("euc-jp"), None, "ソフト"),
        ("\ufeff<title>é</title>".encode(), "iso-8859-1", "é"),
        ("\ufeff<title>é</title>".encode("utf-16-le"), None, "é"),
        ("<title>é</title>".encode(), "unicode_escape", "é"),
        ("<title>é</title>".encode(), "no such", "é"),
        (b"<title>\xff</title>", None, "\ufffd"),
    ],
)  # fmt: skip
def test_encoding(data: bytes, charset: str | None, title: str) -> None:
    assert (found := lookup.parse_page(data, URL, charset)) and found.title == title


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<![", "<!", "<?", "<a ", "<a b=", '<meta content="', "</", "&", "&#", "<a" * 3,
     "<script>", "<title>", "<a =", "<meta name=author content='A B'>", "{", "<a\t\n/"],
)  # fmt: skip
def test_a_hostile_page_takes_no_time(piece: str) -> None:
    for start in ("<title>T</title>", "<title>T</title><meta "):
        data = (start + piece * (512 * 1024 // len(piece)))[: 512 * 1024]
        before = time.process_time()
        lookup.parse_page(data.encode(), URL)
        assert time.process_time() - before < 1.5


TAGS = st.sampled_from(
    ["<title>", "</title>", "<meta ", "name=", "content=", "'", '"', ">", "citation_author",
     "og:title", "<script type='application/ld+json'>", "</script>", '{"@type":"Article","author":',
     "[", "]", "}", "<link rel=canonical href=", "https://", "10.1145/1", "<![CDATA[", "<!--",
     "-->", "<html lang=", "&#x1b;", "\x00", "流"]
) | st.text(max_size=8)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(TAGS, max_size=40).map("".join), st.none() | st.text(max_size=12))
def test_no_page_breaks_the_reader(text: str, charset: str | None) -> None:
    found = lookup.parse_page(text.encode("utf-8", "replace"), URL, charset)
    assert found is None or (found.title and found.title.isprintable() or found)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    lookup.parse_page(b"<title>x" + data, URL)


PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"


def test_arxiv(web: Web, client: httpx.Client) -> None:
    web.set_recorded_answer("/arxiv", "arxiv.xml", "application/atom+xml")
    found = lookup.lookup_work("https://arxiv.org/pdf/2309.06180v1.pdf", client, web.endpoints)
    assert found == Metadata(
        title=PAGED,
        url="https://arxiv.org/abs/2309.06180",
        authors=("Woosuk Kwon", "Zhuohan Li", "Siyuan Zhuang"),
        year=2023,
        venue="arXiv",
        kind="paper",
        lang="en",
        also=(("published", "https://doi.org/10.1145/3600006.3613165"),),
    )
    [(_, query, headers)] = web.asked
    assert query == {"id_list": ["2309.06180"], "max_results": ["1"]}
    assert "warpshelf" in headers["User-Agent"]


def test_an_arxiv_doi_is_asked_of_arxiv(web: Web, client: httpx.Client) -> None:
    web.set_recorded_answer("/arxiv", "arxiv.xml", "application/atom+xml")
    url = "https://doi.org/10.48550/arXiv.2309.06180"
    assert (found := lookup.lookup_work(url, client, web.endpoints)) and found.title == PAGED


def test_arxiv_names_another_paper(web: Web, client: httpx.Client) -> None:
    """Neither the error that arXiv hands out as an entry nor another paper is the work."""
    web.set_recorded_answer("/arxiv", "arxiv_error.xml", "application/atom+xml")
    assert lookup.lookup_work("https://arxiv.org/abs/2309.06180", client, web.endpoints) is None
    web.set_recorded_answer("/arxiv", "arxiv.xml", "application/atom+xml")
    assert lookup.lookup_work("https://arxiv.org/abs/2309.06181", client, web.endpoints) is None


def test_arxiv_asks_to_slow_down(web: Web, client: httpx.Client) -> None:
    web.set_answer("/arxiv", "Rate exceeded.", "text/plain")
    with pytest.raises(Unreachable, match="^the answer is not an Atom feed"):
        lookup.lookup_work("https://arxiv.org/abs/2309.06180", client, web.endpoints)


def test_crossref(web: Web, client: httpx.Client) -> None:
    web.set_recorded_answer("/works/10.1145%2F3341301.3359646", "crossref.json", "application/json")
    url = "https://dl.acm.org/doi/abs/10.1145/3341301.3359646"
    assert lookup.lookup_work(url, client, web.endpoints) == Metadata(
        title="PipeDream: generalized pipeline parallelism for DNN training",
        url="https://doi.org/10.1145/3341301.3359646",
        authors=("Deepak Narayanan", "Aaron Harlap", "The Fiddle & Co Project", "Matei Zaharia"),
        year=2019,
        venue="SOSP 2019",
        kind="paper",
        lang="en",
        also=(("preprint", "https://arxiv.org/abs/1806.03377"),),
    )
    assert "mailto:" in web.asked[0][2]["User-Agent"]


def test_a_doi_that_crossref_lacks_is_read_from_its_page(web: Web, client: httpx.Client) -> None:
    web.set_answer("/pages/doi.org/10.5281/zenodo.42", "<title>A data set</title>")
    url = "https://doi.org/10.5281/zenodo.42"
    found = lookup.lookup_work(url, client, web.endpoints)
    assert found and (found.title, found.url) == ("A data set", url)
    web.set_answer("/works/10.5281%2Fzenodo.42", "", status=503)
    with pytest.raises(Unreachable, match="answers 503 Service Unavailable") as caught:
        lookup.lookup_work(url, client, web.endpoints)
    assert caught.value.status == 503


def test_github(web: Web, client: httpx.Client) -> None:
    web.set_recorded_answer("/repositories/1", "github.json", "application/json")
    web.set_redirect("/repos/rrze/gpu-benches", f"{web.base}/repositories/1")
    found = lookup.lookup_work("https://github.com/RRZE/gpu-benches.git", client, web.endpoints)
    assert found == Metadata(
        title="gpu-benches",
        url="https://github.com/te42kyfo/gpu-benches",
        authors=("te42kyfo",),
        year=2019,
        kind="code",
        about="collection of benchmarks to measure basic GPU capabilities",
    )


@pytest.mark.parametrize(
    "url", ["https://github.com/te42kyfo", "https://github.com/te42kyfo/gpu-benches/blob/main/x.md"]
)
def test_github_tells_nothing_of_what_is_no_repository(
    web: Web, client: httpx.Client, url: str
) -> None:
    assert lookup.lookup_work(url, client, web.endpoints) is None
    assert not web.asked


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://youtu.be/ZLbVdvOoTKM?si=abc", "https://www.youtube.com/watch?v=ZLbVdvOoTKM"),
        ("https://www.youtube.com/playlist?list=PLx_y-1",
         "https://www.youtube.com/playlist?list=PLx_y-1"),
    ],
)  # fmt: skip
def test_youtube(web: Web, client: httpx.Client, url: str, asked: str) -> None:
    web.set_recorded_answer("/oembed", "youtube.json", "application/json")
    found = lookup.lookup_work(url, client, web.endpoints)
    title = "How to Build an LLM from Scratch | An Overview"
    assert found == Metadata(title, asked, venue="Shaw Talebi", kind="talk")
    assert web.asked[0][1] == {"url": [asked], "format": ["json"]}


def test_a_paper_s_page(web: Web, client: httpx.Client) -> None:
    url = "https://proceedings.mlr.press/v202/kim23l.html"
    web.set_recorded_answer(
        "/pages/proceedings.mlr.press/v202/kim23l.html", "paper.html", "text/html"
    )
    assert lookup.lookup_work(url, client, web.endpoints) == Metadata(
        title="BPipe: Memory-Balanced Pipeline Parallelism for Training Large Language Models",
        url=url,
        authors=("Taebum Kim", "Hyoungjoo Kim", "Gyeong-In Yu"),
        year=2023,
        venue="International Conference on Machine Learning",
        kind="paper",
        lang="en",
    )


def test_a_post_and_where_it_moved(web: Web, client: httpx.Client) -> None:
    slug = "cuda-pro-tip-increase-performance-with-vectorized-memory-access"
    web.set_redirect(f"/pages/devblogs.nvidia.com/{slug}",
             f"{web.base}/pages/developer.nvidia.com/blog/{slug}/")  # fmt: skip
    web.set_recorded_answer(
        f"/pages/developer.nvidia.com/blog/{slug}/", "post.html", "text/html; charset=UTF-8"
    )
    assert lookup.lookup_work(
        f"https://devblogs.nvidia.com/{slug}", client, web.endpoints
    ) == Metadata(
        title="CUDA Pro Tip: Increase Performance with Vectorized Memory Access",
        url=f"https://developer.nvidia.com/blog/{slug}/",
        authors=("Justin Luitjens",),
        year=2013,
        venue="NVIDIA Technical Blog",
        kind="post",
        lang="en",
        about="Many CUDA kernels are bandwidth bound, "
        "& the increasing ratio of flops to bandwidth…",
    )


@pytest.mark.parametrize("kind", ["application/pdf", "text/plain", "", "image/svg+xml"])
def test_what_is_no_page_tells_nothing(web: Web, client: httpx.Client, kind: str) -> None:
    web.set_answer("/pages/x.org/a.pdf", "<title>No</title>", kind)
    assert lookup.lookup_work("https://x.org/a.pdf", client, web.endpoints) is None


@pytest.mark.parametrize(
    "url", ["https://doi.org/10.1145/1", "https://github.com/a/b", "https://youtu.be/ZLbVdvOoTKM"]
)
@pytest.mark.parametrize("body", ["<html>busy</html>", "[1]", "", "\xff", "[" * 100_000])
def test_an_answer_of_another_form(web: Web, client: httpx.Client, url: str, body: str) -> None:
    for path in ("/works/10.1145%2F1", "/repos/a/b", "/oembed"):
        web.set_answer(path, body, "application/json")
    with pytest.raises(Unreachable, match="^the answer is not a JSON object from "):
        lookup.lookup_work(url, client, web.endpoints)


def test_an_answer_that_is_too_long(web: Web, client: httpx.Client) -> None:
    web.set_answer("/oembed", b" " * 600_000 + b"{}", "application/json")
    with pytest.raises(Unreachable, match="answers more than 524288 bytes"):
        lookup.lookup_work("https://youtu.be/ZLbVdvOoTKM", client, web.endpoints)


def test_only_addresses_of_the_web_are_looked_up(client: httpx.Client) -> None:
    for url in ("file:///etc/passwd", "example.org/a", "javascript:alert(1)"):
        with pytest.raises(ValueError):
            lookup.lookup_work(url, client)


def test_private_addresses_are_refused(web: Web, client: httpx.Client) -> None:
    """Neither a page nor an endpoint is asked for on this machine unless the endpoints say so."""
    for url in (f"{web.base}/", "http://localhost/", "https://169.254.169.254/latest/meta-data/"):
        with pytest.raises(
            Unreachable, match=r"not a public http or https address|not on the public internet"
        ):
            lookup.lookup_work(url, client)
    here = Endpoints(youtube=f"{web.base}/oembed")
    with pytest.raises(Unreachable, match="not a public http or https address"):
        lookup.lookup_work("https://youtu.be/ZLbVdvOoTKM", client, here)
    assert not web.asked


LIVE = "https://example.org/a?b=1&c=2"


def ask_archive(web: Web, base: str | None = None) -> str | None:
    with fetch.create_client() as client:
        endpoints = replace(web.endpoints, archive=base or web.endpoints.archive)
        return lookup.archived_copy(LIVE, client, endpoints)


def make_answer(url: object, available: object = True) -> str:
    closest = {"url": url, "available": available, "status": "200", "timestamp": "20200101000000"}
    return json.dumps({"url": LIVE, "archived_snapshots": {"closest": closest}})


def test_the_copy_is_found_by_the_whole_address(web: Web) -> None:
    web.set_answer(
        "/available", make_answer("http://web.archive.org/web/20200101000000/https://example.org/a")
    )
    assert ask_archive(web) == "https://web.archive.org/web/20200101000000/https://example.org/a"
    [(_, query, _)] = web.asked
    assert query == {"url": [LIVE]}


@pytest.mark.parametrize(
    "body",
    [
        '{"url": "x", "archived_snapshots": {}}',
        '{"archived_snapshots": []}',
        "[]",
        "null",
        "no JSON",
        "[" * 100_000,
        make_answer("https://evil.example.org/web/2020/x"),
        make_answer("javascript:alert(1)"),
        make_answer("https://user@web.archive.org/x"),
        make_answer("https://web.archive.org/a b"),
        make_answer(None),
        make_answer("https://web.archive.org/web/2020/x", available=False),
        make_answer("https://web.archive.org/" + "x" * 5000),
    ],
)
def test_other_answers_are_no_copy(web: Web, body: str) -> None:
    web.set_answer("/available", body)
    assert ask_archive(web) is None


def test_no_answer_is_no_copy(web: Web) -> None:
    assert ask_archive(web) is None  # 404
    assert ask_archive(web, "http://127.0.0.1:9/available") is None


def test_whatever_is_found_can_be_kept(web: Web) -> None:
    web.set_answer(
        "/available", make_answer("http://web.archive.org/web/2020/http://example.org/<x>&'\"")
    )
    found = ask_archive(web)
    assert found is None or health.address_problem(found) is None
