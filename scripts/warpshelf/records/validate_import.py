"""What a record says about itself, its machine and its times that no run here writes.

Enters: a well-shaped record of the present code, from anywhere. Leaves: its faults, in words.
Times, rates and clocks are held against the record's own peaks and, since these might be left out
or made up, any device of its name. What it claims of its snippet is checked in claim_check.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from warpshelf.contract import digest
from warpshelf.contract.snippet import Snippet
from warpshelf.core import devices
from warpshelf.records import limits, space
from warpshelf.records.ledger import ABSENT, device_slug
from warpshelf.records.limits import FEWEST, MOST, MOST_VOID, ROUNDING
from warpshelf.records.schema import Record

FIRST = datetime(2026, 11, 21, tzinfo=UTC)  # the day of this project's first commit
AHEAD = timedelta(days=1)  # by which the clock of another machine may be wrong
COMMIT = re.compile(r"[0-9a-f]{7,40}(?:\+[\w./-]+)*")

VERSION = re.compile(  # as Python packages have them, with the build that they are of
    r"\d+(?:\.\d+){1,3}(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?(?:\+[a-z0-9.]+)?", re.ASCII
)
VERSIONS = {
    "driver": re.compile(r"\d{3}(?:\.\d{1,4}){1,3}", re.ASCII),
    "cuda": re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII),
    "torch": VERSION,
    "triton": VERSION,
    "python": re.compile(r"3\.\d{1,2}\.\d{1,2}(?:(?:a|b|rc)\d+)?\+?", re.ASCII),
    "os": re.compile(r"(?:Linux|Windows|Darwin) \w+", re.ASCII),
}
NEEDED = ("cuda", "torch", "python", "os")  # by every run on a GPU; the others may not be known

BOARD = 0.05  # by which a board's bandwidth, from its clock and bus, may pass its data sheet's
WAITED = re.compile(re.escape(limits.WAITED).replace(r"\{\}", "([0-9]+)"))
# Of what is read off a GPU under load, the least and most that there can be.
READ = {
    "sm_mhz": (1, devices.MOST_MEGAHERTZ),
    "sm_mhz_lowest": (1, devices.MOST_MEGAHERTZ),
    "memory_mhz": (1, 20_000),
    "celsius_highest": (1, 130),
    "watts": (0, 2_000),
    "readings": (1, 10**7),
}
# No sample count bears a spread this much smaller, as a share, than that of the percentiles: a
# fifth of the samples lies at or below the 20th of them, and a fifth at or above the 80th.
CV_OF_SPREAD = 0.1


def record_errors(claim: Record, snippet: Snippet, now: datetime | None = None) -> Iterator[str]:
    """What is wrong with what `claim` says about itself; `now` is the present time."""
    machine, made = claim["machine"], creation_time(claim)
    if claim["method"] != digest.METHOD:
        yield f"was made by method {claim['method']}, not {digest.METHOD}"
    if claim["command"] != (due := f"shelf run {snippet.id}"):
        yield f"was made by {claim['command']!r:.60}, not {due!r}"
    if claim["commit"] is not None and not COMMIT.fullmatch(claim["commit"]):
        yield f"was made at {claim['commit']!r:.60}, which is not a commit"
    if made > (now or datetime.now(UTC)) + AHEAD:
        yield f"was made on {claim['date']}, which is in the future"
    if made < FIRST:
        yield f"was made on {claim['date']}, before this project began"
    for name, form in VERSIONS.items():
        if (said := machine[name]) is None:
            if machine["gpus"] and name in NEEDED:
                yield f"does not say the {name} of its machine"
        elif not form.fullmatch(said):
            yield f"has the invalid {name} {said!r:.60}"
    if not machine["gpus"]:
        told = [key for key in ABSENT if machine[key] is not None]
        if machine["device"] != "CPU" or told:
            yield f"is a CPU record describing a GPU: {', '.join(told) or machine['device']!r:.60}"
        for key in sorted(claim.keys() & {"ceilings", "conditions"}):
            yield f"is a CPU record with the {key} of a GPU"
        return
    yield from _device_errors(machine)
    for key in sorted(claim.keys() & {"due", "targets"}):
        yield f"has {key!r}, which only a CPU record has"
    if not snippet.wants_gpu:
        yield f"is a GPU record, though {snippet.id} needs no GPU"
    elif not (claim.keys() & {"cases", "facts", "compiled"}):
        yield "claims nothing"
    yield from _measurement_errors(claim)


def creation_time(claim: Record) -> datetime:
    """When a record was made, by the clock of its machine."""
    return datetime.strptime(claim["date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _device_errors(machine: Mapping[str, Any]) -> Iterator[str]:
    """What a machine claims that no device of its name has."""
    device, sm, sms = machine["device"], machine["sm"], machine["sms"]
    if machine["slug"] != (due := device_slug(device)):
        yield f"is filed under {machine['slug']}, but the slug of {device!r:.60} is {due}"
    if machine["gpus"] > devices.MOST_GPUS:
        yield f"has {machine['gpus']} GPUs; no machine has over {devices.MOST_GPUS}"
    memory = machine["memory_bytes"] or 0
    for wrong, what in (
        (sm not in devices.SM_VERSIONS, f"is of SM version {sm}, which does not exist"),
        (not 1 <= sms <= devices.MOST_SMS, f"has {sms} SMs, which no GPU has"),
        (memory <= 0, f"has {machine['memory_bytes']} bytes of memory"),
    ):
        if wrong:
            yield what
            return
    gib = memory / 2**30
    known, kind = devices.find_chip(device), devices.parse_device(device)
    if known is None:
        if kind and kind.memory and gib > kind.memory:
            yield f"has {gib:.0f} GiB of memory, though a {device} has {kind.memory} GB"
        return
    if sm != known.sm:
        yield f"is of SM version {sm}, though a {device} is SM {known.sm}"
    if sms > known.sms:
        yield f"has {sms} SMs, though a {device} has at most {known.sms}"
    least, most = 0.0 if devices.PART.search(device) else known.least_gib, known.most_gib
    if not least <= gib <= most:
        yield f"has {gib:.0f} GiB of memory, though a {device} has from {least:g} to {most:g}"


def _measurement_errors(claim: Record) -> Iterator[str]:
    """What a record of a GPU has measured that no run can have."""
    ceilings, machine = claim.get("ceilings", {}), claim["machine"]
    # The rates that no device of this name passes.
    chip = devices.find_chip(machine["device"])
    rate = chip.bytes_per_second if chip else devices.MOST_BYTES_PER_SECOND
    most = limits.peak_rates(machine, None, devices.MOST_MEGAHERTZ, None)
    most |= {"peak_bytes_per_second": (1 + BOARD) * rate, "l2_bytes": ceilings.get("l2_bytes", 0)}
    timed = [row for row in claim.get("cases", ()) if row["timed"]]
    results = [(row, one) for row in timed for one in row["results"]]
    times = any("time" in one for _, one in results) or "space" in claim
    if times and "copy_bytes_per_second" not in ceilings:
        yield "has times, but no bandwidth measured beside them"
    yield from _condition_errors(claim.get("conditions", {}))
    yield from _ceiling_errors(claim, ceilings, most)
    for row, result in results:
        yield from _result_errors(result, limits.least_seconds(row, most))
    if "space" in claim:
        least = max(limits.least_seconds(claim["space"], one) for one in (most, ceilings))
        yield from _space_errors(claim["space"], f"sm_{machine['sm']}", least)


def _condition_errors(conditions: Mapping[str, Any]) -> Iterator[str]:
    load = conditions.get("load", {})
    for key, value in load.items():
        if key not in READ:
            yield f"has the condition {key!r:.60}, which no run records"
        elif value is not None and not READ[key][0] <= value <= READ[key][1]:
            yield f"ran at {key} {value}, which no GPU does"
    usual, lowest = load.get("sm_mhz"), load.get("sm_mhz_lowest")
    if usual is not None and lowest is not None and lowest > usual:
        yield f"ran at {usual} MHz, which is below its lowest clock, {lowest} MHz"
    for reason in conditions.get("slowed_by", ()):
        if reason not in limits.REASONS.values():
            yield f"was slowed by {reason!r:.60}, which no driver reports"


def _ceiling_errors(
    claim: Record, ceilings: Mapping[str, Any], most: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with peaks and measured rates; `most` has what no device of its name passes."""
    machine, highest = claim["machine"], most["peak_bytes_per_second"]
    peak, copied = (ceilings.get(f"{what}_bytes_per_second") for what in ("peak", "copy"))
    if peak is not None and not 0 < peak <= highest:
        yield f"has a peak of {peak:.4g} bytes/s; no device of its name passes {highest:.4g}"
    limit = highest if peak is None else (1 + ROUNDING) * peak
    if copied is not None and not 0 < copied <= limit:
        yield f"has copied {copied:.4g} bytes/s, over the peak of {limit:.4g}"
    if not 0 <= (cache := ceilings.get("l2_bytes", 0)) <= limits.MOST_L2:
        yield f"has {cache} bytes of L2, where a GPU has up to {limits.MOST_L2}"
    peaks = ceilings.get("peak_flops_per_second")
    rates = limits.FLOPS_PER_CLOCK.get(machine["sm"], {})
    if peaks is not None and (odd := sorted(peaks.keys() ^ rates.keys())):
        yield f"has other peaks than SM {machine['sm']}: {', '.join(odd)}"
        return
    if peaks:
        clocks = [peaks[unit] / (rates[unit] * machine["sms"] * 1e6) for unit in rates]
        if not 0 < max(clocks) <= (1 + ROUNDING) * devices.MOST_MEGAHERTZ:
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
        limit = (peaks or most.get("peak_flops_per_second", {})).get(unit)
        if rate <= 0 or limit is not None and rate > (1 + ROUNDING) * limit:
            yield f"has measured {rate:.4g} FLOP/s in {unit}, over the peak of {limit or 0:.4g}"


