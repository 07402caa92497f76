"""The page of results in a browser: sorted by a click, two machines chosen, whole without scripts.

No GPU is measured, so what is looked at are made-up records, drawn by the same functions into a
page with the site's own style sheets and script.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import MORE, NARROW, WIDE, Visit, open_context, serve_site
from conftest import ROOT
from made_up_records import (
    make_case,
    make_exhibit,
    make_measured,
    make_record,
    make_result,
    make_verified,
    show_evidence,
)
from playwright.sync_api import Browser, Page

from warpshelf.render import results
from warpshelf.render.snippet_page import SnippetPage

ASSETS = ROOT / "docs" / "assets"
SPEEDS = {"g7": 1.0, "g9": 2.0, "z9": 0.5}  # made up


def make_kernel_page(name: str, base: float) -> SnippetPage:
    """A kernel on three made-up GPUs and the CPU, with times that differ by machine and name."""
    states = []
    for slug, speed in SPEEDS.items():
        times = [
            make_result("one pass", base / speed),
            make_result("torch", 1.3 * base / speed, "peer"),
        ]
        cases = [make_case(4096, n, times, timed=True) for n in (4096, 8192)]
        states.append(
            make_measured(make_record(cases=cases, slug=slug, device=f"Imaginary {slug.upper()}"))
        )
    return make_exhibit(*states, make_verified(), id=name)


HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>Results</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="warpshelf.css">
<script>{stub}</script></head>
<body data-md-color-scheme="default"><article class="md-typeset">{body}</article>
<script src="results.js"></script></body></html>"""
# What Material's bundle leaves behind where navigation is instant.
INSTANT = """
let heard = () => {};
window.document$ = { subscribe({ next }) { heard = next; next(); } };
window.renew = () => {
  const article = document.querySelector("article");
  const fresh = new DOMParser().parseFromString(article.dataset.source, "text/html");
  article.replaceChildren(...fresh.body.childNodes);
  heard();
};"""


@pytest.fixture(scope="module")
def results_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("results")
    for name in ("warpshelf.css", "results.js"):
        (folder / name).write_bytes((ASSETS / name).read_bytes())
    shown = [make_kernel_page("softmax", 6e-5), make_kernel_page("scan", 2e-4)]
    body = (
        results.render_counts(shown)
        + results.results_table(shown, {})
        + results.side_by_side(shown)
    )
    (folder / "index.html").write_text(HTML.format(stub="", body=body), encoding="utf-8")
    (folder / "instant.html").write_text(HTML.format(stub=INSTANT, body=body), encoding="utf-8")
    whole = show_evidence(make_kernel_page("softmax", 6e-5))
    many = [make_case(1, n, [make_result(f"rung {i}") for i in range(6)]) for n in (1, 2)]
    folded = show_evidence(make_exhibit(make_verified(make_record(0, many))))
    (folder / "folds.html").write_text(HTML.format(stub="", body=whole + folded), encoding="utf-8")
    with serve_site(folder) as address:
        yield address


@pytest.fixture(scope="module")
def results_visit(browser: Browser, results_origin: str) -> Iterator[Visit]:
    context = open_context(browser, WIDE)
    yield Visit(context.new_page(), results_origin)
    context.close()


def assert_nothing_failed(visit: Visit) -> None:
    assert (visit.foreign, visit.failed, visit.console) == ([], [], [])


def read_column(tab: Page, number: int) -> list[str]:
    cells = f".ws-results tbody tr > :nth-child({number})"
    return [text.split("\n")[0].strip() for text in tab.locator(cells).all_inner_texts()]


def test_a_click_sorts_by_a_column_and_says_so(results_visit: Visit) -> None:
    tab = results_visit.open_page("index.html")
    heads = tab.locator(".ws-results thead th")
    fastest = heads.filter(has_text="Fastest of ours")
    assert fastest.get_attribute("aria-sort") is None
    button = fastest.get_by_role("button", name="Fastest of ours")
    button.click()
    assert fastest.get_attribute("aria-sort") == "descending"  # the fastest first
    rates = [text for text in read_column(tab, 6) if text != "no time"]
    assert rates[0] == "8.95 TB/s" and rates[-1] == "671 GB/s"
    assert read_column(tab, 6)[-2:] == ["no time"] * 2  # without a value: last, and again
    button.press("Enter")
    assert fastest.get_attribute("aria-sort") == "ascending"
    assert read_column(tab, 6)[0] == "671 GB/s" and read_column(tab, 6)[-1] == "no time"
    heads.filter(has_text="Machine").get_by_role("button").click()
    assert fastest.get_attribute("aria-sort") is None
    assert tab.locator(".ws-results [aria-sort]").count() == 1
    names = read_column(tab, 2)
    assert names == sorted(names) and names[0] == "CPU"
    assert_nothing_failed(results_visit)


