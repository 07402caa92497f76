"""Every program on this machine: `pytest tests/programs -k zero`. Takes 20 s, as most start ranks.

One that is as its record says is verified by its facts, or left to its demo where they take long;
one that was changed since is verified whole.
"""

from __future__ import annotations

import pytest
from conftest import snippets_of_the_shelf
from verified_snippet import show_as_recorded, verify_as_recorded

from warpshelf.contract.snippet import Snippet

PROGRAMS = [one for one in snippets_of_the_shelf() if one.kind == "program"]


@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: one.id)
def test_as_recorded_by_what_tells_most_and_changed_by_all(one: Snippet) -> None:
    verify_as_recorded(one)


@pytest.mark.exhaustive("the demos, which `make site` runs too")
@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: one.id)
def test_its_demo_prints_what_the_record_says(one: Snippet) -> None:
    show_as_recorded(one)
