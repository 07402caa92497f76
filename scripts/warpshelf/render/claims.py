"""What is compared with something: facts, a model's predictions, figures of others.

A stated figure is set against ours only where a current record is of the same kind of device and
has timed the case that the figure names: a claim stays one, and no machine is taken for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from warpshelf.contract import pictures as predicted
from warpshelf.contract.pictures import Row, SetErrors
from warpshelf.core import devices, markup, units
from warpshelf.core.markup import escape_markdown
from warpshelf.core.places import OnPage
from warpshelf.records.schema import Record
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.snippet_page import Claim, SnippetPage
from warpshelf.render.tables import Html

MOST = 24  # rows of a table that is shown unasked


def render_facts(record: Record, sources: Mapping[str, str] | None = None) -> str:
    """The facts of a program or model; `sources` gives the titles of reading ids."""
    rows = []
    for fact in record.get("facts", []):
        unit = f" {fact['unit']}" if fact["unit"] else ""
        expected = fact["expected"]
        # Whole numbers may be past what a float holds, so they are subtracted as they are.
        away = fact["value"] - expected
        relative = units.safe_divide(away, abs(expected))
        apart = units.format_number(away) if relative is None else units.format_percent(relative)
        # Where 0 is expected there is nothing to be relative to: the tolerance is absolute.
        allowed = units.format_percent if expected else units.format_error
        cells = (
            units.format_number(fact["value"]) + unit,
            units.format_number(expected) + unit,
            apart if away else "none",
            allowed(fact["tolerance"]) if fact["tolerance"] else "exact",
            (sources or {}).get(fact["source"], fact["source"]),
        )
        rows.append(tables.table_row(fact["name"], cells))
    if not rows:
        return ""
    head = ("Fact", "Value", "Expected", "Difference", "Allowed", "Source of the expected value")
    caption = f"Facts checked\n{snippet_page.origin_line(record)}"
    found = tables.render_table(caption, head, rows, "facts")
    summary = Html(f"All {len(rows)} facts, each within its tolerance")
    return found if len(rows) <= MOST else tables.render_fold(summary, found)


BAND = 0.10  # relative error that the plot marks


def render_predictions(record: Record, sources: Mapping[str, str] | None = None) -> str:
    """The plot, the errors by set with the goals, and all rows folded; "" without predictions.

    `sources` gives the titles of reading ids.
    """
    rows: list[Row] = record.get("predictions", [])
    if not rows:
        return ""
    sets = predicted.errors_by_set(rows)
    groups: dict[str, list[str]] = {}
    for row in rows:
        unit = f" {row['unit']}" if row["unit"] else ""
        cells = (
            units.format_number(float(units.format_significant(row["predicted"], 4))) + unit,
            units.format_number(row["published"]) + unit,
            f"{100 * predicted.relative_error(row):+.1f} %".replace("-", "−"),
            (sources or {}).get(row["source"]) or row["source"],
        )
        note = "fitted on it" if row["fitted"] else ""
        groups.setdefault(row["set"], []).append(tables.table_row(row["name"], cells, note))
    head = ("Configuration", "Predicted", "Published", "Error", "Source")
    body = [tables.row_group(name, lines, len(head)) for name, lines in groups.items()]
    caption = f"Predicted and published\n{snippet_page.origin_line(record)}"
    table = tables.render_table(caption, head, body, "predicted")
    answer = f"All {tables.format_count(len(rows), 'row')}, predicted and published"
    plot = _prediction_plot(rows, sets, f"{snippet_page.origin_line(record)}.")
    return f"{plot}\n{_error_table(record, sets)}\n{tables.render_fold(answer, table)}"


def _format_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _error_table(record: Record, sets: Sequence[SetErrors]) -> str:
    rows = []
    for one in sets:
        count, cells = len(one.errors), ["0", *["none"] * 5]
        if count:
            near = [f"{one.count_within(limit)} of {count}" for limit in predicted.NEAR]
            cells = [str(count), *map(_format_percent, one.measures.values()), *near]
        note = f"and {one.fitted} fitted" if one.fitted else ""
        rows.append(tables.table_row(one.name, cells, note))
    body = ["<tbody>", *rows, "</tbody>"]
    if goals := record.get("goals"):
        lines = []
        for goal in goals:
            _, told = predicted.judge_goal(goal, record["predictions"])
            asked = f"below {predicted.describe_goal(goal)}"
            if "within" not in goal:
                measure = next(key for key in predicted.MEASURES if key in goal)
                asked = f"over {100 * goal[measure]:g} %"
            lines.append(tables.spanning_row(goal["name"], f"{told}; a run fails {asked}", 6))
        body.append(tables.row_group("Goals", lines, 7))
    within = (f"Within {100 * limit:g} %" for limit in predicted.NEAR)
    head = ("Published figures", "Rows", "Mean error", "Median", "Worst", *within)
    caption = f"Errors of the predictions\n{snippet_page.origin_line(record)}"
    return tables.render_table(caption, head, body, "predictions")


def _prediction_plot(rows: Sequence[Row], sets: Sequence[SetErrors], note: str) -> str:
    """The error of each row, set by set, in their order."""
    most = max(1.2 * BAND, *(abs(predicted.relative_error(row)) for row in rows))
    step, top = svg.nice_step(most)
    y = svg.y_scale(-top, top)
    x = svg.x_scale(0, len(rows) + len(sets) - 1 or 1, margin=8)
    ticks = []
    for level in range(-round(top / step), round(top / step) + 1):
        words = f"{100 * step * level:+g} %".replace("-", "−").replace("+0 %", "0 %")
        ticks.append((step * level, words))
    parts = list(svg.draw_y_axis(y, ticks, "predicted over published"))
    parts += [svg.draw_level(y(limit), "ws-peak") for limit in (BAND, -BAND)]
    legend, place = [], 0
    for index, one in enumerate(sets):
        for row in rows:
            if row["set"] == one.name:
                height = y(predicted.relative_error(row))
                parts.append(svg.draw_mark(x(place), height, index, hollow=row["fitted"]))
                place += 1
        place += 1  # a gap between sets
        told = f": median {_format_percent(one.measures['median'])}" if one.errors else ": fitted"
        legend.append((one.name, told))
    band = ("ws-peak", f"{100 * BAND:g} % above and below the published value")
    if any(row["fitted"] for row in rows):
        note = f"Hollow rows were used to fit a constant. {note}"
    title = "Error of each prediction, in the order of the table below"
    return svg.render_plot(title, parts, legend, note, lines=[band], foot=svg.FOOT - 34)


SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def matches_case(named: Mapping[str, Any], case: Mapping[str, Any]) -> bool:
    """Whether a case is the one that a figure names by some of its values; True is not 1."""
    return all(
        key in case and (case[key], type(case[key]) is bool) == (value, type(value) is bool)
        for key, value in named.items()
    )


def _our_figure(record: Record, claim: Claim) -> tuple[str, float] | None:
    """Our figure in words, and how many times better than theirs it is."""
    figure = claim.figure
    key, value = ("name", figure.variant) if figure.variant else ("role", "variant")
    for case in tables.timed_cases(record):
        timed = tables.timed_results(case)
        times = [time["median"] for result, time in timed if result[key] == value]
        if times and figure.case is not None and matches_case(figure.case, case["case"]):
            return _compare_figure(claim, case, min(times))
    return None


def _compare_figure(claim: Claim, case: dict[str, Any], median: float) -> tuple[str, float] | None:
    unit, stated = claim.figure.unit, claim.figure.figure
    if unit in SCALES:
        return units.format_seconds(median), stated * SCALES[unit] / median
    if unit == "%":
        timed = tables.timed_results(case)
        peers = (time["median"] for one, time in timed if one["name"] == claim.figure.share_of)
        share = units.safe_divide(next(peers, None), median)
        return None if share is None else (units.format_percent(share), 100 * share / stated)
    kind = unit[1:]  # a rate has a prefix: TB/s, GFLOP/s
    rate = units.safe_divide(case.get("bytes" if kind == "B/s" else "flops"), median)
    if not rate:
        return None
    return units.format_rate(rate, kind), rate / (stated * svg.prefix_factor(unit))


def _compare_claim(page: SnippetPage, claim: Claim) -> str:
    """What current records of such devices have beside a figure: ours, and its ratio to it."""
    found = (
        (state.name, _our_figure(state.known, claim))
        for state in page.select_states("measured")
        if devices.same_device(claim.figure.device, state.known["machine"]["device"])
    )
    return "; ".join(
        f"{ours[0]}, {units.format_ratio(ours[1])} of it, on {name}" for name, ours in found if ours
    )


def render_claims(page: SnippetPage, place: OnPage) -> str:
    """The figures by their source, with what we measured beside them where there is something."""
    claims = sorted(page.reported, key=lambda claim: claim.source.title)
    if not claims:
        return ""
    against = sum(bool(_compare_claim(page, claim)) for claim in claims)
    head = ["What", "Figure", "Device", "Setting", "Place", *["Measured here"] * (against > 0)]
    groups, sources = [], []
    for source, stated in groupby(claims, key=lambda claim: claim.source):
        rows = []
        for claim in stated:
            figure, where = claim.figure, escape_markdown(claim.figure.place)
            shown = units.format_number(figure.figure)
            if figure.figure < 1e5:  # as the source writes it, and its neighbours with fractions
                shown = shown.replace(units.THIN, "")
            shown += figure.unit if figure.unit == "×" else f" {figure.unit}"
            link = tables.make_cell(Html(f"<a href={markup.quote_href(claim.url)}>{where}</a>"))
            cells = [shown, figure.device, figure.setting, link]
            if against:
                cells.append(_compare_claim(page, claim) or "not measured here on such a device")
            rows.append(tables.table_row(figure.what, cells))
        groups.append(tables.row_group(source.title, rows, len(head)))
        title = source.title
        sources.append(place.link(title, source.link) if source.link else escape_markdown(title))
    number = tables.format_count(len(claims), "figure")
    origin = tables.format_count(len(sources), "source")
    ours = f"{against} of them measured here as well" if against else "none of them measured here"
    answer = f"Reported elsewhere: {number} from {origin}, {ours}"
    caption = "Reported elsewhere\nWhat others report for their code on their machines"
    inner = tables.render_table(caption, head, groups, "reported")
    folded = tables.render_fold(answer, inner, "claims", len(claims))
    return f'{folded}\n<p class="ws-origin">Reported in: {"; ".join(sources)}</p>'
