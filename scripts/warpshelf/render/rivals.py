"""Public kernels for the same job beside ours, and one job in several languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.look.builds import CompiledRival
from warpshelf.look.view import Build, View
from warpshelf.readings.published import Rival
from warpshelf.records.schema import Record
from warpshelf.render import tables
from warpshelf.render.listings import Listing, extract_section, section_names

HEAD = (
    "Build", "Registers", "Spilled", "Shared memory", "Instructions", "In the main loop",
    "An instruction does", "Main loop by kind",
)  # fmt: skip


class RivalComparison(NamedTuple):
    """A public kernel and what it was compiled to, by architecture; `ours` likewise."""

    rival: Rival
    answer: CompiledRival
    ours: dict[str, Build]

    @property
    def archs(self) -> list[str]:
        """The architectures that both are compiled for."""
        return sorted(self.ours.keys() & self.answer.builds.keys(), key=architectures.sm_version)


def rivals_table(pairs: Sequence[RivalComparison]) -> str:
    """Figures of both, by architecture, under a line that says how they compare; "" of none."""
    pairs = [one for one in pairs if one.archs and not one.rival.package]
    if not pairs:
        return ""
    bodies = [_rival_group(one) for one in pairs]
    compilers = ", ".join(sorted({one.answer.compiler for one in pairs}))
    caption = (
        f"Public kernels for the same job, compiled alike\n{compilers}, at the same dtype, shape "
        "and divisibility. What an instruction of a warp does: multiply-adds of the matrix units, "
        "or of a lane where they are two thirds of all, else bytes of a lane to and from memory; "
        "in the main loop, or where there is none in all. No times"
    )
    inner = tables.render_table(caption, HEAD, bodies, "rivals")
    return tables.render_fold(
        _rivals_summary(pairs), inner, sum(2 * len(one.archs) for one in pairs), "beside"
    )


def _rivals_summary(pairs: Iterable[RivalComparison]) -> str:
    """In one line, in how many builds ours spills no more and its instructions do no less."""
    told = [
        verdict
        for one in pairs
        for arch in one.archs
        if (verdict := _no_worse(one.ours[arch], one.answer.builds[arch])) is not None
    ]
    names = ", ".join(dict.fromkeys(one.rival.name for one in pairs))
    if not told:
        return f"Compiled beside {names}"
    return (
        f"Compiled beside {names}: ours spills no more, and its instructions do no less each, in "
        f"{sum(told)} of {tables.format_count(len(told), 'build')}"
    )


def _no_worse(ours: Build, theirs: Build) -> bool | None:
    """None where what instructions do cannot be compared."""
    mine, other = _work_per_instruction(ours), _work_per_instruction(theirs)
    if mine is None or other is None or mine[1] != other[1]:
        return None
    return bool(ours["spilled_bytes"] <= theirs["spilled_bytes"] and mine[0] >= other[0])


def _work_per_instruction(build: Build) -> tuple[float, str] | None:
    """What one of a warp's instructions gets done on average, and of what."""
    instructions = sum(build["loop"].values()) or build["instructions"]
    if "matrix" in build["loop"]:
        # A matrix instruction of Blackwell does not say its shape.
        return (build["products"] / instructions, "products") if build["products"] else None
    if 3 * (scalar := build["loop"].get("multiply-add", 0)) >= 2 * instructions:
        return scalar / instructions, "multiply-adds"
    return (build["bytes"] / instructions, "bytes") if build["bytes"] else None


def _rival_group(one: RivalComparison) -> str:
    rival = one.rival
    link = f"<a href={quote_attribute(rival.url)}>{escape_markdown(rival.kernel)}</a>"
    title = (
        f"{escape_markdown(rival.beside.kernel)} ({escape_markdown(rival.beside.variant)}) beside "
    )
    title += f"{escape_markdown(rival.name)}: {link}; {escape_markdown(rival.what)}"
    head = f'<tr><th scope="rowgroup" colspan="{len(HEAD)}">{title}</th></tr>'
    rows = []
    for arch in one.archs:
        rows.append(_build_row(f"{arch}, ours", one.ours[arch]))
        rows.append(_build_row(f"{arch}, {rival.name}", one.answer.builds[arch]))
    return f"<tbody>{head}" + "\n".join(rows) + "</tbody>"


def _build_row(name: str, build: Build) -> str:
    return tables.table_row(name, build_cells(build))


def build_cells(build: Build) -> tuple[str, ...]:
    """A build's figures in words: what stands under HEAD, all but its name."""
    done = _work_per_instruction(build)
    kinds = sorted(build["loop"].items(), key=lambda pair: (-pair[1], pair[0]))
    return (
        str(build["registers"]),
        units.format_bytes(build["spilled_bytes"]) if build["spilled_bytes"] else "none",
        units.format_bytes(build["shared_bytes"]) if build["shared_bytes"] else "none",
        units.format_integer(build["instructions"]),
        units.format_integer(sum(build["loop"].values())) if build["loop"] else "no loop",
        f"{units.format_significant(done[0])} {done[1]}" if done else "not told",
        ", ".join(f"{number} {kind}" for kind, number in kinds) or "no loop",
    )


