"""A trace goes to the viewer's tab when its button is pressed, whole, once, and nowhere before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from browser import MORE, WIDE, Visit, open_context, serve_site
from conftest import ROOT
from playwright.sync_api import Browser, Locator, Page, Route, expect

VIEWER = "https://ui.perfetto.dev"
TRACES = ("made_up.trace.json", "recorded.trace.json.gz")
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Traces</title></head>
<body><main><p><a href="sources/one.trace.json" download data-perfetto="One &lt;step&gt;">one</a>,
<a href="sources/missing.trace.json" download data-perfetto="Missing">another</a></p></main>
<script>{before}</script><script src="assets/perfetto.js"></script></body></html>"""
# The viewer, as far as its protocol goes. Here it listens from the third PING on.
STUB = """<!doctype html><title>Viewer</title><script>
window.pings = 0;
window.traces = [];
addEventListener("message", ({ data, source, origin }) => {
  if (data === "PING") {
    if (++window.pings >= THIRD) source.postMessage("PONG", origin);
  } else if (data.perfetto) {
    const { buffer, title, fileName } = data.perfetto;
    window.traces.push({ title, fileName, origin, text: new TextDecoder().decode(buffer) });
  }
});
</script>"""
TRACE = json.dumps({"traceEvents": [{"ph": "X", "name": "é", "ts": 0.001}]})


