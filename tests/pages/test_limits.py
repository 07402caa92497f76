"""What a page may weigh: see docs/about/tooling.md, "Limits". The files of all pages are read."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from browser import Visit

from warpshelf.site import finishing

KILOBYTES, NODES = 300, 5_000  # of a page as it is sent
INDEX = 200_000  # bytes of the search's index, compressed


def test_no_page_weighs_too_much(site: Path) -> None:
    heavy = []
    for path in sorted(site.rglob("*.html")):
        text = path.read_text("utf-8")
        nodes = len(re.findall(r"<[a-z]", text))
        if len(text.encode()) > 1000 * KILOBYTES or nodes > NODES:
            heavy.append(f"{path.relative_to(site)}: {len(text) // 1000} KB, {nodes} nodes")
    assert heavy == []


def test_rules_that_pages_do_without_are_dropped(site: Path, builder: str) -> None:
    """And no page has more tabs side by side than there are rules left for."""
    css = "@media print{.no-js .tabbed-set a,.b{c:d}.tabbed-set>input:nth-child(9)~:nth-child(9){}}"
    assert finishing.drop_rules(css) == "@media print{.b{c:d}}"
    if builder == "mkdocs":
        [theme] = site.glob("assets/stylesheets/main.*.css")
        left = theme.read_text("utf-8")
        assert f".tabbed-set>input:nth-child({finishing.TABS})" in left
        assert f".tabbed-set>input:nth-child({finishing.TABS + 1})" not in left
    pages = (path.read_text("utf-8") for path in site.rglob("*.html"))
    counts = {int(count) for page in pages for count in re.findall(r'data-tabs="\d+:(\d+)"', page)}
    assert 1 < max(counts) <= finishing.TABS


def test_the_index_of_the_search_is_small(site: Path, builder: str) -> None:
    if builder != "mkdocs":
        pytest.skip("Zensical makes an index of its own, which nobody shortens")
    index = site / "search" / "search_index.json"
    assert len(gzip.compress(index.read_bytes())) <= INDEX


def test_the_index_waits_until_the_search_is_used(wide_visit: Visit, builder: str) -> None:
    if builder != "mkdocs":
        pytest.skip("the search of Zensical asks for its index itself")
    asked: list[str] = []
    wide_visit.tab.on("request", lambda request: asked.append(request.url))
    tab = wide_visit.open_page("kernels/softmax/")
    assert not [url for url in asked if "search_index" in url]
    with tab.expect_request("**/search/search_index.json"):
        tab.locator(".md-search__input").focus()
