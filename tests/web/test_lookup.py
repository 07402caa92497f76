"""What an address says of itself is read from recorded answers, and nothing but the work's own."""

from __future__ import annotations

import httpx
import pytest
from loopback import Web

from warpshelf.web import lookup
from warpshelf.web.fetch import Unreachable
from warpshelf.web.metadata import Metadata
from warpshelf.web.services import Endpoints

PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"


def test_arxiv(web: Web, client: httpx.Client) -> None:
    web.record("/arxiv", "arxiv.xml", "application/atom+xml")
    found = lookup.lookup("https://arxiv.org/pdf/2309.06180v1.pdf", client, web.endpoints)
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
    web.record("/arxiv", "arxiv.xml", "application/atom+xml")
    url = "https://doi.org/10.48550/arXiv.2309.06180"
    assert (found := lookup.lookup(url, client, web.endpoints)) and found.title == PAGED


def test_arxiv_names_another_paper(web: Web, client: httpx.Client) -> None:
    """Neither the error that arXiv hands out as an entry nor another paper is the work."""
    web.record("/arxiv", "arxiv_error.xml", "application/atom+xml")
    assert lookup.lookup("https://arxiv.org/abs/2309.06180", client, web.endpoints) is None
    web.record("/arxiv", "arxiv.xml", "application/atom+xml")
    assert lookup.lookup("https://arxiv.org/abs/2309.06181", client, web.endpoints) is None


def test_arxiv_asks_to_slow_down(web: Web, client: httpx.Client) -> None:
    web.put("/arxiv", "Rate exceeded.", "text/plain")
    with pytest.raises(Unreachable, match="^the answer is no Atom feed"):
        lookup.lookup("https://arxiv.org/abs/2309.06180", client, web.endpoints)


def test_crossref(web: Web, client: httpx.Client) -> None:
    web.record("/works/10.1145%2F3341301.3359646", "crossref.json", "application/json")
    url = "https://dl.acm.org/doi/abs/10.1145/3341301.3359646"
    assert lookup.lookup(url, client, web.endpoints) == Metadata(
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
    web.put("/pages/doi.org/10.5281/zenodo.42", "<title>A data set</title>")
    url = "https://doi.org/10.5281/zenodo.42"
    found = lookup.lookup(url, client, web.endpoints)
    assert found and (found.title, found.url) == ("A data set", url)
    web.put("/works/10.5281%2Fzenodo.42", "", status=503)
    with pytest.raises(Unreachable, match="answers 503 Service Unavailable") as caught:
        lookup.lookup(url, client, web.endpoints)
    assert caught.value.status == 503


def test_github(web: Web, client: httpx.Client) -> None:
    web.record("/repositories/1", "github.json", "application/json")
    web.move("/repos/rrze/gpu-benches", f"{web.base}/repositories/1")
    found = lookup.lookup("https://github.com/RRZE/gpu-benches.git", client, web.endpoints)
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
    assert lookup.lookup(url, client, web.endpoints) is None
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
    web.record("/oembed", "youtube.json", "application/json")
    found = lookup.lookup(url, client, web.endpoints)
    title = "How to Build an LLM from Scratch | An Overview"
    assert found == Metadata(title, asked, venue="Shaw Talebi", kind="talk")
    assert web.asked[0][1] == {"url": [asked], "format": ["json"]}


def test_a_paper_s_page(web: Web, client: httpx.Client) -> None:
    url = "https://proceedings.mlr.press/v202/kim23l.html"
    web.record("/pages/proceedings.mlr.press/v202/kim23l.html", "paper.html", "text/html")
    assert lookup.lookup(url, client, web.endpoints) == Metadata(
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
    web.move(f"/pages/devblogs.nvidia.com/{slug}",
             f"{web.base}/pages/developer.nvidia.com/blog/{slug}/")  # fmt: skip
    web.record(f"/pages/developer.nvidia.com/blog/{slug}/", "post.html", "text/html; charset=UTF-8")
    assert lookup.lookup(f"https://devblogs.nvidia.com/{slug}", client, web.endpoints) == Metadata(
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
    web.put("/pages/x.org/a.pdf", "<title>No</title>", kind)
    assert lookup.lookup("https://x.org/a.pdf", client, web.endpoints) is None


@pytest.mark.parametrize(
    "url", ["https://doi.org/10.1145/1", "https://github.com/a/b", "https://youtu.be/ZLbVdvOoTKM"]
)
@pytest.mark.parametrize("body", ["<html>busy</html>", "[1]", "", "\xff", "[" * 100_000])
def test_an_answer_of_another_form(web: Web, client: httpx.Client, url: str, body: str) -> None:
    for path in ("/works/10.1145%2F1", "/repos/a/b", "/oembed"):
        web.put(path, body, "application/json")
    with pytest.raises(Unreachable, match="^the answer is no JSON object of "):
        lookup.lookup(url, client, web.endpoints)


def test_an_answer_that_is_too_long(web: Web, client: httpx.Client) -> None:
    web.put("/oembed", b" " * 600_000 + b"{}", "application/json")
    with pytest.raises(Unreachable, match="answers more than 524288 bytes"):
        lookup.lookup("https://youtu.be/ZLbVdvOoTKM", client, web.endpoints)


def test_only_addresses_of_the_web_are_looked_up(client: httpx.Client) -> None:
    for url in ("file:///etc/passwd", "example.org/a", "javascript:alert(1)"):
        with pytest.raises(ValueError):
            lookup.lookup(url, client)


def test_private_addresses_are_refused(web: Web, client: httpx.Client) -> None:
    """Neither a page nor an endpoint is asked for on this machine unless the endpoints say so."""
    for url in (f"{web.base}/", "http://localhost/", "https://169.254.169.254/latest/meta-data/"):
        with pytest.raises(Unreachable, match=r"no public address|not on the public internet"):
            lookup.lookup(url, client)
    here = Endpoints(youtube=f"{web.base}/oembed")
    with pytest.raises(Unreachable, match="no public address"):
        lookup.lookup("https://youtu.be/ZLbVdvOoTKM", client, here)
    assert not web.asked
