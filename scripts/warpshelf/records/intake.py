"""What a record says of itself and of its machine that no run of this checkout would have written.

Enters: a well-shaped record of the present code, from anywhere. Leaves: its faults, in words. What
it claims of its snippet is held against the CPU's in agreement.py; its times in measurements.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from warpshelf.contract import digest
from warpshelf.contract.snippet import Snippet
from warpshelf.core import chips, devices
from warpshelf.records import measurements
from warpshelf.records.machine import slug
from warpshelf.records.schema import Record

FIRST = datetime(2026, 11, 21, tzinfo=UTC)  # the day of this project's first commit
AHEAD = timedelta(days=1)  # by which the clock of another machine may be wrong
COMMIT = re.compile(r"[0-9a-f]{7,40}(?:\+changes)?")
OF_CPU = ("due", "targets")  # what only the record of a CPU has
OF_GPU = ("ceilings", "conditions")
ABSENT = ("memory_bytes", "sm", "sms", "driver", "cuda")  # of the machine of such a record

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


def faults(claim: Record, snippet: Snippet, now: datetime | None = None) -> Iterator[str]:
    """What is wrong with what `claim` says of itself, in words; `now` is the present time."""
    if claim["method"] != digest.METHOD:
        yield f"was made by method {claim['method']}, not {digest.METHOD}"
    if claim["command"] != (due := f"shelf run {snippet.id}"):
        yield f"was made by {claim['command']!r:.60}, not {due!r}"
    if claim["commit"] is not None and not COMMIT.fullmatch(claim["commit"]):
        yield f"was made at {claim['commit']!r:.60}, which is no commit"
    yield from _date(claim["date"], now or datetime.now(UTC))
    yield from _versions(claim["machine"])
    if claim["machine"]["gpus"]:
        yield from _gpu(claim["machine"])
        yield from _of_gpu(claim, snippet)
        yield from measurements.faults(claim)
    else:
        yield from _of_cpu(claim)


def made(claim: Record) -> datetime:
    """When a record was made, by the clock of its machine."""
    return datetime.strptime(claim["date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _date(date: str, now: datetime) -> Iterator[str]:
    when = datetime.strptime(date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    if when > now + AHEAD:
        yield f"was made on {date}, which is in the future"
    if when < FIRST:
        yield f"was made on {date}, before there was anything to run"


def _versions(machine: Mapping[str, Any]) -> Iterator[str]:
    for name, form in VERSIONS.items():
        said = machine[name]
        if said is None:
            if machine["gpus"] and name in NEEDED:
                yield f"does not say the {name} of its machine"
        elif not form.fullmatch(said):
            yield f"names the {name} {said!r:.60}, which is none"


def _gpu(machine: Mapping[str, Any]) -> Iterator[str]:
    """What a machine claims that no device of its name has."""
    device = machine["device"]
    if machine["slug"] != (due := slug(device)):
        yield f"is filed under {machine['slug']}, but the slug of {device!r:.60} is {due}"
    if machine["gpus"] > chips.MOST_GPUS:
        yield f"has {machine['gpus']} GPUs; no machine has over {chips.MOST_GPUS}"
    sm, sms, memory = machine["sm"], machine["sms"], machine["memory_bytes"]
    if sm not in chips.SM_VERSIONS:
        yield f"is of SM version {sm}, which there is not"
        return
    if sms is None or not 1 <= sms <= chips.MOST_SMS:
        yield f"has {sms} SMs, which no GPU has"
        return
    if memory is None or memory <= 0:
        yield f"has {memory} bytes of memory"
        return
    gib = memory / 2**30
    known, kind = chips.chip(device), devices.kind(device)
    if known is None:
        if kind and kind.memory and gib > kind.memory:
            yield f"has {gib:.0f} GiB of memory, though a {device} has {kind.memory} GB"
        return
    if sm != known.sm:
        yield f"is of SM version {sm}, though a {device} is SM {known.sm}"
    if sms > known.sms:
        yield f"has {sms} SMs, though a {device} has at most {known.sms}"
    least = 0.0 if chips.PART.search(device) else known.least_gib
    if not least <= gib <= known.most_gib:
        most = known.most_gib
        yield f"has {gib:.0f} GiB of memory, though a {device} has from {least:g} to {most:g}"


def _of_gpu(claim: Record, snippet: Snippet) -> Iterator[str]:
    for key in OF_CPU:
        if key in claim:
            yield f"has {key!r}, which only the record of a CPU has"
    if not snippet.wants_gpu:
        yield f"is of a GPU, though nothing of {snippet.id} needs one"
    elif not (claim.keys() & {"cases", "facts", "compiled"}):
        yield "claims nothing"


def _of_cpu(claim: Record) -> Iterator[str]:
    machine = claim["machine"]
    told = [key for key in ABSENT if machine[key] is not None]
    if machine["device"] != "CPU" or told:
        yield f"is of a CPU, and tells of a GPU: {', '.join(told) or machine['device']!r:.60}"
    for key in OF_GPU:
        if key in claim:
            yield f"is of a CPU, and has the {key} of a GPU"
