"""A link to another work is found by its title, and another way of writing one is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Web, serving

from warpshelf import fetch, readings, titles
from warpshelf.roster import Link, listed
from warpshelf.titles import alike, ask, due, fits, known_to_github, named

PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"
R1 = "DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via Reinforcement Learning"


@pytest.mark.parametrize(
    ("ours", "there"),
    [
        (PAGED, PAGED),
        (PAGED, PAGED.upper()),
        (PAGED, PAGED.replace("PagedAttention", "Paged Attention") + "."),
        ("GPipe", "GPipe: Efficient Training of Giant Neural Networks"),
        ("GPipe: Efficient Training of Giant Neural Networks", "GPipe"),
        ("FlashAttention-2", "FlashAttention-2: Faster Attention with Better Parallelism"),
        ("3.5-D Blocking Optimization for Stencils", "3.5-D blocking optimization for stencils"),
        ("Modeling on μ-architectures", "Modeling on $\\mu$-architectures"),
        ("Reduction in O(n) time", "Reduction in <i>O</i>(<i>n</i>) time"),
        ("Kernels & tiles", "Kernels &amp; tiles"),
        ("Schrödinger's tile", "Schrodinger\u2019s Tile"),
        ("ZeRO: Memory Optimizations", "ZeRO - memory optimizations"),
    ],
)
def test_one_work_written_in_two_ways(ours: str, there: str) -> None:
    assert alike([ours], there)


@pytest.mark.parametrize(
    ("ours", "there"),
    [
        (PAGED, R1),  # what a reading group's notes had as the paper
        ("DeepSeek-V3 Technical Report", "DeepSeek-V2 Technical Report"),
        ("FlashAttention: Fast and Exact", "FlashAttention-2: Faster Attention"),
        ("FlashAttention", "FlashAttention-2: Faster Attention"),
        ("Attention Is All You Need", "Attention Is Not All You Need: Pure Attention Loses Rank"),
        (
            "MonoNN",
            "Aceso: Efficient Parallel DNN Training through Iterative Bottleneck Alleviation",
        ),
        ("Zero Bubble Pipeline Parallelism", "Pipeline Parallelism with Controllable Memory"),
    ],
)
def test_two_works(ours: str, there: str) -> None:
    assert not alike([ours], there)


def test_the_english_title_counts_as_well() -> None:
    assert alike(["流水线并行", "Pipeline parallelism"], "Pipeline Parallelism")
    assert not alike(["流水线并行"], "Pipeline Parallelism")


def test_a_publication_may_be_worded_otherwise() -> None:
    ours = "PipeDream: Fast and Efficient Pipeline Parallel DNN Training"
    there = "PipeDream: generalized pipeline parallelism for DNN training"
    assert alike([ours], there, version=True) and not alike([ours], there)
    assert not alike([PAGED], R1, version=True)


@pytest.mark.parametrize(
    ("ours", "repository", "says", "right"),
    [
        ("llama.cpp", "ggml-org/llama.cpp", "LLM inference in C/C++", True),
        ("CUDA Softmax", "Fattorib/CudaSoftmax", "", True),
        ("EleutherAI ML Scalability & Performance Reading Group",
         "danielvegamyhre/ml-perf-reading-group", "Notes of the EleutherAI ML Performance reading"
         " group", True),
        ("Annotated PyTorch source", "keithyin/read-pytorch-source-code", "", False),
        ("Annotated PyTorch source", "keithyin/read-pytorch-source-code",
         "pytorch source code, annotated", True),
        ("vLLM", "sgl-project/sglang", "A serving framework for large language models", False),
        ("FlashMLA", "deepseek-ai/DeepEP", "An expert-parallel communication library", False),
    ],
)  # fmt: skip
def test_repositories(ours: str, repository: str, says: str, right: bool) -> None:
    assert named([ours], repository, says) is right


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_titles_can_be_compared(one: str, other: str) -> None:
    assert alike([one], one)
    assert named([one], other, one) in (True, False)
    for version in (True, False):
        assert alike([one], other, version=version) in (True, False)


# Asking.

LIST = f"""\
- id: paged
  title: {PAGED}
  url: https://arxiv.org/abs/2309.06180
  kind: paper
  why: Says how.
  also:
    - {{what: published, url: "https://doi.org/10.1145/3600006.3613165"}}
    - {{what: code, url: "https://github.com/vllm-project/vllm"}}
- id: repository
  title: softmax-tiles
  url: https://github.com/tiles/softmax-tiles
  kind: code
  why: Says how.
- id: file
  title: tile.py
  url: https://github.com/tiles/softmax-tiles/blob/main/tile.py
  kind: code
  why: Says how.
- id: post
  title: A post
  url: https://example.org/post
  kind: post
  why: Says how.
"""


@pytest.fixture
def links(tmp_path: Path) -> dict[str, Link]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tiles.yml").write_text(LIST)
    shelf = readings.load(tmp_path)
    assert not shelf.findings
    return listed(shelf)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with fetch.client() as made:
        yield made


def test_what_has_a_title_of_its_own(links: dict[str, Link]) -> None:
    asked = [url for url, link in links.items() if due(link, None)]
    assert asked == [
        "https://arxiv.org/abs/2309.06180",
        "https://doi.org/10.1145/3600006.3613165",
        "https://github.com/tiles/softmax-tiles",
    ]


def test_a_known_title_is_asked_for_again_only_where_it_differs(links: dict[str, Link]) -> None:
    link = links["https://arxiv.org/abs/2309.06180"]
    assert not due(link, PAGED) and due(link, R1)


def test_titles_are_asked_for_and_kept(
    links: dict[str, Link], web: Web, client: httpx.Client
) -> None:
    web.record("/arxiv", "arxiv.xml", "application/atom+xml")
    repository = {
        "name": "Softmax-Tiles",
        "owner": {"login": "Tiles"},
        "html_url": "https://github.com/Tiles/Softmax-Tiles",
        "description": "of\u0007 x",
    }
    web.put("/repos/tiles/softmax-tiles", json.dumps(repository), "application/json")
    asked = [link for link in links.values() if due(link, None)]
    pauses = dict.fromkeys(("arxiv", "doi", "github"), 0.0)
    found = ask(asked, client, web.endpoints, pauses)
    assert found == {
        "https://arxiv.org/abs/2309.06180": PAGED,
        "https://github.com/tiles/softmax-tiles": "Tiles/Softmax-Tiles: of x",
    }
    assert all(fits(links[url], title) for url, title in found.items())
    assert ask(asked, client, web.endpoints, pauses, lambda done: done == 1) == {
        "https://arxiv.org/abs/2309.06180": PAGED
    }


def test_a_source_that_fails_is_left_in_peace(
    links: dict[str, Link], web: Web, client: httpx.Client
) -> None:
    web.put("/arxiv", "Rate exceeded.", status=429)
    link = links["https://arxiv.org/abs/2309.06180"]
    assert ask([link] * 9, client, web.endpoints, {"arxiv": 0.0}) == {}
    assert len(web.asked) == titles.PATIENCE


def test_the_token_is_shown_to_github_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    for url, shown in {
        "https://api.github.com/repos/a/b": True,
        "http://api.github.com/repos/a/b": False,
        "https://api.github.com.example.org/": False,
        "https://export.arxiv.org/api": False,
    }.items():
        request = known_to_github(httpx.Request("GET", url))
        assert ("Authorization" in request.headers) is shown, url
    monkeypatch.delenv("GITHUB_TOKEN")
    request = known_to_github(httpx.Request("GET", "https://api.github.com/repos/a/b"))
    assert "Authorization" not in request.headers
