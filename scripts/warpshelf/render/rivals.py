"""Public kernels for the same job beside ours, and one job in several languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.look.view import Build, View
from warpshelf.readings.published import Rival
from warpshelf.render import tables
from warpshelf.render.listings import extract_section, section_names
from warpshelf.render.snippet_page import RivalComparison, SnippetPage
from warpshelf.render.tables import Html

HEAD = (
    "Build", "Registers", "Spilled", "Shared memory", "Instructions", "In the main loop",
    "Work per instruction", "Main loop by kind",
)  # fmt: skip


def rivals_table(page: SnippetPage) -> str:
    """Figures of both, by architecture, under a line that says how they compare; "" of none."""
    pairs = [one for one in page.rivals if one.archs and not one.rival.package]
    if not pairs:
        return ""
    groups, count, compared = [], 0, list[tuple[Build, Build]]()
    for one in pairs:
        rival, rows = one.rival, []
        for arch in one.archs:
            ours, theirs = one.ours[arch], one.answer.builds[arch]
            rows.append(tables.table_row(f"{arch}, ours", build_cells(ours)))
            rows.append(tables.table_row(f"{arch}, {rival.name}", build_cells(theirs)))
            compared.append((ours, theirs))
        count += len(rows)
        link = f"<a href={quote_attribute(rival.url)}>{escape_markdown(rival.kernel)}</a>"
        own = f"{escape_markdown(rival.beside.kernel)} ({escape_markdown(rival.beside.variant)})"
        title = f"{own} beside {escape_markdown(rival.name)}: {link}; {escape_markdown(rival.what)}"
        if said := ", ".join(_count_instructions(one)):
            title += f". For the same work ours needs {said}"
        groups.append(tables.row_group(Html(title), rows, len(HEAD)))
    compilers = ", ".join(sorted({one.answer.compiler for one in pairs}))
    caption = (
        f"Public kernels for the same job, compiled alike\n{compilers}, at the same dtype, shape "
        "and divisibility. Work per warp instruction: multiply-adds of the matrix units, or of a "
        "lane if they are two thirds of all, else the bytes a lane loads and stores; in the main "
        "loop, or in the whole kernel if it has none. No times"
    )
    answer = f"Compiled beside {', '.join(dict.fromkeys(one.rival.name for one in pairs))}"
    parts = (
        ("instructions for the same work", [_instruction_ratio(*pair) for pair in compared]),
        ("registers", [ours["registers"] / theirs["registers"] for ours, theirs in compared]),
        ("spilled bytes", [
            (1 + ours["spilled_bytes"]) / (1 + theirs["spilled_bytes"]) for ours, theirs in compared
        ]),
    )  # fmt: skip
    answer += ": ours needs " + "; ".join(_count_verdicts(what, found) for what, found in parts)
    inner = tables.render_table(caption, HEAD, groups, "rivals")
    return tables.render_fold(answer, inner, "beside", count)


def _instruction_ratio(ours: Build, theirs: Build) -> float | None:
    """Our instructions over theirs, for the same work; None where the two do different work."""
    mine, other = _work_per_instruction(ours), _work_per_instruction(theirs)
    return other[0] / mine[0] if mine and other and mine[1] == other[1] else None


def _count_verdicts(what: str, ratios: Iterable[float | None]) -> str:
    """In how many builds ours needs fewer, and in how many it needs more: both are said."""
    known = [ratio for ratio in ratios if ratio is not None]
    fewer, more = (sum(far * (ratio - 1) > 0.005 for ratio in known) for far in (-1, 1))
    return f"fewer {what} in {fewer} of {tables.format_count(len(known), 'build')}, more in {more}"


def _count_instructions(pair: RivalComparison) -> Iterator[str]:
    """By how much the instructions differ, and on which architectures."""
    found: dict[str, list[str]] = {}
    for arch in pair.archs:
        ratio = _instruction_ratio(pair.ours[arch], pair.answer.builds[arch])
        if ratio is not None:
            far = round(100 * (ratio - 1))
            said = (
                f"{abs(far)} % {'more' if far > 0 else 'fewer'} instructions" if far else "as many"
            )
            found.setdefault(said, []).append(arch)
    return (f"{said} on {', '.join(archs)}" for said, archs in found.items())


def _work_per_instruction(build: Build) -> tuple[float, str] | None:
    """The work of a warp's average instruction, and its unit."""
    instructions = sum(build["loop"].values()) or build["instructions"]
    if "matrix" in build["loop"]:
        # A matrix instruction of Blackwell does not say its shape.
        return (build["products"] / instructions, "products") if build["products"] else None
    if 3 * (scalar := build["loop"].get("multiply-add", 0)) >= 2 * instructions:
        return scalar / instructions, "multiply-adds"
    return (build["bytes"] / instructions, "bytes") if build["bytes"] else None


