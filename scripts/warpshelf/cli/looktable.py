"""All variants of a snippet on one architecture, as a table in the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.cli.printing import put, say, title
from warpshelf.core import units
from warpshelf.look.bound import DIFFERENT, places
from warpshelf.look.figures import over_ideal
from warpshelf.look.view import LANES, View
from warpshelf.render.views import totals

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


def table(out: Console, snippet: str, arch: str, views: Sequence[View]) -> None:
    """Print a table for each case: variants compare on one case alone."""
    cases: dict[str, list[View]] = {}
    for one in views:
        cases.setdefault(json.dumps(one["case"], sort_keys=True), []).append(one)
    labels = units.labels([group[0]["case"] for group in cases.values()])
    for label, group in zip(labels, cases.values(), strict=True):
        of = f", {label}" if label else ""
        title(out, f"{snippet} on {arch}{of}")
        put(out, _table(group))
    out.print()
    compilers = ", ".join(sorted({one["compiler"] for one in views}))
    say(out, f"{compilers}; counts of PTX executed on a CPU. {IDEAL} {NO_TIME}")


def _table(views: Sequence[View]) -> Table:
    ranked = places(totals(views))
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
        drawn.add_row(*map(escape, (shown, _place(*ranked[name], len(ranked)), *_cells(one))))
    return drawn


def _place(first: int, last: int, of: int) -> str:
    return "-" if of == 1 else f"{first}" if first == last else f"{first}-{last}"


def _cells(one: View) -> tuple[str, ...]:
    total, resident = one["total"], one["occupancy"]
    executed = sum(total["classes"].values())
    return (
        f"{one['bound']['cycles']:,.0f}",
        _short(one["bound"]["limiter"]),
        f"{executed:,}",
        lanes(total.get("lanes", 0), executed),
        *(over(total, name) for name in ("sectors", "wavefronts")),
        f"{one['registers']}/{max(one['sass']['live'], default=0)}",
        f"{one['spilled_bytes']} B" if one["spilled_bytes"] else "-",
        f"{resident['warps']}/{resident['most']}",
        ", ".join(map(_short, resident["limiters"])),
    )


def _short(limiter: str) -> str:
    return SHORT.get(limiter, limiter)


def lanes(taking: int, executed: int) -> str:
    """How many lanes of 32 took part on average, to a tenth."""
    if not executed or taking == LANES * executed:
        return str(LANES) if executed else "-"
    return f"{min(taking / executed, LANES - 0.1):.1f}"


def over(tally: dict[str, int], name: str) -> str:
    """Sectors or wavefronts over the ideal, such as `6.60×`; `-` of none."""
    if not tally.get(name):
        return "-"
    times = over_ideal(tally, name)
    return "1×" if 1 <= times < WORSE else units.ratio(times)
