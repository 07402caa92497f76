"""Doubts about records that break no rule: each is one line that says what to do."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import made_up_records
import pytest
from made_up_records import remove_at, set_at

from warpshelf.records import plausibility
from warpshelf.records.plausibility import plausibility_warnings

TIMED = 2


def make_plausible_record(**more: object) -> dict:
    return made_up_records.make_honest(made_up_records.make_record(), **more)


def make_other_records() -> list[dict]:
    """Two records of the device, and that of a CPU."""
    first = made_up_records.make_honest(made_up_records.make_record(snippet="stream"))
    return [
        make_plausible_record(),
        first,
        made_up_records.make_honest(made_up_records.make_record(0)),
    ]


def find_time(found: dict, result: int) -> dict:
    return found["cases"][TIMED]["results"][result]["time"]


def slow_down(found: dict, result: int, factor: float) -> None:
    time = find_time(found, result)
    for key in ("median", "p20", "p80"):
        time[key] *= factor


def peer_slow(found: dict) -> None:
    slow_down(found, 3, 2)


def test_an_ordinary_record_raises_no_doubt() -> None:
    assert plausibility_warnings(make_plausible_record(), make_other_records()) == []
    assert plausibility_warnings(make_plausible_record(), []) == []


def test_what_has_no_times_raises_none() -> None:
    assert (
        plausibility_warnings(
            made_up_records.make_honest(made_up_records.make_record(0)), make_other_records()
        )
        == []
    )
    odd = make_plausible_record(
        cases=made_up_records.make_ladder(False), conditions={"load": {"celsius_highest": 99}}
    )
    assert plausibility_warnings(odd, make_other_records()) == []


def spread_out_by_its_percentiles(found: dict) -> None:
    time = find_time(found, 0)
    time["p20"], time["p80"] = 0.8 * time["median"], 1.3 * time["median"]


def remove_errors(found: dict) -> None:
    for row in found["cases"]:
        row["results"][0]["error"] = 0


TIME = f"cases.{TIMED}.results.0.time"
LOAD = "conditions.load"
DOUBTED: list[tuple[Callable[[dict], None], str]] = [
    (set_at("ceilings.copy_bytes_per_second", 2.5e12),
     "'one pass' on .* reaches 109% of the rate of copied bytes measured with it"),
    (set_at("ceilings.matrix_flops_per_second.fp32", 1e12),
     "of the rate of products in fp32 measured with it; look for a wrong cost"),
    (remove_at("ceilings.peak_bytes_per_second"),
     "has no memory peak to check its times against; check that nvidia"),
    (set_at(f"{TIME}.cv", 0.2),
     "'three passes' on .* varies by 20%, over 10%; measure again with nothing else"),
    (spread_out_by_its_percentiles, "'three passes' on .* varies by 30%, over 10%"),
    (set_at(f"{TIME}.void", 60),
     "33% of the samples of .* are void, over 25%; measure again on a host with a free"),
    (set_at("conditions.slowed_by", ["software power cap", "hardware thermal slowdown"]),
     "its clocks were lowered by hardware thermal slowdown; measure again when the GPU is"),
    (set_at(f"{LOAD}.sm_mhz_lowest", 1200),
     "its SM clock fell to 1200 MHz, from 1980, below 85%; measure again when"),
    (set_at(f"{LOAD}.sm_mhz", 1200),
     "ran at 1200 MHz, below 90% of its highest clock, 1980; check whether that machine sets"),
    (set_at(f"{LOAD}.sm_mhz", 1200), "ran at 1200 MHz, others of its device at 1980"),
    (set_at(f"{LOAD}.celsius_highest", 88),
     "reached 88 °C, 85 or more; measure again when the GPU is cool and alone"),
    (set_at(f"{LOAD}.celsius_highest", 80),
     "reached 80 °C, others of its device 55; measure again when"),
    (set_at("ceilings.copy_bytes_per_second", 2.6e12),
     "its rate of copied bytes is 87% of that of others of its device"),
    (set_at("ceilings.matrix_flops_per_second.bf16", 3e14),
     "its rate of products in bf16 is 38% of that of others of its device"),
    (peer_slow, "peer 'torch' on .* took 0.000114 s, on others of its device 5.71e-05 s"),
    (lambda found: slow_down(found, 3, 0.6),
     "peer 'torch' on .* took 3.43e-05 s, on others .*; compare the versions of t"),
    (remove_errors,
     "the variant 'one pass' has no error at all in 2 cases where a CPU has some"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), DOUBTED)
def test_what_is_odd_is_said(change: Callable[[dict], None], says: str) -> None:
    found = make_plausible_record()
    change(found)
    lines = [str(doubt) for doubt in plausibility_warnings(found, make_other_records())]
    assert any(re.search(says, line) for line in lines), lines
    assert all(line.isprintable() and "; " in line for line in lines)
    assert len(lines) <= 4


def test_others_are_of_the_same_kind_of_device() -> None:
    found = make_plausible_record()
    peer_slow(found)
    assert len(plausibility_warnings(found, make_other_records())) == 1
    apart = [
        made_up_records.make_honest(
            made_up_records.make_record(device="Imaginary G7", slug="imaginary-g7")
        ),
        made_up_records.make_honest(made_up_records.make_record(0)),
    ]
    assert plausibility_warnings(found, apart) == []


def test_peers_are_compared_where_the_code_is_the_same() -> None:
    found = make_plausible_record()
    peer_slow(found)
    assert plausibility_warnings(found, [make_plausible_record(digest="sha256:" + "00" * 32)]) == []


def test_short_times_may_vary_by_the_tick_of_the_clock() -> None:
    found = make_plausible_record()
    time = find_time(found, 0)
    time |= {"median": 2e-6, "p20": 1.8e-6, "p80": 2.4e-6, "cv": 0.2}
    found["cases"][TIMED] |= {"bytes": 8, "flops": 8}
    assert plausibility_warnings(found, []) == []
    assert 0.3 * time["median"] > plausibility.TICK


def test_doubts_change_nothing() -> None:
    found = make_plausible_record()
    before = copy.deepcopy(found)
    plausibility_warnings(found, make_other_records())
    assert found == before
