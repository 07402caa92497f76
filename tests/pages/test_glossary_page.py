"""The glossary in a browser: its list, and its sentences wherever a term stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import MORE, NARROW, WIDE, Visit, open_context
from conftest import ROOT
from playwright.sync_api import Browser

from warpshelf.catalogue import glossary
from warpshelf.core.project import Project

TOPIC = "kernels/gpu-architecture/"
SAID = {one.says for one in glossary.load_glossary(Project(ROOT)).terms}
SHOWN = ".md-tooltip2--active"
LIGHT = """selector => {
  const [r, g, b] = getComputedStyle(document.querySelector(selector)).color.match(/[\\d.]+/g);
  return (+r + +g + +b) / 3;
}"""


def test_the_page_has_its_terms_and_every_link_lands(wide_visit: Visit, site: Path) -> None:
    tab = wide_visit.open_page("glossary/")
    assert tab.locator(".ws-term > h3").count() == len(SAID) >= 120
    assert tab.locator("main abbr").count() == 0, "a term marked within the glossary"
    inside = tab.eval_on_selector_all(
        ".ws-term-links a, .ws-letters a", "links => links.map(link => link.href)"
    )
    assert len(inside) > 2 * len(SAID)
    ids: dict[str, set[str]] = {}
    for link in {link for link in inside if link.startswith(wide_visit.origin)}:
        parts = urlsplit(link)
        page = site / parts.path.strip("/") / "index.html"
        if parts.path not in ids:
            ids[parts.path] = set(re.findall(r'\sid="([^"]+)"', page.read_text("utf-8")))
        assert not parts.fragment or unquote(parts.fragment) in ids[parts.path], link


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.exhaustive(MORE)
def test_hover_shows_the_sentence(browser: Browser, site_origin: str, scheme: str) -> None:
    context = open_context(browser, WIDE, color_scheme=scheme)
    visit = Visit(context.new_page(), site_origin)
    tab = visit.open_page(TOPIC)
    term = tab.locator("article p abbr", has_text=re.compile("^shared memory$")).first
    term.hover()
    tip = tab.locator(SHOWN)
    tip.wait_for()
    shown = tip.inner_text().strip()
    assert shown.startswith("Memory inside an SM") and shown in SAID
    box = tip.locator(".md-tooltip2__inner").bounding_box()
    assert box["width"] <= 400 and box["x"] >= 0
    size = tip.locator(".md-tooltip2__inner").evaluate("one => getComputedStyle(one).fontSize")
    assert float(size.removesuffix("px")) >= 12
    ink = tab.evaluate(LIGHT, f"{SHOWN} .md-tooltip2__inner")
    assert ink < 100 if scheme == "light" else ink > 155
    assert visit.foreign == visit.console == []
    context.close()


@pytest.mark.exhaustive(MORE)
def test_a_finger_shows_it_too(browser: Browser, site_origin: str, builder: str) -> None:
    context = open_context(browser, NARROW, has_touch=True, is_mobile=True)
    tab = Visit(context.new_page(), site_origin).open_page(TOPIC)
    term = tab.locator("article p abbr").first
    if builder == "zensical":  # it has no tooltips on a touch screen
        title = term.get_attribute("title") or ""
        assert any(title.endswith(says) for says in SAID)
        context.close()
        return
    term.tap()
    tab.locator(SHOWN).wait_for()
    box = tab.locator(f"{SHOWN} .md-tooltip2__inner").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW
    context.close()


def test_without_scripts_the_sentence_is_the_title(site: Path) -> None:
    text = (site / TOPIC / "index.html").read_text("utf-8")
    titles = re.findall(r'<abbr title="([^"]+)">', text)
    assert len(titles) > 10
    assert not re.search(r"<(?:code|pre|title|text)\b[^>]*>[^<]*<abbr", text)
    contents = re.search(r'<nav class="md-nav md-nav--secondary.*?</nav>', text, re.S)
    assert contents and "abbr" not in contents[0]


@pytest.mark.exhaustive(MORE)
def test_the_search_knows_no_sentence_but_the_glossary_s_own(site: Path, builder: str) -> None:
    name, entries = {"mkdocs": ("search/search_index.json", "docs")}.get(
        builder, ("search.json", "items")
    )
    index = json.loads((site / name).read_text("utf-8"))[entries]
    long = {says for says in SAID if "&" not in says and len(says) > 60}
    holders = {
        one["location"].partition("#")[0]
        for one in index
        if any(says in re.sub(r"<[^>]+>", "", one["text"]) for says in long)
    }
    assert holders == {"glossary/"}
    own = [one for one in index if one["location"].startswith("glossary/")]
    assert len(own) < 20, "a term is a title, and titles win over the topics' own pages"
    if builder == "mkdocs":
        assert all(one["boost"] < 1 for one in own)
        assert not any("Chinchilla scaling cubin" in one["text"] for one in own)
