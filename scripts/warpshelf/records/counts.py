"""What a record of the CPU says that a kernel's launches did, line by line: its shape, its sense.

A row is of one variant, one kernel and one case, and of the targets on which all of it is the same.
A line has what is not 0; how often it was executed is the sum over its classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpshelf.contract import architectures

TARGET = re.compile(r"sm_[1-9][0-9]{1,2}")
AT = re.compile(r"PTX|[^\s:](?:.*[^\s:])?:[1-9][0-9]*")
LANES = 32  # of a warp
NUMBERS = (
    "lanes", "requests", "sectors", "ideal_sectors", "shared_requests", "wavefronts",
    "ideal_wavefronts", "bytes", "operations",
)  # fmt: skip
IDEALS = (("sectors", "ideal_sectors"), ("wavefronts", "ideal_wavefronts"))
LINE = {"at": AT, "classes": {"*": int}, **{f"{name}?": int for name in NUMBERS}}
COUNT = {
    "variant": str,
    "kernel": str,
    "case": {"*": object},
    "targets": [TARGET],
    "launches": int,
    "lines": [LINE],
}


def merged(by_target: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of a record, from those of each target: by variant, kernel and first target."""
    rows: dict[str, dict[str, Any]] = {}
    for target in sorted(by_target, key=architectures.number):
        for one in by_target[target]:
            known = rows.setdefault(json.dumps(one, sort_keys=True), {**one, "targets": []})
            known["targets"].append(target)
    return sorted(rows.values(), key=lambda row: (row["variant"], row["kernel"]))


def contradiction(record: Mapping[str, Any]) -> str | None:
    """What well-shaped counts claim that no run would have written."""
    return next(_contradictions(record), None)


def _contradictions(record: Mapping[str, Any]) -> Iterator[str]:
    if record["machine"]["gpus"]:
        yield "has counts, which a GPU does not make"
    seen: set[tuple[str, str, str]] = set()
    for row in record["counts"]:
        what = f"the counts of {row['variant']!r}, {row['kernel']}"
        if row["launches"] < 1 or not row["targets"] or not row["lines"]:
            yield f"{what}, are of nothing"
        for target in row["targets"]:
            key = row["variant"], row["kernel"], target
            if target not in record.get("targets", ()) or key in seen:
                yield f"{what}, name {target}, which was not executed, or twice"
            seen.add(key)
        if not _due(row, record):
            yield f"{what}, are of a case that it has no result of"
        places = [line["at"] for line in row["lines"]]
        if len(places) != len(set(places)):
            yield f"{what}, have a line twice"
        for line in row["lines"]:
            if problem := _line_problem(line):
                yield f"{what}, at {line['at']}: {problem}"


def _due(row: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    return any(
        case["case"] == row["case"]
        and not case["timed"]
        and any(
            one["role"] == "variant" and one["name"] == row["variant"] for one in case["results"]
        )
        for case in record.get("cases", ())
    )


def _line_problem(line: Mapping[str, Any]) -> str | None:
    numbers = [*line["classes"].values(), *(line[name] for name in NUMBERS if name in line)]
    if not line["classes"] or any(number < 1 for number in numbers):
        return "a count of 0 or below, which is left out"
    executed = sum(line["classes"].values())
    if line.get("lanes", 0) > LANES * executed:
        return f"{line['lanes']} lanes took part in {executed} instructions of {LANES} each"
    for name, ideal in IDEALS:
        if line.get(name, 0) < line.get(ideal, 0):
            return f"{line.get(name, 0)} {name}, below the {line[ideal]} that there are at least"
    return None
