"""The glossary and the paths in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import MORE, NARROW, WIDE, Visit, open_context
from conftest import ROOT, exhaustive
from playwright.sync_api import Browser

from warpshelf.catalogue import glossary
from warpshelf.core.project import Project

# The glossary: its list, and its sentences wherever a term stands.

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


# The paths: ticks that stay, and how far one has come.

PATH, OTHER = "paths/serving/", "paths/flash-attention/"
SHARED = "page:kernels/attention"  # a step of both


@pytest.fixture
def fresh_visit(browser: Browser, site_origin: str) -> Iterator[Visit]:
    """A tab whose browser has kept nothing yet, and in which nothing may go wrong."""
    context = open_context(browser, WIDE)
    visit = Visit(context.new_page(), site_origin)
    yield visit
    assert (visit.foreign, visit.failed, visit.console) == ([], [], [])
    context.close()


def read_kept_steps(visit: Visit) -> list[str]:
    found = json.loads(visit.tab.evaluate("localStorage.getItem('warpshelf.done')") or "[]")
    assert isinstance(found, list)
    return found


@pytest.mark.exhaustive(MORE)
def test_ticks_stay_and_are_shared(fresh_visit: Visit) -> None:
    tab = fresh_visit.open_page(PATH)
    steps = tab.locator("[data-step]").count()
    said = tab.locator(".ws-walked [role=status]")
    assert tab.get_by_role("checkbox").count() == steps > 15
    assert said.inner_text().startswith(f"0 of {steps} steps done, about ")
    tab.locator("[data-step]").first.get_by_role("checkbox").check()
    tab.locator(f"[data-step='{SHARED}']").get_by_role("checkbox").check()
    assert said.inner_text().startswith(f"2 of {steps} steps done, about ")
    assert tab.locator("progress").get_attribute("max") == str(steps)
    assert tab.locator("progress").evaluate("bar => bar.value") == 2
    assert SHARED in read_kept_steps(fresh_visit) and len(read_kept_steps(fresh_visit)) == 2
    tab.reload()
    assert said.inner_text().startswith("2 of")
    tab = fresh_visit.open_page(OTHER)
    assert tab.locator(f"[data-step='{SHARED}']").get_by_role("checkbox").is_checked()
    assert said.inner_text().startswith("1 of")
    tab.get_by_role("button", name="Untick all").click()
    assert said.inner_text().startswith("0 of") and len(read_kept_steps(fresh_visit)) == 1
    assert not tab.get_by_role("button", name="Untick all").is_visible()


@pytest.mark.exhaustive(MORE)
def test_all_done_is_said(fresh_visit: Visit) -> None:
    tab = fresh_visit.open_page(PATH)
    said = tab.locator(".ws-walked [role=status]")
    before = said.inner_text()
    *boxes, last = tab.get_by_role("checkbox").all()
    for box in boxes:
        box.check()
    assert said.inner_text().split("about")[1] != before.split("about")[1]
    last.check()
    steps = tab.locator("[data-step]").count()
    assert said.inner_text() == f"{steps} of {steps} steps done, all done"


@pytest.mark.parametrize(
    "value",
    exhaustive(['["<b>", 7, null]', "{", "7", "null", '{"a": 1}', "[[]]"], "more of what is kept"),
)
@pytest.mark.exhaustive(MORE)
def test_what_somebody_else_kept_does_no_harm(fresh_visit: Visit, value: str) -> None:
    tab = fresh_visit.open_page(PATH)
    tab.evaluate("value => localStorage.setItem('warpshelf.done', value)", value)
    tab = fresh_visit.open_page(PATH)
    assert tab.locator(".ws-walked [role=status]").inner_text().startswith("0 of")
    tab.get_by_role("checkbox").first.check()
    assert tab.locator(".ws-walked [role=status]").inner_text().startswith("1 of")


@pytest.mark.exhaustive(MORE)
def test_where_nothing_may_be_kept_ticks_last_as_long_as_the_page(
    browser: Browser, site_origin: str
) -> None:
    context = open_context(browser, WIDE)
    context.add_init_script(
        "Object.defineProperty(Storage.prototype, 'setItem', {value() { throw new Error('no'); }});"
    )
    visit = Visit(context.new_page(), site_origin)
    tab = visit.open_page(PATH)
    tab.get_by_role("checkbox").first.check()
    tab.get_by_role("checkbox").nth(1).check()
    assert tab.locator(".ws-walked [role=status]").inner_text().startswith("2 of")
    context.close()


def test_without_scripts_a_path_is_a_plain_list(browser: Browser, site_origin: str) -> None:
    context = open_context(browser, WIDE, java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{site_origin}/{PATH}")
    assert tab.locator("[data-step]").count() > 15
    assert tab.locator("article :is(input, progress, button)").count() == 0
    assert "about" in tab.locator(".ws-total").inner_text()
    context.close()


@pytest.mark.exhaustive(MORE)
def test_on_a_phone_ticks_are_large_enough_and_nothing_scrolls(
    browser: Browser, site_origin: str
) -> None:
    context = open_context(browser, NARROW)
    tab = Visit(context.new_page(), site_origin).open_page(PATH)
    box = tab.locator(".ws-tick").first.bounding_box()
    assert box and box["width"] >= 24 and box["height"] >= 24
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW
    context.close()
