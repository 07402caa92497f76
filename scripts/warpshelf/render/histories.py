"""A snippet's times over the versions of a record, with what changed between: lines, plot, table.

Lines of versions are for `shelf history`, the history of one machine is for the page. Nothing is
drawn before there are two versions. Only what has a current record is shown: earlier times stand on
a page beside the present one, never in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown
from warpshelf.records import history as versions_of
from warpshelf.records import limits, record_comparison, store
from warpshelf.records.history import History, Version
from warpshelf.records.record_comparison import ChangedCondition
from warpshelf.records.schema import Record
from warpshelf.records.store import TimeDifference
from warpshelf.render import plots, snippet_page, svg, tables
from warpshelf.render.snippet_page import MachineState, SnippetPage, render_notice
from warpshelf.render.tables import Cell, Html, format_count

SHORT = 12  # characters of a commit
NOT_COMMITTED = "not yet"


class VersionTime(NamedTuple):
    """The time of a function in a version, its rate as a point of a plot, and what changed."""

    version: int  # from 0
    time: dict[str, Any]
    point: tables.RatePoint | None
    factor: float | None = None  # times as long as before, where that is beyond both spreads
    change_text: str = ""  # the factor in words

    @property
    def rate(self) -> float | None:
        """The rate at the median; None where no cost is stated."""
        return self.point.rate if self.point else None


class CaseHistory(NamedTuple):
    """A case over time: its name, the unit of its rates, and its functions with their points."""

    case: dict[str, Any]
    label: str
    unit: str  # "" where its cost is not stated
    amount: float
    functions: list[tuple[str, str, list[VersionTime]]]  # name, role, points


@dataclass(frozen=True)
class RecordHistory:
    """The versions of one record, newest last; `present` where it still lies in the checkout."""

    key: str
    versions: Sequence[Version]
    present: bool

    @property
    def device(self) -> str:
        """The machine in words."""
        return snippet_page.machine_name(self.versions[-1].record)

    def describe_versions(self) -> list[dict[str, str]]:
        """What each version was made under, and what changed since the one before."""
        found = []
        for number, version in enumerate(self.versions):
            own = dict.fromkeys(("driver", "CUDA", "torch", "Triton", "SM clock"), "")
            own |= record_comparison.record_conditions(version.record)
            own["put"] = version.commit[:SHORT] if version.commit else NOT_COMMITTED
            own["changed"] = ", ".join(map(str, self.version_contrasts(number)))
            found.append(own)
        return found

    def version_contrasts(self, number: int) -> list[ChangedCondition]:
        """What is not as in the version before `number`, of code and software."""
        if number == 0:
            return []
        before, after = (self.versions[at].record for at in (number - 1, number))
        return record_comparison.changed_conditions(before, after, record_comparison.SOFTWARE)

    def find_slowdowns(self) -> list[TimeDifference]:
        """Where ours are slower now than in the version before."""
        pair = [version.record for version in self.versions[-2:]]
        return versions_of.slower_results(*pair) if len(pair) == 2 else []

    def case_histories(self) -> list[CaseHistory]:
        """Every case that was ever timed, those of the newest version first."""
        cases: dict[str, list[tuple[int, Record, dict[str, Any]]]] = {}
        for number, version in reversed(list(enumerate(self.versions))):
            for case in tables.timed_cases(version.record):
                text = json.dumps(case["case"], sort_keys=True)
                cases.setdefault(text, []).append((number, version.record, case))
        found = [
            own for own in cases.values() if any(tables.timed_results(case) for *_, case in own)
        ]
        labels = units.case_labels([own[0][2]["case"] for own in found])
        return [_case_history(label, own) for label, own in zip(labels, found, strict=True)]


def _case_history(label: str, own: Sequence[tuple[int, Record, dict[str, Any]]]) -> CaseHistory:
    _, record, newest = own[0]
    limit = tables.case_bound(record, newest)
    unit, cost = (limit.unit, tables.COUNTED[limit.unit].lower()) if limit else ("", "")
    functions: dict[tuple[str, str], list[VersionTime]] = {
        (result["name"], result["role"]): []
        for *_, case in own  # the order is that of the newest version
        for result in case["results"]
    }
    for number, _, case in reversed(own):
        amount = units.finite_float(case.get(cost)) or 0.0
        for result, time in tables.timed_results(case):
            points, drawn = functions[result["name"], result["role"]], None
            if amount > 0:
                drawn = tables.rate_point(number, tables.Bound(amount, unit), time)
            now = VersionTime(number, time, drawn)
            if points and limits.times_differ(before := points[-1].time, time):
                factor = time["median"] / before["median"]
                slower = f"{units.format_ratio(factor)} slower"
                said = slower if factor > 1 else f"{units.format_ratio(1 / factor)} faster"
                now = now._replace(factor=factor, change_text=said)
            points.append(now)
    timed = [(name, role, points) for (name, role), points in functions.items() if points]
    return CaseHistory(newest["case"], label, unit, limit.amount if limit else 0.0, timed)


def record_histories(found: History, snippet: str) -> list[RecordHistory]:
    """The versions of each record of a snippet, in the order of their keys."""
    known = {key: own for (one, key), own in found.of.items() if one == snippet}
    slugs = sorted({store.key_slug(key) or key for key in known})
    return [
        RecordHistory(key, known[key], (snippet, key) in found.here)
        for slug in slugs
        for key in store.record_keys(slug)
        if key in known
    ]


FIGURES = 2  # cases that are drawn; the table has all
CHANGES = 6  # lines of a legend that say what changed
COMMIT = 8  # characters of one in a table
LOW = 0.5  # of the highest rate: where all are above, the axis does not start at 0


def state_history(page: SnippetPage, state: MachineState) -> RecordHistory | None:
    """The versions of the record of a measured state, if there are two."""
    versions = page.history.get(state.machine, ())
    return RecordHistory(state.machine, versions, True) if len(versions) > 1 else None


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
    shown = ['<div class="ws-plots">', *figures, "</div>"] if figures else []
    latest = len(line.versions) - 1
    factors = [
        points[-1].factor
        for course in courses
        for *_, points in course.functions
        if points[-1].version == latest
    ]
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
    y = svg.Scale(low, top, svg.TOP + svg.AREA, svg.TOP)
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
    parts += plots.draw_rate_curves(x, y, [points for *_, points in series])
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
    changed = escape_markdown(moment.change_text)
    return tables.make_cell(Html(f"{shown} <strong>{changed}</strong>") if changed else shown)


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
