"""Plots of times: bars of one case, rates over sizes, the roofline, and the versions of a record.

Lines of versions are for `shelf history`, the history of one machine is for the page. Nothing is
drawn before there are two versions. Only what has a current record is shown: earlier times stand on
a page beside the present one, never in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown
from warpshelf.records import history, limits, record_comparison
from warpshelf.records.history import History, Version
from warpshelf.records.schema import Record
from warpshelf.records.store import TimeDifference
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.snippet_page import MachineState, SnippetPage, render_notice
from warpshelf.render.svg import Scale
from warpshelf.render.tables import Case, Cell, Html, format_count

STEP = 38.0  # from one bar to the next
MARGIN = 4.0


def draw_bars(name: str, case: Case, limit: tables.Bound, note: str) -> str:
    """The bars of `case`, which is called `name`; "" where nothing was timed."""
    results = case["results"]
    points = [tables.rate_point(0.0, limit, tables.result_time(result)) for result in results]
    highest = [point.high for point in points if point]
    if not highest:
        return ""
    lines = limit.known_limits()
    x = Scale(0, max(highest + [rate for *_, rate in lines]), MARGIN, svg.WIDTH - MARGIN)
    parts, said, y = [], [], 16.0
    for result, point in zip(results, points, strict=True):
        value = f"{result['verdict']}, no time"
        if point:
            value = units.format_rate(point.rate, limit.unit)
            peaks = [rate for kind, _, rate in lines if kind == "ws-peak"]
            value += "".join(f", {units.format_percent(point.rate / one)} of peak" for one in peaks)
        said.append(f"{result['name']}: {value}")
        peer = tables.mark_peer(result["role"])
        room = svg.WIDTH - 20 - (len(value) + len(peer)) * svg.TEXT * svg.BROAD
        parts.append(svg.draw_text(MARGIN, y, svg.fit_text(result["name"], room) + peer))
        parts.append(svg.draw_text(svg.WIDTH - MARGIN, y, value, end="end"))
        if point:
            colour = "ws-bar ws-s0" if result["role"] == "variant" else "ws-bar ws-s1"
            parts.append(svg.draw_rect(x(0), y + 5, x(point.rate) - x(0), 11, colour))
            ends = x(point.low), y + 10.5, x(point.high), y + 10.5
            parts.append(svg.draw_line(*ends, "ws-spread"))
        parts += [svg.draw_line(x(rate), y + 3, x(rate), y + 19, kind) for kind, _, rate in lines]
        y += STEP
    below, y = svg.draw_keys(y, [(kind, words) for kind, words, _ in lines])
    title = f"{tables.COUNTED[limit.unit]} per second, {name}"
    note = f"Longer is faster; the thin line is p20 to p80. {note}"
    return svg.render_figure(title, said, y - 6, [*parts, *below], note)


def draw_roofline(record: Record, name: str, case: Case, note: str) -> str:
    """The rates of `case`, called `name`, under both roofs; "" if a limit or a time is missing."""
    moved, worked = tables.case_bounds(record, case)
    roofs = []  # class, words, bandwidth, rate
    for kind, called, bandwidth, rate in (
        ("ws-ceiling", "measured limit", moved.ceiling, worked.ceiling),
        ("ws-peak", "peak", moved.peak, worked.peak),
    ):
        if bandwidth and rate and min(bandwidth, rate) > 1 and max(bandwidth, rate) < 1e30:
            known = units.format_rate(bandwidth, "B/s"), units.format_rate(rate, "FLOP/s")
            roofs.append((kind, f"{called}: {', '.join(known)}", bandwidth, rate))
    intensity = case["flops"] / case["bytes"]
    points = [
        (result, point.rate)
        for result, time in tables.timed_results(case)
        if (point := tables.rate_point(intensity, worked, time))
    ]
    if not roofs or not points:
        return ""
    reach = [intensity, *(rate / bandwidth for *_, bandwidth, rate in roofs)]
    x = svg.x_scale(min(reach) / 10**0.9, max(reach) * 10**0.9, log=True)
    found = [rate for _, rate in points]
    lowest = min(found + [bandwidth * x.low for *_, bandwidth, _ in roofs])
    highest = max(found + [rate for *_, rate in roofs]) * 10**0.25
    y = svg.y_scale(lowest / 10**0.1, highest, log=True)
    ticks = svg.label_ticks(svg.decade_ticks(x))
    parts = [
        *svg.draw_rate_axis(y, svg.decade_ticks(y), highest, "FLOP/s"),
        *svg.draw_x_axis(x, ticks, "FLOP/byte", grid=True),
    ]
    for kind, _, bandwidth, rate in roofs:
        knots = (x.low, rate / bandwidth, x.high)
        parts.append(svg.draw_polyline(((x(k), y(min(k * bandwidth, rate))) for k in knots), kind))
    low, high, place = svg.TOP + 6, svg.TOP + svg.AREA - 4, x(intensity)
    heights = svg.spread_labels([y(rate) for rate in found], svg.TEXT, low, high)
    legend = []
    for index, ((result, rate), height) in enumerate(zip(points, heights, strict=True)):
        parts.append(svg.draw_mark(place, y(rate), index))
        if abs(height - y(rate)) > 3:
            parts.append(svg.draw_line(place + 6, y(rate), place + 17, height, "ws-leader"))
        letter = svg.series_letter(index)
        parts.append(svg.draw_text(place + 19, height + 4.5, letter, kind="ws-letter ws-halo"))
        value = f"{tables.mark_peer(result['role'])}, {units.format_rate(rate, 'FLOP/s')}"
        legend.append((result["name"], value))
    lines = [(kind, words) for kind, words, *_ in roofs]
    told = f"{units.format_significant(intensity)} FLOP/byte"
    title = f"Roofline for {case.get('unit', '')}, {name}"
    return svg.render_plot(title, parts, legend, note, lines=lines, before=[told])


SIZES = 4  # timed sizes that make a line
Sized = list[tuple[float, Case]]  # cases by their size, the smallest first


def find_sweep(cases: list[Case]) -> tuple[str, Sized] | None:
    """The largest set of timed cases that differ in one number, with that number's name.

    Sides that are always equal to each other, as of square matrices, count as one; so does a side
    with another that shrinks as it grows, so that their product stays: rows of every length.
    """
    keys = dict.fromkeys(key for case in cases for key in case["case"])
    sides = [
        k for k in keys if all(units.finite_float(c["case"].get(k)) is not None for c in cases)
    ]
    square = tuple(k for k in sides if all(c["case"][k] == c["case"][sides[0]] for c in cases))
    choices: list[tuple[str, tuple[str, ...], bool]] = [(side, (side,), False) for side in sides]
    if len(square) > 1:
        choices.append((" = ".join(square), square, False))
    for other, side in combinations(sides, 2):
        choices.append((f"{side}, {other} × {side} the same", (side, other), True))
    best: tuple[str, Sized] | None = None
    for name, choice, product in choices:
        groups: dict[str, dict[float, Case]] = {}
        for case in cases:
            values = case["case"]
            left_out = (*choice, "variants")
            rest = sorted((k, repr(v)) for k, v in values.items() if k not in left_out)
            if product:
                rest.append(("×", repr(values[choice[0]] * values[choice[1]])))
            if (size := float(values[choice[0]])) > 0:
                groups.setdefault(repr(rest), {})[size] = case
        for group in groups.values():
            if len(group) >= max(SIZES, len(best[1]) + 1 if best else 0):
                best = (name, sorted(group.items()))
    return best


def draw_size_sweep(record: Record, name: str, sized: Sized, note: str) -> str:
    """The rates of each variant over the size called `name`; "" where none can be drawn."""
    limit = tables.case_bound(record, sized[-1][1])  # the largest says which rate is worth drawing
    if limit is None:
        return ""
    series: dict[tuple[str, str], list[tables.RatePoint]] = {}
    for size, case in sized:
        cost = tables.case_cost(case, limit.unit)
        for result, time in tables.timed_results(case):
            if point := tables.rate_point(size, cost, time):
                series.setdefault((result["role"], result["name"]), []).append(point)
    if not series:
        return ""
    lines = limit.known_limits()
    high = [p.high for points in series.values() for p in points] + [rate for *_, rate in lines]
    step, top = svg.nice_step(max(high))
    x, y = svg.x_scale(sized[0][0], sized[-1][0], log=True, margin=8), svg.y_scale(0, top)
    levels = [tick * step for tick in range(int(top / step + 0.5) + 1)]
    parts = [
        *svg.draw_rate_axis(y, levels, max(high), limit.unit),
        *svg.draw_x_axis(x, [(size, units.format_number(size)) for size, _ in sized], name),
        *(svg.draw_level(y(rate), kind) for kind, _, rate in lines),
        *draw_rate_curves(x, y, list(series.values())),
    ]
    legend = []
    for (role, called), points in series.items():
        best = units.format_rate(max(p.rate for p in points), limit.unit)
        legend.append((called, f"{tables.mark_peer(role)}, up to {best}"))
    title = f"{tables.COUNTED[limit.unit]} per second over {name}"
    keys = [(kind, words) for kind, words, _ in lines]
    return svg.render_plot(title, parts, legend, note, lines=keys)


def draw_rate_curves(x: Scale, y: Scale, series: list[list[tables.RatePoint]]) -> list[str]:
    """Series of rates, each point marked and with its spread."""
    curves = []
    for points in series:
        places = [(x(p.x), y(p.rate)) for p in points]
        spreads = [(x(p.x), y(p.low), y(p.high)) for p in points]
        curves.append(svg.Curve(places, places, spreads))
    return list(svg.draw_curves(curves))


BARS = 3  # cases drawn as bars; the table has all


def draw_plots(record: Record, apart: str = "") -> list[str]:
    """The figures of a measured record, each one HTML block; none where nothing was timed."""
    cases = [case for case in tables.timed_cases(record) if tables.timed_results(case)]
    named = tables.label_cases(cases)

    def note(shown: list[Case]) -> str:
        """Where the rates come from, and which functions have none."""
        absent = {
            f"{result['name']} ({tables.missing_reason(result) or 'was not timed'})": None
            for case in shown
            for result in case["results"]
            if not tables.result_time(result)
        }
        left_out = f" Not drawn: {'; '.join(absent)}." if absent else ""
        return f"{snippet_page.origin_line(record, apart)}.{left_out}"

    if found := find_sweep(cases):
        drawn = [draw_size_sweep(record, *found, note([case for _, case in found[1]]))]
    else:
        bounds = [(*one, limit) for one in named if (limit := tables.case_bound(record, one[1]))]
        bounds.sort(key=lambda one: -one[2].amount)  # the largest case first
        drawn = [draw_bars(name, case, limit, note([case])) for name, case, limit in bounds[:BARS]]
    costed = [one for one in named if all((one[1].get(key) or 0) > 0 for key in ("flops", "bytes"))]
    if costed:
        name, case = max(costed, key=lambda one: one[1]["flops"])
        drawn.append(draw_roofline(record, name, case, note([case])))
    return [one for one in drawn if one]


SHORT = 12  # characters of a commit
NOT_COMMITTED = "not yet"


class VersionTime(NamedTuple):
    """The time of a function in a version, its rate as a point of a plot, and what changed."""

    version: int  # from 0
    time: tables.Time
    point: tables.RatePoint | None
    factor: float | None  # times as long as before, where that is beyond both spreads

    @property
    def rate(self) -> float | None:
        """The rate at the median; None where no cost is stated."""
        return self.point.rate if self.point else None

    @property
    def change_text(self) -> str:
        """The factor in words."""
        if self.factor is None:
            return ""
        slower = self.factor > 1
        ratio = units.format_ratio(self.factor if slower else 1 / self.factor)
        return f"{ratio} {'slower' if slower else 'faster'}"


class CaseHistory(NamedTuple):
    """A case over time: its name, the unit of its rates, and its functions with their points."""

    case: dict[str, Any]
    label: str
    unit: str  # "" where its cost is not stated
    amount: float
    functions: list[tuple[str, str, list[VersionTime]]]  # name, role, points


class RecordHistory(NamedTuple):
    """The versions of one record, newest last; `present` where it still lies in the checkout."""

    key: str
    versions: Sequence[Version]
    present: bool = True

    @property
    def device(self) -> str:
        """The machine in words."""
        return snippet_page.machine_name(self.versions[-1].record)

    def describe_versions(self) -> list[dict[str, str]]:
        """What each version was made under, and what changed since the one before."""
        blank = dict.fromkeys(("driver", "CUDA", "torch", "Triton", "SM clock"), "")
        return [
            {
                **blank,
                **record_comparison.record_conditions(version.record),
                "put": version.commit[:SHORT] if version.commit else NOT_COMMITTED,
                "changed": ", ".join(self.version_contrasts(number)),
            }
            for number, version in enumerate(self.versions)
        ]

    def version_contrasts(self, number: int) -> list[str]:
        """What is not as in the version before `number`, of code and software."""
        if number == 0:
            return []
        before, after = (self.versions[at].record for at in (number - 1, number))
        names = record_comparison.SOFTWARE
        changed = record_comparison.changed_conditions(before, after, names)
        return list(map(str, changed))

    def find_slowdowns(self) -> list[TimeDifference]:
        """Where ours are slower now than in the version before."""
        pair = [version.record for version in self.versions[-2:]]
        return history.slower_results(*pair) if len(pair) == 2 else []

    def case_histories(self) -> list[CaseHistory]:
        """Every case that was ever timed, those of the newest version first."""
        cases: dict[str, list[tuple[int, Record, tables.Case]]] = {}
        for number, version in reversed(list(enumerate(self.versions))):
            for case in tables.timed_cases(version.record):
                text = json.dumps(case["case"], sort_keys=True)
                cases.setdefault(text, []).append((number, version.record, case))
        found = [
            own for own in cases.values() if any(tables.timed_results(case) for *_, case in own)
        ]
        labels = units.case_labels([own[0][2]["case"] for own in found])
        return [_case_history(label, own) for label, own in zip(labels, found, strict=True)]


def _case_history(label: str, own: Sequence[tuple[int, Record, tables.Case]]) -> CaseHistory:
    _, record, newest = own[0]
    limit = tables.case_bound(record, newest)
    unit = limit.unit if limit else ""
    functions: dict[tuple[str, str], list[VersionTime]] = {
        (result["name"], result["role"]): []
        for *_, case in own  # the order is that of the newest version
        for result in case["results"]
    }
    for number, _, case in reversed(own):
        cost = tables.case_cost(case, unit)
        for result, time in tables.timed_results(case):
            points = functions[result["name"], result["role"]]
            before = points[-1].time if points else time
            changed = limits.times_differ(before, time)
            factor = time["median"] / before["median"] if changed else None
            point = tables.rate_point(number, cost, time) if cost.amount > 0 else None
            points.append(VersionTime(number, time, point, factor))
    timed = [(name, role, points) for (name, role), points in functions.items() if points]
    return CaseHistory(newest["case"], label, unit, limit.amount if limit else 0.0, timed)


def record_histories(found: History, snippet: str) -> list[RecordHistory]:
    """The versions of each record of a snippet, in the order of their keys."""
    return [
        RecordHistory(place[1], versions, place in found.here)
        for place, versions in sorted(found.of.items(), key=lambda one: one[0][1].partition("."))
        if place[0] == snippet
    ]


FIGURES = 2  # cases that are drawn; the table has all
CHANGES = 6  # lines of a legend that say what changed
COMMIT = 8  # characters of one in a table
LOW = 0.5  # of the highest rate: where all are above, the axis does not start at 0


def state_history(page: SnippetPage, state: MachineState) -> RecordHistory | None:
    """The versions of the record of a measured state, if there are two."""
    versions = page.history.get(state.machine, ())
    return RecordHistory(state.machine, versions) if len(versions) > 1 else None


def render_history(page: SnippetPage, state: MachineState) -> str:
    """The plots and the table of one machine; "" where there is but one version."""
    line = state_history(page, state)
    courses = line.case_histories() if line else []
    if line is None or not courses:
        return ""
    first, last = (units.format_date(line.versions[at].record["date"]) for at in (0, -1))
    span = f"on {first}" if first == last else f"from {first} to {last}"
    many = format_count(len(line.versions), "version")
    note = f"{state.name}: {many}, {span}."

    def worth(course: CaseHistory) -> tuple[int, float]:
        points = [point for *_, points in course.functions for point in points]
        return -sum(point.factor is not None for point in points), -course.amount

    chosen = sorted(courses, key=worth)[:FIGURES]
    figures = [drawn for one in chosen if (drawn := _draw_history(line, one, note))]
    ends = [points[-1] for course in courses for *_, points in course.functions]
    factors = [end.factor for end in ends if end.version == len(line.versions) - 1]
    slower = sum(factor is not None and factor > 1 for factor in factors)
    faster = sum(factor is not None and factor <= 1 for factor in factors)
    answer = (
        f"Over time: {many} {span}; of {format_count(len(factors), 'time')} of "
        f"the last one {slower} are slower than before, {faster} faster"
    )
    caption = (
        f"Times by version on {state.name}\n{note} A time is marked "
        "where it differs from the one before by more than the spread of both"
    )
    table = tables.render_fold(answer, _history_table(line, courses, caption), "history")
    shown = ['<div class="ws-plots">', *figures, "</div>"] if figures else []
    return "\n".join((*shown, table))


def _draw_history(line: RecordHistory, course: CaseHistory, note: str) -> str:
    """The rates of each function over the versions; "" where no cost is stated."""
    series = [
        (name, role, points)
        for name, role, moments in course.functions
        if (points := [moment.point for moment in moments if moment.point])
    ]
    found = [point for *_, points in series for point in points]
    if len({one.x for one in found}) < 2:
        return ""
    low, high = min(one.low for one in found), max(one.high for one in found)
    if low < LOW * high:
        low, (step, top) = 0.0, svg.nice_step(high)
    else:
        step, _ = svg.nice_step(max(high - low, 0.05 * high))
        low, top = step * math.floor(low / step), step * math.ceil(high / step)
    x = svg.x_scale(0, len(line.versions) - 1, margin=8)
    y = svg.y_scale(low, top)
    levels = [low + tick * step for tick in range(round((top - low) / step) + 1)]
    numbers = [(float(at), str(at + 1)) for at in range(len(line.versions))]
    parts = [
        *svg.draw_rate_axis(y, levels, top, course.unit),
        *svg.draw_x_axis(x, numbers, "version"),
    ]
    told = []
    for at in range(len(line.versions)):
        if contrasts := line.version_contrasts(at):
            told += [f"{at + 1}: {contrast}" for contrast in contrasts]
            parts.append(svg.draw_line(x(at), svg.TOP, x(at), svg.TOP + svg.AREA, "ws-changed"))
            place = (x(at), svg.TOP - 6)
            parts.append(svg.draw_text(*place, str(at + 1), end="middle", kind="ws-letter"))
    parts += draw_rate_curves(x, y, [points for *_, points in series])
    legend = []
    for name, role, points in series:
        rate = units.format_rate(points[-1].rate, course.unit)
        legend.append((name, f"{tables.mark_peer(role)}, {rate}"))
    shown = told if len(told) <= CHANGES else [*told[: CHANGES - 1], "further changes: see below"]
    if low:
        note = f"The axis starts at {units.format_rate(low, course.unit)}. {note}"
    if told:
        note = f"A dotted line is a change of code or software. {note}"
    title = f"{tables.COUNTED[course.unit]} per second over time, {course.label}"
    lines = [("ws-changed", words) for words in shown]
    return svg.render_plot(title, parts, legend, note, lines=lines, after=told)


def _history_table(line: RecordHistory, courses: list[CaseHistory], caption: str) -> str:
    """A row for each version of each case, the newest first."""
    names = dict.fromkeys((name, role) for one in courses for name, role, _ in one.functions)
    told, groups = line.describe_versions(), []
    for course in courses:
        times = {
            (name, role, point.version): point
            for name, role, points in course.functions
            for point in points
        }
        rows = []
        for number, own in reversed(list(enumerate(told))):
            moments = [times.get((*pair, number)) for pair in names]
            if not any(moments):
                continue
            cells: list[str] = [_time_cell(moment, course.unit) for moment in moments]
            cells.append(own["changed"] or ("nothing" if number else "the first"))
            committed = line.versions[number].commit
            put = f"commit {own['put'][:COMMIT]}" if committed else "not committed"
            rows.append(tables.table_row(str(number + 1), cells, f"{own['made on']}, {put}"))
        groups.append(tables.row_group(course.label, rows, len(names) + 2))
    heads = [name + tables.mark_peer(role) for name, role in names]
    columns = ("Version", *heads, "Changed since the one before")
    return tables.render_table(caption, columns, groups, "history")


def _time_cell(moment: VersionTime | None, unit: str) -> Cell:
    if moment is None:
        return tables.make_cell("no time")
    rate = units.format_rate(moment.rate, unit) if moment.rate else ""
    shown = tables.add_note(units.format_seconds(moment.time["median"]), rate)
    changed = f" <strong>{escape_markdown(moment.change_text)}</strong>" if moment.factor else ""
    return tables.make_cell(Html(shown + changed))


def slowdown_notice(page: SnippetPage, state: MachineState) -> str:
    """The notice above the times of a record that is slower than the one before it."""
    line = state_history(page, state)
    found = line.find_slowdowns() if line else []
    if line is None or not found:
        return ""
    worst = max(found, key=lambda one: one.factor)
    why = line.versions[-1].slower
    reason = f": {escape_markdown(why)}" if why else ": not explained yet."
    ended = "" if not why or why.endswith((".", "!", "?")) else "."
    other = record_comparison.changed_conditions(*(one.record for one in line.versions[-2:]))
    changed = ", ".join(map(str, other)) or "nothing on record"
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    text = (
        f"{reason}{ended} {escape_markdown(record_comparison.format_difference(worst))}{more}, the "
        f"earlier time first. Also different: {escape_markdown(changed)}."
    )
    return render_notice("slower", f"Slower than before on {escape_markdown(state.name)}", text)
