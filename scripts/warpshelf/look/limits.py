"""What LIMITS of cases.py asks of views, beside what it asks of each binary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from warpshelf.look import figures
from warpshelf.look.view import View


class Limit(NamedTuple):
    """How a figure is read from a view, whether it is a least or a most, and what mends it."""

    read: Callable[[View], float | None]
    least: bool
    mend: str


def _instructions_per_fma(view: View) -> float | None:
    return figures.loop_figures(figures.main_loop(view["loops"])).get(
        "main loop: instructions a multiply-add"
    )


LIMITS: dict[str, Limit] = {
    "warps": Limit(
        lambda view: float(view["occupancy"]["warps"]),
        True,
        "use fewer registers or less shared memory, or another block",
    ),
    "sectors_over_ideal": Limit(
        lambda view: figures.over_ideal(view["total"], "sectors"),
        False,
        "let neighbouring lanes access neighbouring addresses",
    ),
    "wavefronts_over_ideal": Limit(
        lambda view: figures.over_ideal(view["total"], "wavefronts"),
        False,
        "pad or swizzle what lies in shared memory",
    ),
    "wide_accesses": Limit(
        figures.wide_accesses, True, "let the compiler see that addresses are multiples of 16"
    ),
    "instructions_per_fma": Limit(
        _instructions_per_fma, False, "look at its main loop by `shelf look`, and unroll or hoist"
    ),
}


def limit_violations(views: Iterable[View], limits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each figure of a view that is not within its limit in LIMITS.

    A key is a kernel's name, with or without template arguments, or "*" for all. Where a view has
    no such figure (no loop with multiply-adds), a limit on it is broken too.
    """
    lines = []
    for view in views:
        for key, bounds in limits.items():
            if key not in ("*", view["kernel"], view["kernel"].split("<")[0]):
                continue
            for name, limit in bounds.items():
                if name in LIMITS and (said := _limit_violation(view, name, limit)):
                    lines.append(said)
    return lines


def _limit_violation(view: View, name: str, limit: float) -> str | None:
    read, least, mend = LIMITS[name]
    value = read(view)
    if value is not None and (value >= limit if least else value <= limit):
        return None
    verb = "is below" if least else "exceeds"
    said = "it has none, where the limit is" if value is None else f"= {value:.4g} {verb} the limit"
    return (
        f"{view['kernel']} ({view['variant']}) on {view['arch']}: {name} {said} {limit:g}; "
        f"{mend}, or change LIMITS"
    )
