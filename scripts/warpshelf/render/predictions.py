"""What a model predicts beside what was published: a plot of errors, errors by set, every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from warpshelf.contract import predictions as predicted
from warpshelf.contract.predictions import Errors, Row
from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import axes, provenance, svg, tables

BAND = 0.10  # relative error that the plot marks


def predictions(record: Record, sources: dict[str, str] | None = None) -> str:
    """The plot, the errors by set with the goals, and all rows folded; "" without predictions.

    `sources` gives the titles of reading ids.
    """
    rows: list[dict[str, Any]] = record.get("predictions", [])
    if not rows:
        return ""
    sets = predicted.by_set(rows)
    plot = svg.figure(_plot(rows, sets), f"{provenance.line(record)}.")
    every = tables.fold(
        f"All {tables.count(len(rows), 'row')}, predicted and published",
        _rows(record, rows, sources or {}),
        tables.FEW + 1,
    )
    return f"{plot}\n{_sets(record, sets)}\n{every}"


def _sets(record: Record, sets: Sequence[Errors]) -> str:
    body = [tables.row(one.name, _measures(one), _beside(one)) for one in sets]
    groups = ["<tbody>", *body, "</tbody>"]
    if goals := record.get("goals"):
        lines = []
        for goal in goals:
            _, told = predicted.reached(goal, record["predictions"])
            asked = f"{told}; a run fails below {predicted.asked(goal)}"
            if "within" not in goal:
                asked = f"{told}; a run fails over {100 * goal[_measure(goal)]:g} %"
            lines.append(tables.wide(goal["name"], asked, 6))
        groups.append(tables.group("What it is held to", lines, 7))
    near = (f"Within {100 * limit:g} %" for limit in predicted.NEAR)
    head = ("Published figures", "Rows", "Mean error", "Median", "Worst", *near)
    caption = f"Errors of the predictions\n{provenance.line(record)}"
    return tables.table(caption, head, groups, "predictions")


def _measure(goal: Row) -> str:
    return next(key for key in predicted.MEASURES if key in goal)


def _beside(one: Errors) -> str:
    return f"and {one.fitted} fitted" if one.fitted else ""


def _measures(one: Errors) -> tuple[str, ...]:
    count = len(one.errors)
    if not count:
        return ("0", *["none"] * 5)
    near = (f"{one.within(limit)} of {count}" for limit in predicted.NEAR)
    return (str(count), *(_percent(value) for value in one.measures.values()), *near)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _rows(record: Record, rows: Iterable[Row], sources: dict[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for row in rows:
        unit = f" {row['unit']}" if row["unit"] else ""
        cells = (
            units.number(float(units.significant(row["predicted"], 4))) + unit,
            units.number(row["published"]) + unit,
            f"{100 * predicted.error(row):+.1f} %".replace("-", "−"),
            sources.get(row["source"]) or row["source"],
        )
        note = "fitted on it" if row["fitted"] else ""
        groups.setdefault(row["set"], []).append(tables.row(row["name"], cells, note))
    head = ("Configuration", "Predicted", "Published", "Error", "Source")
    body = [tables.group(name, lines, len(head)) for name, lines in groups.items()]
    caption = f"Predicted and published\n{provenance.line(record)}"
    return tables.table(caption, head, body, "predicted")


def _plot(rows: Sequence[Row], sets: Sequence[Errors]) -> svg.Drawing:
    """The error of each row, set beside set, in the order in which they stand."""
    errors = {one.name: [row for row in rows if row["set"] == one.name] for one in sets}
    most = max(1.2 * BAND, *(abs(predicted.error(row)) for row in rows))
    step, top = axes.rounded(most)
    y = axes.upwards(-top, top)
    x = axes.across(0, len(rows) + len(sets) - 1 or 1, margin=8)
    ticks = [(step * n, f"{100 * step * n:+g} %".replace("-", "−").replace("+0 %", "0 %"))
             for n in range(-round(top / step), round(top / step) + 1)]  # fmt: skip
    parts = [*axes.rows(y, ticks, "predicted over published"), *_band(y)]
    legend, place = [], 0
    for index, one in enumerate(sets):
        for row in errors[one.name]:
            parts.append(_point(x(place), y(predicted.error(row)), index, row["fitted"]))
            place += 1
        place += 1  # a gap between sets
        told = f": median {_percent(one.measures['median'])}" if one.errors else ": fitted"
        legend.append(svg.Entry(index, one.name, told))
    band = f"{100 * BAND:g} % above and below what was published"
    below, foot = svg.legend(axes.FOOT - 34, legend, [("ws-peak", band)])
    title = "Error of each prediction, in the order of the table below"
    said = [f"{entry.name}{entry.value}" for entry in legend]
    hollow = "Rows that a constant was fitted on are hollow. "
    remark = hollow if any(row["fitted"] for row in rows) else ""
    return svg.Drawing(title, said, foot - 8, [*parts, *below], remark)


def _band(y: axes.Scale) -> Iterator[str]:
    for limit in (BAND, -BAND):
        yield axes.level(y(limit), "ws-peak")


def _point(x: float, y: float, index: int, fitted: bool) -> str:
    if not fitted:
        return svg.mark(x, y, index)
    kind = f'class="ws-s{index % svg.COLOURS}" fill="none" stroke="currentColor"'
    return f'<circle cx="{svg.at(x)}" cy="{svg.at(y)}" r="4.5" {kind}/>'
