"""What the machine does with each kernel: counts, registers, occupancy and bound.

All of it as a table, which no time is in and which stands in a fold of its own. And the variants of
a snippet side by side, as a ladder of steps: a table by times or counts, and a picture of counts.
Variants are ordered by their bounds, and told apart only where those differ enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.look.bound import DIFFERENT, VariantCost, is_faster, rank_variants
from warpshelf.look.view import LANES, View, executed_count, live_registers, view_name
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.snippet_page import MachineState, SnippetPage

RANK = "Rank by bound"  # a column of the table where bounds tell any variants apart
HEAD = (
    "Variant", "Lower bound, SM cycles", RANK, "Warp instructions", "Lanes of 32",
    "Global sectors", "Shared wavefronts", "Registers", "Warps resident",
)  # fmt: skip
NO_TIME = (
    "A bound is not a time: no run takes fewer SM cycles than its busiest pipe. Variants share "
    f"ranks unless their bounds differ by more than a factor of {DIFFERENT} and the one with the "
    "lower bound touches no more sectors"
)
USUAL = "sm_90"  # the architecture that pages speak of
Groups = dict[tuple[str, str], list[View]]  # by architecture and case, as JSON


def _group_views(page: SnippetPage) -> Groups:
    groups: Groups = {}
    for one in page.views:
        case = json.dumps(one["case"], sort_keys=True)
        groups.setdefault((one["arch"], case), []).append(one)
    return groups


def _most_counted(groups: Groups) -> tuple[str, str]:
    """The case that most variants were counted on, of the usual architecture."""
    usual = [key for key in groups if key[0] == USUAL] or list(groups)
    return max(usual, key=lambda key: len(variant_totals(groups[key])))


def variant_totals(views: Iterable[View]) -> dict[str, VariantCost]:
    """What each variant did: all of its kernels, one after the other."""
    found: dict[str, VariantCost] = {}
    for view in views:
        before = found.get(view["variant"], VariantCost(0))
        cycles = before.cycles + view["bound"]["cycles"]
        sectors = before.sectors + view["total"].get("sectors", 0)
        found[view["variant"]] = VariantCost(cycles, sectors)
    return found


def views_table(page: SnippetPage) -> str:
    """The totals of each view, under a summary line; "" if there is none."""
    if not page.views:
        return ""

    def place(item: tuple[tuple[str, str], list[View]]) -> tuple[bool, int, str]:
        (arch, case), _ = item
        return arch != USUAL, architectures.sm_version(arch), case

    groups = dict(sorted(_group_views(page).items(), key=place))
    cases = list(dict.fromkeys(case for _, case in groups))
    labels = dict(zip(cases, units.case_labels(list(map(json.loads, cases))), strict=True))
    places = {key: rank_variants(variant_totals(views)) for key, views in groups.items()}
    ranked = any(len(set(one.values())) > 1 for one in places.values())
    head = [name for name in HEAD if ranked or name != RANK]
    bodies = []
    for (arch, case), views in groups.items():
        title = f"Executed from its PTX for {arch} on a CPU: counts, no times"
        title += f"; {labels[case]}" if len(labels) > 1 else ""
        rows = _view_rows(page.id, views, places[arch, case], ranked)
        rows += _roofline_floor(page, json.loads(case), len(head))
        bodies.append(tables.row_group(title, rows, len(head)))
    compilers = ", ".join(sorted({one["compiler"] for one in page.views}))
    of = f", {labels[cases[0]]}" if len(labels) == 1 else ""
    caption = f"What the machine does with it{of}\n{compilers}. {NO_TIME}"
    inner = tables.render_table(caption, head, bodies, "views")
    return tables.render_fold(_bounds_summary(groups), inner, "look", len(page.views))


def _busiest_pipe(views: Iterable[View]) -> str:
    """What limits the kernel with the highest bound."""
    return max((view["bound"] for view in views), key=lambda one: one["cycles"])["limiter"]


def _bounds_summary(groups: Groups) -> str:
    """What the bounds say, in one line."""
    arch, case = _most_counted(groups)
    views = groups[arch, case]
    done = variant_totals(views)
    said = "What the machine does with it"
    if len(done) == 1:
        least = format_cycles(next(iter(done.values())).cycles)
        return f"{said}: at least {least} SM cycles on {arch}, by {_busiest_pipe(views)}"
    apart = [
        (other.cycles / own.cycles if own.cycles else 0, slow, fast)
        for fast, own in done.items()
        for slow, other in done.items()
        if is_faster(own, other)
    ]
    if not apart:
        return f"{said}: on {arch} the bounds do not separate the variants"
    times, slow, fast = max(apart)
    factor = f"{units.format_ratio(times)} that of" if times else "above that of"
    return f"{said}: on {arch} the bound of {slow} is {factor} {fast}"


def _view_rows(
    snippet: str, group: Sequence[View], where: dict[str, tuple[int, int]], ranked: bool
) -> list[str]:
    order, rows = list(where), []
    for view in sorted(group, key=lambda one: (order.index(one["variant"]), view_name(one))):
        first, last = where[view["variant"]]
        place = f"{first if first == last else f'{first} to {last}'} of {len(where)}"
        total, resident = view["total"], view["occupancy"]
        executed = executed_count(total)
        lanes = units.safe_divide(total.get("lanes", 0), executed)
        live = f"{live_registers(view)} live"
        if view["spilled_bytes"]:
            live += f", {units.format_bytes(view['spilled_bytes'])} spilled"
        limiters = " and ".join(resident["limiters"])
        held = f"{resident['warps']} of {resident['most']}"
        cells = [
            tables.make_cell(format_cycles(view["bound"]["cycles"]), view["bound"]["limiter"]),
            *(["alone" if len(where) == 1 else place] if ranked else []),
            units.format_integer(executed),
            str(LANES) if lanes == LANES else units.format_significant(lanes),
            _against_ideal(total, "sectors"),
            _against_ideal(total, "wavefronts"),
            tables.make_cell(str(view["registers"]), live),
            tables.make_cell(held, f"by {limiters}" if limiters else ""),
        ]
        # A script puts a button beside the name; the name of a file needs no entities.
        named = f' data-look="{snippet}/{view_name(view)}"' if view["whole"] else ""
        rows.append(tables.table_row(view["variant"], cells, view["kernel"], named))
    return rows


def format_cycles(number: float) -> str:
    """SM cycles: whole from a hundred on."""
    whole = number >= 100
    return units.format_integer(round(number)) if whole else units.format_significant(number)


def _against_ideal(total: dict[str, Any], name: str) -> str:
    count, ideal = total.get(name, 0), total.get(f"ideal_{name}", 0)
    if not count:
        return "none"
    times = "" if count == ideal else f"{units.format_ratio(units.safe_divide(count, ideal))} "
    return tables.make_cell(units.format_integer(count), f"{times}ideal")


def _roofline_floor(page: SnippetPage, case: dict[str, Any], columns: int) -> list[str]:
    """What the case needs whatever computes it, by its record: the roofline's floor."""
    for state in page.select_states("measured", "verified", "compiled"):
        for row in state.known.get("cases", ()):
            if row["case"] == case and "bytes" in row:
                text = f"{units.format_bytes(row['bytes'])} to and from memory"
                if row.get("flops"):
                    text += f", {units.format_number(row['flops'])} operations of {row['unit']}"
                return [tables.spanning_row("at least", text, columns - 1, "whatever the kernel")]
    return []


