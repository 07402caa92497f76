"""What a GPU can do at most, the least time of a case, and when two times tie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Dense FLOPs a clock of one SM, by SM version and unit, from NVIDIA's architecture whitepapers:
# Turing (7.5), A100 (8.0), GA10x (8.6), Ada (8.9), H100 (9.0), Blackwell (10.0) and RTX Blackwell
# (12.0); for 10.3 the rates of GB300 NVL72's data sheet, whose clock no paper states, which are
# those of 10.0 but for int8 and fp64. Of a version they are the most of any card: a GeForce of 7.5,
# 8.6, 8.9 or 12.0 has half the rate where matrix instructions sum in fp32, as do all of tf32 and
# bf16, and its cards for work do not.
UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
RATES = {  # in the order of UNITS, 0 where there is no such unit
    75: (4, 128, 0, 1024, 0, 0, 2048),
    80: (128, 128, 1024, 2048, 2048, 0, 4096),
    86: (4, 256, 512, 1024, 1024, 0, 2048),
    89: (4, 256, 512, 1024, 1024, 2048, 2048),
    90: (256, 256, 2048, 4096, 4096, 8192, 8192),
    100: (0, 256, 4096, 8192, 8192, 16384, 16384),
    103: (0, 256, 4096, 8192, 8192, 16384, 0),
    120: (4, 256, 512, 1024, 1024, 2048, 2048),
}
FLOPS_PER_CLOCK = {
    sm: {unit: rate for unit, rate in zip(UNITS, row, strict=True) if rate}
    for sm, row in RATES.items()
}
MOST_L2 = 128 * 2**20  # bytes of the L2 of any GPU
ROUNDING = 1e-3  # of a time and of the peak rates, which a record has to four digits

# What two runs may differ by that agree, as a share of the time: clocks are read and never set, and
# a spread that is rounded away is no agreement to the last digit.
DRIFT = 0.01

FEWEST, MOST = 15, 300  # samples of a function in one case
MOST_VOID = 0.5  # share of a function's samples in which the GPU may have waited for the host

# Why a function has no time: how many of its samples are void, and of how many.
WAITED = (
    "the GPU may have waited for the host in {} of {} samples: "
    "enqueueing the call takes longer than the flush before it"
)
# Units of which a plain torch product measures the rate, beside the times.
PRODUCT_UNITS = frozenset({"fp32", "tf32", "fp16", "bf16"})

# Why a driver keeps the clocks of a GPU low, by bits of NVML's nvmlClocksEventReasons.
REASONS = {
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}

# What lowers clocks so far that a time measures cooling or power supply, not the kernel.
# A power cap is not among them: it is where large products on a GPU always run.
SLOWDOWNS = tuple(REASONS[bit] for bit in (0x8, 0x20, 0x40, 0x80))


def slowdown_reasons(record: Mapping[str, Any]) -> list[str]:
    """What slowed the GPU down while the times of a record were taken, as it has it."""
    reasons = record.get("conditions", {}).get("slowed_by", ())
    return [reason for reason in reasons if reason in SLOWDOWNS]


def peak_rates(
    machine: Mapping[str, Any], bus_bits: int | None, sm_mhz: float | None, memory_mhz: float | None
) -> dict[str, Any]:
    """The rates, as far as known, that a GPU cannot pass: its units and bus at their top clocks."""
    found: dict[str, Any] = {}
    if memory_mhz and memory_mhz > 0 and bus_bits:  # which moves two words a clock and pin
        found["peak_bytes_per_second"] = memory_mhz * 1e6 * 2 * bus_bits / 8
    if sm_mhz and sm_mhz > 0 and machine["sm"] in FLOPS_PER_CLOCK:
        rates = FLOPS_PER_CLOCK[machine["sm"]]
        found["peak_flops_per_second"] = {
            unit: rate * machine["sms"] * sm_mhz * 1e6 for unit, rate in rates.items()
        }
    return found


def least_seconds(cost: Mapping[str, Any], ceilings: Mapping[str, Any]) -> float:
    """The least time that the hardware allows: bytes and FLOPs over their peak rates.

    What is written may still be in the L2 when the last event is recorded, up to as much as that
    holds; what of `bytes` is `written` may not be known. 0 where `cost` lacks bytes, flops or unit.
    `ceilings` has what is known of `peak_rates`, and `l2_bytes`.
    """
    if not {"bytes", "flops", "unit"} <= cost.keys():
        return 0.0
    moved = ceilings.get("peak_bytes_per_second")
    computed = (ceilings.get("peak_flops_per_second") or {}).get(cost["unit"])
    cached = min(cost.get("written", cost["bytes"]), ceilings.get("l2_bytes", 0), MOST_L2)
    pairs = ((cost["bytes"] - cached, moved), (cost["flops"], computed))
    return max((work / rate for work, rate in pairs if rate), default=0.0)


def times_tie(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Whether two times cannot be told apart: their 20th to 80th percentiles overlap."""
    return first["p20"] <= second["p80"] and second["p20"] <= first["p80"]


def times_differ(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Whether two times of one function differ by more than the spread of both, and than DRIFT."""
    gap = abs(first["median"] - second["median"])
    spread = sum(time["p80"] - time["p20"] for time in (first, second))
    return gap > max(spread, DRIFT * min(first["median"], second["median"]))
