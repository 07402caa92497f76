"""The variants of a snippet side by side: a table and a picture of what each one costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.look.view import View
from warpshelf.render import snippet_page, svg, tables, views
from warpshelf.render.snippet_page import MachineState, SnippetPage

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
    """The case that most variants were counted on, and the views of each, the slowest first.

    Each kernel is counted at one case alone, so a variant may have further ones there: `note` says
    so.
    """

    arch: str
    label: str
    variants: Mapping[str, Sequence[View]]
    note: str = ""


def _find_counted(page: SnippetPage) -> Counted | None:
    """Variants are in the order of their bounds on the usual architecture; None without views."""
    usual = [view for view in page.views if view["arch"] == views.USUAL] or page.views
    cases: dict[str, dict[str, list[View]]] = {}
    for view in usual:
        own = cases.setdefault(json.dumps(view["case"], sort_keys=True), {})
        own.setdefault(view["variant"], []).append(view)
    if not cases:
        return None
    case = max(cases, key=lambda key: len(cases[key]))
    costs = views.variant_totals(view for own in cases[case].values() for view in own)
    order = sorted(cases[case], key=lambda name: -costs[name].cycles)
    label = units.case_labels([json.loads(case)])[0]
    elsewhere = (name for key in cases.keys() - {case} for name in cases[key])
    partial = sorted(set(order).intersection(elsewhere))
    note = f" Kernels of {', '.join(partial)} that were counted at another case are left out."
    found = {name: cases[case][name] for name in order}
    return Counted(usual[0]["arch"], label, found, note if partial else "")


class Spending(NamedTuple):
    """What a variant spends on a case, by the names in PURPOSES."""

    name: str
    instructions: dict[str, int]  # of warps
    bytes: dict[str, int]  # sectors to and from memory, wavefronts of shared memory


def _count_spending(name: str, own: Sequence[View]) -> Spending:
    totals = [view["total"] for view in own]
    counts = {
        purpose: sum(total["classes"].get(one, 0) for total in totals for one in classes)
        for purpose, classes in PURPOSES.items()
    }
    moved = {
        "memory": SECTOR * sum(total.get("sectors", 0) for total in totals),
        "shared memory": WAVEFRONT * sum(total.get("wavefronts", 0) for total in totals),
    }
    return Spending(name, counts, moved)


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
        against = units.safe_divide(peer["median"], time["median"]) if peer else None
        cells = (
            units.format_seconds(time["median"]),
            units.format_rate(speed, limit.unit) if limit else "not stated",
            units.format_percent(units.safe_divide(speed, limit.ceiling if limit else None)),
            units.format_ratio(against) if against else "no peer",
        )
        rows.append(tables.table_row(result["name"], cells, tables.note_peer(result["role"])))
    head = ("Variant", "Median time", "Rate", "Of the measured limit", "Speed against the peer")
    label = units.case_labels([case["case"]])[0]
    caption = f"Times at {label}\n{snippet_page.origin_line(state.known, state.apart)}"
    return tables.render_table(caption, head, rows, "ladder")


def _counted_table(found: Counted) -> str:
    rows = []
    for name, own in found.variants.items():
        spent = _count_spending(name, own)
        bound = sum(view["bound"]["cycles"] for view in own)
        spilled = max(view["spilled_bytes"] for view in own)
        limiter = max(own, key=lambda view: view["bound"]["cycles"])["bound"]["limiter"]
        cells = (
            tables.make_cell(views.format_cycles(bound), limiter),
            units.format_integer(sum(spent.instructions.values())),
            units.format_bytes(spent.bytes["memory"]),
            units.format_bytes(spent.bytes["shared memory"]),
            tables.make_cell(
                str(max(view["registers"] for view in own)),
                f"{units.format_bytes(spilled)} spilled" if spilled else "",
            ),
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
    rows = [_count_spending(name, found.variants[name]) for name in shown]
    sides = zip(*((row.instructions, row.bytes) for row in rows), strict=True)
    longest = [max(sum(spent.values()) for spent in side) or 1 for side in sides]
    colours = {purpose: f"ws-bar ws-s{index}" for index, purpose in enumerate(PURPOSES)}
    parts, said, y = [], [], svg.TEXT
    for row in rows:
        parts.append(svg.draw_text(0, y, svg.fit_text(row.name, svg.WIDTH)))
        instructions = f"{units.format_number(sum(row.instructions.values()))} instructions"
        told = instructions, units.format_bytes(sum(row.bytes.values()))
        for spent, most, words in zip(row[1:], longest, told, strict=True):
            x = 0.0
            for purpose, amount in spent.items():
                if (wide := BAR * amount / most) >= 0.5:
                    parts.append(svg.draw_rect(x, y + 6, wide, 11, colours[purpose]))
                x += wide
            parts.append(svg.draw_text(x + 6, y + 16, words))
            shares = (f"{purpose} {units.format_integer(n)}" for purpose, n in spent.items() if n)
            said.append(f"{row.name}, {words}: {', '.join(shares)}")
            y += 15
        y += 24
    met = [purpose for purpose in PURPOSES if any(row.instructions[purpose] for row in rows)]
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
