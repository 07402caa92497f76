"""No honest record is refused: each snippet's record of the CPU, turned into that of several GPUs.

What a GPU would measure is made up; all else is what a run there would write.
"""

from __future__ import annotations

import copy

import pytest
from conftest import exhaustive, snippets_of_the_shelf

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
            continue  # whose times of configurations are made up in test_space_rows.py
        made = make_device_record(device, cpu, one)
        wrong = schema.shape_problem(made) or schema.validation_error(made)
        found[one.id] = [*filter(None, [wrong]), *validate_import.record_errors(made, one)]
        found[one.id] += claim_check.claim_errors(made, cpu, one)
        plausibility.plausibility_warnings(made, [cpu])
    assert len(found) > 25 and {name: told for name, told in found.items() if told} == {}
