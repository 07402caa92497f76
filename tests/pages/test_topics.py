"""What the page of a topic does with wide pictures; what it has, test_site.py sees."""

from __future__ import annotations

import pytest
from browser import MORE, Visit

# What scrolls on a phone says so.


@pytest.mark.exhaustive(MORE)
def test_a_wide_picture_scrolls_in_its_own_box_and_shows_it(narrow_visit: Visit) -> None:
    tab = narrow_visit.open_page("training/pipeline-parallelism/shorter-bubbles/")
    box = tab.locator(".ws-diagram .ws-scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert "radial-gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