# Classes of instructions (look/figures.py) by what they are for.
PURPOSES = {
    "matrix": ("matrix",),
    "arithmetic": ("multiply-add", "float", "special function"),
    "addresses and moves": ("integer", "move", "conversion", "load parameter"),
    "memory": (
        "load global", "store global", "load generic", "store generic", "atomic global", "async",
    ),
    "shared memory": ("load shared", "store shared", "atomic shared", "shuffle and vote"),
    "control": ("barrier", "control", "hint"),
}  # fmt: skip
SECTOR, WAVEFRONT = 32, 128  # bytes
BAR = 270.0  # the longest bar of the picture, and
DRAWN = 6  # how many variants it has at most


class Counted(NamedTuple):
    """What each variant does in one case, the slowest first.

    Each kernel is counted at one case alone, so a variant may have further ones elsewhere: `note`
    says so. What it spends has the names of PURPOSES: instructions of warps; and bytes, of sectors
    to and from memory and of wavefronts of shared memory.
    """

    arch: str
    label: str
    variants: Mapping[str, Sequence[View]]
    note: str

    def spending(self, name: str) -> tuple[dict[str, int], dict[str, int]]:
        """The instructions and the bytes of a variant."""
        totals = [view["total"] for view in self.variants[name]]
        counts = {
            purpose: sum(total["classes"].get(one, 0) for total in totals for one in classes)
            for purpose, classes in PURPOSES.items()
        }
        return counts, {
            "memory": SECTOR * sum(total.get("sectors", 0) for total in totals),
            "shared memory": WAVEFRONT * sum(total.get("wavefronts", 0) for total in totals),
        }


def _find_counted(page: SnippetPage) -> Counted | None:
    if not page.views:
        return None
    groups = _group_views(page)
    arch, case = _most_counted(groups)
    costs = variant_totals(groups[arch, case])
    variants: dict[str, list[View]] = {
        name: [] for name in sorted(costs, key=lambda one: -costs[one].cycles)
    }
    for view in groups[arch, case]:
        variants[view["variant"]].append(view)
    others = (own for key, own in groups.items() if key[0] == arch and key[1] != case)
    partial = sorted(costs.keys() & {view["variant"] for own in others for view in own})
    note = f" Kernels of {', '.join(partial)} that were counted at another case are left out."
    label = units.case_labels([json.loads(case)])[0]
    return Counted(arch, label, variants, note if partial else "")