@pytest.fixture(scope="module")
def origin_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with two links, of which the second leads nowhere."""
    folder = tmp_path_factory.mktemp("traces")
    (folder / "assets").mkdir()
    (folder / "sources").mkdir()
    shutil.copy(ROOT / "docs/assets/perfetto.js", folder / "assets")
    (folder / "sources/one.trace.json").write_text(TRACE, encoding="utf-8")
    (folder / "index.html").write_text(PAGE.replace("{before}", ""), encoding="utf-8")
    blocked = PAGE.replace("{before}", "window.open = () => null")
    (folder / "blocked.html").write_text(blocked, encoding="utf-8")
    themed = """window.pages = [];
      window.document$ = { subscribe: ({ next }) => { window.pages.push(next); next(); } };"""
    (folder / "themed.html").write_text(PAGE.replace("{before}", themed), encoding="utf-8")
    with serve_site(folder) as address:
        yield address


@pytest.fixture
def trace_visit(browser: Browser, origin_of_one: str) -> Iterator[Visit]:
    """A tab whose viewer answers the third PING; nothing leaves this machine."""
    context = open_context(browser, WIDE)
    asked: list[str] = []

    def answer_ping(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(body=STUB.replace("THIRD", "3"), content_type="text/html")

    context.route(f"{VIEWER}/**", answer_ping)
    visit = Visit(context.new_page(), origin_of_one)
    yield visit
    context.close()
    others = [url for url in asked if url != f"{VIEWER}/"]
    assert (visit.foreign, others) == ([], [])


def find_trace_button(tab: Page, at: int = 0) -> Locator:
    return tab.get_by_role("button", name="open in Perfetto").nth(at)


def open_trace(tab: Page) -> Page:
    with tab.expect_popup() as popup:
        find_trace_button(tab).click()
    return popup.value


def test_nothing_is_asked_of_the_viewer_before_the_button_is_pressed(trace_visit: Visit) -> None:
    tab = trace_visit.open_page("index.html")
    find_trace_button(tab).hover()
    find_trace_button(tab).focus()
    tab.wait_for_timeout(200)
    assert len(tab.context.pages) == 1 and trace_visit.foreign == []
    assert (trace_visit.failed, trace_visit.console) == ([], [])


@pytest.mark.exhaustive(MORE)
def test_the_viewer_gets_every_byte_once_it_listens(trace_visit: Visit) -> None:
    tab = trace_visit.open_page("index.html")
    viewer = open_trace(tab)
    expect(tab.get_by_role("status").first).to_have_text("Opened in Perfetto, in the other tab.")
    viewer.wait_for_function("window.traces.length")
    viewer.wait_for_timeout(500)  # no second one comes, and no PING any more
    pings = viewer.evaluate("window.pings")
    viewer.wait_for_timeout(300)
    assert viewer.evaluate("window.pings") == pings >= 3
    (found,) = viewer.evaluate("window.traces")
    assert found == {
        "title": "One <step>", "fileName": "one.trace.json",
        "origin": trace_visit.origin, "text": TRACE,
    }  # fmt: skip
    assert viewer.url == f"{VIEWER}/"
    assert (trace_visit.failed, trace_visit.console) == ([], [])


@pytest.mark.exhaustive(MORE)
def test_a_pong_of_another_is_none_of_the_viewers(trace_visit: Visit) -> None:
    tab = trace_visit.open_page("index.html")
    tab.context.unroute(f"{VIEWER}/**")
    tab.context.route(
        f"{VIEWER}/**",
        lambda route: route.fulfill(body=STUB.replace("THIRD", "1e9"), content_type="text/html"),
    )
    viewer = open_trace(tab)
    tab.evaluate("postMessage('PONG', '*')")
    viewer.wait_for_function("window.pings > 2")
    expect(tab.get_by_role("status").first).to_have_text("Waiting for Perfetto …")
    assert viewer.evaluate("window.traces") == []
    viewer.close()
    status = tab.get_by_role("status").first
    expect(status).to_have_text(
        "Not opened in Perfetto: its tab was closed. Download the trace and open it there."
    )


@pytest.mark.exhaustive(MORE)
def test_a_viewer_that_never_answers_is_given_up(trace_visit: Visit) -> None:
    tab = trace_visit.tab
    tab.clock.install()
    tab.context.unroute(f"{VIEWER}/**")
    tab.context.route(
        f"{VIEWER}/**", lambda route: route.fulfill(body="<p>", content_type="text/html")
    )
    trace_visit.open_page("index.html")
    open_trace(tab)
    tab.clock.run_for(31_000)
    status = tab.get_by_role("status").first
    expect(status).to_contain_text("it does not answer. Download the trace")


@pytest.mark.exhaustive(MORE)
def test_a_trace_that_is_missing_is_told(trace_visit: Visit) -> None:
    tab = trace_visit.open_page("index.html")
    with tab.expect_popup():
        find_trace_button(tab, 1).click()
    expect(tab.get_by_role("status").nth(1)).to_contain_text("the trace cannot be loaded (404)")


@pytest.mark.exhaustive(MORE)
def test_a_tab_that_may_not_open_is_told(trace_visit: Visit) -> None:
    tab = trace_visit.open_page("blocked.html")
    find_trace_button(tab).press("Enter")
    expect(tab.get_by_role("status").first).to_contain_text("blocked the new tab")
    assert len(tab.context.pages) == 1


@pytest.mark.exhaustive(MORE)
def test_a_page_that_comes_twice_has_each_button_once(trace_visit: Visit) -> None:
    """With instant navigation the theme tells of each page, and may tell twice of one."""
    tab = trace_visit.open_page("themed.html")
    tab.evaluate("window.pages[0]()")
    assert tab.get_by_role("button", name="open in Perfetto").count() == 2


@pytest.mark.exhaustive(MORE)
def test_a_page_on_a_disk_has_only_the_links(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    shutil.copy(ROOT / "docs/assets/perfetto.js", tmp_path / "assets")
    (tmp_path / "index.html").write_text(PAGE.replace("{before}", ""), encoding="utf-8")
    context = open_context(browser, WIDE)
    tab = context.new_page()
    tab.goto((tmp_path / "index.html").as_uri())
    assert tab.get_by_role("link").count() == 2 and tab.get_by_role("button").count() == 0
    context.close()


@pytest.mark.exhaustive(MORE)
def test_the_site_has_the_traces_as_they_are_kept(wide_visit: Visit) -> None:
    tab = wide_visit.open_page("tools/profiling/taken-apart/")
    links = tab.locator("a[data-perfetto]")
    assert links.count() == 2
    assert tab.get_by_role("button", name="open in Perfetto").count() == 2
    for name in TRACES:
        link = tab.locator(f"a[data-perfetto][href$='{name}']")
        address = link.evaluate("a => a.href")
        with urlopen(address) as answer:
            kept = ROOT / f"snippets/profiling/{name}"
            assert answer.read() == kept.read_bytes()
    assert (wide_visit.foreign, wide_visit.failed, wide_visit.console) == ([], [], [])
