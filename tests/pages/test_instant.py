"""From page to page without loading one: what scripts add is there, once, and works."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import MORE, WIDE, Visit, open_context
from conftest import ROOT
from playwright.sync_api import Browser, Page, expect

XML = "application/xml"


CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
ADDRESS = re.findall(r"^site_url: (\S+)/$", CONFIG, re.M)[0]


@pytest.fixture
def instant_visit(browser: Browser, site: Path, site_origin: str) -> Iterator[Visit]:
    """A tab of its own, in which nothing may go wrong.

    The theme takes a link for one of the site where the site's map has it, so the map names the
    place where the site is served here.
    """
    context = open_context(browser, WIDE)
    where = (site / "sitemap.xml").read_text(encoding="utf-8").replace(ADDRESS, site_origin)
    context.route("**/sitemap.xml", lambda route: route.fulfill(body=where, content_type=XML))
    visit = Visit(context.new_page(), site_origin)
    yield visit
    context.close()
    assert (visit.foreign, visit.failed, visit.console) == ([], [], [])


def load_marked_page(visit: Visit, page: str) -> Page:
    """Load a page, and leave a mark that no other page would have if it were loaded."""
    tab = visit.open_page(page)
    tab.wait_for_timeout(300)  # the theme asks for the site's map
    tab.evaluate("window.mark = 1")
    return tab


GO = """page => {
  const link = document.createElement('a');
  link.href = new URL(page, document.querySelector('.md-logo').href).href;
  document.body.append(link);
  link.click();
  link.remove();
}"""


def follow_link(tab: Page, page: str, selector: str = "") -> None:
    """Click the link to a page of the site, or one made for it, and wait until it is there."""
    link = tab.locator(selector or f"a[href$='/{page}']:visible")
    if link.count():
        link.first.click()
    else:
        tab.evaluate(GO, page)
    wait_for_page(tab, page)


def wait_for_page(tab: Page, page: str) -> None:
    tab.wait_for_url(lambda url: urlsplit(url).path.endswith(f"/{page}"))
    tab.wait_for_function(
        "page => document.querySelector('link[rel=canonical]').href.endsWith(`/${page}`)", arg=page
    )
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.mark") == 1, "the page was loaded anew"


def finder_works(tab: Page) -> None:
    """There is one finder, and it narrows this page's list and tells this page's address."""
    tab.locator(
        "[data-finder]"
    ).scroll_into_view_if_needed()  # a finder comes when its list is near
    expect(tab.locator(".ws-finder")).to_have_count(1)
    total = tab.locator("[data-finder] > li").count()
    count = tab.locator(".ws-finder-count")
    assert count.inner_text() == f"{total} readings"
    tab.locator(".ws-finder-words").fill("the gpu")
    tab.wait_for_function(
        "() => / of /.test(document.querySelector('.ws-finder-count').textContent)"
    )
    shown = tab.locator("[data-finder] > li").count()
    assert 0 < shown < total and urlsplit(tab.url).query == "words=the+gpu"
    tab.locator(".ws-finder-clear").click()
    assert tab.locator("[data-finder] > li").count() == total
    assert urlsplit(tab.url).query == ""


@pytest.mark.exhaustive(MORE)
def test_the_finder_goes_along(instant_visit: Visit) -> None:
    tab = load_marked_page(instant_visit, "kernels/gemm/readings/")
    finder_works(tab)
    follow_link(tab, "kernels/gpu-architecture/")
    finder_works(tab)
    follow_link(tab, "everything/")
    finder_works(tab)
    tab.locator(".ws-finder [aria-label=Kind]").select_option("book")
    books = tab.locator("[data-finder] > li").count()
    follow_link(tab, "about/numbers/")
    assert tab.locator(".ws-finder").count() == 0
    tab.go_back()
    wait_for_page(tab, "everything/")
    assert tab.locator(".ws-finder").count() == 1
    assert tab.locator("[data-finder] > li").count() == books
    assert urlsplit(tab.url).query == "kind=book"
    tab.go_back()  # what was asked before the book
    tab.wait_for_function(
        "number => document.querySelectorAll('[data-finder] > li').length > number", arg=books
    )
    tab.wait_for_timeout(300)
    assert tab.locator(".ws-finder").count() == 1


@pytest.mark.exhaustive(MORE)
def test_a_tag_leads_to_all_that_have_it(instant_visit: Visit) -> None:
    tab = load_marked_page(instant_visit, "kernels/gemm/readings/")
    tag = tab.locator("a.ws-tag").first
    name = tag.inner_text()
    follow_link(tab, "everything/", "a.ws-tag")
    assert tab.locator(".ws-finder [aria-label=Tag]").input_value() == name
    rows = tab.locator("[data-finder] > li")
    tags = rows.evaluate_all("all => all.map(row => row.dataset.tags.split(' '))")
    assert tags and all(name in own for own in tags)


@pytest.mark.exhaustive(MORE)
def test_what_is_typed_last_stays_on_its_page(instant_visit: Visit) -> None:
    """The address is the next page's as soon as a link is clicked."""
    tab = load_marked_page(instant_visit, "kernels/gemm/readings/")
    link = tab.locator("a[href$='/kernels/gpu-architecture/']:visible").first
    handle = link.element_handle()
    tab.locator(".ws-finder-words").fill("tile")
    assert handle
    tab.evaluate("link => link.click()", handle)  # before the finder has taken it up
    wait_for_page(tab, "kernels/gpu-architecture/")
    tab.wait_for_timeout(200)
    assert urlsplit(tab.url).query == ""
    tab.locator("[data-finder]").scroll_into_view_if_needed()
    assert tab.locator(".ws-finder-words").input_value() == ""


