"""What the compilers made of a kernel, by architecture: registers, spills, shared memory."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import tables

FIGURES = (
    ("registers", "registers", str),
    ("spilled", "spilled_bytes", units.size),
    ("shared memory", "shared_bytes", units.size),
    ("matrix instructions", "matrix_instructions", lambda value: "yes" if value else "no"),
)


def answer(found: list[dict[str, Any]], archs: list[str]) -> str:
    """What the figures say, in one line."""
    kernels = {(item["kernel"], item["variant"], item["language"]) for item in found}
    most = max(item["registers"] for item in found)
    worst = max(found, key=lambda item: item["spilled_bytes"])
    spills = "no spills"
    if worst["spilled_bytes"] > 0:
        where = f"by {worst['kernel']} on {worst['arch']}"
        spills = f"at most {units.size(worst['spilled_bytes'])} spilled, {where}"
    made = f"{tables.count(len(kernels), 'kernel')}, at most {most} registers, {spills}"
    return f"Compiled for {', '.join(archs)}: {made}"


def compiled(record: Record) -> str:
    """Registers, spills, shared memory and matrix instructions, under what they come to."""
    found = record.get("compiled", [])
    if not found:
        return ""
    archs = sorted({item["arch"] for item in found}, key=lambda arch: (len(arch), arch))

    def key(item: dict[str, Any]) -> tuple[str, str, str]:
        return item["kernel"], item["variant"], item["language"]

    groups = []
    for (kernel, variant, language), items in groupby(sorted(found, key=key), key):
        entries = list(items)
        rows = []
        for name, field, show in FIGURES:
            cells = []
            for arch in archs:
                # One kernel compiled for several shapes may have several figures.
                values = sorted({item[field] for item in entries if item["arch"] == arch})
                cells.append(", ".join(map(show, values)) or "not compiled")
            rows.append(tables.row(name, cells))
        groups.append(tables.group(f"{kernel} ({variant}, {language})", rows, len(archs) + 1))
    compilers = ", ".join(sorted({item["compiler"] for item in found}))
    caption = f"Compiled ahead of time by {compilers}\n{units.day(record['date'])}"
    inner = tables.table(caption, ("Kernel", *archs), groups, "compiled")
    return tables.fold(answer(found, archs), inner, len(groups) * len(FIGURES), "compilation")