def _result_errors(result: Mapping[str, Any], least: float) -> Iterator[str]:
    what = f"{result['role']} {result['name']!r}"
    if "untimed" in result:
        found = WAITED.fullmatch(result["untimed"])
        void, total = map(int, found.groups()) if found else (0, 0)
        enough = void <= MOST_VOID * total and total - void >= FEWEST
        if not found or enough or not void <= total <= MOST:
            yield f"gives a reason for no time of the {what} that no run gives"
    if (time := result.get("time")) is None:
        return
    n, void = time["n"], time.get("void", 0)
    if not FEWEST <= n <= MOST or n + void > MOST or void > MOST_VOID * (n + void):
        yield f"has a time of the {what} from {n} samples, with {void} void, which no run takes"
    if time["median"] < (1 - ROUNDING) * least:
        yield f"times the {what} at {time['median']:.4g} s; no such device needs under {least:.4g}"
    if "cv" in time and time["cv"] < CV_OF_SPREAD * (time["p80"] - time["p20"]) / time["p80"]:
        yield f"has a variation of {time['cv']} of the {what}, less than its percentiles allow"


def _space_errors(found: Mapping[str, Any], target: str, least: float) -> Iterator[str]:
    if (here := list(found["rows"])) != [target]:
        yield f"has times of its space on {', '.join(here)}, but its GPU is {target}"
        return
    for row in map(space.parse_row, found["rows"][target]):
        where = " ".join(row.values)
        if not FEWEST <= row.figures[3] <= MOST:
            yield f"times the configuration {where} by {row.figures[3]:g} samples, as no run does"
        if row.figures[0] < (1 - ROUNDING) * least:
            yield f"times the configuration {where} faster than its GPU can be"
