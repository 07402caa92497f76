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
from warpshelf.core.markup import escape_markdown
from warpshelf.look.bound import DIFFERENT, VariantCost, is_faster, rank_variants
from warpshelf.look.view import LANES, View, executed_count, live_registers, view_name
from warpshelf.render import tables
from warpshelf.render.snippet_page import SnippetPage

HEAD = (
    "Variant", "Lower bound, SM cycles", "Place by it", "Warp instructions", "Lanes of 32",
    "Global sectors", "Shared wavefronts", "Registers", "Warps resident",
)  # fmt: skip
NO_TIME = (
    "A bound is no time: no run takes fewer cycles than its busiest pipe. Variants share places "
    f"unless their bounds differ by more than a factor of {DIFFERENT}, and the one with the lower "
    "bound touches no more sectors"
)
USUAL = "sm_90"  # the architecture that the summary speaks of


def views_table(exhibit: SnippetPage) -> str:
    """The totals of each view, under a line with what they come to; "" where there is none."""
    if not exhibit.views:
        return ""
    groups: dict[tuple[str, str], list[View]] = {}
    for one in exhibit.views:
        case = json.dumps(one["case"], sort_keys=True)
        groups.setdefault((one["arch"], case), []).append(one)
    groups = dict(
        sorted(groups.items(), key=lambda one: (architectures.sm_version(one[0][0]), one[0][1]))
    )
    cases = list(dict.fromkeys(case for _, case in groups))
    labels = dict(zip(cases, units.case_labels(list(map(json.loads, cases))), strict=True))
    bodies = []
    for (arch, case), views in groups.items():
        title = f"Executed from its PTX for {arch} on a CPU: counts, no times"
        title += f"; {labels[case]}" if len(labels) > 1 else ""
        rows = [*_view_rows(exhibit.id, views), *_roofline_floor(exhibit, json.loads(case))]
        bodies.append(tables.row_group(title, rows, len(HEAD)))
    compilers = ", ".join(sorted({one["compiler"] for one in exhibit.views}))
    of = f", {labels[cases[0]]}" if len(labels) == 1 else ""
    caption = f"What the machine does with it{of}\n{compilers}. {NO_TIME}"
    inner = tables.render_table(caption, HEAD, bodies, "views")
    return tables.render_fold(_bounds_summary(groups), inner, len(exhibit.views), "look")


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
        least = _format_cycles(next(iter(done.values())).cycles)
        return f"{said}: at least {least} SM cycles on {arch}, by {limiter}"
    apart = [
        (other.cycles / own.cycles if own.cycles else 0, slow, fast)
        for fast, own in done.items()
        for slow, other in done.items()
        if is_faster(own, other)
    ]
    if not apart:
        return f"{said}: on {arch} bounds tell no variant from another"
    times, slow, fast = max(apart)
    factor = f"{units.format_ratio(times)} that of" if times else "above that of"
    return f"{said}: on {arch} the bound of {slow} is {factor} {fast}"


def _view_rows(snippet: str, group: Sequence[View]) -> list[str]:
    where = rank_variants(variant_totals(group))
    order = {name: at for at, name in enumerate(where)}
    rows = []
    for view in sorted(group, key=lambda one: (order[one["variant"]], view_name(one))):
        cells = "".join(
            f" <td>{escape_markdown(text)}"
            + (f" <small>{escape_markdown(note)}</small></td>" if note else "</td>")
            for text, note in _view_cells(view, _format_place(*where[view["variant"]], len(where)))
        )
        variant, kernel = escape_markdown(view["variant"]), escape_markdown(view["kernel"])
        # A script puts a button beside the name; the name of a file needs no entities.
        named = f' data-look="{snippet}/{view_name(view)}"' if view["whole"] else ""
        head = f'<th scope="row">{variant} <small>{kernel}</small></th>'
        rows.append(f"<tr{named}>{head}{cells}</tr>")
    return rows


def _format_place(first: int, last: int, of: int) -> str:
    """`1 to 2 of 4`, as far as bounds can tell."""
    return "alone" if of == 1 else f"{first if first == last else f'{first} to {last}'} of {of}"


def _view_cells(view: View, place: str) -> list[tuple[str, str]]:
    """The cells of a row, each with what stands below it in small print."""
    total, resident = view["total"], view["occupancy"]
    executed = executed_count(total)
    lanes = units.safe_divide(total.get("lanes", 0), executed)
    spilled = (
        f", {units.format_bytes(view['spilled_bytes'])} spilled" if view["spilled_bytes"] else ""
    )
    limiters = " and ".join(resident["limiters"])
    return [
        (_format_cycles(view["bound"]["cycles"]), view["bound"]["limiter"]),
        (place, ""),
        (units.format_integer(executed), ""),
        (str(LANES) if lanes == LANES else units.format_significant(lanes), ""),
        _against_ideal(total, "sectors"),
        _against_ideal(total, "wavefronts"),
        (str(view["registers"]), f"{live_registers(view)} live{spilled}"),
        (f"{resident['warps']} of {resident['most']}", f"by {limiters}" if limiters else ""),
    ]


def _format_cycles(number: float) -> str:
    return (
        units.format_integer(round(number)) if number >= 100 else units.format_significant(number)
    )


def _against_ideal(total: dict[str, Any], name: str) -> tuple[str, str]:
    """A count beside its ideal."""
    count, ideal = total.get(name, 0), total.get(f"ideal_{name}", 0)
    if not count:
        return "none", ""
    worse = (
        f"{units.format_ratio(units.safe_divide(count, ideal))} ideal"
        if count != ideal
        else "ideal"
    )
    return units.format_integer(count), worse


def _roofline_floor(exhibit: SnippetPage, case: dict[str, Any]) -> list[str]:
    """What the case needs whoever computes it, as its record says: the roofline's floor."""
    for state in exhibit.select_states("measured", "verified", "compiled"):
        for row in (state.record or {}).get("cases", ()):
            if row["case"] == case and "bytes" in row:
                text = f"{units.format_bytes(row['bytes'])} to and from memory"
                if row.get("flops"):
                    text += f", {units.format_number(row['flops'])} operations of {row['unit']}"
                return [tables.spanning_row("at least", text, len(HEAD) - 1, "whatever the kernel")]
    return []
