"""Doubts about records that break no rule, and honest records, which raise none."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import made_up_records
import pytest
from conftest import exhaustive, snippets_of_the_shelf
from made_up_records import remove_at, set_at

from warpshelf.contract.snippet import Snippet
from warpshelf.records import (
    claim_check,
    ledger,
    limits,
    plausibility,
    schema,
    store,
    validate_import,
)
from warpshelf.records.plausibility import plausibility_warnings

# Doubts about records that break no rule: each is one line that says what to do.

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


# No honest record is refused: each snippet's record of the CPU, turned into that of several GPUs.
#
# What a GPU would measure is made up; all else is what a run there would write.

GIB = 2**30
# Name, SM version, SMs, memory, MHz of SMs and memory, width of the bus: of real devices.
DEVICES = {
    "Tesla T4": (75, 40, 15.6, 1590, 5001, 256),
    "NVIDIA A100-SXM4-80GB": (80, 108, 79.3, 1410, 1593, 5120),
    "NVIDIA A10G": (86, 80, 22.5, 1710, 6251, 384),
    "NVIDIA L4": (89, 58, 22.0, 2040, 6251, 192),
    "NVIDIA GeForce RTX 4090": (89, 128, 23.6, 3105, 10501, 384),
    "NVIDIA H100 80GB HBM3": (90, 132, 79.2, 1980, 2619, 5120),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": (90, 16, 9.8, 1980, 2619, 640),
    "NVIDIA H200": (90, 132, 139.8, 1980, 3201, 6144),
    "NVIDIA GH200 480GB": (90, 132, 94.5, 1980, 2619, 6144),
    "NVIDIA B200": (100, 148, 178.4, 1965, 3996, 8192),
    "NVIDIA GeForce RTX 5090": (120, 170, 31.4, 3090, 14001, 512),
}
SNIPPETS = [one for one in snippets_of_the_shelf() if one.wants_gpu]


def make_device_record(device: str, cpu: dict, one: Snippet) -> dict:
    """The record that a run on a device would make of a snippet, were its times such."""
    sm, sms, memory, sm_mhz, memory_mhz, bus = DEVICES[device]
    made = {k: v for k, v in copy.deepcopy(cpu).items() if k not in ("due", "targets", "counts")}
    made["machine"] |= {
        "slug": ledger.device_slug(device), "device": device, "gpus": 1, "sm": sm, "sms": sms,
        "memory_bytes": int(memory * GIB), "driver": "580.95.05", "cuda": "13.0",
        "torch": "2.11.0", "triton": "3.6.0", "python": "3.12.3",
    }  # fmt: skip
    for row in made.get("compiled", ()):
        row["compiler"], row["registers"] = "another", row["registers"] + 2
    made.pop("space", None)
    if why := one.cannot_run(sm, 1):
        made = {k: v for k, v in made.items() if k != "cases"}
        return made | {"demo": "", "skips": [{"what": "everything", "reason": why}]}
    peaks = limits.peak_rates(made["machine"], bus, sm_mhz, memory_mhz)
    made["ceilings"] = {
        **peaks,
        "copy_bytes_per_second": 0.9 * peaks["peak_bytes_per_second"],
        "matrix_flops_per_second": {},
    }
    load = {"sm_mhz": 0.95 * sm_mhz, "sm_mhz_lowest": 0.94 * sm_mhz, "celsius_highest": 60}
    made["conditions"] = {"load": {**load, "memory_mhz": memory_mhz, "watts": 70, "readings": 9}}
    checked = {str(row["case"]): row for row in made["cases"]}
    skips: dict[str, str] = {}
    made["cases"] = []
    for due in cpu["due"]:
        row = {"case": due["case"], "timed": due["timed"], "results": []}
        known = checked.get(str(due["case"]), {})
        cost = due if due["timed"] else known
        row |= {key: cost[key] for key in claim_check.COST if key in cost}
        least = limits.least_seconds(row, peaks) if "bytes" in row else 0
        time = {"median": 2 * least + 1e-5, "p20": 2 * least + 1e-5, "p80": 2 * least + 1.1e-5}
        for role, name in [("variant", n) for n in due["variants"]] + [
            ("peer", n) for n in due["peers"]
        ]:
            result = {"name": name, "role": role}
            if why := claim_check.skip_reason(one.needs, name, sm):
                row["results"].append(result | {"verdict": "skipped", "reason": why})
                if role == "variant":
                    skips[name] = why
                continue
            [was] = [r for r in known.get("results", ()) if r["name"] == name] or [{}]
            kept = ("max_error", "max_error_limit", "refuses")
            result |= {key: was[key] for key in kept if key in was and not due["timed"]}
            result |= {"verdict": "passed", "error": 0.0, "tolerance": due["tolerance"]}
            result |= {"time": time | {"n": 20, "void": 2, "cv": 0.03}} if due["timed"] else {}
            row["results"].append(result)
        made["cases"].append(row)
    return made | {"skips": [{"what": what, "reason": why} for what, why in skips.items()]}


@pytest.mark.parametrize("device", exhaustive(DEVICES, "every device", light=2))
def test_an_honest_record_of_a_gpu_is_taken(device: str) -> None:
    found: dict[str, list[str]] = {}
    for one in SNIPPETS:
        cpu = store.current_record(one, ledger.CPU)
        if cpu is None or "space" in cpu:
            continue  # whose times of configurations are made up in test_goals.py
        made = make_device_record(device, cpu, one)
        wrong = schema.shape_problem(made) or schema.validation_error(made)
        found[one.id] = [*filter(None, [wrong]), *validate_import.record_errors(made, one)]
        found[one.id] += claim_check.claim_errors(made, cpu, one)
        plausibility.plausibility_warnings(made, [cpu])
    assert len(found) > 25 and {name: told for name, told in found.items() if told} == {}
