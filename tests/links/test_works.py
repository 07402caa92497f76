"""A link to another work is found by its title, and another way of writing one is none."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from loopback import Web

from warpshelf.links import works
from warpshelf.links.roster import Link, listed
from warpshelf.links.works import ask, due, fits, known_to_github
from warpshelf.readings import model

PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"
R1 = "DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via Reinforcement Learning"


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
    shelf = model.load(tmp_path)
    assert not shelf.findings
    return listed(shelf)


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
    assert len(web.asked) == works.PATIENCE


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
