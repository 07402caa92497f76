"""Where, when and how a record was made, in words."""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record

JOB = "Measured by"  # the name of the pair that has the address of a job
# Units of what is read off a GPU around its timings; other keys are shown by their own name.
CONDITION = {
    "sm_mhz": "MHz SM",
    "sm_mhz_lowest": "MHz SM at the lowest",
    "memory_mhz": "MHz memory",
    "celsius_highest": "°C at the highest",
    "watts": "W",
    "readings": "readings",
}


def machine_name(record: Record) -> str:
    """The machine in words: `NVIDIA H100 80GB HBM3`, `CPU`, `2 × …`."""
    machine = record["machine"]
    return f"{machine['gpus']} × {machine['device']}" if machine["gpus"] > 1 else machine["device"]


def origin_line(record: Record) -> str:
    """Where, when and by whom the record was made, in one line of plain text."""
    commit = f", commit {record['commit']}" if record.get("commit") else ""
    return (
        f"{machine_name(record)}, {units.format_date(record['date'])}{commit}{_maker_note(record)}"
    )


def _maker_note(record: Record) -> str:
    """Who made the record of a GPU; that of a CPU, which anyone can make again, says nothing."""
    origin = record.get("origin", {})
    if "who" in origin:
        return f", handed in by {origin['who']}"
    if "job" in origin:
        return ", by a job of this project"
    return ", handed in by nobody who is named" if record["machine"]["gpus"] else ""


def _maker_pair(record: Record) -> tuple[str, str]:
    origin = record.get("origin", {})
    if "job" in origin:
        return JOB, f"a job of this project, {origin['job']}"
    if record["machine"]["gpus"]:
        return "Handed in by", origin.get("who", "nobody who is named")
    return "Handed in by", ""


def _format_conditions(found: dict[str, Any]) -> str:
    return ", ".join(
        f"{units.format_number(value)} {CONDITION.get(key, key)}"
        for key, value in sorted(found.items(), key=lambda item: _condition_order(item[0]))
        if units.finite_float(value) is not None
    )


def _condition_order(key: str) -> tuple[int, str]:
    return (list(CONDITION).index(key) if key in CONDITION else len(CONDITION)), key


def _format_limits(ceilings: dict[str, Any], bandwidth: str, rates: str) -> str:
    said = [f"{units.format_rate(ceilings[bandwidth], 'B/s')}"] if bandwidth in ceilings else []
    found = sorted(ceilings.get(rates, {}).items())
    return ", ".join(
        [*said, *(f"{name} {units.format_rate(rate, 'FLOP/s')}" for name, rate in found)]
    )


def origin_pairs(record: Record) -> list[tuple[str, str]]:
    """All that says where the numbers come from, as pairs of plain text; unknowns are left out."""
    machine, conditions = record["machine"], record.get("conditions", {})
    ceilings = record.get("ceilings", {})
    memory = units.format_bytes(machine["memory_bytes"]) if machine.get("memory_bytes") else ""
    sm = f"SM {machine['sm']}" if machine.get("sm") else ""
    sms = f"{machine['sms']} SMs" if machine.get("sms") else ""
    found = (
        ("Machine", ", ".join(filter(None, (machine_name(record), memory, sm, sms)))),
        ("Driver", machine.get("driver")),
        ("CUDA", machine.get("cuda")),
        ("PyTorch", machine.get("torch")),
        ("Triton", machine.get("triton")),
        ("Python", machine["python"]),
        ("System", machine["os"]),
        ("Under load", _format_conditions(conditions.get("load", {}))),
        ("Clocks lowered by", ", ".join(conditions.get("slowed_by", ()))),
        (
            "Measured limits",
            _format_limits(ceilings, "copy_bytes_per_second", "matrix_flops_per_second"),
        ),
        ("Peaks", _format_limits(ceilings, "peak_bytes_per_second", "peak_flops_per_second")),
        _maker_pair(record),
        ("Date", units.format_datetime(record["date"])),
        ("Commit", record.get("commit")),
        ("Command", record["command"]),
        ("Method", units.format_integer(record["method"])),
        ("Digest", record["digest"][:19]),
    )
    return [(name, text) for name, text in found if text]
