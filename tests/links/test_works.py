"""Every address of the shelf, where it stands, and whether it leads to the work of its entry.

A link to another work is found by its title, and another way of writing one is none.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx
import pytest
from web_server import Web

from warpshelf.core.findings import ShelfError
from warpshelf.links import check_links
from warpshelf.links.check_links import (
    Link,
    authorize_github,
    fetch_titles,
    list_links,
    needs_title,
    title_fits,
    urls_since,
)
from warpshelf.readings import model

LIST = """\
- id: one
  title: One
  url: https://example.org/one
  kind: post
  why: Says how.
  also:
    - {what: slides, url: https://example.org/slides}
    - {what: code, url: https://example.org/shared}
- id: two
  title: Two
  url: https://example.org/two
  kind: post
  why: Says how.
  also: [{what: code, url: "https://example.org/shared"}]
"""


def run_git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def history_root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"  # not the root of its repository
    (folder / "docs" / "kernels").mkdir(parents=True)
    (folder / "docs" / "kernels" / "tiles.yml").write_text(LIST)
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "--quiet", "--message", "First")
    return folder


def test_each_address_is_listed_once_with_its_places(history_root: Path) -> None:
    links = list_links(model.load_shelf(history_root))
    assert list(links) == [
        "https://example.org/one",
        "https://example.org/slides",
        "https://example.org/shared",
        "https://example.org/two",
    ]
    assert [link.role for link in links.values()] == ["url", "slides", "code", "url"]
    assert [link.where for link in links.values()] == [
        ("docs/kernels/tiles.yml", line) for line in (3, 7, 8, 11)
    ]
    assert [r.id for r, _ in links["https://example.org/shared"].places] == ["one", "two"]


def test_an_address_belongs_to_the_entry_that_is_about_it(history_root: Path) -> None:
    path = history_root / "docs" / "kernels" / "tiles.yml"
    path.write_text(LIST.replace("https://example.org/two", "https://example.org/slides"))
    link = list_links(model.load_shelf(history_root))["https://example.org/slides"]
    assert (link.reading.id, link.role, link.where[1]) == ("two", "url", 11)
    assert [reading.id for reading, _ in link.places] == ["one", "two"]


def test_what_a_revision_does_not_have_is_new(history_root: Path) -> None:
    assert urls_since(history_root, "HEAD") == set()
    path = history_root / "docs" / "kernels" / "tiles.yml"
    path.write_text(LIST.replace("/slides", "/new-slides").replace("title: Two", "title: 2"))
    (history_root / "docs" / "more.yml").write_text(LIST.replace("example.org", "example.com"))
    found = urls_since(history_root, "HEAD")
    assert found == {
        "https://example.org/new-slides",
        *(f"https://example.com/{name}" for name in ("one", "two", "slides", "shared")),
    }
    run_git(history_root, "add", ".")
    run_git(history_root, "commit", "--quiet", "--message", "Second")
    assert urls_since(history_root, "HEAD") == set() and urls_since(history_root, "HEAD^") == found


def test_an_address_that_only_changed_its_list_is_not_new(history_root: Path) -> None:
    docs = history_root / "docs"
    (docs / "kernels" / "tiles.yml").rename(docs / "tiles.yml")
    assert urls_since(history_root, "HEAD") == set()


def test_a_list_that_could_not_be_read_then_is_new(history_root: Path) -> None:
    path = history_root / "docs" / "kernels" / "tiles.yml"
    for broken in ("- id: [", "- " * 5000, "just text", "\x00", "- {url: 7}"):
        path.write_text(broken)
        run_git(history_root, "commit", "--all", "--quiet", "--message", "Broken")
        path.write_text(LIST)
        assert len(urls_since(history_root, "HEAD")) == 4


@pytest.mark.parametrize("name", ["origin/nowhere", "--output=x", "", "HEAD:docs", "a\nb"])
def test_another_revision_is_one_clear_line(history_root: Path, name: str) -> None:
    with pytest.raises(ShelfError) as caught:
        urls_since(history_root, name)
    assert "is not a commit of this repository, or Git failed; fetch it, or name another" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_a_folder_without_history_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ShelfError, match="is not a commit of this repository"):
        urls_since(tmp_path, "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShelfError, match="^git: cannot be run"):
        urls_since(tmp_path, "HEAD")


PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"
R1 = "DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via Reinforcement Learning"


TITLED = f"""\
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
def titled_links(tmp_path: Path) -> dict[str, Link]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tiles.yml").write_text(TITLED)
    shelf = model.load_shelf(tmp_path)
    assert not shelf.findings
    return list_links(shelf)


def test_what_has_a_title_of_its_own(titled_links: dict[str, Link]) -> None:
    asked = [url for url, link in titled_links.items() if needs_title(link, None)]
    assert asked == [
        "https://arxiv.org/abs/2309.06180",
        "https://doi.org/10.1145/3600006.3613165",
        "https://github.com/tiles/softmax-tiles",
    ]


def test_a_known_title_is_asked_for_again_only_where_it_differs(
    titled_links: dict[str, Link],
) -> None:
    link = titled_links["https://arxiv.org/abs/2309.06180"]
    assert not needs_title(link, PAGED) and needs_title(link, R1)


def test_titles_are_asked_for_and_kept(
    titled_links: dict[str, Link], web: Web, client: httpx.Client
) -> None:
    web.set_recorded_answer("/arxiv", "arxiv.xml", "application/atom+xml")
    repository = {
        "name": "Softmax-Tiles",
        "owner": {"login": "Tiles"},
        "html_url": "https://github.com/Tiles/Softmax-Tiles",
        "description": "of\u0007 x",
    }
    web.set_answer("/repos/tiles/softmax-tiles", json.dumps(repository), "application/json")
    asked = [link for link in titled_links.values() if needs_title(link, None)]
    pauses = dict.fromkeys(("arxiv", "doi", "github"), 0.0)
    found = fetch_titles(asked, client, web.endpoints, pauses)
    assert found == {
        "https://arxiv.org/abs/2309.06180": PAGED,
        "https://github.com/tiles/softmax-tiles": "Tiles/Softmax-Tiles: of x",
    }
    assert all(title_fits(titled_links[url], title) for url, title in found.items())
    assert fetch_titles(asked, client, web.endpoints, pauses, lambda done: done == 1) == {
        "https://arxiv.org/abs/2309.06180": PAGED
    }


def test_a_source_that_fails_is_left_in_peace(
    titled_links: dict[str, Link], web: Web, client: httpx.Client
) -> None:
    web.set_answer("/arxiv", "Rate exceeded.", status=429)
    link = titled_links["https://arxiv.org/abs/2309.06180"]
    assert fetch_titles([link] * 9, client, web.endpoints, {"arxiv": 0.0}) == {}
    assert len(web.asked) == check_links.PATIENCE


def test_the_token_is_shown_to_github_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    for url, shown in {
        "https://api.github.com/repos/a/b": True,
        "http://api.github.com/repos/a/b": False,
        "https://api.github.com.example.org/": False,
        "https://export.arxiv.org/api": False,
    }.items():
        request = authorize_github(httpx.Request("GET", url))
        assert ("Authorization" in request.headers) is shown, url
    monkeypatch.delenv("GITHUB_TOKEN")
    request = authorize_github(httpx.Request("GET", "https://api.github.com/repos/a/b"))
    assert "Authorization" not in request.headers
