"""Kernels that run in the reader's browser: right, broken on purpose, stepped through and back."""

from __future__ import annotations

import re
from pathlib import Path

import axe_playwright_python
import numpy as np
import pytest
from browser import NARROW, Visit, open_context
from conftest import exhaustive
from papergpu import Finding
from papergpu.cuda import Source
from papergpu.pack import write_packs
from playwright.sync_api import Browser, Locator, Page, expect

from warpshelf.core.places import page_address
from warpshelf.core.project import Project
from warpshelf.live.launches import load_runs

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
LOOK = """async scheme => {
  document.body.setAttribute('data-md-color-scheme', scheme);
  const {violations} = await axe.run('.ws-run', {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'],
  });
  return violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html.slice(0, 200)}`));
}"""
BROKEN = """__global__ void broken(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
OUTSIDE = """panel => [...panel.querySelectorAll('select, input, button, .ws-run-said')]
  .filter(one => one.getBoundingClientRect().right > panel.getBoundingClientRect().right)
  .map(one => one.outerHTML.slice(0, 90))"""
TRANSPOSE = "kernels/bank-conflicts/transpose/"
ROOT = Path(__file__).resolve().parents[2]
EMBEDS = re.compile(r'^--8<-- "runs/(?!own|playground|puzzles)(\w+)\.md"', re.MULTILINE)
FOUND = {
    path: EMBEDS.search(path.read_text("utf-8")) for path in sorted(ROOT.glob("docs/*/**/*.md"))
}
PAGES = {
    page_address(path.relative_to(ROOT / "docs").as_posix()): found[1]
    for path, found in FOUND.items()
    if found
}
ROWS, _ = load_runs(Project(ROOT))
WEIGHT = 600_000  # bytes that a panel loads, compressed


def open_panel(tab: Page) -> Locator:
    panel = tab.locator("details.ws-run")
    panel.locator("summary").click()
    expect(panel.get_by_role("status")).to_contain_text("warp-instruction", timeout=30_000)
    return panel


def choose(panel: Locator, label: str, option: str) -> None:
    panel.get_by_label(label, exact=True).select_option(label=option)
    expect(panel.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=30_000)


def press(panel: Locator, name: str) -> None:
    panel.get_by_role("button", name=name, exact=True).click()
    expect(panel.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=30_000)


def test_a_page_runs_each_row_once() -> None:
    assert sorted(PAGES.values()) == sorted(ROWS)


@pytest.mark.parametrize("page", exhaustive([*PAGES], "every page that runs kernels", light=10))
def test_kernels_are_right_in_the_browser(page: str, still_visit: Visit, builder: str) -> None:
    if builder != "mkdocs" and page not in [*PAGES][:10]:
        pytest.skip("either builder embeds the same panels")
    loaded: list[int] = []
    tab = still_visit.open_page(page)
    # Zensical loads its search's index as late.
    tab.on("requestfinished", lambda one: "search" not in one.url and loaded.append(
        one.sizes()["responseBodySize"]))  # fmt: skip
    panel = open_panel(tab)
    assert sum(loaded) < WEIGHT
    variants = panel.get_by_label("Kernel", exact=True).locator("option").all_inner_texts()
    assert variants == [*ROWS[PAGES[page]]["grids"]]
    for name in variants:
        choose(panel, "Kernel", name)
        said = panel.get_by_role("status")
        expect(said).to_contain_text("No race, nothing out of bounds.")
        expect(said).to_contain_text("right, by a float64 truth.")
    assert panel.locator("li b").filter(has_text=re.compile(r"\d")).count() > 3  # counts
    assert still_visit.failed == []
    assert still_visit.console == []


def test_without_its_barrier_a_kernel_is_found_out_on_the_line(still_visit: Visit) -> None:
    panel = open_panel(still_visit.open_page(TRANSPOSE))
    choose(panel, "Kernel", "tiled")
    barrier = panel.get_by_label("Break it", exact=True).locator("option").nth(1).inner_text()
    assert barrier.startswith("without the barrier of line ")
    choose(panel, "Break it", barrier)
    said = panel.get_by_role("status").inner_text()
    assert said.startswith("Found at transpose.cu:")
    line = said.removeprefix("Found at transpose.cu:").partition(",")[0]
    assert panel.locator("li.ws-run-wrong button").inner_text() == line
    choose(panel, "Break it", "as it is")
    expect(panel.get_by_role("status")).to_contain_text("right, by a float64 truth.")


def test_a_warp_is_stepped_to_its_barrier_and_back(still_visit: Visit) -> None:
    panel = open_panel(still_visit.open_page(TRANSPOSE))
    choose(panel, "Kernel", "tiled")
    press(panel, "Step through")
    first = panel.locator("li.ws-run-at button").inner_text()
    press(panel, "Instruction")
    press(panel, "Line")
    assert panel.locator("li.ws-run-at button").inner_text() != first
    for _ in range(40):
        if "waits for others" in panel.get_by_role("status").inner_text():
            break
        press(panel, "Line")
    assert "syncthreads" in panel.locator("li.ws-run-at").inner_text()
    registers = panel.locator(".ws-run-state table tbody tr")
    assert registers.count() > 3
    while not panel.get_by_text("Shared memory:").count():
        press(panel, "Back")
    assert panel.locator(".ws-run-banks thead th").count() == 32
    panel.get_by_label("Step", exact=True).select_option(label="all in turn")
    press(panel, "To a breakpoint")  # there is none: to the end
    expect(panel.get_by_role("status")).to_contain_text("right, by a float64 truth.")


def test_execution_stands_at_a_breakpoint(still_visit: Visit) -> None:
    panel = open_panel(still_visit.open_page(TRANSPOSE))
    choose(panel, "Kernel", "tiled")
    row = panel.locator("li", has=panel.page.locator("code", has_text="__syncthreads();")).first
    row.locator("button").click()
    press(panel, "Step through")
    panel.get_by_label("Step", exact=True).select_option(label="all in turn")
    press(panel, "To a breakpoint")
    expect(panel.get_by_role("status")).to_have_text("At a breakpoint.")


def enter(panel: Locator, label: str, text: str) -> Locator:
    """Type into a field; what the panel says then."""
    field = panel.get_by_label(label)
    field.fill(text)
    field.blur()
    expect(panel.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=30_000)
    return panel.get_by_role("status")


def test_values_blocks_and_threads_are_typed_in(still_visit: Visit) -> None:
    panel = open_panel(still_visit.open_page(TRANSPOSE))
    first = panel.locator(".ws-run-state td").first.inner_text()
    expect(enter(panel, "Seed", "7")).to_contain_text("right, by a float64 truth.")
    assert panel.locator(".ws-run-state td").first.inner_text() != first
    choose(panel, "Values", "typed in")
    expect(enter(panel, "Numbers", "1, 2.5; -3e2")).to_contain_text("right, by a float64 truth.")
    assert panel.locator(".ws-run-state td").first.inner_text() == "1"
    expect(panel.get_by_label("Seed")).to_be_hidden()
    assert enter(panel, "Numbers", "one").inner_text() == "Numbers, over and over: one cannot be"
    enter(panel, "Numbers", "2")
    said = enter(panel, "Blocks", "1")
    expect(said).to_contain_text("are wrong, the first at ")  # what no block has written
    assert enter(panel, "Blocks", "5000").inner_text() == "Blocks: 5000 cannot be"
    expect(enter(panel, "Blocks", "6")).to_contain_text("right, by a float64 truth.")
    expect(enter(panel, "Threads", "16 x 8")).to_contain_text("are wrong, the first at ")
    assert enter(panel, "Threads", "64, 64").inner_text() == "4096 threads are more than 1024"


def test_it_is_accessible_and_fits_a_phone(still_visit: Visit, browser: Browser) -> None:
    tab = still_visit.open_page(TRANSPOSE)
    panel = open_panel(tab)
    press(panel, "Step through")
    tab.add_script_tag(content=AXE)
    for scheme in ("default", "slate"):
        assert tab.evaluate(LOOK, scheme) == []
    context = open_context(browser, NARROW)
    tab = context.new_page()
    for page in (TRANSPOSE, "kernels/softmax/one-pass/"):  # whose barriers are in a library
        tab.goto(f"{still_visit.origin}/{page}")
        panel = open_panel(tab)
        press(panel, "Step through")
        assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert panel.evaluate(OUTSIDE) == []
    context.close()


def test_a_launch_of_ones_own_is_opened(still_visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "broken.cu").write_text(BROKEN)
    with write_packs(tmp_path), pytest.raises(Finding):
        Source(tmp_path / "broken.cu").launch("broken", 1, 64, np.zeros(64, np.float32))
    (made,) = tmp_path.glob("*.pack.gz")
    tab = still_visit.open_page("about/papergpu/")
    panel = tab.locator("details.ws-run")
    panel.locator("summary").click()
    said = panel.get_by_role("status")
    expect(said).to_contain_text("Choose a file")
    panel.get_by_label("Pack").set_input_files(made)
    expect(said).to_contain_text("which nobody in this block has written")
    assert "tile[63 - threadIdx.x]" in panel.locator("li.ws-run-wrong").inner_text()
    press(panel, "Step through")
    assert panel.locator("li.ws-run-at").count() == 1
    panel.get_by_label("Pack").set_input_files(tmp_path / "broken.cu")
    expect(said).to_contain_text("this is no pack that papergpu wrote")


def test_the_home_page_leads_to_one_that_runs_at_once(still_visit: Visit) -> None:
    tab = still_visit.open_page("")
    tab.get_by_role("link", name="Run one in this browser").click()
    panel = tab.locator("details.ws-run")
    expect(panel.get_by_role("status")).to_contain_text("right, by a float64", timeout=30_000)


def test_the_home_page_steps_through_a_kernel(wide_visit: Visit) -> None:
    loaded: list[int] = []
    wide_visit.tab.on("requestfinished", lambda one: "runtime" in one.url and loaded.append(
        one.sizes()["responseBodySize"]))  # fmt: skip
    box = wide_visit.open_page("").locator(".ws-watch")
    box.scroll_into_view_if_needed()
    expect(box.locator(".ws-run-wrong").first).to_be_visible(timeout=60_000)  # a conflict
    expect(box).to_contain_text("32 wavefronts of 1 that would do")
    box.get_by_role("button", name="Pause").click()
    expect(box.get_by_role("button", name="Go on")).to_be_visible()
    for _ in range(40):  # to the next kernel, whose lanes meet no other in a bank
        box.get_by_role("button", name="One line").click()
        box.page.wait_for_timeout(100)
        if "padded" in box.inner_text():
            break
    expect(box).to_contain_text("1 wavefront of 1 that would do")
    assert sum(loaded) < 400_000
    assert (wide_visit.failed, wide_visit.console) == ([], [])


def test_nothing_moves_unasked_where_motion_is_not_wanted(still_visit: Visit) -> None:
    box = still_visit.open_page("").locator(".ws-watch")
    box.scroll_into_view_if_needed()
    button = box.get_by_role("button", name="Watch a kernel, line by line")
    button.wait_for()
    box.page.wait_for_timeout(500)
    button.click()
    expect(box.locator(".ws-run-at")).to_be_visible(timeout=30_000)


def test_without_webassembly_the_panel_says_so(browser: Browser, site_origin: str) -> None:
    context = open_context(browser, NARROW)
    tab = context.new_page()
    tab.route("**/*.wasm.gz", lambda route: route.abort())
    tab.goto(f"{site_origin}/{TRANSPOSE}")
    panel = tab.locator("details.ws-run")
    panel.locator("summary").click()
    expect(panel.get_by_role("status")).to_contain_text("It does not run here: ")
    context.close()


def test_a_kernel_that_is_typed_runs_here(
    still_visit: Visit, browser: Browser, builder: str
) -> None:
    """An example, broken, mended by its address elsewhere; and text that is no PTX."""
    if builder != "mkdocs":
        pytest.skip("the panel is the same")
    tab = still_visit.open_page("tools/playground/")
    panel = open_panel(tab)
    expect(panel.get_by_role("status")).to_contain_text("No race")
    assert panel.get_by_role("table").last.inner_text().split()[:3] == ["63", "62", "61"]
    choose(panel, "Break it", "without the barrier of line 5")
    expect(panel.get_by_role("status")).to_contain_text("nobody in this block has written")
    panel.get_by_label("Arguments, one a line").fill("x = float32[32] ones")
    press(panel, "Run")
    said = "kernel.cu:4, block (0,0,0), thread (32,0,0)"
    expect(panel.get_by_role("status")).to_contain_text(said)
    assert "#kernel=" in tab.url
    context = open_context(browser, NARROW)
    other = context.new_page()
    other.goto(tab.url)
    sent = other.locator("details.ws-run")
    expect(sent.get_by_role("status")).to_contain_text(said, timeout=30_000)
    assert other.evaluate(OUTSIDE, sent.element_handle()) == []
    context.close()
    panel.get_by_label("PTX or CUDA C").fill("int main() {}")
    press(panel, "Run")
    expect(panel.get_by_role("status")).to_contain_text("line 1: there is no kernel")
    panel.get_by_label("Example").select_option(label="total")
    expect(panel.get_by_role("status")).to_contain_text("names lane 8, which has ended")
    assert still_visit.console == still_visit.failed == []


def test_a_puzzle_is_solved_and_stays_so(still_visit: Visit, builder: str) -> None:
    if builder != "mkdocs":
        pytest.skip("the panel is the same")
    tab = still_visit.open_page("tools/puzzles/")
    panel = tab.locator("details.ws-run")
    panel.locator("summary").click()
    said, code = panel.get_by_role("status"), panel.get_by_label("PTX or CUDA C")
    expect(said).to_have_text("Not yet: x[1] is 1, and should be 11.", timeout=30_000)
    for line in ("threadIdx.x / 2", "threadIdx.x"):
        code.fill(re.sub(r"i = .*", f"i = {line};", code.input_value()))
        press(panel, "Run")
        expect(said).to_contain_text("Not yet: x[16] is 16" if "/" in line else "Solved.")
    tab.goto(f"{still_visit.origin}/tools/puzzles/")
    panel.locator("summary").click()
    chosen = panel.get_by_label("Puzzle")
    expect(chosen).to_contain_text("\u2713 1. ten", timeout=30_000)
    expect(said).to_contain_text("kernel.cu:3, block (0,0,0), thread (50,0,0)", timeout=30_000)
    assert chosen.input_value() == "1"  # the first that is not solved
    assert still_visit.console == still_visit.failed == []
