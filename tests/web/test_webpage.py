"""The head of a page: which of its words count, in which encoding, and what cannot hurt."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpshelf.web import webpage
from warpshelf.web.metadata import Metadata

URL = "https://blog.example.org/2024/waits"


def page(head: str, url: str = URL) -> Metadata:
    found = webpage.read(f"<!doctype html><html><head>{head}</head><body>".encode(), url)
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
    assert page(head).title == title


@pytest.mark.parametrize("data", [b"", b"<p>no head", b"<title> </title>", b"\x00", b"<title>"])
def test_a_page_without_a_title_tells_nothing(data: bytes) -> None:
    assert webpage.read(data, URL) is None


def test_what_stands_in_the_body_does_not_count() -> None:
    body = "<html><body><title>No</title><meta name=author content='Ada Lovelace'>"
    assert webpage.read(body.encode(), URL) is None
    late = "<head><title>Yes</title></head><meta name=author content='Ada Lovelace'>"
    assert (found := webpage.read(late.encode(), URL)) and found.authors == ()


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
    assert page(f"<title>T</title>{head}").authors == authors


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
    found = page(f"<title>T</title>{head}")
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
    assert page(f"<title>T</title><link rel='canonical' href='{canonical}'>").url == url


def test_versions() -> None:
    head = ("<meta name=citation_title content=T><meta name=citation_doi content=10.1145/1.2>"
            "<meta name=citation_arxiv_id content=1805.02867>")  # fmt: skip
    assert page(head).also == (
        ("published", "https://doi.org/10.1145/1.2"),
        ("preprint", "https://arxiv.org/abs/1805.02867"),
    )
    own = page(head, "https://dl.acm.org/doi/10.1145/1.2")
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
    assert (found := webpage.read(data, URL, charset)) and found.title == title


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<![", "<!", "<?", "<a ", "<a b=", '<meta content="', "</", "&", "&#", "<a" * 3,
     "<script>", "<title>", "<a =", "<meta name=author content='A B'>", "{", "<a\t\n/"],
)  # fmt: skip
def test_a_hostile_page_takes_no_time(piece: str) -> None:
    for start in ("<title>T</title>", "<title>T</title><meta "):
        data = (start + piece * (512 * 1024 // len(piece)))[: 512 * 1024]
        before = time.process_time()
        webpage.read(data.encode(), URL)
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
    found = webpage.read(text.encode("utf-8", "replace"), URL, charset)
    assert found is None or (found.title and found.title.isprintable() or found)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    webpage.read(b"<title>x" + data, URL)