def ladder_table(page: SnippetPage) -> str:
    """Each variant in a row: by the times of the GPU measured last, else by what was counted."""
    for state in page.select_states("measured"):
        cases = [(len(tables.timed_results(one)), one.get("bytes", 0), place, one)
                 for place, one in enumerate(tables.timed_cases(state.known))]  # fmt: skip
        if cases and max(cases)[0]:
            return _timed_table(state, max(cases)[-1])
    found = _find_counted(page)
    return _counted_table(found) if found else snippet_page.state_notices(page)


def _timed_table(state: MachineState, case: dict[str, Any]) -> str:
    limit, results = tables.case_bound(state.known, case), tables.timed_results(case)
    peer = next((time for one, time in results if one["role"] == "peer"), None)
    rows = []
    for result, time in results:
        speed = limit.rate(time["median"]) if limit else None
        cells = (
            units.format_seconds(time["median"]),
            units.format_rate(speed, limit.unit) if limit else "not stated",
            units.format_percent(units.safe_divide(speed, limit.ceiling if limit else None)),
            units.format_ratio(units.safe_divide(peer["median"], time["median"]))
            if peer
            else "no peer",
        )
        rows.append(tables.table_row(result["name"], cells, tables.note_peer(result["role"])))
    head = ("Variant", "Median time", "Rate", "Of the measured limit", "Speed against the peer")
    label = units.case_labels([case["case"]])[0]
    caption = f"Times at {label}\n{snippet_page.origin_line(state.known, state.apart)}"
    return tables.render_table(caption, head, rows, "ladder")


def _counted_table(found: Counted) -> str:
    rows = []
    for name, own in found.variants.items():
        instructions, moved = found.spending(name)
        bound = sum(view["bound"]["cycles"] for view in own)
        spilled = max(view["spilled_bytes"] for view in own)
        registers = str(max(view["registers"] for view in own))
        cells = (
            tables.make_cell(format_cycles(bound), _busiest_pipe(own)),
            units.format_integer(sum(instructions.values())),
            units.format_bytes(moved["memory"]),
            units.format_bytes(moved["shared memory"]),
            tables.make_cell(registers, f"{units.format_bytes(spilled)} spilled" * bool(spilled)),
        )
        rows.append(tables.table_row(name, cells))
    head = (
        "Variant", "Lower bound, SM cycles", "Warp instructions", "To and from memory",
        "Shared memory", "Registers",
    )  # fmt: skip
    caption = f"What each variant does at {found.label}\n"
    caption += f"Executed from its PTX for {found.arch} on a CPU: counts, no times.{found.note}"
    return tables.render_table(caption, head, rows, "ladder")


def spending_figure(page: SnippetPage) -> str:
    """Where the instructions and the bytes of each variant go; "" without views."""
    found = _find_counted(page)
    if found is None:
        return ""
    names = list(found.variants)
    shown = [*names[: DRAWN - 2], *names[-2:]] if len(names) > DRAWN else names
    spending = {name: found.spending(name) for name in shown}
    longest = [
        max(sum(spent.values()) for spent in side) or 1
        for side in zip(*spending.values(), strict=True)
    ]
    colours = {purpose: f"ws-bar ws-s{index}" for index, purpose in enumerate(PURPOSES)}
    parts, said, y = [], [], svg.TEXT
    for name, both in spending.items():
        parts.append(svg.draw_text(0, y, svg.fit_text(name, svg.WIDTH)))
        instructions, moved = (sum(spent.values()) for spent in both)
        told = f"{units.format_number(instructions)} instructions", units.format_bytes(moved)
        for spent, most, words in zip(both, longest, told, strict=True):
            x = 0.0
            for purpose, amount in spent.items():
                if (wide := BAR * amount / most) >= 0.5:
                    parts.append(svg.draw_rect(x, y + 6, wide, 11, colours[purpose]))
                x += wide
            parts.append(svg.draw_text(x + 6, y + 16, words))
            shares = (f"{purpose} {units.format_integer(n)}" for purpose, n in spent.items() if n)
            said.append(f"{name}, {words}: {', '.join(shares)}")
            y += 15
        y += 24
    met = [one for one in PURPOSES if any(counts[one] for counts, _ in spending.values())]
    for index, purpose in enumerate(met):
        x, below = 200.0 * (index % 2), y + svg.LINE * (index // 2)
        parts.append(svg.draw_rect(x, below - 10, 11, 11, colours[purpose]))
        parts.append(svg.draw_text(x + 18, below, purpose))
    foot = y + svg.LINE * ((len(met) + 1) // 2) - 8
    note = (
        f"Above, instructions of warps; below, bytes to and from memory and shared memory. Counted "
        f"at {found.label} for {found.arch}, not timed; the variant with the highest bound first."
    )
    title = "Where its instructions and bytes go"
    return svg.render_figure(title, said, foot, parts, note + found.note)
