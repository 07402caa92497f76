"""What is held against something: facts, what a model predicts, what others state of an idea.

A stated figure is set against ours only where a current record is of the same kind of device and
has timed the case that the figure names: a claim stays one, and no machine is taken for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from warpshelf.contract import pictures as predicted
from warpshelf.contract.pictures import Row, SetErrors
from warpshelf.core import devices, markup, units
from warpshelf.core.markup import escape_markdown
from warpshelf.records.schema import Record
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.snippet_page import Claim, MachineState, SnippetPage

MOST = 24  # rows of a table that is shown unasked


def _format_difference(fact: dict[str, Any]) -> str:
    # Whole numbers may be past what a float holds, so they are subtracted as they are.
    away = fact["value"] - fact["expected"]
    if away == 0:
        return "none"
    relative = units.safe_divide(away, abs(fact["expected"]))
    return units.format_percent(relative) if relative is not None else units.format_number(away)


def render_facts(record: Record, sources: dict[str, str] | None = None) -> str:
    """The facts of a program or model; `sources` gives the titles of reading ids."""
    rows = []
    for fact in record.get("facts", []):
        unit = f" {fact['unit']}" if fact["unit"] else ""
        # Where 0 is expected there is nothing to be relative to: the tolerance is absolute.
        allowed = units.format_percent if fact["expected"] else units.format_error
        tolerance = allowed(fact["tolerance"]) if fact["tolerance"] else "exact"
        cells = (
            units.format_number(fact["value"]) + unit,
            units.format_number(fact["expected"]) + unit,
            _format_difference(fact),
            tolerance,
            (sources or {}).get(fact["source"], fact["source"]),
        )
        rows.append(tables.table_row(fact["name"], cells))
    if not rows:
        return ""
    head = ("Fact", "Value", "Expected", "Difference", "Allowed", "Source of what is expected")
    caption = f"Facts checked\n{snippet_page.origin_line(record)}"
    found = tables.render_table(caption, head, ["<tbody>", *rows, "</tbody>"], "facts")
    if len(rows) <= MOST:
        return found
    summary = f"All {len(rows)} facts, each within what is allowed"
    return f'<details class="ws-fold"><summary>{summary}</summary>\n{found}\n</details>'


BAND = 0.10  # relative error that the plot marks


def render_predictions(record: Record, sources: dict[str, str] | None = None) -> str:
    """The plot, the errors by set with the goals, and all rows folded; "" without predictions.

    `sources` gives the titles of reading ids.
    """
    rows: list[dict[str, Any]] = record.get("predictions", [])
    if not rows:
        return ""
    sets = predicted.errors_by_set(rows)
    plot = svg.render_figure(_prediction_plot(rows, sets), f"{snippet_page.origin_line(record)}.")
    every = tables.render_fold(
        f"All {tables.format_count(len(rows), 'row')}, predicted and published",
        _prediction_table(record, rows, sources or {}),
        tables.FEW + 1,
    )
    return f"{plot}\n{_error_table(record, sets)}\n{every}"


def _error_table(record: Record, sets: Sequence[SetErrors]) -> str:
    body = [tables.table_row(one.name, _error_cells(one), _fitted_note(one)) for one in sets]
    groups = ["<tbody>", *body, "</tbody>"]
    if goals := record.get("goals"):
        lines = []
        for goal in goals:
            _, told = predicted.judge_goal(goal, record["predictions"])
            asked = f"{told}; a run fails below {predicted.describe_goal(goal)}"
            if "within" not in goal:
                asked = f"{told}; a run fails over {100 * goal[_goal_measure(goal)]:g} %"
            lines.append(tables.spanning_row(goal["name"], asked, 6))
        groups.append(tables.row_group("What it is held to", lines, 7))
    near = (f"Within {100 * limit:g} %" for limit in predicted.NEAR)
    head = ("Published figures", "Rows", "Mean error", "Median", "Worst", *near)
    caption = f"Errors of the predictions\n{snippet_page.origin_line(record)}"
    return tables.render_table(caption, head, groups, "predictions")


def _goal_measure(goal: Row) -> str:
    return next(key for key in predicted.MEASURES if key in goal)


def _fitted_note(one: SetErrors) -> str:
    return f"and {one.fitted} fitted" if one.fitted else ""


def _error_cells(one: SetErrors) -> tuple[str, ...]:
    count = len(one.errors)
    if not count:
        return ("0", *["none"] * 5)
    near = (f"{one.count_within(limit)} of {count}" for limit in predicted.NEAR)
    return (str(count), *(_format_percent(value) for value in one.measures.values()), *near)


def _format_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _prediction_table(record: Record, rows: Iterable[Row], sources: dict[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for row in rows:
        unit = f" {row['unit']}" if row["unit"] else ""
        cells = (
            units.format_number(float(units.format_significant(row["predicted"], 4))) + unit,
            units.format_number(row["published"]) + unit,
            f"{100 * predicted.relative_error(row):+.1f} %".replace("-", "−"),
            sources.get(row["source"]) or row["source"],
        )
        note = "fitted on it" if row["fitted"] else ""
        groups.setdefault(row["set"], []).append(tables.table_row(row["name"], cells, note))
    head = ("Configuration", "Predicted", "Published", "Error", "Source")
    body = [tables.row_group(name, lines, len(head)) for name, lines in groups.items()]
    caption = f"Predicted and published\n{snippet_page.origin_line(record)}"
    return tables.render_table(caption, head, body, "predicted")


def _prediction_plot(rows: Sequence[Row], sets: Sequence[SetErrors]) -> svg.Drawing:
    """The error of each row, set beside set, in the order in which they stand."""
    errors = {one.name: [row for row in rows if row["set"] == one.name] for one in sets}
    most = max(1.2 * BAND, *(abs(predicted.relative_error(row)) for row in rows))
    step, top = svg.nice_step(most)
    y = svg.y_scale(-top, top)
    x = svg.x_scale(0, len(rows) + len(sets) - 1 or 1, margin=8)
    ticks = [(step * n, f"{100 * step * n:+g} %".replace("-", "−").replace("+0 %", "0 %"))
             for n in range(-round(top / step), round(top / step) + 1)]  # fmt: skip
    parts = [*svg.draw_y_axis(y, ticks, "predicted over published"), *_draw_error_band(y)]
    legend, place = [], 0
    for index, one in enumerate(sets):
        for row in errors[one.name]:
            parts.append(
                _draw_prediction(x(place), y(predicted.relative_error(row)), index, row["fitted"])
            )
            place += 1
        place += 1  # a gap between sets
        told = f": median {_format_percent(one.measures['median'])}" if one.errors else ": fitted"
        legend.append(svg.LegendEntry(index, one.name, told))
    band = f"{100 * BAND:g} % above and below what was published"
    below, foot = svg.draw_legend(svg.FOOT - 34, legend, [("ws-peak", band)])
    title = "Error of each prediction, in the order of the table below"
    said = [f"{entry.name}{entry.value}" for entry in legend]
    hollow = "Rows that a constant was fitted on are hollow. "
    remark = hollow if any(row["fitted"] for row in rows) else ""
    return svg.Drawing(title, said, foot - 8, [*parts, *below], remark)


def _draw_error_band(y: svg.Scale) -> Iterator[str]:
    for limit in (BAND, -BAND):
        yield svg.draw_level(y(limit), "ws-peak")


def _draw_prediction(x: float, y: float, index: int, fitted: bool) -> str:
    if not fitted:
        return svg.draw_mark(x, y, index)
    kind = f'class="ws-s{index % svg.COLOURS}" fill="none" stroke="currentColor"'
    return f'<circle cx="{svg.coord(x)}" cy="{svg.coord(y)}" r="4.5" {kind}/>'


HEAD = ("What", "Figure", "Device", "Setting", "Place")
SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def matches_case(named: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether a case is the one that a figure names by some of its values."""
    return all(key in case and _same_value(case[key], value) for key, value in named.items())


