"""The view of a kernel in a browser: opened, read, followed from a line to its code and back.

What is looked at are made-up views, drawn by the same functions into a page with the site's own
style sheets and scripts, and published as the site publishes them; and at the end those of the
kernels on the shelf, on their pages, with counts worked out by hand.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import axe_playwright_python
import pytest
from browser import (
    MORE,
    NARROW,
    WIDE,
    Visit,
    code_row,
    open_context,
    press_button,
    serve_site,
    source_row,
)
from conftest import ROOT, snippets_of_the_shelf
from made_up_records import make_exhibit, make_verified
from made_up_views import ARCHS, make_view, repeat_view
from playwright.sync_api import Browser, Locator, Page, expect

from warpshelf.look import view_store
from warpshelf.look.view import view_name
from warpshelf.look.view_store import compress_view as page_of
from warpshelf.look.view_store import summarize_view
from warpshelf.render.views import views_table

ASSETS = ROOT / "docs" / "assets"
LAZY = ("look.js", "lanes.js", "look.css")
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOK = """async ([scheme, rules]) => {
  document.body.setAttribute('data-md-color-scheme', scheme);
  const {violations} = await axe.run(document.querySelector('dialog') || document, {
    resultTypes: ['violations'], runOnly: rules,
  });
  return violations.flatMap(({id, nodes}) =>
    nodes.map(node => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary}`));
}"""
HTML = """<!doctype html><html lang="en" style="font-size:125%"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>Views</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="../assets/warpshelf.css">
<link rel="stylesheet" href="../assets/site.css">
<style>body {{ background: var(--md-default-bg-color); color: var(--md-typeset-color) }}</style>
<script>{stub}</script></head><body data-md-color-scheme="default"><main class="md-typeset">
<h1>Views</h1>{body}</main><script src="../assets/opener.js"></script></body></html>"""
INSTANT = """let heard = () => {};
window.document$ = { subscribe({ next }) { heard = next; next(); } };
window.renew = (html) => { document.querySelector("main").innerHTML = html; heard(); };"""
LONG = {"variant": "long", "kernel": "transpose_long"}


@pytest.fixture(scope="module")
def views_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("views")
    (folder / "assets").mkdir()
    for name in (*LAZY, "warpshelf.css", "site.css", "opener.js"):
        (folder / "assets" / name).write_bytes((ASSETS / name).read_bytes())
    made = [make_view(variant, arch) for variant in ("naive", "tiled") for arch in ARCHS]
    made.append(repeat_view(180) | LONG)
    lost = make_view(variant="tiled") | {"variant": "lost"}
    (folder / "views" / "softmax").mkdir(parents=True)
    for one in made:
        place = folder / "views" / "softmax" / f"{view_name(one)}.json.gz"
        place.write_bytes(page_of(one))
    views = [summarize_view(one, True) for one in (*made, lost)]
    text = views_table(make_exhibit(make_verified(), views=views)).replace(
        "<details", "<details open"
    )
    (folder / "page").mkdir()
    for name, stub in (("index", ""), ("instant", INSTANT)):
        page = HTML.format(stub=stub, body=text)
        (folder / "page" / f"{name}.html").write_text(page, encoding="utf-8")
    with serve_site(folder) as address:
        yield address


@pytest.fixture(scope="module", params=[WIDE, NARROW])
def views_visit(
    request: pytest.FixtureRequest, browser: Browser, views_origin: str
) -> Iterator[Visit]:
    context = open_context(browser, request.param, has_touch=request.param == NARROW)
    yield Visit(context.new_page(), views_origin)
    context.close()


def find_button(tab: Page, name: str) -> Locator:
    return tab.locator(f'tr[data-look="softmax/{name}"] button')


def open_view(visit: Visit, name: str = "naive.transpose-naive.sm_90", side: str = "PTX") -> Page:
    tab = visit.open_page("page/index.html")
    find_button(tab, name).click()
    tab.get_by_role("dialog").wait_for()
    if side != "PTX":
        press_button(tab, side)
    return tab


def read_lit_rows(tab: Page, side: int) -> list[str]:
    """The texts of the rows that are lit: of the source for side 0, of the code for 1.

    Their inner text would be empty until they are drawn, as `content-visibility` defers that.
    """
    rows = tab.locator(".ws-pane").nth(side).locator(".ws-lit .ws-text")
    return [text.strip() for text in rows.all_text_contents()]


def find_panel(tab: Page) -> Locator:
    return tab.get_by_role("region", name="How it was counted")


def assert_nothing_failed(visit: Visit) -> None:
    assert (visit.foreign, visit.failed, visit.console) == ([], [], [])
    width = visit.tab.viewport_size["width"]
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width
    ends = (
        "all => all.map(one => one.getBoundingClientRect()).flatMap(one => [one.left, one.right])"
    )
    for end in visit.tab.locator("dialog[open]").evaluate_all(ends):
        assert 0 <= end <= width


STORE = "out[x * n + y + row]"


def test_nothing_is_asked_for_before_it_is_opened(views_visit: Visit) -> None:
    tab = views_visit.open_page("page/index.html")
    asked = "performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)"
    assert [one for one in tab.evaluate(asked) if "/views/" in one or one[8:] in LAZY] == []
    find_button(tab, "naive.transpose-naive.sm_90").click()
    tab.get_by_role("dialog").wait_for()
    late = {one for one in tab.evaluate(asked) if "/views/" in one or one[8:] in LAZY}
    stem = "/views/softmax/naive.transpose-naive.sm_90"
    assert late == {f"/assets/{name}" for name in LAZY} | {f"{stem}.json.gz"}
    assert_nothing_failed(views_visit)


def test_counts_stand_beside_their_line(views_visit: Visit) -> None:
    tab = open_view(views_visit)
    assert tab.get_by_role("dialog").get_attribute("aria-labelledby") == "ws-view-title"
    assert tab.get_by_role("dialog").locator("h2").inner_text() == "naive transpose_naive"
    row = source_row(tab, STORE)
    # A load of 4 sectors and a store of 32; of 800 warp instructions, 256 are of this line.
    expect(row.locator(".ws-share")).to_have_text("32.0 %")
    expect(row.locator(".ws-lanes")).to_have_text("32")
    expect(row.locator(".ws-sectors")).to_have_text("18 / 4")
    assert "ws-mark" in row.locator(".ws-sectors").get_attribute("class").split()
    mark = row.locator(".ws-sectors").evaluate("one => getComputedStyle(one, '::before').content")
    assert "▲" in mark
    assert tab.locator(".ws-of-Source .ws-wavefronts").count() == 0  # it has no shared memory
    expect(code_row(tab, "st.global").locator(".ws-passes")).to_have_text("32 / 4")
    expect(code_row(tab, "st.global").locator(".ws-run")).to_have_text("128")
    expect(code_row(tab, "ld.param").locator(".ws-run")).to_have_text("32")
    assert "counts, no times" in tab.locator(".ws-facts").inner_text()
    assert_nothing_failed(views_visit)


def test_a_line_is_followed_to_its_machine_code_and_back(views_visit: Visit) -> None:
    tab = open_view(views_visit)
    source_row(tab, STORE).locator(".ws-text").click()
    assert read_lit_rows(tab, 1) == ["ld.global.f32 %f1, [%rd5];", "st.global.f32 [%rd7], %f1;"]
    press_button(tab, "SASS")
    made = [
        "LDG.E.CONSTANT R7, [R2.64]",
        "IMAD.WIDE R8, R0, R9, c[0x0][0x160]",
        "STG.E [R8.64], R7",
    ]
    assert read_lit_rows(tab, 1) == made and read_lit_rows(tab, 0) == [
        "out[x * n + y + row] = in[(y + row) * n + x];"
    ]  # it is still pinned
    expect(tab.get_by_role("status")).to_have_text(
        "transpose.cu:14 is pinned: 3 lines of SASS came from it."
    )
    code_row(tab, "ISETP").locator(".ws-text").click()
    assert read_lit_rows(tab, 0) == ["for (int row = 0; row < 32; row += 8) {"]
    assert source_row(tab, "for (int row").get_attribute("aria-selected") == "true"
    assert source_row(tab, STORE).get_attribute("aria-selected") is None
    press_button(tab, "sm_80")
    assert "for sm_80 on a CPU" in tab.locator(".ws-facts").inner_text()
    assert len(read_lit_rows(tab, 1)) == 3  # pinned on the other architecture too
    code_row(tab, "BRA").locator(".ws-text").click()  # again, and it is let go
    tab.mouse.move(0, 0)
    assert tab.locator("[aria-selected]").count() == 0
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_the_pointer_lights_both_sides(browser: Browser, views_origin: str) -> None:
    context = open_context(browser, WIDE)
    visit = Visit(context.new_page(), views_origin)
    tab = open_view(visit)
    source_row(tab, "int y =").locator(".ws-text").hover()
    assert read_lit_rows(tab, 1) == ["mad.lo.s32 %r3, %ctaid.y, 32, %tid.y;"]
    code_row(tab, "st.global").locator(".ws-text").hover()
    assert read_lit_rows(tab, 0) == ["out[x * n + y + row] = in[(y + row) * n + x];"]
    code_row(tab, "$L__BB0_1:").locator(".ws-text").first.hover()
    tab.mouse.move(0, 0)
    assert read_lit_rows(tab, 0) == read_lit_rows(tab, 1) == []
    assert_nothing_failed(visit)
    context.close()


@pytest.mark.exhaustive(MORE)
def test_lanes_are_seen_to_meet_in_a_bank(views_visit: Visit) -> None:
    tab = open_view(views_visit, "tiled.transpose-tiled.sm_90")
    source_row(tab, "tile[threadIdx.x][").locator(".ws-wavefronts").click()
    text = find_panel(tab).inner_text()
    assert "128 requests to shared memory took 4096 wavefronts" in text
    assert "is by block (1, 0, 0), warp 3: 32 of 32 lanes, 4 bytes each" in text
    assert "32 wavefronts where 1 would do" in text
    banks = find_panel(tab).locator(".ws-bank")
    filled = [banks.nth(at).locator(".ws-lane").count() for at in (0, 1, 31)]
    assert banks.count() == 32 and filled == [32, 0, 0]
    assert find_panel(tab).locator(".ws-worse").count() == 31
    find_panel(tab).get_by_text("Addresses").click()
    assert find_panel(tab).locator("li").nth(31).inner_text() == "lane 31: 3968"
    source_row(tab, "= in[(y").locator(".ws-wavefronts").click()
    assert "1 wavefront, the ideal" in find_panel(tab).inner_text()
    assert find_panel(tab).locator(".ws-bank .ws-lane").count() == 32
    assert find_panel(tab).locator(".ws-worse").count() == 0
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_lanes_are_seen_in_their_sectors(views_visit: Visit) -> None:
    tab = open_view(views_visit)
    code_row(tab, "st.global").locator(".ws-passes").click()
    assert find_panel(tab).locator(".ws-sector").count() == 32
    assert (
        "32 sectors of 32 bytes; 32 of their 256 words are asked for"
        in find_panel(tab).inner_text()
    )
    code_row(tab, "ld.global").locator(".ws-passes").click()
    assert find_panel(tab).locator(".ws-sector").count() == 4
    assert find_panel(tab).locator(".ws-idle").count() == 0
    expect(code_row(tab, "ld.global")).to_be_in_viewport()  # beside the panel
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_control_codes_and_loops_are_told_in_words(views_visit: Visit) -> None:
    tab = open_view(views_visit, side="SASS")
    control = code_row(tab, "LDG").locator(".ws-control")
    expect(control).to_have_text("B------:R-:W0:Y:S02")
    control.click()
    assert find_panel(tab).locator("p").inner_text() == (
        "This instruction stalls its warp for 2 cycles, lets another warp go first, holds "
        "scoreboard 0 until its result is ready."
    )
    waits = code_row(tab, "STG").locator(".ws-control")
    expect(waits).to_have_text("B0-----:R0:W-:-:S01")
    loop = tab.locator(".ws-loop").text_content()
    assert "1 load global of 4 B" in loop and "1 load and 128 bytes of a warp in flight" in loop
    assert tab.locator(".ws-text i").count() == 6  # a rail beside each of its instructions
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_bound_and_occupancy_say_what_they_rest_on(views_visit: Visit) -> None:
    tab = open_view(views_visit)
    tab.get_by_role("button", name="At least 4096 SM cycles").click()
    text = find_panel(tab).inner_text()
    assert "A bound, not a time" in text and "issue: 4 instructions a cycle" in text
    tab.keyboard.press("Escape")  # on a phone the panel takes the place of these
    tab.get_by_role("button", name="64 of 64 warps").click()
    assert "40 registers: 48 of 64 warps, by registers" in find_panel(tab).inner_text()
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_all_of_it_by_keyboard(views_visit: Visit) -> None:
    tab = views_visit.open_page("page/index.html")
    keys, now = tab.keyboard, "document.activeElement"
    find_button(tab, "tiled.transpose-tiled.sm_80").focus()
    keys.press("Enter")
    tab.get_by_role("dialog").wait_for()
    tab.get_by_role("button", name="SASS").focus()
    keys.press("Enter")
    expect(tab.get_by_role("grid", name="SASS")).to_be_visible()
    assert tab.evaluate(f"{now}.textContent") == "SASS"
    for _ in range(9):  # each grid is one stop
        if tab.evaluate(f"{now}.closest('[role=grid]') !== null"):
            break
        keys.press("Tab")
    for key in ("ArrowDown",) * 9 + ("Home", *("ArrowRight",) * 4):
        keys.press(key)
    assert tab.evaluate(f"{now}.textContent") == "32 / 1"
    # the focus lights as well
    assert read_lit_rows(tab, 1) == ["LDS R9, [R5]", "STG.E [R8.64], R9"]
    keys.press("Enter")
    assert find_panel(tab).locator(".ws-bank").count() == 32
    assert tab.evaluate(f"{now}.textContent") == "Close panel"
    keys.press("Escape")
    expect(find_panel(tab)).to_be_hidden()
    assert tab.evaluate(f"{now}.textContent") == "32 / 1"
    keys.press("End")
    keys.press("Enter")  # pins, and the other grid is entered at what came of it
    keys.press("Tab")
    assert tab.evaluate(f"{now}.textContent") == "LDS R9, [R5]"
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        keys.press(key)
    assert read_lit_rows(tab, 0) == ["for (int row = 0; row < 32; row += 8)"]
    keys.press("Escape")
    expect(tab.get_by_role("dialog")).to_have_count(0)
    assert tab.evaluate(f"{now}.textContent") == "line by line"
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_no_line_of_source_is_cut_off(views_visit: Visit) -> None:
    tab = open_view(views_visit, "tiled.transpose-tiled.sm_90")
    pane = tab.locator(".ws-of-Source")
    assert pane.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    assert_nothing_failed(views_visit)


@pytest.mark.exhaustive(MORE)
def test_on_a_phone_each_count_has_its_name(browser: Browser, views_origin: str) -> None:
    context = open_context(browser, NARROW)
    tab = open_view(Visit(context.new_page(), views_origin), "tiled.transpose-tiled.sm_90")
    named = source_row(tab, "tile[threadIdx.x][").locator(".ws-wavefronts")
    assert "wavefronts" in named.evaluate("one => getComputedStyle(one, '::after').content")
    context.close()


@pytest.mark.exhaustive(MORE)
def test_axe_finds_nothing_in_the_table(views_visit: Visit) -> None:
    tab = views_visit.open_page("page/index.html")
    tab.evaluate(AXE)
    assert [tab.evaluate(LOOK, [scheme, RULES]) for scheme in ("default", "slate")] == [[], []]
    assert_nothing_failed(views_visit)


@pytest.mark.parametrize("side", ["PTX", "SASS"])
@pytest.mark.exhaustive(MORE)
def test_axe_finds_nothing(views_visit: Visit, side: str) -> None:
    tab = open_view(views_visit, "tiled.transpose-tiled.sm_90", side)
    tab.evaluate(AXE)
    for scheme in ("default", "slate"):
        source_row(tab, "tile[threadIdx.x][").locator(".ws-text").click()
        assert tab.evaluate(LOOK, [scheme, RULES]) == []
        source_row(tab, "tile[threadIdx.x][").locator(".ws-wavefronts").click()
        assert tab.evaluate(LOOK, [scheme, RULES]) == []
        tab.keyboard.press("Escape")


@pytest.mark.exhaustive(MORE)
def test_a_long_kernel_opens_at_once(browser: Browser, views_origin: str) -> None:
    """Some 2,500 instructions; what is out of sight is not laid out."""
    context = open_context(browser, WIDE)
    tab = open_view(Visit(context.new_page(), views_origin))  # the script is there
    tab.keyboard.press("Escape")
    spent = []
    for _ in range(3):
        spent.append(
            tab.evaluate(
                """async () => {
                  const start = performance.now();
                  document.querySelector('tr[data-look*="long"] button').click();
                  while (!document.querySelector('dialog[open]'))
                    await new Promise(done => setTimeout(done, 1));
                  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
                  return performance.now() - start;
                }"""
            )
        )
        assert tab.locator(".ws-of-PTX .ws-chunk [role=row]").count() > 2500
        last = tab.locator(".ws-of-PTX .ws-text").last
        assert not last.evaluate("one => one.checkVisibility({contentVisibilityAuto: true})")
        tab.keyboard.press("Escape")
    assert min(spent) < 900, spent
    context.close()


@pytest.mark.exhaustive(MORE)
def test_accesses_that_are_alike_are_drawn_once(browser: Browser, views_origin: str) -> None:
    context = open_context(browser, WIDE)
    tab = open_view(Visit(context.new_page(), views_origin), "long.transpose-long.sm_90")
    source_row(tab, STORE).locator(".ws-sectors").click()
    assert find_panel(tab).locator("figure").count() == 2  # the load and the store
    assert (
        "180 of its instructions do this, each from another start" in find_panel(tab).inner_text()
    )
    context.close()


@pytest.mark.exhaustive(MORE)
def test_what_cannot_be_loaded_is_said(browser: Browser, views_origin: str) -> None:
    context = open_context(browser, WIDE)
    tab = Visit(context.new_page(), views_origin).open_page("page/index.html")
    lost = find_button(tab, "lost.transpose-tiled.sm_90")
    lost.click()
    expect(lost).to_have_text("line by line: not loaded, press to try again")
    assert tab.locator("dialog").count() == 0
    context.close()


@pytest.mark.exhaustive(MORE)
def test_it_works_again_after_an_instant_navigation(browser: Browser, views_origin: str) -> None:
    context = open_context(browser, WIDE)
    visit = Visit(context.new_page(), views_origin)
    tab = visit.open_page("page/instant.html")
    find_button(tab, "naive.transpose-naive.sm_90").click()
    tab.get_by_role("dialog").wait_for()
    tab.evaluate(
        """async () => {
          const page = new DOMParser().parseFromString(
            await (await fetch("index.html")).text(), "text/html");
          window.renew(page.querySelector("main").innerHTML);
        }"""
    )
    assert tab.locator("dialog").count() == 0
    assert tab.locator("tr[data-look] button").count() == tab.locator("tr[data-look]").count()
    find_button(tab, "naive.transpose-naive.sm_90").click()
    tab.get_by_role("dialog").wait_for()
    assert_nothing_failed(visit)
    context.close()


def test_without_scripts_the_table_is_there(browser: Browser, views_origin: str) -> None:
    context = open_context(browser, NARROW, java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{views_origin}/page/index.html")
    table = tab.get_by_role("table")
    assert table.get_by_role("row").filter(has_text="tiled").first.is_visible()
    assert "16.5× ideal" in table.inner_text()
    assert tab.locator("button").count() == 0
    context.close()


def test_scripts_are_small() -> None:
    """What every page loads, and what is loaded once a view is opened, compressed."""
    sizes = {name: len(gzip.compress((ASSETS / name).read_bytes())) for name in LAZY}
    assert len(gzip.compress((ASSETS / "opener.js").read_bytes())) < 1536
    assert sizes["look.js"] + sizes["lanes.js"] < 14 * 1024 and sum(sizes.values()) < 14 * 1024


# The views of the kernels on the shelf.

EVIDENCE = "evidence/transpose.html"


def open_published_view(visit: Visit, variant: str, arch: str) -> Page:
    tab = visit.open_page(EVIDENCE)
    rows = tab.locator(f'tr[data-look^="transpose/{variant}."][data-look$=".{arch}"]')
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    rows.get_by_role("button").click()
    tab.locator("dialog.ws-view").wait_for()
    return tab


@pytest.mark.exhaustive(MORE)
def test_every_view_that_is_kept_whole_can_be_opened(site: Path) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in site.glob("evidence/*.html"))
    shown = re.findall(r'<tr data-look="([\w-]+)/([^"]+)"', pages)
    for one in snippets_of_the_shelf():
        views, findings = view_store.load_views(one)
        assert findings == []
        mine = [name for snippet, name in shown if snippet == one.id]
        assert sorted(mine) == list(map(view_name, views))
        # Each variant that has a kernel which a reader can follow.
        usual = {view["variant"] for view in views if view["arch"] == view_store.USUAL}
        every = (view for view in view_store.load_summaries(one)[0] if view["arch"] == "sm_90")
        most = view_store.LONGEST
        assert usual == {one["variant"] for one in every if one["build"]["instructions"] <= most}
    for snippet, name in shown:
        assert (site / "views" / snippet / f"{name}.json.gz").is_file()


# A row of 32 floats is 4 sectors; a column of the result is 32. A column of a tile of 32 x 32 words
# lies in one bank, and in all of them with rows of 33 words or permuted.
@pytest.mark.exhaustive(MORE)
@pytest.mark.parametrize(
    ("variant", "line", "sectors", "wavefronts"),
    [
        ("naive", "y[column * Index(M) + row]", "32 / 4", ""),
        ("tiled", "= tile[Tile::at(lane, own)]", "4 / 4", "32 / 1"),
        ("padded", "= tile[Tile::at(lane, own)]", "4 / 4", "1 / 1"),
        ("swizzled", "= tile[Tile::at(lane, own)]", "4 / 4", "1 / 1"),
    ],
)
def test_a_count_is_the_one_worked_out_by_hand(
    wide_visit: Visit, variant: str, line: str, sectors: str, wavefronts: str
) -> None:
    row = source_row(open_published_view(wide_visit, variant, "sm_90"), line)
    expect(row).to_have_count(1)
    cells = row.get_by_role("gridcell").all_text_contents()
    assert sectors in cells
    assert not wavefronts or wavefronts in cells


@pytest.mark.exhaustive(MORE)
def test_a_line_of_the_shelf_is_followed_to_its_machine_code_and_back(wide_visit: Visit) -> None:
    tab = open_published_view(wide_visit, "tiled", "sm_90")
    press_button(tab, "SASS")
    own = source_row(tab, "= tile[Tile::at(lane, own)]")
    own.get_by_role("gridcell").last.click()
    expect(own).to_have_attribute("aria-selected", "true")
    lit = [text.split()[0] for text in tab.locator(".ws-pane").nth(1).locator(
        ".ws-lit .ws-text").all_text_contents()]  # fmt: skip
    assert any(name.startswith("LDS") for name in lit)
    assert any(name.startswith("STG") for name in lit)
    own.get_by_role("gridcell").last.click()  # lets it go
    store = code_row(tab, "STG.E").first
    store.get_by_role("gridcell").last.click()
    expect(own).to_have_attribute("aria-selected", "true")


@pytest.mark.exhaustive(MORE)
def test_the_worst_request_is_drawn(narrow_visit: Visit) -> None:
    tab = open_published_view(narrow_visit, "tiled", "sm_90")
    source_row(tab, "= tile[Tile::at(lane, own)]").get_by_text("32 / 1").click()
    panel = tab.get_by_role("region", name="How it was counted")
    expect(panel).to_contain_text("32 / 1")
    expect(panel).to_contain_text("warp 0")
