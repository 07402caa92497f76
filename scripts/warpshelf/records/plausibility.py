"""What may be true of a GPU record, but deserves a second look before it is believed.

Enters: a record and the others that there are. Leaves: its doubts, a line each: what, against what,
and what to do. A doubt refuses nothing: a device may well be faster, hotter or newer than others.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpshelf.core import devices
from warpshelf.records import limits
from warpshelf.records.schema import Record, result_key, timed_results

# A kernel that only moves bytes may pass the copy by a little, since reading alone is cheaper than
# reading and writing, and the copy has its own spread.
OVER_CEILING = 1.05
# Library calls of two releases of torch differ by tens of percent, by half hardly ever.
PEER_APART = 1.5
# A GPU under one load holds its clock within a few percent, boards of a kind within ten.
CLOCK_DROP = 0.85  # of the usual clock, below which the lowest is another state of the GPU
CLOCK_APART = 0.90  # of the clock that others of the device ran at, or of its highest
HOT = 85.0  # °C, from where data-centre boards begin to slow down
WARMER = 20.0  # K beyond others of the device: less cooling, and other clocks to come
# The spread of a kernel that runs alone is below a percent or two from some 20 µs on; the shortest
# ones have the event clock's half a microsecond in them.
VARIATION = 0.10
TICK = 0.5e-6  # seconds that the events' clock resolves
SPREAD_OF_CV = 1.683  # standard deviations between the 20th and 80th percentile of a normal one
VOID = 0.25  # share of samples left out; half of them would leave no time at all
CEILING_APART = 0.90  # of the copy and product rates of others of the device

ALONE = "measure again with nothing else on the GPU"
COOL = "measure again when the GPU is cool and alone"
SEE_CLOCK = "check whether that machine sets a power limit or a lower clock"


def plausibility_warnings(record: Record, others: Sequence[Record]) -> list[str]:
    """What is odd about a GPU record with times, and what to do about it, a line each.

    Of `others` those count that are of the same kind of device and of the same snippet, for its
    clocks and ceilings also those of other snippets, and for its errors that of a CPU.
    """
    if not record["machine"]["gpus"] or not any(timed_results(record)):
        return []
    alike = [
        one
        for one in others
        if one is not record
        and one["machine"]["gpus"]
        and devices.same_device(one["machine"]["device"], record["machine"]["device"])
    ]
    return [
        *_rate_warnings(record),
        *_spread_warnings(record),
        *_condition_warnings(record, alike),
        *_ceiling_warnings(record, alike),
        *_peer_warnings(record, alike),
        *_zero_error_warnings(record, others),
    ]


def _result_label(row: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return f"{result['role']} {result['name']!r} on {json.dumps(row['case'], sort_keys=True)}"


def _rate_warnings(record: Record) -> Iterator[str]:
    """Rates over what was measured in the same run; those over the peak are refused."""
    rates = _measured_rates(record)
    if "peak_bytes_per_second" not in record.get("ceilings", {}):
        do = "check that nvidia-smi answers on that machine"
        yield f"has no memory peak to check its times against; {do}"
    for row, result in timed_results(record):
        if not {"bytes", "flops", "unit"} <= row.keys():
            continue
        work = {"copied bytes": row["bytes"], f"products in {row['unit']}": row["flops"]}
        for name, amount in work.items():
            share = amount / result["time"]["median"] / (rates.get(name) or math.inf)
            if share > OVER_CEILING:
                what = f"{_result_label(row, result)} reaches {share:.0%} of the rate of {name}"
                yield f"{what} measured with it; look for a wrong cost(), then {ALONE}"


def _spread_warnings(record: Record) -> Iterator[str]:
    for row, result in timed_results(record):
        time, label = result["time"], _result_label(row, result)
        void = time.get("void", 0)
        cv = time.get("cv", (time["p80"] - time["p20"]) / SPREAD_OF_CV / time["median"])
        if cv > VARIATION and cv * time["median"] > TICK:
            yield f"{label} varies by {cv:.0%}, over {VARIATION:.0%}; {ALONE}"
        if (share := void / (void + time["n"])) > VOID:
            what = f"{share:.0%} of the samples of {label} are void, over {VOID:.0%}"
            yield f"{what}; measure again on a host with a free core"


def _condition_warnings(record: Record, alike: list[Record]) -> Iterator[str]:
    def usual_load(key: str) -> float | None:
        """The median of what others read under load."""
        read = [one.get("conditions", {}).get("load", {}).get(key) for one in alike]
        return statistics.median(known) if (known := [one for one in read if one]) else None

    load = record.get("conditions", {}).get("load", {})
    clock, lowest = load.get("sm_mhz"), load.get("sm_mhz_lowest")
    if slowed := limits.slowdown_reasons(record):
        yield f"its clocks were lowered by {', '.join(slowed)}; {COOL}"
    if clock and lowest and lowest < CLOCK_DROP * clock:
        what = f"its SM clock fell to {lowest:g} MHz, from {clock:g}, below {CLOCK_DROP:.0%}"
        yield f"{what}; {COOL}"
    if clock and (highest := _highest_clock(record)) and clock < CLOCK_APART * highest:
        what = f"ran at {clock:g} MHz, below {CLOCK_APART:.0%} of its highest clock, {highest:.0f}"
        yield f"{what}; {SEE_CLOCK}"
    others = usual_load("sm_mhz")
    if clock and others and not CLOCK_APART <= clock / others <= 1 / CLOCK_APART:
        yield f"ran at {clock:g} MHz, others of its device at {others:g}; {SEE_CLOCK}"
    hottest, others = load.get("celsius_highest"), usual_load("celsius_highest")
    if hottest and hottest >= HOT:
        yield f"reached {hottest:g} °C, {HOT:g} or more; {COOL}"
    elif hottest and others and hottest - others > WARMER:
        yield f"reached {hottest:g} °C, others of its device {others:g}; {COOL}"


def _highest_clock(record: Record) -> float | None:
    machine, peaks = record["machine"], record.get("ceilings", {}).get("peak_flops_per_second", {})
    rates = limits.FLOPS_PER_CLOCK.get(machine["sm"], {})
    units = sorted(rates.keys() & peaks.keys())
    return float(peaks[units[0]] / (rates[units[0]] * machine["sms"] * 1e6)) if units else None


def _measured_rates(record: Record) -> dict[str, float]:
    ceilings = record.get("ceilings", {})
    found = {f"products in {k}": v for k, v in ceilings.get("matrix_flops_per_second", {}).items()}
    if "copy_bytes_per_second" in ceilings:
        found["copied bytes"] = ceilings["copy_bytes_per_second"]
    return found


def _ceiling_warnings(record: Record, alike: list[Record]) -> Iterator[str]:
    for name, rate in sorted(_measured_rates(record).items()):
        known = [rates[name] for rates in map(_measured_rates, alike) if name in rates]
        if known and rate < CEILING_APART * (usual := statistics.median(known)):
            what = f"its rate of {name} is {rate / usual:.0%} of that of others of its device"
            yield f"{what}; {COOL}"


def _peer_warnings(record: Record, alike: list[Record]) -> Iterator[str]:
    """Library calls far from their times in other records of the snippet on such a device."""
    known: dict[str, list[float]] = {}
    for one in alike:
        if (one["snippet"], one["digest"]) == (record["snippet"], record["digest"]):
            for row, result in timed_results(one):
                known.setdefault(_result_label(row, result), []).append(result["time"]["median"])
    for row, result in timed_results(record):
        label = _result_label(row, result)
        if result["role"] != "peer" or label not in known:
            continue
        ours, theirs = result["time"]["median"], statistics.median(known[label])
        if not 1 / PEER_APART <= ours / theirs <= PEER_APART:
            what = f"{label} took {ours:.3g} s, on others of its device {theirs:.3g} s"
            yield f"{what}; compare the versions of torch, then {ALONE}"


def _zero_error_warnings(record: Record, others: Sequence[Record]) -> Iterator[str]:
    """Functions without any error where a CPU has some, as if they were never compared."""
    known = {
        result_key(row, result)
        for one in others
        if not one["machine"]["gpus"] and one["digest"] == record["digest"]
        for row in one.get("cases", ())
        for result in row["results"]
        if result.get("error")
    }
    errors: dict[str, list[float]] = {}
    for row in record.get("cases", ()):
        for result in row["results"]:
            if "error" in result and result_key(row, result) in known:
                name = f"{result['role']} {result['name']!r}"
                errors.setdefault(name, []).append(result["error"])
    for name, found in errors.items():
        if not any(found):
            what = f"the {name} has no error at all in {len(found)} cases where a CPU has some"
            yield f"{what}; check that its results were compared"
