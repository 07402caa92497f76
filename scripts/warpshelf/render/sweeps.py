"""Rates over a size, as lines, where timed cases differ in nothing but that size."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import axes, rates, svg, tables

SIZES = 4  # timed sizes that make a line
Sized = list[tuple[float, dict[str, Any]]]  # cases by their size, the smallest first


def sweep(cases: list[dict[str, Any]]) -> tuple[str, Sized] | None:
    """The largest set of timed cases that differ in one number, with that number's name.

    Sides that are always equal to each other, as of square matrices, count as one; so does a side
    with another that shrinks as it grows, so that their product stays: rows of every length.
    """
    best: tuple[str, Sized] | None = None
    keys = list(dict.fromkeys(key for case in cases for key in case["case"]))
    sides = [k for k in keys if all(units.finite(c["case"].get(k)) is not None for c in cases)]
    choices: list[tuple[str, ...]] = [(key,) for key in sides]
    square = [k for k in sides if all(c["case"][k] == c["case"][sides[0]] for c in cases)]
    if len(square) > 1:
        choices.append(tuple(square))
    traded = [(b, a) for a, b in combinations(sides, 2)]
    for choice in (*choices, *traded):
        product = choice in traded
        name = f"{choice[0]}, {choice[1]} × {choice[0]} the same" if product else " = ".join(choice)
        groups: dict[str, dict[float, dict[str, Any]]] = {}
        for case in cases:
            left_out = (*choice, "variants")
            rest = sorted((k, repr(v)) for k, v in case["case"].items() if k not in left_out)
            if product:
                rest.append(("×", repr(case["case"][choice[0]] * case["case"][choice[1]])))
            size = float(case["case"][choice[0]])
            if size > 0:
                groups.setdefault(repr(rest), {})[size] = case
        for group in groups.values():
            if len(group) >= max(SIZES, len(best[1]) + 1 if best else 0):
                best = (name, sorted(group.items()))
    return best


def drawing(record: Record, name: str, sized: Sized) -> svg.Drawing | None:
    """The rates of each variant over the size called `name`; None where none can be drawn."""
    limit = rates.bound(record, sized[-1][1])  # the largest says which rate is worth drawing
    series = _series(limit, sized) if limit else {}
    if not limit or not series:
        return None
    lines = limit.limits()
    high = [p.high for points in series.values() for p in points] + [rate for *_, rate in lines]
    step, top = axes.rounded(max(high))
    unit = units.rate(max(high), limit.unit).split(" ")[1]
    x = axes.across(sized[0][0], sized[-1][0], log=True, margin=8)
    y = axes.upwards(0, top)
    levels = [tick * step for tick in range(int(top / step + 0.5) + 1)]
    parts = [
        *axes.rows(y, axes.labelled(levels, axes.prefix(unit)), unit),
        *axes.sizes(x, [(size, units.number(size)) for size, _ in sized], name),
        *(axes.level(y(rate), kind) for kind, _, rate in lines),
    ]
    legend, ends = [], []
    for index, ((role, called), points) in enumerate(series.items()):
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.path(((x(p.x), y(p.rate)) for p in points), colour))
        parts += [svg.line(x(p.x), y(p.low), x(p.x), y(p.high), colour) for p in points]
        parts += [svg.mark(x(p.x), y(p.rate), index) for p in points]
        best = units.rate(max(p.rate for p in points), limit.unit)
        value = f"{' (peer)' if role == 'peer' else ''}, up to {best}"
        legend.append(svg.Entry(index, called, value))
        ends.append(points[-1])
    heights = svg.spread([y(p.rate) for p in ends], svg.TEXT, axes.TOP, axes.TOP + axes.AREA)
    parts += [
        svg.text(x(end.x) + 8, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        for entry, end, height in zip(legend, ends, heights, strict=True)
    ]
    below, foot = svg.legend(axes.FOOT, legend, [(kind, words) for kind, words, _ in lines])
    title = f"{limit.quantity} per second over {name}"
    said = [entry.name + entry.value for entry in legend]
    return svg.Drawing(title, said, foot - 8, [*parts, *below])


def _series(limit: rates.Bound, sized: Sized) -> dict[tuple[str, str], list[rates.Point]]:
    """The measured rates of each function, by role and name."""
    field = "bytes" if limit.unit == "B/s" else "flops"
    series: dict[tuple[str, str], list[rates.Point]] = {}
    for size, case in sized:
        own = rates.Bound(units.finite(case.get(field)) or 0.0, limit.unit)
        for result in case["results"]:
            if point := rates.point(size, own, tables.time_of(result)):
                series.setdefault((result["role"], result["name"]), []).append(point)
    return series
