"""What is held against something: facts, what a model predicts, what others state of an idea.

A stated figure is set against ours only where a current record is of the same kind of device and
has timed the case that the figure names: a claim stays one, and no machine is taken for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from warpshelf.contract import predictions as predicted
from warpshelf.contract.predictions import Errors, Row
from warpshelf.core import devices, markup, units
from warpshelf.core.markup import escape
from warpshelf.records.schema import Record
from warpshelf.render import provenance, svg, tables
from warpshelf.render.exhibit import Claim, Exhibit, MachineState

MOST = 24  # rows of a table that is shown unasked


def _difference(fact: dict[str, Any]) -> str:
    # Whole numbers may be past what a float holds, so they are subtracted as they are.
    away = fact["value"] - fact["expected"]
    if away == 0:
        return "none"
    relative = units.divided(away, abs(fact["expected"]))
    return units.share(relative) if relative is not None else units.number(away)


def facts(record: Record, sources: dict[str, str] | None = None) -> str:
    """The facts of a program or model; `sources` gives the titles of reading ids."""
    rows = []
    for fact in record.get("facts", []):
        unit = f" {fact['unit']}" if fact["unit"] else ""
        # Where 0 is expected there is nothing to be relative to: the tolerance is absolute.
        allowed = units.share if fact["expected"] else units.error
        tolerance = allowed(fact["tolerance"]) if fact["tolerance"] else "exact"
        cells = (
            units.number(fact["value"]) + unit,
            units.number(fact["expected"]) + unit,
            _difference(fact),
            tolerance,
            (sources or {}).get(fact["source"], fact["source"]),
        )
        rows.append(tables.row(fact["name"], cells))
    if not rows:
        return ""
    head = ("Fact", "Value", "Expected", "Difference", "Allowed", "Source of what is expected")
    caption = f"Facts checked\n{provenance.line(record)}"
    found = tables.table(caption, head, ["<tbody>", *rows, "</tbody>"], "facts")
    if len(rows) <= MOST:
        return found
    summary = f"All {len(rows)} facts, each within what is allowed"
    return f'<details class="ws-fold"><summary>{summary}</summary>\n{found}\n</details>'


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
    step, top = svg.rounded(most)
    y = svg.upwards(-top, top)
    x = svg.across(0, len(rows) + len(sets) - 1 or 1, margin=8)
    ticks = [(step * n, f"{100 * step * n:+g} %".replace("-", "−").replace("+0 %", "0 %"))
             for n in range(-round(top / step), round(top / step) + 1)]  # fmt: skip
    parts = [*svg.rows(y, ticks, "predicted over published"), *_band(y)]
    legend, place = [], 0
    for index, one in enumerate(sets):
        for row in errors[one.name]:
            parts.append(_point(x(place), y(predicted.error(row)), index, row["fitted"]))
            place += 1
        place += 1  # a gap between sets
        told = f": median {_percent(one.measures['median'])}" if one.errors else ": fitted"
        legend.append(svg.Entry(index, one.name, told))
    band = f"{100 * BAND:g} % above and below what was published"
    below, foot = svg.legend(svg.FOOT - 34, legend, [("ws-peak", band)])
    title = "Error of each prediction, in the order of the table below"
    said = [f"{entry.name}{entry.value}" for entry in legend]
    hollow = "Rows that a constant was fitted on are hollow. "
    remark = hollow if any(row["fitted"] for row in rows) else ""
    return svg.Drawing(title, said, foot - 8, [*parts, *below], remark)


def _band(y: svg.Scale) -> Iterator[str]:
    for limit in (BAND, -BAND):
        yield svg.level(y(limit), "ws-peak")


def _point(x: float, y: float, index: int, fitted: bool) -> str:
    if not fitted:
        return svg.mark(x, y, index)
    kind = f'class="ws-s{index % svg.COLOURS}" fill="none" stroke="currentColor"'
    return f'<circle cx="{svg.at(x)}" cy="{svg.at(y)}" r="4.5" {kind}/>'


HEAD = ("What", "Figure", "Device", "Setting", "Place")
SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def matches(named: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether a case is the one that a figure names by some of its values."""
    return all(key in case and _same(case[key], value) for key, value in named.items())


