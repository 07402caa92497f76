"""The views of the kernels on the shelf, on their pages, with counts worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import MORE, Visit, code_row, press_button, source_row
from conftest import snippets_of_the_shelf
from playwright.sync_api import Page, expect

from warpshelf.look import view_store
from warpshelf.look.view import view_name

PAGE = "evidence/transpose.html"


def open_published_view(visit: Visit, variant: str, arch: str) -> Page:
    tab = visit.open_page(PAGE)
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
        usual = {view["variant"] for view in views if view["arch"] == view_store.USUAL}
        assert usual == {view["variant"] for view in view_store.load_summaries(one)[0]}
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
    cells = row.get_by_role("gridcell").all_inner_texts()
    assert sectors in cells
    assert not wavefronts or wavefronts in cells


@pytest.mark.exhaustive(MORE)
def test_a_line_is_followed_to_its_machine_code_and_back(wide_visit: Visit) -> None:
    tab = open_published_view(wide_visit, "tiled", "sm_90")
    press_button(tab, "SASS")
    own = source_row(tab, "= tile[Tile::at(lane, own)]")
    own.get_by_role("gridcell").last.click()
    expect(own).to_have_attribute("aria-selected", "true")
    lit = [text.split()[0] for text in tab.locator(".ws-pane").nth(1).locator(
        ".ws-lit .ws-text").all_inner_texts()]  # fmt: skip
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
