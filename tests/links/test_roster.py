"""Every address of the shelf, where it stands, and which of them are new."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warpshelf.core.findings import ShelfError
from warpshelf.links.roster import listed, since
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


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"  # not the root of its repository
    (folder / "docs" / "kernels").mkdir(parents=True)
    (folder / "docs" / "kernels" / "tiles.yml").write_text(LIST)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "First")
    return folder


def test_each_address_is_listed_once_with_its_places(root: Path) -> None:
    links = listed(model.load(root))
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


def test_an_address_belongs_to_the_entry_that_is_about_it(root: Path) -> None:
    path = root / "docs" / "kernels" / "tiles.yml"
    path.write_text(LIST.replace("https://example.org/two", "https://example.org/slides"))
    link = listed(model.load(root))["https://example.org/slides"]
    assert (link.reading.id, link.role, link.where[1]) == ("two", "url", 11)
    assert [reading.id for reading, _ in link.places] == ["one", "two"]


def test_what_a_revision_does_not_have_is_new(root: Path) -> None:
    assert since(root, "HEAD") == set()
    path = root / "docs" / "kernels" / "tiles.yml"
    path.write_text(LIST.replace("/slides", "/new-slides").replace("title: Two", "title: 2"))
    (root / "docs" / "more.yml").write_text(LIST.replace("example.org", "example.com"))
    found = since(root, "HEAD")
    assert found == {
        "https://example.org/new-slides",
        *(f"https://example.com/{name}" for name in ("one", "two", "slides", "shared")),
    }
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Second")
    assert since(root, "HEAD") == set() and since(root, "HEAD^") == found


def test_an_address_that_only_changed_its_list_is_not_new(root: Path) -> None:
    docs = root / "docs"
    (docs / "kernels" / "tiles.yml").rename(docs / "tiles.yml")
    assert since(root, "HEAD") == set()


def test_a_list_that_could_not_be_read_then_is_new(root: Path) -> None:
    path = root / "docs" / "kernels" / "tiles.yml"
    for broken in ("- id: [", "- " * 5000, "just text", "\x00", "- {url: 7}"):
        path.write_text(broken)
        git(root, "commit", "--all", "--quiet", "--message", "Broken")
        path.write_text(LIST)
        assert len(since(root, "HEAD")) == 4


@pytest.mark.parametrize("name", ["origin/nowhere", "--output=x", "", "HEAD:docs", "a\nb"])
def test_another_revision_is_one_clear_line(root: Path, name: str) -> None:
    with pytest.raises(ShelfError) as caught:
        since(root, name)
    assert "is no commit of this repository; fetch it, or name another" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_history_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ShelfError, match="is no commit of this repository"):
        since(tmp_path, "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShelfError, match="^git: cannot be run"):
        since(tmp_path, "HEAD")
