"""Views in the terminal: a table of all variants of a snippet on one architecture; one kernel with
its totals, occupancy, bound, lines, accesses and loops; what differs between two builds of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from warpshelf.cli.printing import Output, make_table
from warpshelf.core import units
from warpshelf.look.binary import decode_control
from warpshelf.look.bound import rank_variants
from warpshelf.look.builds import Difference, source_lines
from warpshelf.look.figures import count_products, over_ideal
from warpshelf.look.view import (
    LANES,
    Access,
    Loop,
    Residency,
    View,
    describe_pattern,
    executed_count,
    live_registers,
)
from warpshelf.render.views import NO_TIME, variant_totals

IDEAL = "Sectors and wavefronts are relative to the fewest possible; live registers hold a value."
COLUMNS = (
    "rank", "bound", "by", "instr.", "lanes", "sect.", "wavef.", "regs/live", "spills", "warps",
    "by",
)  # fmt: skip
SHORT = {"load and store": "ld/st", "special function": "special", "shared memory": "shared"}
WORSE = 1.005  # times the ideal, from which on it shows in three digits
LEAST = 0.005  # of the executed instructions: what did less is summed up, unless it is marked
MOST_LOOPS = 4
MARK = "yellow"
SMALL = 100  # below it, show a difference instead of a percentage
MEMORY = (("sectors", "global"), ("wavefronts", "shared"))


def print_variants(out: Output, snippet: str, arch: str, views: Sequence[View]) -> None:
    """Print a table for each case: variants compare on one case alone."""
    cases: dict[str, list[View]] = {}
    for one in views:
        cases.setdefault(json.dumps(one["case"], sort_keys=True), []).append(one)
    labels = units.case_labels([group[0]["case"] for group in cases.values()])
    for label, group in zip(labels, cases.values(), strict=True):
        out.print_title(f"{snippet} on {arch}" + (f", {label}" if label else ""))
        out.print_table(_variants_table(group))
    out.print()
    compilers = ", ".join(sorted({one["compiler"] for one in views}))
    out.print_paragraph(f"{compilers}; counts of PTX executed on a CPU. {IDEAL} {NO_TIME}.")


def _variants_table(views: Sequence[View]) -> Table:
    ranked = rank_variants(variant_totals(views))
    order = list(ranked)
    kernels = Counter(one["variant"] for one in views)
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    drawn.add_column("variant", overflow="fold", min_width=8)
    told = len(set(ranked.values())) > 1
    for name in COLUMNS[not told :]:
        by = name.endswith("by")
        drawn.add_column(name, justify="left" if by else "right", no_wrap=not by, overflow="fold")
    for one in sorted(views, key=lambda each: (order.index(each["variant"]), each["kernel"])):
        name, total, resident = one["variant"], one["total"], one["occupancy"]
        first, last = ranked[name]
        executed = executed_count(total)
        place = f"{first}" if first == last else f"{first}-{last}"
        cells = (
            name if kernels[name] == 1 else f"{name}: {one['kernel']}",
            *([place] if told else []),
            f"{one['bound']['cycles']:,.0f}",
            SHORT.get(one["bound"]["limiter"], one["bound"]["limiter"]),
            f"{executed:,}",
            format_lanes(total),
            *(format_over_ideal(total, name) for name, _ in MEMORY),
            f"{one['registers']}/{live_registers(one)}",
            f"{one['spilled_bytes']} B" if one["spilled_bytes"] else "-",
            f"{resident['warps']}/{resident['most']}",
            ", ".join(SHORT.get(limiter, limiter) for limiter in resident["limiters"]),
        )
        drawn.add_row(*map(escape, cells))
    return drawn


def format_lanes(tally: Mapping[str, Any]) -> str:
    """How many lanes of 32 were active on average, to a tenth."""
    executed, taking = executed_count(tally), tally.get("lanes", 0)
    if not executed or taking == LANES * executed:
        return str(LANES) if executed else "-"
    return f"{min(taking / executed, LANES - 0.1):.1f}"


def format_over_ideal(tally: Mapping[str, Any], name: str) -> str:
    """Sectors or wavefronts over the ideal, such as `6.60×`; `-` of none."""
    if not tally.get(name):
        return "-"
    times = over_ideal(tally, name)
    return "1×" if 1 <= times < WORSE else units.format_ratio(times)


def print_kernel(out: Output, view: View, sass: bool = False) -> None:
    """Print the view of a kernel; with `sass` the machine code of its loops as well."""
    out.print_title(f"{view['variant']}: {view['kernel']} on {view['arch']}")
    grid, block = _format_sides(view["grid"]), _format_sides(view["block"])
    times = "" if view["launches"] == 1 else f"{view['launches']} launches of "
    sizes = ", ".join(f"{key} = {value}" for key, value in view["case"].items())
    case = units.case_labels([view["case"]])[0] or sizes
    of = f" in clusters of {_format_sides(view['cluster'])}" if max(view["cluster"]) > 1 else ""
    out.print_paragraph(f"{case}; {times}{grid} blocks of {block} threads{of}; {view['compiler']}")
    _print_totals(out, view)
    now, bound = view["occupancy"], view["bound"]
    out.print_title(f"Occupancy: {_format_occupancy(now)}")
    for one in now["changes"]:
        out.print_paragraph(f"with {one['change']}: {_format_occupancy(one)}", 2, hanging=2)
    cycles = f"{bound['cycles']:,.0f} SM cycles"
    out.print_title(f"Lower bound, not a time: {cycles}, by {bound['limiter']}")
    for pipe in sorted(bound["pipes"], key=lambda each: -each["cycles"]):
        out.print_paragraph(f"{pipe['cycles']:,.0f}: {pipe['pipe']}, {pipe['of']}", 2, hanging=2)
    _print_lines(out, view)
    _print_accesses(out, view)
    _print_loops(out, view, sass)


def _format_sides(sides: list[int]) -> str:
    """`32 × 8` of [32, 8, 1]."""
    most = max((at for at, one in enumerate(sides) if one > 1), default=0)
    return " × ".join(map(str, sides[: most + 1]))


def _print_totals(out: Output, view: View) -> None:
    total, sass = view["total"], view["sass"]
    executed = executed_count(total)
    lanes = f"{format_lanes(total)} of 32 lanes active"
    rows = [f"{executed:,} warp instructions executed, {lanes}"]
    for name, space in MEMORY:
        if total.get(name):
            times = format_over_ideal(total, name)
            worse = "the fewest possible" if times == "1×" else f"{times} the fewest"
            rows.append(f"{total[name]:,} {name} of {space} memory, {worse}")
    spilled = f"{view['spilled_bytes']:,} bytes spilled" if view["spilled_bytes"] else "no spills"
    rows.append(
        f"{len(sass['text']):,} machine instructions; {view['registers']} registers, at most "
        f"{live_registers(view)} live, {spilled}; "
        f"{view['shared_bytes']:,} bytes of shared memory a block"
    )
    out.print_title("Totals")
    for row in rows:
        out.print_paragraph(row, 2, hanging=2)


def _format_occupancy(one: Residency) -> str:
    blocks = f"{one['blocks']} block" + ("" if one["blocks"] == 1 else "s")
    limiters = " and ".join(one["limiters"])
    return f"{one['warps']} of {one['most']} warps ({blocks}), limited by {limiters}"


def _print_lines(out: Output, view: View) -> None:
    """The lines by their share of what was executed; what is worse than ideal is marked."""
    texts = source_lines(view)
    total = executed_count(view["total"])
    names = ("share", "lanes", "sect.", "wavef.", "live", "at", "source")
    drawn = make_table(*names, left=("at",), flexible="source")
    left, rest = 0, 0
    for line in sorted(view["lines"], key=lambda one: -executed_count(one)):
        executed = executed_count(line)
        marks = [over_ideal(line, name) >= WORSE for name, _ in MEMORY]
        if executed < LEAST * total and not any(marks):
            left, rest = left + 1, rest + executed
            continue
        share = f"{100 * executed / total:.1f} %" if total else "-"
        passes = [format_over_ideal(line, name) for name, _ in MEMORY]
        marked = [f"[{MARK}]{x}[/]" if mark else x for x, mark in zip(passes, marks, strict=True)]
        about = (str(line.get("live", "-")), line["at"], texts.get(line["at"], ""))
        drawn.add_row(share, format_lanes(line), *marked, *map(escape, about))
    out.print_title("Lines by their share of executed instructions")
    out.print_table(drawn)
    if left:
        out.print_paragraph(f"and {left} more lines, {100 * rest / max(1, total):.1f} % together")


def _print_accesses(out: Output, view: View) -> None:
    """Instructions whose worst request takes more than the ideal; equal ones count as one."""
    alike: dict[str, list[Access]] = {}
    wasted: Counter[str] = Counter()  # passes that need not be, were every request as the worst
    for one in view["accesses"]:
        if one["passes"] > one["ideal"]:
            passes = "wavefronts" if one["space"] == "shared" else "sectors"
            times = units.format_ratio(units.safe_divide(one["passes"], one["ideal"]))
            what = (
                f"{_source_line(view, one['ptx'])}: {one['space']} {one['does']} of {one['size']} "
                f"bytes a lane: {one['passes']} {passes} where {one['ideal']} would do, {times}"
            )
            alike.setdefault(what, []).append(one)
            wasted[what] += int(view["ptx"]["run"][one["ptx"]] * (one["passes"] - one["ideal"]))
    if not alike:
        out.print_title("No memory access takes more passes than it must")
        return
    out.print_title("Accesses that take more passes than they must, by their worst request")
    texts = source_lines(view)
    for what, _ in wasted.most_common():
        first, count = alike[what][0], len(alike[what])
        block = ", ".join(map(str, first["block"]))
        more = f"; {count} such instructions" if count > 1 else ""
        where = f"(block {block}, warp {first['warp']}{more})"
        out.print_paragraph(what, 2, MARK, hanging=2)
        out.print_paragraph(f"{describe_pattern(first)} {where}", 4)
        if text := texts.get(_source_line(view, first["ptx"]), ""):
            out.print_truncated(text, 4)


def _source_line(view: View, ptx: int) -> str:
    line = view["ptx"]["line"][ptx] if ptx >= 0 else -1
    return str(view["lines"][line]["at"]) if line >= 0 else "PTX"


def _print_loops(out: Output, view: View, sass: bool) -> None:
    """Those with the most multiply-adds first, and of these the innermost."""
    loops = sorted(view["loops"], key=lambda one: (-one["depth"], one["first"]))
    ranked = sorted(loops, key=lambda one: -count_products(one["kinds"]))
    if not ranked:
        out.print_title("No loop in the machine code")
        if sass:
            _print_sass(out, view, 0, len(view["sass"]["text"]) - 1)
    for one in ranked[:MOST_LOOPS]:
        count = sum(one["kinds"].values())
        out.print_title(f"Loop of {count} machine instructions{_loop_span(view, one)}")
        by_count = sorted(one["kinds"].items(), key=lambda each: (-each[1], each[0]))
        out.print_paragraph(", ".join(f"{count} {kind}" for kind, count in by_count), 2)
        said = []
        if made := count_products(one["kinds"]):
            each = f"{count / made:.2f} instructions"
            said.append(f"{each} for each multiply-add or matrix instruction")
        if one["loads"]:
            said.append(f"{one['loads']} loads and {one['bytes']:,} bytes of a warp in flight")
            if one["operations"]:
                said.append(f"{one['operations']} of those operations before the warp waits")
        out.print_paragraph("; ".join(said) or "no load of global memory", 2)
        if sass:
            _print_sass(out, view, one["first"], one["last"])
    if len(ranked) > MOST_LOOPS:
        out.print()
        out.print_paragraph(f"and {len(ranked) - MOST_LOOPS} other loops")


def _loop_span(view: View, loop: Loop) -> str:
    """Which lines of source it is made of, in the file that most of it is from, and how deep."""
    numbers: dict[str, list[int]] = {}
    for ptx in view["sass"]["ptx"][loop["first"] : loop["last"] + 1]:
        file, _, number = _source_line(view, ptx).rpartition(":")
        if file:
            numbers.setdefault(file, []).append(int(number))
    inside = f", inside {loop['depth'] - 1} other" if loop["depth"] > 1 else ""
    if not numbers:
        return inside
    file, own = max(numbers.items(), key=lambda one: len(one[1]))
    low, high = min(own), max(own)
    return f", {file}:{low}" + (f"-{high}" if high > low else "") + inside


def _print_sass(out: Output, view: View, first: int, last: int) -> None:
    """Machine code: address, control code, live registers, text, and the line it is of."""
    sass = view["sass"]
    labels = {at: name for name, at in sass["labels"].items()}
    names = ("address", "control", "live", "instruction", "at")
    drawn = make_table(*names, left=("at", "control"), flexible="instruction")
    for at in range(first, last + 1):
        if at in labels:
            drawn.add_row("", "", "", escape(f"{labels[at]}:"), "")
        code = str(decode_control(sass["control"][at]))
        where = _source_line(view, sass["ptx"][at])
        text = escape(sass["text"][at])
        drawn.add_row(f"{16 * at:#06x}", code, str(sass["live"][at]), text, where)
    out.print_table(drawn)


def print_difference(out: Output, found: Difference, names: tuple[str, str], heading: str) -> None:
    """Print how two builds of a kernel differ; `names` are theirs, before and after."""
    out.print_title(f"{found.variant}: {found.kernel}, {heading}")
    if not found.counts:
        out.print_paragraph("built from other cases, so executed counts are not compared", 2)
    if not found.figures and not found.lines:
        out.print_paragraph("no difference", 2)
    if found.figures:
        drawn = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
        drawn.add_column("figure", overflow="fold")
        for name in (*names, "change"):
            drawn.add_column(escape(name), justify="right", no_wrap=True, overflow="ellipsis")
        for one in found.figures:
            pair = map(_format_figure, (one.before, one.after))
            drawn.add_row(*map(escape, (one.figure, *pair, _format_change(one.before, one.after))))
        out.print_table(drawn)
    for line in found.lines:
        said = ", ".join(
            f"{one.figure} {_format_figure(one.before)} → {_format_figure(one.after)}"
            for one in line.changes
        )
        out.print_paragraph(f"{line.at}: {said}", 2, hanging=4)
        if line.text:
            out.print_truncated(line.text, 4)


def _format_change(before: float | None, after: float | None) -> str:
    """A difference of small numbers, a factor of 2 or more, else per cent."""
    if before is None or after is None:
        return ""
    if not before or max(abs(before), abs(after)) < SMALL:
        return f"{after - before:+,.4g}"
    times = after / before
    return f"{100 * (times - 1):+.1f} %" if 0.5 < times < 2 else f"×{times:.3g}"


def _format_figure(value: float | None) -> str:
    """Whole numbers in full, others to four digits; `-` of none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