def build_cells(build: Build) -> tuple[str, ...]:
    """A build's figures in words: what stands under HEAD, all but its name."""
    done = _work_per_instruction(build)
    kinds = sorted(build["loop"].items(), key=lambda pair: (-pair[1], pair[0]))
    return (
        str(build["registers"]),
        units.format_bytes(build["spilled_bytes"]) if build["spilled_bytes"] else "none",
        units.format_bytes(build["shared_bytes"]) if build["shared_bytes"] else "none",
        units.format_integer(build["instructions"]),
        units.format_integer(sum(build["loop"].values())) if kinds else "no loop",
        f"{units.format_significant(done[0])} {done[1]}" if done else "unknown",
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


def languages_table(page: SnippetPage) -> str:
    """Every variant, every rival whose language is its own, and times; "" without such a rival."""
    others = [pair for pair in page.rivals if pair.rival.package]
    if not others:
        return ""
    ours: dict[tuple[str, str], dict[str, Build]] = {}
    makers: dict[str, None] = {}
    for one in page.views:
        makers[one["compiler"]] = None
        ours.setdefault((one["variant"], one["kernel"]), {})[one["arch"]] = one["build"]
    texts = [listing.text for listing in page.code]
    said = [(name, count_lines(texts, kernel), own) for (name, kernel), own in ours.items()]
    for rival, answer, _ in others:
        makers[answer.compiler] = None
        said.append((rival.name, count_lines([rival.source], rival.kernel), answer.builds))
    timed = []  # architecture, machine, its largest case, and the times there by variant
    for state in page.select_states("measured"):
        cases = tables.label_cases(tables.timed_cases(state.known))
        if cases and (sm := state.known["machine"]["sm"]) is not None:
            label, largest = max(cases, key=lambda one: one[1].get("flops", 0))
            own_times = tables.timed_results(largest)
            times = {one["name"]: units.format_seconds(time["median"]) for one, time in own_times}
            timed.append((f"sm_{sm}", state.name, label, times))
    head = ("Language", "Lines", *(f"Time, {device}" for _, device, _, _ in timed), *HEAD[1:])
    groups = []
    for arch in sorted({arch for *_, own in said for arch in own}, key=architectures.sm_version):
        rows = []
        for name, lines, own in said:
            if arch in own:
                length = units.format_integer(lines) if lines else "not marked"
                shown = (of.get(name, "not run") if on == arch else "other GPU"
                         for on, _, _, of in timed)  # fmt: skip
                rows.append(tables.table_row(name, (length, *shown, *build_cells(own[arch]))))
        groups.append(tables.row_group(arch, rows, len(head)))
    told = dict.fromkeys(f"{label} on {device}" for _, device, label, _ in timed)
    caption = (
        f"The same in {len(said)} languages\nLines of the kernel, without blank ones and comments, "
        "and what they compile to. Work per warp instruction: multiply-adds of the matrix units, "
        f"in the main loop. Compiled by {', '.join(makers)}. "
    ) + (f"Times of {'; '.join(told)}" if told else "No times")
    return tables.render_table(caption, head, groups, "languages")


def count_lines(texts: Iterable[str], kernel: str) -> int:
    """Lines of code in the marked section that defines a kernel; 0 where none does."""
    defined = re.compile(rf"(^|\s|\*){re.escape(kernel.partition('<')[0])}\s*\(")
    for text in texts:
        for each in section_names(text):
            lines = extract_section(text, each).split("\n")
            if any(map(defined.search, lines)):
                return sum(bool(line.strip()) and not COMMENT.match(line) for line in lines)
    return 0
