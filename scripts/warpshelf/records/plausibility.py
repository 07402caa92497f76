"""What may be true of a record of a GPU, and yet is worth a second look before it is believed.

Enters: a record and the others that there are. Leaves: its doubts, a line each: what, against what,
and what to do. A doubt refuses nothing: a device may well be faster, hotter or newer than others.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from warpshelf.core import devices
from warpshelf.records import limits
from warpshelf.records.schema import Record

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


class PlausibilityWarning(NamedTuple):
    """One line: what is odd, against what, and what to do about it."""

    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}; {self.do}"


def plausibility_warnings(record: Record, others: Sequence[Record]) -> list[PlausibilityWarning]:
    """What is odd about a record of a GPU that has times; `others` may be of any machine.

    Of them those count that are of the same kind of device and of the same snippet, and for its
    clocks and ceilings also those of other snippets.
    """
    if not record["machine"]["gpus"] or not any(True for _ in _timed_results(record)):
        return []
    alike = [
        one
        for one in others
        if one is not record
        and one["machine"]["gpus"]
        and devices.same_device(one["machine"]["device"], record["machine"]["device"])
    ]
    found = [
        *_rate_warnings(record),
        *_spread_warnings(record),
        *_condition_warnings(record, alike),
        *_ceiling_warnings(record, alike),
        *_peer_warnings(record, [one for one in alike if one["snippet"] == record["snippet"]]),
        *_zero_error_warnings(record, others),
    ]
    return found


def _timed_results(record: Record) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for row in record.get("cases", ()):
        for result in row["results"]:
            if "time" in result:
                yield row, result


def _result_label(row: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return f"{result['role']} {result['name']!r} on {json.dumps(row['case'], sort_keys=True)}"


def _rate_warnings(record: Record) -> Iterator[PlausibilityWarning]:
    """Rates over what was measured in the same run; those over the peak are refused."""
    ceilings = record.get("ceilings", {})
    copied = ceilings.get("copy_bytes_per_second")
    products = ceilings.get("matrix_flops_per_second", {})
    if "peak_bytes_per_second" not in ceilings:
        what = "has no peak of its memory, so no time was held against it"
        yield PlausibilityWarning(what, "see that nvidia-smi answers on that machine")
    for row, result in _timed_results(record):
        if not {"bytes", "flops", "unit"} <= row.keys():
            continue
        median = result["time"]["median"]
        for name, work, rate in (
            ("copied bytes", row["bytes"], copied),
            (f"products in {row['unit']}", row["flops"], products.get(row["unit"])),
        ):
            if rate and work / median > OVER_CEILING * rate:
                what = f"{_result_label(row, result)} is at {work / median / rate:.0%} of the rate"
                yield PlausibilityWarning(
                    f"{what} of {name} measured beside it", "look for a wrong cost(), then " + ALONE
                )


def _spread_warnings(record: Record) -> Iterator[PlausibilityWarning]:
    for row, result in _timed_results(record):
        time = result["time"]
        void = time.get("void", 0)
        estimate = (time["p80"] - time["p20"]) / SPREAD_OF_CV / time["median"]
        cv = time.get("cv", estimate)
        if cv > VARIATION and cv * time["median"] > TICK:
            what = f"{_result_label(row, result)} varies by {cv:.0%}, over {VARIATION:.0%}"
            yield PlausibilityWarning(what, ALONE)
        if void > VOID * (void + time["n"]):
            share = void / (void + time["n"])
            what = f"{share:.0%} of the samples of {_result_label(row, result)} are void"
            yield PlausibilityWarning(
                f"{what}, over {VOID:.0%}", "measure again where the host has a free core"
            )


def _condition_warnings(record: Record, alike: list[Record]) -> Iterator[PlausibilityWarning]:
    conditions = record.get("conditions", {})
    load = conditions.get("load", {})
    usual, lowest = load.get("sm_mhz"), load.get("sm_mhz_lowest")
    if slowed := limits.slowdown_reasons(record):
        yield PlausibilityWarning(f"its clocks were lowered by {', '.join(slowed)}", COOL)
    if usual and lowest and lowest < CLOCK_DROP * usual:
        what = f"its SM clock fell to {lowest:g} MHz, from {usual:g}"
        yield PlausibilityWarning(f"{what}, below {CLOCK_DROP:.0%}", COOL)
    if usual and (highest := _highest_clock(record)) and usual < CLOCK_APART * highest:
        what = f"ran at {usual:g} MHz, below {CLOCK_APART:.0%} of its highest clock, {highest:.0f}"
        yield PlausibilityWarning(what, "see whether a power limit or a lower clock is set there")
    others = _median_load(alike, "sm_mhz")
    if usual and others and not CLOCK_APART <= usual / others <= 1 / CLOCK_APART:
        what = f"ran at {usual:g} MHz, where others of its device ran at {others:g}"
        yield PlausibilityWarning(what, "see whether a power limit or a lower clock is set there")
    hottest, others = load.get("celsius_highest"), _median_load(alike, "celsius_highest")
    if hottest and hottest >= HOT:
        yield PlausibilityWarning(f"was {hottest:g} °C hot, {HOT:g} or more", COOL)
    elif hottest and others and hottest - others > WARMER:
        yield PlausibilityWarning(
            f"was {hottest:g} °C hot, where others of its device had {others:g}", COOL
        )


def _highest_clock(record: Record) -> float | None:
    """The clock that the peaks of a record are of, in MHz."""
    machine = record["machine"]
    rates = limits.FLOPS_PER_CLOCK.get(machine["sm"], {})
    peaks = record.get("ceilings", {}).get("peak_flops_per_second", {})
    units = sorted(rates.keys() & peaks.keys())
    if not units or not machine["sms"]:
        return None
    return float(peaks[units[0]] / (rates[units[0]] * machine["sms"] * 1e6))


def _median_load(records: Iterable[Record], key: str) -> float | None:
    """The median of what was read under load in some records."""
    read = [one.get("conditions", {}).get("load", {}).get(key) for one in records]
    return statistics.median(known) if (known := [one for one in read if one]) else None


def _measured_rates(record: Record) -> dict[str, float]:
    ceilings = record.get("ceilings", {})
    found = {f"products in {k}": v for k, v in ceilings.get("matrix_flops_per_second", {}).items()}
    if "copy_bytes_per_second" in ceilings:
        found["copied bytes"] = ceilings["copy_bytes_per_second"]
    return found


def _ceiling_warnings(record: Record, alike: list[Record]) -> Iterator[PlausibilityWarning]:
    for name, rate in sorted(_measured_rates(record).items()):
        known = [rates[name] for rates in map(_measured_rates, alike) if name in rates]
        if known and rate < CEILING_APART * (usual := statistics.median(known)):
            what = f"its rate of {name} is {rate / usual:.0%} of what others of its device have"
            yield PlausibilityWarning(what, COOL)


def _peer_warnings(record: Record, alike: list[Record]) -> Iterator[PlausibilityWarning]:
    """Library calls far from what other records of that kind of device say."""
    known: dict[str, list[float]] = {}
    for one in alike:
        if one["digest"] != record["digest"]:
            continue
        for row, result in _timed_results(one):
            if result["role"] == "peer":
                known.setdefault(_result_label(row, result), []).append(result["time"]["median"])
    for row, result in _timed_results(record):
        if not (others := known.get(_result_label(row, result))):
            continue
        ours, theirs = result["time"]["median"], statistics.median(others)
        if not 1 / PEER_APART <= ours / theirs <= PEER_APART:
            what = (
                f"{_result_label(row, result)} took {ours:.3g} s, where others of its device took"
            )
            yield PlausibilityWarning(
                f"{what} {theirs:.3g} s", "compare the versions of torch, then " + ALONE
            )


def _zero_error_warnings(record: Record, others: Sequence[Record]) -> Iterator[PlausibilityWarning]:
    """Functions without any error where a CPU has some: what was never compared looks like that."""
    known = {
        _result_label(row, result): result["error"]
        for one in others
        if not one["machine"]["gpus"] and one["digest"] == record["digest"]
        for row in one.get("cases", ())
        for result in row["results"]
        if result.get("error")
    }
    errors: dict[str, list[float]] = {}
    for row in record.get("cases", ()):
        for result in row["results"]:
            if "error" in result and _result_label(row, result) in known:
                name = f"{result['role']} {result['name']!r}"
                errors.setdefault(name, []).append(result["error"])
    for name, found in errors.items():
        if not any(found):
            what = f"the {name} has no error at all in {len(found)} cases in which a CPU has some"
            yield PlausibilityWarning(what, "see that its results were compared")
