"""Kernels that run in the reader's browser: right, broken on purpose, stepped through and back."""

from __future__ import annotations

import re
from pathlib import Path

import axe_playwright_python
import numpy as np
import pytest
from browser import NARROW, Visit, open_context
from papergpu import Finding
from papergpu.cuda import Source
from papergpu.pack import write_packs
from playwright.sync_api import Browser, Locator, Page, expect

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
OUTSIDE = """panel => [...panel.querySelectorAll('select, button, .ws-run-said')]
  .filter(one => one.getBoundingClientRect().right > panel.getBoundingClientRect().right)
  .map(one => one.outerHTML.slice(0, 90))"""
TRANSPOSE = "kernels/bank-conflicts/transpose/"
PAGES = {
    TRANSPOSE: 5, "kernels/gemm/double-buffer/": 8, "kernels/tensor-cores/mma/": 4,
    "kernels/stencils/ladder/": 4, "kernels/warp-primitives/block-sum/": 5,
    "kernels/softmax/one-pass/": 2, "kernels/gemm/epilogues/": 3,
    "kernels/tensor-cores/clusters/": 5, "kernels/attention/steps/": 2,
    "kernels/memory-bandwidth/who-copies-async/": 5, "kernels/normalization/rmsnorm/": 2,
    "kernels/auto-tuning/space/": 4, "kernels/reductions/rows/": 2,
    "kernels/reductions/single-pass/": 2, "tools/compilers/languages/": 3,
}  # fmt: skip
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


@pytest.mark.parametrize("page", PAGES)
def test_kernels_are_right_in_the_browser(page: str, still_visit: Visit) -> None:
    loaded: list[int] = []
    tab = still_visit.open_page(page)
    tab.on("requestfinished", lambda one: loaded.append(one.sizes()["responseBodySize"]))
    panel = open_panel(tab)
    assert sum(loaded) < WEIGHT
    variants = panel.get_by_label("Kernel", exact=True).locator("option").all_inner_texts()
    assert len(variants) == PAGES[page]
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


def test_without_webassembly_the_panel_says_so(browser: Browser, site_origin: str) -> None:
    context = open_context(browser, NARROW)
    tab = context.new_page()
    tab.route("**/*.wasm.gz", lambda route: route.abort())
    tab.goto(f"{site_origin}/{TRANSPOSE}")
    panel = tab.locator("details.ws-run")
    panel.locator("summary").click()
    expect(panel.get_by_role("status")).to_contain_text("It does not run here: ")
    context.close()
