"""Pages: their addresses and anchors."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import markdown
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from warpshelf.core.pages import heading_slug, page_anchors
from warpshelf.core.places import OnPage, page_address, whole_address

# Anchors are told without building a page, as the build names them.

PAGES = sorted((ROOT / "docs").rglob("*.md"))
EXTENSIONS = ["attr_list", "toc", "pymdownx.superfences"]


def build_anchors(text: str) -> set[str]:
    """The anchors of a page's headings as Markdown makes them."""
    html = markdown.markdown(text, extensions=EXTENSIONS)
    return set(re.findall(r'<h[1-6][^>]*? id="([^"]+)"', html))


def test_every_heading_of_our_pages_is_named_as_the_build_names_it() -> None:
    assert len(PAGES) > 60
    for page in PAGES:
        text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.S)
        missing = build_anchors(text) - page_anchors(text)
        assert not missing, f"{page}: {missing}"


# No emphasis and no code: Markdown reads odd ones in ways that no heading of ours needs.
WORDS = st.text("abC -.,:12()'é", max_size=20).map(lambda text: f"x{text}y")


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=6))
def test_any_heading(words: list[str]) -> None:
    text = "\n\n".join(f"## {word}" for word in words)
    assert page_anchors(text) == build_anchors(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A b\n## A b\n### A b\n", {"a-b", "a-b_1", "a-b_2"}),
        ("## Views { #views }\n## More {: #more .x }\n", {"views", "more"}),
        ('<p class="x" id="here">\n<!-- id="not" -->', {"here"}),
        ("```python\n# no heading\n```\n~~~~\n## nor this\n~~~~\n## Yes\n", {"yes"}),
        ("## [Linked](a.md) text\n## `n` decides\n", {"linked-text", "n-decides"}),
        ("", set()),
    ],
)
def test_what_counts(text: str, found: set[str]) -> None:
    assert page_anchors(text) == found


def test_slug() -> None:
    assert heading_slug("What `n` decides: Überlauf, 2-D") == "what-n-decides-uberlauf-2-d"


# A page has one address, and a link on another page leads there.

SITE = "https://example.org/shelf"


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("kernels/softmax", "kernels/softmax/"),
        ("about", "about/"),
        ("sessions/index", "sessions/"),
        ("sessions/README", "sessions/"),
        ("sessions/an-index", "sessions/an-index/"),
        ("index", ""),
        ("kernels/a b", "kernels/a%20b/"),
    ],
)
def test_a_page_has_one_address(where: str, wanted: str) -> None:
    assert page_address(f"{where}.md") == wanted
    for site in (SITE, f"{SITE}/"):
        assert whole_address(where, site) == f"{SITE}/{wanted}"
    for here in ("index", "kernels/other", "sessions/index"):
        link = OnPage(f"{here}.md").relative_link(f"/{where}.md#part")
        assert urljoin(whole_address(here, SITE), link) == f"{SITE}/{wanted}#part"