def _same(ours: Any, theirs: Any) -> bool:
    return isinstance(ours, bool) == isinstance(theirs, bool) and bool(ours == theirs)


def _time(record: Record, claim: Claim) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The case that a figure names, and the result of ours that it corresponds to."""
    figure = claim.figure
    for case in tables.timed(record):
        if figure.case is None or not matches(figure.case, case["case"]):
            continue
        key, value = ("name", figure.variant) if figure.variant else ("role", "variant")
        wanted = [
            result for result in case["results"] if tables.time_of(result) and result[key] == value
        ]
        if wanted:
            return case, min(wanted, key=lambda result: result["time"]["median"])
    return None


def _ours(record: Record, claim: Claim) -> tuple[str, float] | None:
    """Our figure in words, and how many times better than theirs it is."""
    if (found := _time(record, claim)) is None:
        return None
    case, result = found
    figure, median = claim.figure, result["time"]["median"]
    if figure.unit in SCALES:
        return units.seconds(median), figure.figure * SCALES[figure.unit] / median
    if figure.unit == "%":
        peer = next(
            (
                time["median"]
                for other in case["results"]
                if other["name"] == figure.share_of and (time := tables.time_of(other))
            ),
            None,
        )
        share = units.divided(peer, median)
        return None if share is None else (units.share(share), 100 * share / figure.figure)
    kind = figure.unit[1:]  # a rate has a prefix: TB/s, GFLOP/s
    amount = case.get("bytes" if kind == "B/s" else "flops")
    rate = units.divided(amount, median)
    scale = next(10.0**power for name, power in units.PREFIXES if figure.unit.startswith(name))
    if not rate:
        return None
    return units.rate(rate, kind), rate / (figure.figure * scale)


def measured(exhibit: Exhibit, claim: Claim) -> Iterator[tuple[MachineState, str, float]]:
    """What current records have against a figure: the machine, our figure, and the ratio."""
    for state in exhibit.shown("measured"):
        record = state.record
        if record is None or not devices.alike(claim.figure.device, record["machine"]["device"]):
            continue
        if found := _ours(record, claim):
            yield state, *found


def _stated(claim: Claim) -> str:
    figure, unit = claim.figure.figure, claim.figure.unit
    shown = units.number(figure)
    if figure < 1e5:  # as the source writes it, and its neighbours with fractions
        shown = shown.replace(units.THIN, "")
    return f"{shown}{'' if unit == '×' else ' '}{unit}"


def _row(exhibit: Exhibit, claim: Claim, compared: bool) -> str:
    figure = claim.figure
    place = f"<a href={markup.href(claim.url)}>{escape(figure.place)}</a>"
    cells = [escape(text) for text in (_stated(claim), figure.device, figure.setting)]
    cells.append(place)
    if compared:
        said = [
            f"{shown}, {units.ratio(ratio)} of it, on {state.name}"
            for state, shown, ratio in measured(exhibit, claim)
        ]
        cells.append(escape("; ".join(said) or "not measured here on such a device"))
    rest = "".join(f" <td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(figure.what)}</th>{rest}</tr>'


def reported(exhibit: Exhibit) -> str:
    """The figures by their source, with what we measured beside them where there is something."""
    claims = sorted(exhibit.reported, key=lambda claim: claim.source.title)
    if not claims:
        return ""
    against = sum(any(True for _ in measured(exhibit, claim)) for claim in claims)
    head = (*HEAD, "Measured here") if against else HEAD
    groups, sources = [], []
    for source, stated in groupby(claims, key=lambda claim: claim.source):
        rows = [_row(exhibit, claim, against > 0) for claim in stated]
        groups.append(tables.group(source.title, rows, len(head)))
        title = escape(source.title)
        sources.append(f"[{title}]({source.link})" if source.link else title)
    number = tables.count(len(claims), "figure")
    origin = tables.count(len(sources), "source")
    ours = f"{against} of them measured here as well" if against else "none of them measured here"
    caption = "Reported elsewhere\nWhat others state of their code on their machines"
    inner = tables.table(caption, head, groups, "reported")
    folded = tables.fold(
        f"Reported elsewhere: {number} from {origin}, {ours}", inner, len(claims), "claims"
    )
    return f"{folded}\n\nReported in: {'; '.join(sources)}\n{{ .ws-origin }}"