def _same_value(ours: Any, theirs: Any) -> bool:
    return isinstance(ours, bool) == isinstance(theirs, bool) and bool(ours == theirs)


def _find_claimed_result(
    record: Record, claim: Claim
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The case that a figure names, and the result of ours that it corresponds to."""
    figure = claim.figure
    for case in tables.timed_cases(record):
        if figure.case is None or not matches_case(figure.case, case["case"]):
            continue
        key, value = ("name", figure.variant) if figure.variant else ("role", "variant")
        wanted = [
            result
            for result in case["results"]
            if tables.result_time(result) and result[key] == value
        ]
        if wanted:
            return case, min(wanted, key=lambda result: result["time"]["median"])
    return None


def _our_figure(record: Record, claim: Claim) -> tuple[str, float] | None:
    """Our figure in words, and how many times better than theirs it is."""
    if (found := _find_claimed_result(record, claim)) is None:
        return None
    case, result = found
    figure, median = claim.figure, result["time"]["median"]
    if figure.unit in SCALES:
        return units.format_seconds(median), figure.figure * SCALES[figure.unit] / median
    if figure.unit == "%":
        peer = next(
            (
                time["median"]
                for other in case["results"]
                if other["name"] == figure.share_of and (time := tables.result_time(other))
            ),
            None,
        )
        share = units.safe_divide(peer, median)
        return None if share is None else (units.format_percent(share), 100 * share / figure.figure)
    kind = figure.unit[1:]  # a rate has a prefix: TB/s, GFLOP/s
    amount = case.get("bytes" if kind == "B/s" else "flops")
    rate = units.safe_divide(amount, median)
    scale = next(10.0**power for name, power in units.PREFIXES if figure.unit.startswith(name))
    if not rate:
        return None
    return units.format_rate(rate, kind), rate / (figure.figure * scale)


def find_measurements(
    exhibit: SnippetPage, claim: Claim
) -> Iterator[tuple[MachineState, str, float]]:
    """What current records have against a figure: the machine, our figure, and the ratio."""
    for state in exhibit.select_states("measured"):
        record = state.record
        if record is None or not devices.same_device(
            claim.figure.device, record["machine"]["device"]
        ):
            continue
        if found := _our_figure(record, claim):
            yield state, *found


def _format_claim(claim: Claim) -> str:
    figure, unit = claim.figure.figure, claim.figure.unit
    shown = units.format_number(figure)
    if figure < 1e5:  # as the source writes it, and its neighbours with fractions
        shown = shown.replace(units.THIN, "")
    return f"{shown}{'' if unit == '×' else ' '}{unit}"


def _claim_row(exhibit: SnippetPage, claim: Claim, compared: bool) -> str:
    figure = claim.figure
    place = f"<a href={markup.quote_href(claim.url)}>{escape_markdown(figure.place)}</a>"
    cells = [
        escape_markdown(text) for text in (_format_claim(claim), figure.device, figure.setting)
    ]
    cells.append(place)
    if compared:
        said = [
            f"{shown}, {units.format_ratio(ratio)} of it, on {state.name}"
            for state, shown, ratio in find_measurements(exhibit, claim)
        ]
        cells.append(escape_markdown("; ".join(said) or "not measured here on such a device"))
    rest = "".join(f" <td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape_markdown(figure.what)}</th>{rest}</tr>'


def render_claims(exhibit: SnippetPage) -> str:
    """The figures by their source, with what we measured beside them where there is something."""
    claims = sorted(exhibit.reported, key=lambda claim: claim.source.title)
    if not claims:
        return ""
    against = sum(any(True for _ in find_measurements(exhibit, claim)) for claim in claims)
    head = (*HEAD, "Measured here") if against else HEAD
    groups, sources = [], []
    for source, stated in groupby(claims, key=lambda claim: claim.source):
        rows = [_claim_row(exhibit, claim, against > 0) for claim in stated]
        groups.append(tables.row_group(source.title, rows, len(head)))
        title = escape_markdown(source.title)
        sources.append(f"[{title}]({source.link})" if source.link else title)
    number = tables.format_count(len(claims), "figure")
    origin = tables.format_count(len(sources), "source")
    ours = f"{against} of them measured here as well" if against else "none of them measured here"
    caption = "Reported elsewhere\nWhat others state of their code on their machines"
    inner = tables.render_table(caption, head, groups, "reported")
    folded = tables.render_fold(
        f"Reported elsewhere: {number} from {origin}, {ours}", inner, len(claims), "claims"
    )
    return f"{folded}\n\nReported in: {'; '.join(sources)}\n{{ .ws-origin }}"
