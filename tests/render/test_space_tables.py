"""A space on a page: the curve of all configurations, the table of the best, and what it claims."""

from __future__ import annotations

import copy
import html
import re

import pytest
from synthetic import exhibit, record

from warpshelf.records import space
from warpshelf.records.space import COMPILED, TIMES
from warpshelf.render.exhibit import MachineState
from warpshelf.render.fragments import fragments

BEST = 9.25e5


def surveyed(measured: bool) -> dict:
    """Thirty configurations, of which three come within 2 % of the best."""
    figures = TIMES if measured else COMPILED
    rows = []
    for place in range(30):
        cost = BEST * (1 + 0.009 * place)
        found = (cost * 1e-9, cost * 0.9e-9, cost * 1.1e-9, 15) if measured else (
            90 + place, 4 * (place == 29), 16_640, 16, cost,
        )  # fmt: skip
        rows.append(space.written((place, place % 2), found))
    rows = rows[15:] + rows[:15]  # in the order of the parameters, not of the cost
    return {
        "parameters": [
            {"name": "tile", "values": [*range(30)]},
            {"name": "order", "values": [0, 1]},
        ],
        "case": {"m": 37},
        "timed": {"m": 4096, "n": 4096},
        "figures": list(figures),
        "rows": {target: rows for target in (("sm_90",) if measured else ("sm_100", "sm_90"))},
    }


def state(gpus: int, measured: bool | None = None) -> MachineState:
    spanned = surveyed(bool(gpus) if measured is None else measured)
    return MachineState(
        record(gpus, space=spanned),
        "measured" if gpus else "verified",
        record(gpus)["machine"]["slug"],
    )


def text(*states: MachineState) -> str:
    return fragments(exhibit(states=list(states)))["space"]


def plain(shown: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def test_a_compiled_space_is_called_a_bound_and_no_time() -> None:
    shown = plain(text(state(0)))
    assert "All 30 configurations compiled and counted, none timed: within 2 % of the best" in shown
    assert "are 3 on sm_90, 3 on sm_100" in shown
    assert "a bound, no time" in shown
    assert "The best configurations on sm_90, and the last" in shown
    assert "Cycles, at least" in shown and "Median" not in shown


def test_the_table_begins_with_the_best_and_ends_with_the_last() -> None:
    rows = re.findall(r"<tr><th scope=\"row\">(\d+)</th> <td>(\d+)</td>", text(state(0)))
    assert [place for place, _ in rows] == [*map(str, range(1, 9)), "29"]  # one spills
    assert [tile for _, tile in rows] == [*map(str, range(8)), "28"]


def test_a_measured_space_takes_the_place_of_a_compiled_one() -> None:
    shown = plain(text(state(0), state(1)))
    assert "All 30 configurations timed" in shown and "Median time" in shown
    assert "bound" not in shown and "sm_100" not in shown


def test_a_snippet_without_a_space_says_so() -> None:
    shown = fragments(exhibit(MachineState(record(0), "verified", "cpu")))
    assert "No space of configurations of the present code is recorded." in shown["space"]
    assert "configurations" not in shown["whole"]


def test_a_stale_space_is_withheld() -> None:
    old = state(1)
    stale = MachineState(copy.deepcopy(old.record), "stale", old.machine)
    shown = text(stale)
    assert "No space of configurations" in shown and "<table" not in shown


@pytest.mark.parametrize("key", ["whole", "folded"])
def test_the_space_is_part_of_the_whole(key: str) -> None:
    assert 'class="ws-fold ws-space"' in fragments(exhibit(states=[state(0)]))[key]
