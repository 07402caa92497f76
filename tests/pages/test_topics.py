"""What the page of a topic does with formulas and wide pictures; what it has, test_site.py sees."""

from __future__ import annotations

import pytest
from browser import MORE, Visit

# Formulas are seen on every page by test_site.py, and read by test_formulas.py.


@pytest.mark.exhaustive(MORE)
def test_katex_stays_away_where_there_is_nothing_to_set(wide_visit: Visit) -> None:
    asked: list[str] = []
    tab = wide_visit.tab
    tab.on("request", lambda request: asked.append(request.url))
    wide_visit.open_page("about/links/")
    assert [url for url in asked if "katex" in url] == []
    wide_visit.open_page("kernels/gemm/").wait_for_selector(".katex")
    assert [url for url in asked if "katex.packed.js" in url]


# What scrolls on a phone says so.


@pytest.mark.exhaustive(MORE)
def test_a_wide_picture_scrolls_in_its_own_box_and_shows_it(narrow_visit: Visit) -> None:
    tab = narrow_visit.open_page("training/pipeline-parallelism/")
    box = tab.locator(".ws-diagram .ws-scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert "radial-gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
