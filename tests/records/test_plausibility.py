"""Doubts about records that break no rule: each is one line that says what to do."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import made_up_records
import pytest
from made_up_records import remove_at as without
from made_up_records import set_at as at

from warpshelf.records import plausibility
from warpshelf.records.plausibility import plausibility_warnings

TIMED = 2


def record(**more: object) -> dict:
    return made_up_records.honest(made_up_records.record(), **more)


def others() -> list[dict]:
    """Two records of the device, and that of a CPU."""
    first = made_up_records.honest(made_up_records.record(snippet="stream"))
    return [record(), first, made_up_records.honest(made_up_records.record(0))]


def times(found: dict, result: int) -> dict:
    return found["cases"][TIMED]["results"][result]["time"]


def slower(found: dict, result: int, factor: float) -> None:
    time = times(found, result)
    for key in ("median", "p20", "p80"):
        time[key] *= factor


def peer_slow(found: dict) -> None:
    slower(found, 3, 2)


def test_an_ordinary_record_raises_no_doubt() -> None:
    assert plausibility_warnings(record(), others()) == []
    assert plausibility_warnings(record(), []) == []


def test_what_has_no_times_raises_none() -> None:
    assert plausibility_warnings(made_up_records.honest(made_up_records.record(0)), others()) == []
    odd = record(cases=made_up_records.ladder(False), conditions={"load": {"celsius_highest": 99}})
    assert plausibility_warnings(odd, others()) == []


def spread_out_by_its_percentiles(found: dict) -> None:
    time = times(found, 0)
    time["p20"], time["p80"] = 0.8 * time["median"], 1.3 * time["median"]


def exact(found: dict) -> None:
    for row in found["cases"]:
        row["results"][0]["error"] = 0


TIME = f"cases.{TIMED}.results.0.time"
LOAD = "conditions.load"
DOUBTED: list[tuple[Callable[[dict], None], str]] = [
    (at("ceilings.copy_bytes_per_second", 2.5e12),
     "'one pass' on .* reaches 109% of the rate of copied bytes measured with it"),
    (at("ceilings.matrix_flops_per_second.fp32", 1e12),
     "of the rate of products in fp32 measured with it; look for a wrong cost"),
    (without("ceilings.peak_bytes_per_second"),
     "has no memory peak to check its times against; check that nvidia"),
    (at(f"{TIME}.cv", 0.2),
     "'three passes' on .* varies by 20%, over 10%; measure again with nothing else"),
    (spread_out_by_its_percentiles, "'three passes' on .* varies by 30%, over 10%"),
    (at(f"{TIME}.void", 60),
     "33% of the samples of .* are void, over 25%; measure again on a host with a free"),
    (at("conditions.slowed_by", ["software power cap", "hardware thermal slowdown"]),
     "its clocks were lowered by hardware thermal slowdown; measure again when the GPU is"),
    (at(f"{LOAD}.sm_mhz_lowest", 1200),
     "its SM clock fell to 1200 MHz, from 1980, below 85%; measure again when"),
    (at(f"{LOAD}.sm_mhz", 1200),
     "ran at 1200 MHz, below 90% of its highest clock, 1980; check whether that machine sets"),
    (at(f"{LOAD}.sm_mhz", 1200), "ran at 1200 MHz, others of its device at 1980"),
    (at(f"{LOAD}.celsius_highest", 88),
     "reached 88 °C, 85 or more; measure again when the GPU is cool and alone"),
    (at(f"{LOAD}.celsius_highest", 80),
     "reached 80 °C, others of its device 55; measure again when"),
    (at("ceilings.copy_bytes_per_second", 2.6e12),
     "its rate of copied bytes is 87% of that of others of its device"),
    (at("ceilings.matrix_flops_per_second.bf16", 3e14),
     "its rate of products in bf16 is 38% of that of others of its device"),
    (peer_slow, "peer 'torch' on .* took 0.000114 s, on others of its device 5.71e-05 s"),
    (lambda found: slower(found, 3, 0.6),
     "peer 'torch' on .* took 3.43e-05 s, on others .*; compare the versions of t"),
    (exact, "the variant 'one pass' has no error at all in 2 cases where a CPU has some"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), DOUBTED)
def test_what_is_odd_is_said(change: Callable[[dict], None], says: str) -> None:
    found = record()
    change(found)
    lines = [str(doubt) for doubt in plausibility_warnings(found, others())]
    assert any(re.search(says, line) for line in lines), lines
    assert all(line.isprintable() and "; " in line for line in lines)
    assert len(lines) <= 4


def test_others_are_of_the_same_kind_of_device() -> None:
    found = record()
    peer_slow(found)
    assert len(plausibility_warnings(found, others())) == 1
    apart = [
        made_up_records.honest(made_up_records.record(device="Imaginary G7", slug="imaginary-g7")),
        made_up_records.honest(made_up_records.record(0)),
    ]
    assert plausibility_warnings(found, apart) == []


def test_peers_are_compared_where_the_code_is_the_same() -> None:
    found = record()
    peer_slow(found)
    assert plausibility_warnings(found, [record(digest="sha256:" + "00" * 32)]) == []


def test_short_times_may_vary_by_the_tick_of_the_clock() -> None:
    found = record()
    time = times(found, 0)
    time |= {"median": 2e-6, "p20": 1.8e-6, "p80": 2.4e-6, "cv": 0.2}
    found["cases"][TIMED] |= {"bytes": 8, "flops": 8}
    assert plausibility_warnings(found, []) == []
    assert 0.3 * time["median"] > plausibility.TICK


def test_doubts_change_nothing() -> None:
    found = record()
    before = copy.deepcopy(found)
    plausibility_warnings(found, others())
    assert found == before
