"""The paths in a browser: ticks that stay, and how far one has come."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from browser import MORE, NARROW, WIDE, Visit, open_context
from conftest import exhaustive
from playwright.sync_api import Browser

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
