"""What differs between two builds of a kernel, in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.cli.printing import cut, put, say
from warpshelf.cli.printing import title as heading
from warpshelf.look.differences import Change, Difference

SMALL = 100  # below it a difference says more than its share


def difference(out: Console, found: Difference, names: tuple[str, str], title: str) -> None:
    """Print what differs of a kernel; `names` are those of the build before and after."""
    heading(out, f"{found.variant}: {found.kernel}, {title}")
    if not found.counts:
        say(out, "of other cases: executed counts are not compared", 2)
    if not found.figures and not found.lines:
        say(out, "nothing differs", 2)
        return
    if found.figures:
        drawn = _table("figure", *names)
        for one in found.figures:
            drawn.add_row(*map(escape, (one.figure, *_cells(one))))
        put(out, drawn)
    for line in found.lines:
        said = ", ".join(f"{one.figure} {_said(one)}" for one in line.changes)
        say(out, f"{line.at}: {said}", 2, hanging=4)
        if line.text:
            cut(out, line.text, 4)


def alone(out: Console, one: dict[str, Any], where: str) -> None:
    """Print that a kernel is on one side alone."""
    heading(out, f"{one['variant']}: {one['kernel']} is there {where} alone")


def _table(*names: str) -> Table:
    drawn = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    drawn.add_column(names[0], overflow="fold")
    for name in (*names[1:], "change"):
        drawn.add_column(escape(name), justify="right", no_wrap=True, overflow="ellipsis")
    return drawn


def _cells(one: Change) -> tuple[str, str, str]:
    before, after = number(one.before), number(one.after)
    if one.before is None or one.after is None:
        return before, after, ""
    return before, after, _change(one.before, one.after)


def _change(before: float, after: float) -> str:
    """A difference where numbers are small, a factor where it is 2 or more, else per cent."""
    if not before or max(abs(before), abs(after)) < SMALL:
        return f"{after - before:+,.4g}"
    times = after / before
    return f"{100 * (times - 1):+.1f} %" if 0.5 < times < 2 else f"×{times:.3g}"


def _said(one: Change) -> str:
    return f"{number(one.before)} → {number(one.after)}"


def number(value: float | None) -> str:
    """A figure: whole numbers in full, others to four digits; `-` of none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
