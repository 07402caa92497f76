"""One bad day is nothing: what a row of answers makes of a link."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.links import health
from warpshelf.links.health import Health
from warpshelf.links.liveness import Outcome
from warpshelf.links.streaks import ROW, SPAN, follow

URL = "https://example.org/x"
FIRST = date(2026, 11, 1)
KINDS = {
    "a": Outcome("alive"),
    "m": Outcome("moved", None, "https://new.example.org/x"),
    "g": Outcome("gone", "answered 404"),
    "u": Outcome("unreachable", "timed out"),
    "b": Outcome("blocked", "answered 403"),
}


def after(story: str, days: list[int]) -> Health:
    """The state after the answers of `story`, given on `days` after the first."""
    state = None
    for letter, day in zip(story, days, strict=True):
        state = follow(state, KINDS[letter], FIRST + timedelta(days=day))
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("story", "days", "state", "since"),
    [
        ("a", [0], "alive", None),
        ("g", [0], "failing", 0),
        ("gg", [0, 30], "failing", 0),
        ("ggg", [0, 1, 5], "failing", 0),
        ("ggg", [0, 1, 6], "gone", 0),
        ("ggg", [0, 7, 14], "gone", 0),
        ("ggg", [0, 0, 9], "failing", 0),  # a second check on one day counts for nothing
        ("gggg", [0, 0, 0, 0], "failing", 0),
        ("gaggg", [0, 1, 2, 3, 4], "failing", 2),
        ("gaggg", [0, 1, 2, 3, 8], "gone", 2),
        ("gbggg", [0, 1, 2, 3, 4], "failing", 2),  # a refusal ends a row
        ("guugg", [0, 1, 2, 8, 9], "gone", 0),  # silence neither ends nor lengthens it
        ("ugg", [0, 8, 9], "failing", 0),
        ("uuu", [0, 7, 14], "unreachable", 0),
        ("uuu", [0, 1, 2], "failing", 0),
        ("uuuggg", [0, 7, 14, 21, 28, 35], "gone", 0),
        ("gggu", [0, 7, 14, 21], "gone", 0),
        ("ggga", [0, 7, 14, 21], "alive", None),
        ("gggb", [0, 7, 14, 21], "blocked", 21),
        ("gggm", [0, 7, 14, 21], "moved", 21),
        ("mm", [0, 7], "moved", 0),
        ("bb", [0, 7], "blocked", 0),
        ("mgm", [0, 7, 14], "moved", 14),
    ],
)
def test_rows(story: str, days: list[int], state: str, since: int | None) -> None:
    found = after(story, days)
    assert found.state == state
    assert found.since == (None if since is None else (FIRST + timedelta(since)).isoformat())


def test_another_target_begins_anew() -> None:
    state = after("m", [0])
    other = Outcome("moved", None, "https://newer.example.org/x")
    found = follow(state, other, FIRST + timedelta(days=7))
    assert (found.moved_to, found.since) == (other.moved_to, "2026-11-08")


def test_the_day_last_alive_is_kept_and_seldom_renewed() -> None:
    assert after("aa", [0, 27]).last_alive == "2026-11-01"
    assert after("aa", [0, 28]).last_alive == "2026-11-29"
    assert after("aggg", [0, 7, 14, 21]).last_alive == "2026-11-01"
    assert after("aga", [0, 7, 8]).last_alive == "2026-11-09"
    assert after("ab", [0, 7]).last_alive == "2026-11-01"
    assert after("gm", [0, 7]).last_alive == "2026-11-08"
    assert after("g", [0]).last_alive is None


def test_a_settled_state_stays_as_it_is() -> None:
    """Or the file would change at every check."""
    gone, lost = after("ggg", [0, 7, 14]), after("uuu", [0, 7, 14])
    for day in (21, 28, 400):
        assert follow(gone, KINDS["g"], FIRST + timedelta(days=day)) == gone
        assert follow(lost, KINDS["u"], FIRST + timedelta(days=day)) == lost
    assert after("aaaa", [0, 7, 14, 21]) == after("a", [0])


def test_what_else_is_known_stays() -> None:
    known = Health("alive", last_alive="2026-11-01", title_there="A title")
    failing = follow(known, KINDS["g"], FIRST)
    assert failing.title_there == "A title" and failing.last_alive == "2026-11-01"
    kept = Health("failing", since="2026-11-01", archived="https://web.archive.org/x", failures=1)
    assert follow(kept, KINDS["g"], FIRST + timedelta(days=1)).archived == kept.archived
    assert follow(kept, KINDS["a"], FIRST + timedelta(days=1)).archived is None


def test_a_clock_set_back_counts_nothing() -> None:
    found = after("ggg", [10, 5, 0])
    assert (found.state, found.failures) == ("failing", 1)


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 20)), min_size=1))
def test_gone_takes_a_row_and_refusals_never_count(steps: list[tuple[str, int]]) -> None:
    day, state, row = FIRST, None, []
    for letter, wait in steps:
        day += timedelta(days=wait)
        state = follow(state, KINDS[letter], day)
        row = [*row, (letter, day)] if letter in "gu" else []
        assert health._entry(URL, health.written(state)) == state
        absent = {when for kind, when in row if kind == "g"}
        if state.state == "gone":
            assert len(absent) >= ROW and (row[-1][1] - row[0][1]).days >= SPAN
        if state.state == "blocked":
            assert letter == "b"