def our_builds(views: Iterable[View], rival: Rival) -> dict[str, Build]:
    """What the kernel of ours that a rival stands beside was compiled to, by architecture."""
    return {
        one["arch"]: one["build"]
        for one in views
        if (one["variant"], one["kernel"]) == (rival.beside.variant, rival.beside.kernel)
    }


COMMENT = re.compile(r"\s*(#(?!include|define|pragma)|//)")


class LanguageKernel(NamedTuple):
    """A kernel in a language: whose, how long it is, who compiled it, and its figures."""

    language: str
    lines: int
    compiler: str
    builds: dict[str, Build]


class CaseTimes(NamedTuple):
    """The times of the largest timed case of a GPU's record, by variant."""

    arch: str
    device: str
    case: str
    times: dict[str, str]


def languages_table(
    pairs: Iterable[RivalComparison],
    code: Sequence[Listing],
    views: Iterable[View],
    measured: Iterable[tuple[str, Record]] = (),
) -> str:
    """Every variant and every one of the `pairs` whose language is its own; "" without these.

    With times where `measured`, the current records of GPUs by the machine's name, have them.
    """
    others = [pair for pair in pairs if pair.rival.package]
    if not others:
        return ""
    texts = [one.text for one in code]
    said = [*_our_kernels(texts, views), *map(_rival_kernel, others)]
    archs = sorted({arch for one in said for arch in one.builds}, key=architectures.sm_version)
    timed = [
        found for device, one in measured if (found := _largest_case_times(device, one)) is not None
    ]
    head = ("Language", "Lines", *(f"Time, {one.device}" for one in timed), *HEAD[1:])
    bodies = [
        tables.row_group(arch, _language_rows(arch, said, timed), len(head)) for arch in archs
    ]
    makers = ", ".join(dict.fromkeys(one.compiler for one in said))
    caption = (
        f"The same in {len(said)} languages\nLines of the kernel, without blank ones and comments; "
        "and what is compiled from them. What an instruction of a warp does: multiply-adds of the "
        f"matrix units, in the main loop. By {makers}. "
    )
    told = dict.fromkeys(f"{one.case} on {one.device}" for one in timed)
    caption += f"Times of {'; '.join(told)}" if told else "No times"
    return tables.render_table(caption, head, bodies, "languages")


def _largest_case_times(device: str, record: Record) -> CaseTimes | None:
    cases = tables.timed_cases(record)
    if not cases or record["machine"]["sm"] is None:
        return None
    largest = max(cases, key=lambda one: one.get("flops", 0))
    name = units.case_labels([one["case"] for one in cases])[cases.index(largest)]
    found = {
        one["name"]: units.format_seconds(time["median"])
        for one in largest["results"]
        if (time := tables.result_time(one)) is not None
    }
    return CaseTimes(f"sm_{record['machine']['sm']}", device, name, found)


def _our_kernels(texts: Sequence[str], views: Iterable[View]) -> Iterator[LanguageKernel]:
    found: dict[tuple[str, str], LanguageKernel] = {}
    for view in views:
        key = view["variant"], view["kernel"]
        if key not in found:
            found[key] = LanguageKernel(key[0], count_lines(texts, key[1]), view["compiler"], {})
        found[key].builds[view["arch"]] = view["build"]
    yield from found.values()


def _rival_kernel(pair: RivalComparison) -> LanguageKernel:
    rival = pair.rival
    lines = count_lines([rival.source], rival.kernel)
    return LanguageKernel(rival.name, lines, pair.answer.compiler, pair.answer.builds)


def _language_rows(
    arch: str, said: Iterable[LanguageKernel], timed: Sequence[CaseTimes]
) -> Iterator[str]:
    for one in said:
        if arch in one.builds:
            lines = units.format_integer(one.lines) if one.lines else "not marked"
            times = (
                found.times.get(one.language, "not run") if found.arch == arch else "other GPU"
                for found in timed
            )
            yield tables.table_row(one.language, (lines, *times, *build_cells(one.builds[arch])))


def count_lines(texts: Iterable[str], kernel: str) -> int:
    """Lines of code in the marked section that defines a kernel; 0 where none does."""
    name = re.escape(kernel.partition("<")[0])
    for text in texts:
        for each in section_names(text):
            lines = extract_section(text, each).split("\n")
            if any(re.search(rf"(^|\s|\*){name}\s*\(", line) for line in lines):
                return sum(bool(line.strip()) and not COMMENT.match(line) for line in lines)
    return 0