def test_other_machines_are_chosen_and_compared(results_visit: Visit) -> None:
    tab = results_visit.open_page("index.html")
    tab.locator(".ws-pair summary").first.click()
    table = tab.locator(".ws-pairs").first

    def read_shown_rows() -> list[list[str]]:
        rows = table.locator("tr").all()[:3]
        visible = "cells => cells.filter(c => !c.hidden).map(c => c.innerText.split('\\n')[0])"
        return [row.locator("> *").evaluate_all(visible) for row in rows]

    said = tab.locator(".ws-pair-said").first
    before, line = read_shown_rows(), said.inner_text()
    assert before[0][1:] == ["Imaginary G7", "Imaginary G9", "Second against first"]
    assert before[2][-1] == "2.00×" and "Imaginary G9 is faster in 4" in line
    second = tab.get_by_role("combobox", name="Second machine")
    second.select_option("z9")
    assert read_shown_rows()[0][1:3] == ["Imaginary G7", "Imaginary Z9"]
    assert read_shown_rows()[2][-1] == "0.500×"
    assert said.inner_text() == "of 4 times, Imaginary Z9 is faster in 0, slower in 4, tied in 0"
    assert "Imaginary G7, then Imaginary Z9" in tab.locator(".ws-pair-names").inner_text()
    second.select_option("g7")  # the first one: they change places
    assert tab.get_by_role("combobox", name="First machine").input_value() == "z9"
    assert (
        read_shown_rows()[0][1:3] == ["Imaginary Z9", "Imaginary G7"]
        and read_shown_rows()[2][-1] == "2.00×"
    )
    tab.get_by_role("combobox", name="First machine").select_option("g7")
    second.select_option("g9")
    assert read_shown_rows() == before and said.inner_text() == line  # as it was written
    assert_nothing_failed(results_visit)


@pytest.mark.exhaustive(MORE)
def test_it_works_again_after_an_instant_navigation(results_visit: Visit) -> None:
    tab = results_visit.open_page("instant.html")
    assert tab.locator(".ws-sort").count() > 5
    source = (ROOT / "docs" / "assets" / "results.js").read_text(encoding="utf-8")
    assert "document$" in source
    # The page that comes has no script of its own run: only the stream tells.
    tab.evaluate(
        """async () => {
          const text = await (await fetch("index.html")).text();
          const page = new DOMParser().parseFromString(text, "text/html");
          document.querySelector("article").dataset.source =
            page.querySelector("article").innerHTML;
          window.renew();
        }"""
    )
    assert tab.locator(".ws-sort").count() > 5
    tab.locator(".ws-results thead button").first.click()
    assert tab.locator(".ws-results [aria-sort]").count() == 1
    assert tab.get_by_role("combobox").count() == 2
    tab.evaluate("heard()")  # the same page once more: nothing is doubled
    assert tab.get_by_role("combobox").count() == 2
    assert_nothing_failed(results_visit)


def test_without_scripts_the_tables_stand(browser: Browser, results_origin: str) -> None:
    context = open_context(browser, NARROW, java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{results_origin}/index.html")
    assert tab.locator(".ws-results tbody tr").count() == 8
    assert tab.get_by_role("button").count() == tab.get_by_role("combobox").count() == 0
    tab.locator(".ws-pair summary").first.click()
    table = tab.locator(".ws-pairs").first
    assert table.get_by_text("Imaginary G9").is_visible()
    assert table.get_by_text("Imaginary Z9").is_hidden()
    assert table.get_by_text("2.00×").first.is_visible()
    context.close()


@pytest.mark.exhaustive(MORE)
def test_on_a_phone_nothing_but_the_tables_scrolls(browser: Browser, results_origin: str) -> None:
    context = open_context(browser, NARROW)
    narrow = Visit(context.new_page(), results_origin)
    tab = narrow.open_page("index.html")
    for summary in tab.locator(".ws-pair summary").all():
        summary.click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW
    small = "all => all.filter(e => e.getBoundingClientRect().height < 24).length"
    assert tab.eval_on_selector_all(".ws-sort, .ws-pair-choice select", small) == 0
    context.close()


@pytest.mark.exhaustive(MORE)
def test_on_paper_every_fold_is_open(results_visit: Visit) -> None:
    tab = results_visit.open_page("folds.html")
    closed = tab.locator("details.ws-errors:not([open])")
    assert closed.count() == 1 and tab.locator("details.ws-errors[open]").count() > 1
    cell = closed.get_by_text("rung 5").first
    inner = closed.locator("details .ws-cases td").first
    seen = "element => element.checkVisibility()"
    assert not cell.evaluate(seen) and not inner.evaluate(seen)
    tab.emulate_media(media="print")
    assert cell.evaluate(seen) and inner.evaluate(seen)
    tab.emulate_media(media="screen")
    assert not cell.evaluate(seen)
    assert_nothing_failed(results_visit)
