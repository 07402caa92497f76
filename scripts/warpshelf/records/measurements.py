"""What was measured on a GPU that cannot have been: times, rates, clocks, each within its limits.

Enters: the record of a GPU. Leaves: its faults, in words. The limits are those of the record's own
peaks and, since these might be left out or made up, those of any device of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from warpshelf.core import chips
from warpshelf.records import limits, space
from warpshelf.records.limits import FEWEST, MOST, MOST_VOID, ROUNDING
from warpshelf.records.schema import Record

BOARD = 0.05  # by which a board's bandwidth, from its clock and bus, may pass its data sheet's
WAITED = re.compile(
    re.escape(limits.WAITED).replace(r"\{\}", "{}").format("(?P<void>[0-9]+)", "(?P<all>[0-9]+)")
)
# Of what is read off a GPU under load, the least and most that there can be.
READ = {
    "sm_mhz": (1, chips.MOST_MEGAHERTZ),
    "sm_mhz_lowest": (1, chips.MOST_MEGAHERTZ),
    "memory_mhz": (1, 20_000),
    "celsius_highest": (1, 130),
    "watts": (0, 2_000),
    "readings": (1, 10**7),
}
# No sample count bears a spread this much smaller, as a share, than that of the percentiles: a
# fifth of the samples lies at or below the 20th of them, and a fifth at or above the 80th.
CV_OF_SPREAD = 0.1


def faults(claim: Record) -> Iterator[str]:
    """What `claim`, a record of a GPU, has measured that no run can have."""
    most = fastest(claim)
    ceilings = claim.get("ceilings", {})
    timed = [row for row in claim.get("cases", ()) if row["timed"]]
    times = [result for row in timed for result in row["results"] if "time" in result]
    if (times or "space" in claim) and "copy_bytes_per_second" not in ceilings:
        yield "has times, but no bandwidth measured beside them"
    yield from _conditions(claim.get("conditions", {}))
    yield from _bandwidth(ceilings, most["peak_bytes_per_second"])
    yield from _products(claim, ceilings, most.get("peak_flops_per_second", {}))
    for row in timed:
        least = limits.least_seconds(row, most) if {"bytes", "flops", "unit"} <= row.keys() else 0
        for result in row["results"]:
            yield from _result(result, least)
    if "space" in claim:
        yield from _space(claim, most)


def fastest(claim: Record) -> dict[str, Any]:
    """The rates that no device of this name passes, as `limits.least_seconds` takes them."""
    machine = claim["machine"]
    known = chips.chip(machine["device"])
    rate = known.bytes_per_second if known else chips.MOST_BYTES_PER_SECOND
    found: dict[str, Any] = {"peak_bytes_per_second": (1 + BOARD) * rate}
    if machine["sm"] in limits.FLOPS_PER_CLOCK and machine["sms"]:
        rates = limits.FLOPS_PER_CLOCK[machine["sm"]]
        hertz = chips.MOST_MEGAHERTZ * 1e6 * machine["sms"]
        found["peak_flops_per_second"] = {unit: rate * hertz for unit, rate in rates.items()}
    return found


def _conditions(conditions: Mapping[str, Any]) -> Iterator[str]:
    load = conditions.get("load", {})
    for key, value in load.items():
        if key not in READ:
            yield f"has the condition {key!r:.60}, which no run reads"
        elif value is not None and not READ[key][0] <= value <= READ[key][1]:
            yield f"ran at {key} {value}, which no GPU does"
    usual, lowest = load.get("sm_mhz"), load.get("sm_mhz_lowest")
    if usual is not None and lowest is not None and lowest > usual:
        yield f"ran at {usual} MHz, which is below its lowest clock, {lowest} MHz"
    for reason in conditions.get("slowed_by", ()):
        if reason not in limits.REASONS.values():
            yield f"was slowed by {reason!r:.60}, which no driver says"


def _bandwidth(ceilings: Mapping[str, Any], most: float) -> Iterator[str]:
    peak = ceilings.get("peak_bytes_per_second")
    copied = ceilings.get("copy_bytes_per_second")
    if peak is not None and not 0 < peak <= most:
        yield f"has a peak of {peak:.4g} bytes/s; no device of its name passes {most:.4g}"
    limit = most if peak is None else (1 + ROUNDING) * peak
    if copied is not None and not 0 < copied <= limit:
        yield f"has copied {copied:.4g} bytes/s, over the peak of {limit:.4g}"


def _products(
    claim: Record, ceilings: Mapping[str, Any], most: Mapping[str, float]
) -> Iterator[str]:
    machine, peaks = claim["machine"], ceilings.get("peak_flops_per_second")
    rates = limits.FLOPS_PER_CLOCK.get(machine["sm"], {})
    if peaks is not None:
        if peaks.keys() != rates.keys():
            odd = sorted(peaks.keys() ^ rates.keys())
            yield f"has peaks of other units than those of SM {machine['sm']}: {', '.join(odd)}"
            return
        clocks = [peaks[unit] / (rates[unit] * machine["sms"] * 1e6) for unit in rates]
        if not 0 < max(clocks) <= (1 + ROUNDING) * chips.MOST_MEGAHERTZ:
            yield f"has peaks at {max(clocks):.0f} MHz, which no GPU reaches"
        elif min(clocks) < (1 - 2 * ROUNDING) * max(clocks):
            yield f"has peaks at {min(clocks):.0f} and at {max(clocks):.0f} MHz, not at one clock"
        load = claim.get("conditions", {}).get("load", {}).get("sm_mhz")
        if load is not None and load > (1 + 2 * ROUNDING) * max(clocks):
            yield f"ran at {load} MHz, though its peaks are of {max(clocks):.0f} MHz"
    for unit, rate in ceilings.get("matrix_flops_per_second", {}).items():
        if unit not in limits.PRODUCT_UNITS:
            yield f"has measured products in {unit!r:.60}, which no run does"
            continue
        limit = (peaks or most).get(unit)
        if rate <= 0 or limit is not None and rate > (1 + ROUNDING) * limit:
            yield f"has measured {rate:.4g} FLOP/s in {unit}, over the peak of {limit or 0:.4g}"


def _result(result: Mapping[str, Any], least: float) -> Iterator[str]:
    what = f"{result['role']} {result['name']!r}"
    if "untimed" in result:
        found = WAITED.fullmatch(result["untimed"])
        if not found or not _hopeless(int(found["void"]), int(found["all"])):
            yield f"has no time of the {what} for a reason that no run gives"
    if (time := result.get("time")) is None:
        return
    n, void = time["n"], time.get("void", 0)
    if not FEWEST <= n <= MOST or n + void > MOST or void > MOST_VOID * (n + void):
        yield f"has a time of the {what} from {n} samples, with {void} void, which no run takes"
    if time["median"] < (1 - ROUNDING) * least:
        yield f"times the {what} at {time['median']:.4g} s; no such device needs under {least:.4g}"
    if "cv" in time and time["cv"] < CV_OF_SPREAD * (time["p80"] - time["p20"]) / time["p80"]:
        yield f"has a variation of {time['cv']} of the {what}, less than its percentiles leave"


def _hopeless(void: int, total: int) -> bool:
    """Whether so many void samples leave a function without a time."""
    return void <= total <= MOST and (void > MOST_VOID * total or total - void < FEWEST)


def _space(claim: Record, most: Mapping[str, Any]) -> Iterator[str]:
    found, target = claim["space"], f"sm_{claim['machine']['sm']}"
    if (here := list(found["rows"])) != [target]:
        yield f"has times of its space on {', '.join(here)}, but its GPU is {target}"
        return
    known = {"bytes", "flops", "unit"} <= found.keys()
    own = claim.get("ceilings", {})
    least = max(limits.least_seconds(found, one) for one in (most, own)) if known else 0.0
    for row in map(space.read, found["rows"][target]):
        where = " ".join(row.values)
        if not FEWEST <= row.figures[3] <= MOST:
            yield f"times the configuration {where} by {row.figures[3]:g} samples, as no run does"
        if row.figures[0] < (1 - ROUNDING) * least:
            yield f"times the configuration {where} faster than its GPU can be"
