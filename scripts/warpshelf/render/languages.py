"""One job in several languages, in one table: what had to be said, and what it is compiled to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.look.builds import Build, of_view
from warpshelf.look.kept import Kept
from warpshelf.records.schema import Record
from warpshelf.render import tables
from warpshelf.render.listings import Listing, section, section_names
from warpshelf.render.rivals import HEAD, Pair, cells

COMMENT = re.compile(r"\s*(#(?!include|define|pragma)|//)")


class Said(NamedTuple):
    """A kernel in a language: whose, how long it is, who compiled it, and its figures."""

    language: str
    lines: int
    compiler: str
    builds: dict[str, Build]


class Timed(NamedTuple):
    """The times of the largest timed case of a GPU's record, by variant."""

    arch: str
    device: str
    case: str
    times: dict[str, str]


def table(
    pairs: Iterable[Pair],
    code: Sequence[Listing],
    views: Iterable[Kept],
    measured: Iterable[tuple[str, Record]] = (),
) -> str:
    """Every variant and every one of the `pairs` whose language is its own; "" without these.

    With times where `measured`, the current records of GPUs by the machine's name, have them.
    """
    others = [pair for pair in pairs if pair.rival.package]
    if not others:
        return ""
    texts = [one.text for one in code]
    said = [*_ours(texts, views), *map(_other, others)]
    archs = sorted({arch for one in said for arch in one.builds}, key=architectures.number)
    timed = [found for device, one in measured if (found := _timed(device, one)) is not None]
    head = ("Language", "Lines", *(f"Time, {one.device}" for one in timed), *HEAD[1:])
    bodies = [tables.group(arch, _rows(arch, said, timed), len(head)) for arch in archs]
    makers = ", ".join(dict.fromkeys(one.compiler for one in said))
    caption = (
        f"The same in {len(said)} languages\nLines of the kernel, without blank ones and comments; "
        "and what is compiled from them. What an instruction of a warp does: multiply-adds of the "
        f"matrix units, in the main loop. By {makers}. "
    )
    told = dict.fromkeys(f"{one.case} on {one.device}" for one in timed)
    caption += f"Times of {'; '.join(told)}" if told else "No times"
    return tables.table(caption, head, bodies, "languages")


def _timed(device: str, record: Record) -> Timed | None:
    cases = tables.timed(record)
    if not cases or record["machine"]["sm"] is None:
        return None
    largest = max(cases, key=lambda one: one.get("flops", 0))
    name = units.labels([one["case"] for one in cases])[cases.index(largest)]
    found = {
        one["name"]: units.seconds(time["median"])
        for one in largest["results"]
        if (time := tables.time_of(one)) is not None
    }
    return Timed(f"sm_{record['machine']['sm']}", device, name, found)


def _ours(texts: Sequence[str], views: Iterable[Kept]) -> Iterator[Said]:
    found: dict[tuple[str, str], Said] = {}
    for one in views:
        view = one.view
        key = view["variant"], view["kernel"]
        if key not in found:
            found[key] = Said(key[0], length(texts, key[1]), view["compiler"], {})
        sass = one.files[f"{one.name}.sass.txt"].splitlines()
        found[key].builds[view["arch"]] = of_view(view, sass)
    yield from found.values()


def _other(pair: Pair) -> Said:
    rival = pair.rival
    lines = length([rival.source], rival.kernel)
    return Said(rival.name, lines, pair.answer.compiler, pair.answer.builds)


def _rows(arch: str, said: Iterable[Said], timed: Sequence[Timed]) -> Iterator[str]:
    for one in said:
        if arch in one.builds:
            lines = units.integer(one.lines) if one.lines else "not marked"
            times = (
                found.times.get(one.language, "not run") if found.arch == arch else "other GPU"
                for found in timed
            )
            yield tables.row(one.language, (lines, *times, *cells(one.builds[arch])))


def length(texts: Iterable[str], kernel: str) -> int:
    """Lines of code in the marked section that defines a kernel; 0 where none does."""
    name = re.escape(kernel.partition("<")[0])
    for text in texts:
        for each in section_names(text):
            lines = section(text, each).split("\n")
            if any(re.search(rf"(^|\s|\*){name}\s*\(", line) for line in lines):
                return sum(bool(line.strip()) and not COMMENT.match(line) for line in lines)
    return 0
