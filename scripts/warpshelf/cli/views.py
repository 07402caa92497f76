"""Views in the terminal: a table of all variants of a snippet on one architecture; one kernel with
its totals, occupancy, bound, lines, accesses and loops; what differs between two builds of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.cli.printing import (
    make_table,
    print_paragraph,
    print_table,
    print_title,
    print_truncated,
)
from warpshelf.core import units
from warpshelf.look.binary import decode_control
from warpshelf.look.bound import DIFFERENT, rank_variants
from warpshelf.look.builds import Difference, FigureChange, source_lines
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
from warpshelf.render.views import variant_totals

NO_TIME = (
    "A bound is no time: no run takes fewer cycles of an SM than its busiest pipe. Variants share "
    f"places unless their bounds differ by more than a factor of {DIFFERENT}, and the one with the "
    "lower bound touches no more sectors."
)
IDEAL = "Sectors and wavefronts are over the fewest that would do; live registers hold a value."
COLUMNS = (
    "place", "bound", "by", "instr.", "lanes", "sect.", "wavef.", "regs/live", "spills", "warps",
    "by",
)  # fmt: skip
SHORT = {"load and store": "ld/st", "special function": "special", "shared memory": "shared"}
WORSE = 1.005  # times the ideal, from which on it shows in three digits


def print_variants(out: Console, snippet: str, arch: str, views: Sequence[View]) -> None:
    """Print a table for each case: variants compare on one case alone."""
    cases: dict[str, list[View]] = {}
    for one in views:
        cases.setdefault(json.dumps(one["case"], sort_keys=True), []).append(one)
    labels = units.case_labels([group[0]["case"] for group in cases.values()])
    for label, group in zip(labels, cases.values(), strict=True):
        of = f", {label}" if label else ""
        print_title(out, f"{snippet} on {arch}{of}")
        print_table(out, _variants_table(group))
    out.print()
    compilers = ", ".join(sorted({one["compiler"] for one in views}))
    print_paragraph(out, f"{compilers}; counts of PTX executed on a CPU. {IDEAL} {NO_TIME}")


def _variants_table(views: Sequence[View]) -> Table:
    ranked = rank_variants(variant_totals(views))
    order = {name: at for at, name in enumerate(ranked)}
    kernels = Counter(one["variant"] for one in views)
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    drawn.add_column("variant", overflow="fold", min_width=8)
    for name in COLUMNS:
        by = name.endswith("by")
        drawn.add_column(name, justify="left" if by else "right", no_wrap=not by, overflow="fold")
    for one in sorted(views, key=lambda each: (order[each["variant"]], each["kernel"])):
        name = one["variant"]
        shown = name if kernels[name] == 1 else f"{name}: {one['kernel']}"
        drawn.add_row(
            *map(escape, (shown, _format_place(*ranked[name], len(ranked)), *_variant_cells(one)))
        )
    return drawn


def _format_place(first: int, last: int, of: int) -> str:
    return "-" if of == 1 else f"{first}" if first == last else f"{first}-{last}"


def _variant_cells(one: View) -> tuple[str, ...]:
    total, resident = one["total"], one["occupancy"]
    executed = executed_count(total)
    return (
        f"{one['bound']['cycles']:,.0f}",
        _short_limiter(one["bound"]["limiter"]),
        f"{executed:,}",
        format_lanes(total.get("lanes", 0), executed),
        *(format_over_ideal(total, name) for name in ("sectors", "wavefronts")),
        f"{one['registers']}/{live_registers(one)}",
        f"{one['spilled_bytes']} B" if one["spilled_bytes"] else "-",
        f"{resident['warps']}/{resident['most']}",
        ", ".join(map(_short_limiter, resident["limiters"])),
    )


def _short_limiter(limiter: str) -> str:
    return SHORT.get(limiter, limiter)


def format_lanes(taking: int, executed: int) -> str:
    """How many lanes of 32 took part on average, to a tenth."""
    if not executed or taking == LANES * executed:
        return str(LANES) if executed else "-"
    return f"{min(taking / executed, LANES - 0.1):.1f}"


def format_over_ideal(tally: dict[str, int], name: str) -> str:
    """Sectors or wavefronts over the ideal, such as `6.60×`; `-` of none."""
    if not tally.get(name):
        return "-"
    times = over_ideal(tally, name)
    return "1×" if 1 <= times < WORSE else units.format_ratio(times)


LEAST = 0.005  # of the executed instructions: what did less is summed up, unless it is marked
MOST_LOOPS = 4
MARK = "yellow"


def print_kernel(out: Console, view: View, sass: bool = False) -> None:
    """Print what became of a kernel; with `sass` the machine code of its loops as well."""
    _print_head(out, view)
    _print_totals(out, view)
    _print_occupancy(out, view)
    _print_bound(out, view)
    _print_lines(out, view)
    _print_accesses(out, view)
    _print_loops(out, view, sass)


def _print_head(out: Console, view: View) -> None:
    print_title(out, f"{view['variant']}: {view['kernel']} on {view['arch']}")
    grid, block = _format_sides(view["grid"]), _format_sides(view["block"])
    times = "" if view["launches"] == 1 else f"{view['launches']} launches of "
    case = units.case_labels([view["case"]])[0] or ", ".join(
        f"{key} = {value}" for key, value in view["case"].items()
    )
    of = f" in clusters of {_format_sides(view['cluster'])}" if max(view["cluster"]) > 1 else ""
    print_paragraph(out, f"{case}; {times}{grid} blocks of {block} threads{of}; {view['compiler']}")


def _format_sides(sides: list[int]) -> str:
    """`32 × 8` of [32, 8, 1]."""
    most = max((at for at, one in enumerate(sides) if one > 1), default=0)
    return " × ".join(map(str, sides[: most + 1]))


def _print_totals(out: Console, view: View) -> None:
    total, sass = view["total"], view["sass"]
    executed = executed_count(total)
    rows = [
        f"{executed:,} warp instructions executed, "
        f"{format_lanes(total.get('lanes', 0), executed)} of 32 lanes taking part"
    ]
    for name, what in (("sectors", "of global memory"), ("wavefronts", "of shared memory")):
        if total.get(name):
            times = format_over_ideal(total, name)
            worse = "the fewest that would do" if times == "1×" else f"{times} the fewest"
            rows.append(f"{total[name]:,} {name} {what}, {worse}")
    spilled = f"{view['spilled_bytes']:,} bytes spilled" if view["spilled_bytes"] else "no spills"
    rows.append(
        f"{len(sass['text']):,} machine instructions; {view['registers']} registers, at most "
        f"{live_registers(view)} live, {spilled}; "
        f"{view['shared_bytes']:,} bytes of shared memory a block"
    )
    print_title(out, "Totals")
    for row in rows:
        print_paragraph(out, row, 2, hanging=2)


def _format_occupancy(one: Residency) -> str:
    limiters = " and ".join(one["limiters"])
    blocks = f"{one['blocks']} block" + ("" if one["blocks"] == 1 else "s")
    return f"{one['warps']} of {one['most']} warps ({blocks}), limited by {limiters}"


def _print_occupancy(out: Console, view: View) -> None:
    now = view["occupancy"]
    print_title(out, f"Occupancy: {_format_occupancy(now)}")
    for one in now["changes"]:
        print_paragraph(out, f"with {one['change']}: {_format_occupancy(one)}", 2, hanging=2)


def _print_bound(out: Console, view: View) -> None:
    bound = view["bound"]
    print_title(
        out, f"Lower bound: {bound['cycles']:,.0f} SM cycles, by {bound['limiter']}; no time"
    )
    for one in sorted(bound["pipes"], key=lambda each: -each["cycles"]):
        print_paragraph(out, f"{one['cycles']:,.0f}: {one['pipe']}, {one['of']}", 2, hanging=2)


def _print_lines(out: Console, view: View) -> None:
    """The lines by their share of what was executed; what is worse than ideal is marked."""
    texts = source_lines(view)
    total = executed_count(view["total"])
    names = ("share", "lanes", "sect.", "wavef.", "live", "at", "source")
    drawn = make_table(*names, left=("at",), flexible="source")
    left, rest = 0, 0
    for line in sorted(view["lines"], key=lambda one: -executed_count(one)):
        executed = executed_count(line)
        marks = [over_ideal(line, name) >= WORSE for name in ("sectors", "wavefronts")]
        if executed < LEAST * total and not any(marks):
            left, rest = left + 1, rest + executed
            continue
        cells = [
            f"{100 * executed / total:.1f} %" if total else "-",
            format_lanes(line.get("lanes", 0), executed),
            *(format_over_ideal(line, name) for name in ("sectors", "wavefronts")),
            str(line.get("live", "-")),
            line["at"],
            texts.get(line["at"], ""),
        ]
        shown = [escape(cell) for cell in cells]
        for at, marked in enumerate(marks, 2):
            shown[at] = f"[{MARK}]{shown[at]}[/]" if marked else shown[at]
        drawn.add_row(*shown)
    print_title(out, "Lines by their share of executed instructions")
    print_table(out, drawn)
    if left:
        print_paragraph(out, f"and {left} lines with {100 * rest / max(1, total):.1f} % together")


def _print_accesses(out: Console, view: View) -> None:
    """Instructions whose worst request takes more than the ideal, those alike counted as one."""
    alike: dict[str, list[Access]] = {}
    for one in view["accesses"]:
        if one["passes"] > one["ideal"]:
            alike.setdefault(_describe_access(view, one), []).append(one)
    if not alike:
        print_title(out, "Every access to memory takes no more passes than it must")
        return
    print_title(out, "Accesses that take more passes than they must, by their worst request")
    ranked = sorted(
        alike.items(), key=lambda one: -sum(_wasted_passes(view, each) for each in one[1])
    )
    texts = source_lines(view)
    for what, rows in ranked:
        first = rows[0]
        block = ", ".join(map(str, first["block"]))
        more = f"; {len(rows)} instructions alike" if len(rows) > 1 else ""
        print_paragraph(out, what, 2, MARK, hanging=2)
        print_paragraph(
            out, f"{describe_pattern(first)} (block {block}, warp {first['warp']}{more})", 4
        )
        if text := texts.get(_source_line(view, first["ptx"]), ""):
            print_truncated(out, text, 4)


def _describe_access(view: View, one: Access) -> str:
    """Who does what, and how badly: the key by which accesses are alike."""
    passes = "wavefronts" if one["space"] == "shared" else "sectors"
    times = units.format_ratio(units.safe_divide(one["passes"], one["ideal"]))
    return (
        f"{_source_line(view, one['ptx'])}: {one['space']} {one['does']} of {one['size']} bytes "
        f"a lane: {one['passes']} {passes} where {one['ideal']} would do, {times}"
    )


def _wasted_passes(view: View, one: Access) -> int:
    """Passes that need not be, were every request as the worst."""
    return int(view["ptx"]["run"][one["ptx"]] * (one["passes"] - one["ideal"]))


def _source_line(view: View, ptx: int) -> str:
    line = view["ptx"]["line"][ptx] if ptx >= 0 else -1
    return str(view["lines"][line]["at"]) if line >= 0 else "PTX"


def _print_loops(out: Console, view: View, sass: bool) -> None:
    """Those with the most multiply-adds first, and of these the innermost."""
    ranked = sorted(
        view["loops"], key=lambda one: (-count_products(one["kinds"]), -one["depth"], one["first"])
    )
    if not ranked:
        print_title(out, "No loop in its machine code")
        if sass:
            _print_sass(out, view, 0, len(view["sass"]["text"]) - 1)
        return
    for one in ranked[:MOST_LOOPS]:
        print_title(
            out, f"Loop of {sum(one['kinds'].values())} machine instructions{_loop_span(view, one)}"
        )
        by_count = sorted(one["kinds"].items(), key=lambda each: (-each[1], each[0]))
        print_paragraph(out, ", ".join(f"{count} {kind}" for kind, count in by_count), 2)
        print_paragraph(out, _describe_flight(one), 2)
        if sass:
            _print_sass(out, view, one["first"], one["last"])
    if len(ranked) > MOST_LOOPS:
        out.print()
        print_paragraph(out, f"and {len(ranked) - MOST_LOOPS} other loops")


def _loop_span(view: View, loop: Loop) -> str:
    """Which lines of source it is made of, in the file that most of it is from, and how deep."""
    found: Counter[str] = Counter()
    numbers: dict[str, list[int]] = {}
    for ptx in view["sass"]["ptx"][loop["first"] : loop["last"] + 1]:
        file, _, number = _source_line(view, ptx).rpartition(":")
        if file:
            found[file] += 1
            numbers.setdefault(file, []).append(int(number))
    inside = f", inside {loop['depth'] - 1} other" if loop["depth"] > 1 else ""
    if not found:
        return inside
    file = found.most_common(1)[0][0]
    low, high = min(numbers[file]), max(numbers[file])
    return f", {file}:{low}" + (f"-{high}" if high > low else "") + inside


def _describe_flight(loop: Loop) -> str:
    parts = []
    if made := count_products(loop["kinds"]):
        each = sum(loop["kinds"].values()) / made
        parts.append(f"{each:.2f} instructions for each multiply-add or matrix instruction")
    if loop["loads"]:
        parts.append(f"{loop['loads']} loads and {loop['bytes']:,} bytes of a warp in flight")
        if loop["operations"]:
            parts.append(f"{loop['operations']} of those operations before it waits for them")
    return "; ".join(parts) or "no load of global memory"


def _print_sass(out: Console, view: View, first: int, last: int) -> None:
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
    print_table(out, drawn)


SMALL = 100  # below it a difference says more than its share


def print_difference(out: Console, found: Difference, names: tuple[str, str], heading: str) -> None:
    """Print what differs of a kernel; `names` are those of the build before and after."""
    print_title(out, f"{found.variant}: {found.kernel}, {heading}")
    if not found.counts:
        print_paragraph(out, "of other cases: executed counts are not compared", 2)
    if not found.figures and not found.lines:
        print_paragraph(out, "nothing differs", 2)
        return
    if found.figures:
        drawn = _change_table("figure", *names)
        for one in found.figures:
            drawn.add_row(*map(escape, (one.figure, *_change_cells(one))))
        print_table(out, drawn)
    for line in found.lines:
        said = ", ".join(f"{one.figure} {_format_pair(one)}" for one in line.changes)
        print_paragraph(out, f"{line.at}: {said}", 2, hanging=4)
        if line.text:
            print_truncated(out, line.text, 4)


def print_unmatched(out: Console, one: View, where: str) -> None:
    """Print that a kernel is on one side alone."""
    print_title(out, f"{one['variant']}: {one['kernel']} is there {where} alone")


def _change_table(*names: str) -> Table:
    drawn = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    drawn.add_column(names[0], overflow="fold")
    for name in (*names[1:], "change"):
        drawn.add_column(escape(name), justify="right", no_wrap=True, overflow="ellipsis")
    return drawn


def _change_cells(one: FigureChange) -> tuple[str, str, str]:
    before, after = format_number(one.before), format_number(one.after)
    if one.before is None or one.after is None:
        return before, after, ""
    return before, after, _format_change(one.before, one.after)


def _format_change(before: float, after: float) -> str:
    """A difference where numbers are small, a factor where it is 2 or more, else per cent."""
    if not before or max(abs(before), abs(after)) < SMALL:
        return f"{after - before:+,.4g}"
    times = after / before
    return f"{100 * (times - 1):+.1f} %" if 0.5 < times < 2 else f"×{times:.3g}"


def _format_pair(one: FigureChange) -> str:
    return f"{format_number(one.before)} → {format_number(one.after)}"


def format_number(value: float | None) -> str:
    """A figure: whole numbers in full, others to four digits; `-` of none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