@pytest.mark.exhaustive(MORE)
def test_formulas_are_set_on_each_page(instant_visit: Visit, site: Path) -> None:
    files = sorted(site.rglob("index.html"))
    pages = [f"{path.parent.relative_to(site).as_posix()}/" for path in files
             if 'class="arithmatex"' in path.read_text(encoding="utf-8")]  # fmt: skip
    tab = load_marked_page(instant_visit, "about/links/")
    for page in (pages[0], "about/links/", pages[-1]):
        tab.evaluate(GO, page)
        wait_for_page(tab, page)
        if page not in pages:
            continue
        font = "element => getComputedStyle(element).fontFamily"
        assert "Warpshelf Math" in tab.locator("math").first.evaluate(font)


@pytest.mark.exhaustive(MORE)
def test_a_link_in_prose_shows_where_it_leads(instant_visit: Visit) -> None:
    tab = load_marked_page(instant_visit, "paths/")
    tab.locator("article a[href$='/paths/serving/']").first.hover()
    shown = tab.locator(".md-tooltip2--active")
    shown.wait_for()
    assert "Serving an LLM" in shown.inner_text()
    tab.mouse.move(0, 0)


@pytest.mark.exhaustive(MORE)
def test_a_calculator_starts_and_stops_with_its_page(instant_visit: Visit) -> None:
    tab = load_marked_page(instant_visit, "calculators/")
    follow_link(tab, "calculators/arithmetic/")
    layers = tab.locator("#calc-layers")
    live = tab.locator(".ws-calc[data-python]").count() == 1
    if not live and os.environ.get("CI") == "true":
        pytest.fail("calculators are not live in this build")
    assert layers.is_enabled() == live
    if not live:
        pytest.skip("calculators are not live in this build; it needs npm and Node")
    layers.fill("33")
    state = tab.locator(".ws-calc-state")
    expect(state).to_contain_text("Calculated in this page", timeout=90_000)
    assert urlsplit(tab.url).query == "layers=33"
    answer = tab.locator(".ws-calc-said").inner_text()
    follow_link(tab, "calculators/pipeline/")
    assert urlsplit(tab.url).query == "" and tab.locator(".ws-calc-tools").count() == 1
    tab.locator("#calc-stages").fill("5")
    expect(state).to_contain_text("Calculated in this page")  # by the Python that runs already
    tab.go_back()
    wait_for_page(tab, "calculators/pipeline/")
    expect(tab.locator("#calc-stages")).not_to_have_value("5")
    tab.go_back()
    wait_for_page(tab, "calculators/arithmetic/")
    expect(layers).to_have_value("33")
    expect(tab.locator(".ws-calc-said")).to_have_text(answer, use_inner_text=True)
    follow_link(tab, "about/numbers/")
    assert tab.locator(".ws-calc").count() == 0


def test_only_calculators_ask_for_their_parts(site: Path) -> None:
    for path in site.rglob("index.html"):
        text = unescape(path.read_text(encoding="utf-8"))
        asked = set(re.findall(r'(?:src|href)="[^"]*/(calculators\.\w+)"', text))
        own = path.parent.parent.name == "calculators"
        assert "calculators.css" in asked if own else not asked, path


@pytest.mark.exhaustive(MORE)
def test_ticks_of_a_path_go_along(instant_visit: Visit) -> None:
    tab = load_marked_page(instant_visit, "paths/serving/")
    shared = tab.locator("[data-step='page:kernels/attention']").get_by_role("checkbox")
    shared.check()
    for page in ("paths/flash-attention/", "paths/", "paths/serving/"):
        tab.evaluate(GO, page)
        wait_for_page(tab, page)
        assert tab.locator(".ws-walked").count() == (page != "paths/")
        assert tab.locator(".ws-tick").count() == tab.locator("[data-step]").count()
        if page != "paths/":
            assert shared.is_checked()
