"""What the machine does with each kernel: counts, registers, occupancy and bound, as a table.

Variants are ordered by their bounds, and told apart only where those differ enough. There is no
time in it, and it stands in a fold of its own, apart from what was timed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.look.bound import DIFFERENT, VariantCost, is_faster, rank_variants
from warpshelf.look.view import LANES, View, executed_count, live_registers, view_name
from warpshelf.render import tables
from warpshelf.render.snippet_page import SnippetPage

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


def views_table(page: SnippetPage) -> str:
    """The totals of each view, under a summary line; "" if there is none."""
    if not page.views:
        return ""
    groups: dict[tuple[str, str], list[View]] = {}
    for one in page.views:
        case = json.dumps(one["case"], sort_keys=True)
        groups.setdefault((one["arch"], case), []).append(one)

    def place(key: tuple[str, str]) -> tuple[bool, int, str]:
        return key[0] != USUAL, architectures.sm_version(key[0]), key[1]

    groups = {key: groups[key] for key in sorted(groups, key=place)}
    cases = list(dict.fromkeys(case for _, case in groups))
    labels = dict(zip(cases, units.case_labels(list(map(json.loads, cases))), strict=True))
    bodies = []
    places = {key: rank_variants(variant_totals(views)) for key, views in groups.items()}
    ranked = any(len(set(one.values())) > 1 for one in places.values())
    head = [name for name in HEAD if ranked or name != RANK]
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


def variant_totals(views: Iterable[View]) -> dict[str, VariantCost]:
    """What each variant did: all of its kernels, one after the other."""
    found: dict[str, VariantCost] = {}
    for view in views:
        before = found.get(view["variant"], VariantCost(0))
        cycles = before.cycles + view["bound"]["cycles"]
        sectors = before.sectors + view["total"].get("sectors", 0)
        found[view["variant"]] = VariantCost(cycles, sectors)
    return found


def _bounds_summary(groups: dict[tuple[str, str], list[View]]) -> str:
    """What the bounds say, in one line: of the usual architecture, and of its first case."""
    usual = [key for key in groups if key[0] == USUAL] or list(groups)
    arch = usual[0][0]
    views = groups[max(usual, key=lambda key: len(variant_totals(groups[key])))]
    done = variant_totals(views)
    said = "What the machine does with it"
    if len(done) == 1:
        limiter = max(views, key=lambda view: view["bound"]["cycles"])["bound"]["limiter"]
        least = format_cycles(next(iter(done.values())).cycles)
        return f"{said}: at least {least} SM cycles on {arch}, by {limiter}"
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
    order = {name: at for at, name in enumerate(where)}
    rows = []
    for view in sorted(group, key=lambda one: (order[one["variant"]], view_name(one))):
        first, last = where[view["variant"]]
        place = f"{first if first == last else f'{first} to {last}'} of {len(where)}"
        bound, *others = _view_cells(view)
        places = ["alone" if len(where) == 1 else place] if ranked else []
        cells = [bound, *places, *others]
        # A script puts a button beside the name; the name of a file needs no entities.
        named = f' data-look="{snippet}/{view_name(view)}"' if view["whole"] else ""
        rows.append(tables.table_row(view["variant"], cells, view["kernel"], named))
    return rows


def _view_cells(view: View) -> list[str]:
    """The cells of a row but its rank, each with what stands beside it in small print."""
    total, resident = view["total"], view["occupancy"]
    executed = executed_count(total)
    lanes = units.safe_divide(total.get("lanes", 0), executed)
    live = f"{live_registers(view)} live"
    if view["spilled_bytes"]:
        live += f", {units.format_bytes(view['spilled_bytes'])} spilled"
    limiters = " and ".join(resident["limiters"])
    held = f"{resident['warps']} of {resident['most']}"
    return [
        tables.make_cell(format_cycles(view["bound"]["cycles"]), view["bound"]["limiter"]),
        units.format_integer(executed),
        str(LANES) if lanes == LANES else units.format_significant(lanes),
        _against_ideal(total, "sectors"),
        _against_ideal(total, "wavefronts"),
        tables.make_cell(str(view["registers"]), live),
        tables.make_cell(held, f"by {limiters}" if limiters else ""),
    ]


def format_cycles(number: float) -> str:
    whole = number >= 100
    return units.format_integer(round(number)) if whole else units.format_significant(number)


def _against_ideal(total: dict[str, Any], name: str) -> str:
    """A count beside its ideal."""
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
