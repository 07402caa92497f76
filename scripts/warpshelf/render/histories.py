"""A snippet's times over the versions of a record, with what changed between: lines, plot, table.

Enters: the history of records. Leaves: lines of versions for `shelf history`, and the history of
one machine for the page. Nothing is drawn before there are two versions. Only what has a current
record is shown: earlier times stand on a page beside the present one, never in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown
from warpshelf.records import history as versions_of
from warpshelf.records import limits, record_comparison, store
from warpshelf.records.history import History, Version
from warpshelf.records.schema import Record
from warpshelf.records.store import TimeDifference
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.snippet_page import MachineState, SnippetPage, render_notice

SHORT = 12  # characters of a commit
NOT_COMMITTED = "not yet"
AMOUNTS = {"B/s": "bytes", "FLOP/s": "flops"}


class VersionTime(NamedTuple):
    """The time of a function in a version, its rate as a point of a plot, and what changed.

    `factor` says how many times as long it takes as before, where that is beyond both spreads.
    """

    version: int  # from 0
    time: dict[str, Any]
    point: tables.RatePoint | None
    factor: float | None

    @property
    def rate(self) -> float | None:
        """The rate at the median; None where no cost is stated."""
        return self.point.rate if self.point else None

    @property
    def change_text(self) -> str:
        """The factor in words; "" where nothing changed."""
        if self.factor is None:
            return ""
        if self.factor > 1:
            return f"{units.format_ratio(self.factor)} slower"
        return f"{units.format_ratio(1 / self.factor)} faster"


class CaseHistory(NamedTuple):
    """A case over time: its name, the unit of its rates, and its functions with their points."""

    case: dict[str, Any]
    label: str
    unit: str  # "" where its cost is not stated
    amount: float
    functions: list[tuple[str, str, list[VersionTime]]]  # name, role, points

    @property
    def change_count(self) -> int:
        """How many times are apart from those before."""
        points = (point for *_, points in self.functions for point in points)
        return sum(point.factor is not None for point in points)


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
            changed = [] if number == 0 else self.version_contrasts(number)
            put = version.commit[:SHORT] if version.commit else NOT_COMMITTED
            words = ", ".join(map(str, changed))
            blank = dict.fromkeys(("driver", "CUDA", "torch", "Triton", "SM clock"), "")
            own = record_comparison.record_conditions(version.record)
            found.append({**blank, **own, "put": put, "changed": words})
        return found

    def version_contrasts(self, number: int) -> list[record_comparison.ChangedCondition]:
        """What is not as in the version before `number`, of code and software."""
        before, after = (self.versions[at].record for at in (number - 1, number))
        return record_comparison.changed_conditions(before, after, record_comparison.SOFTWARE)

    def find_slowdowns(self) -> list[TimeDifference]:
        """Where ours are slower now than in the version before."""
        if len(self.versions) < 2:
            return []
        before, after = self.versions[-2:]
        return versions_of.slower_results(before.record, after.record)

    def case_histories(self) -> list[CaseHistory]:
        """Every case that was ever timed, those of the newest version first."""
        return self._cached_cases

    @cached_property
    def _cached_cases(self) -> list[CaseHistory]:
        cases: dict[str, list[tuple[int, Record, dict[str, Any]]]] = {}
        for number, version in reversed(list(enumerate(self.versions))):
            for case in tables.timed_cases(version.record):
                text = json.dumps(case["case"], sort_keys=True)
                cases.setdefault(text, []).append((number, version.record, case))
        found = [own for own in cases.values() if any(_case_times(case) for *_, case in own)]
        labels = units.case_labels([own[0][2]["case"] for own in found])
        return [_case_history(label, own) for label, own in zip(labels, found, strict=True)]


def _case_times(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [time for result in case["results"] if (time := tables.result_time(result))]


def _case_history(label: str, own: Sequence[tuple[int, Record, dict[str, Any]]]) -> CaseHistory:
    _, record, newest = own[0]
    limit = tables.case_bound(record, newest)
    unit = limit.unit if limit else ""
    functions: dict[tuple[str, str], list[VersionTime]] = {}
    for _, _, case in own:  # the order is that of the newest version
        for result in case["results"]:
            functions.setdefault((result["name"], result["role"]), [])
    for number, _, case in reversed(own):
        amount = units.finite_float(case.get(AMOUNTS.get(unit, ""))) or 0.0
        for result in case["results"]:
            if time := tables.result_time(result):
                points = functions[result["name"], result["role"]]
                drawn = (
                    tables.rate_point(number, tables.Bound(amount, unit), time)
                    if amount > 0
                    else None
                )
                points.append(VersionTime(number, time, drawn, _slowdown_factor(points, time)))
    timed = [(name, role, points) for (name, role), points in functions.items() if points]
    return CaseHistory(newest["case"], label, unit, limit.amount if limit else 0.0, timed)


def _slowdown_factor(points: Sequence[VersionTime], time: dict[str, Any]) -> float | None:
    if not points or not limits.times_differ(points[-1].time, time):
        return None
    return units.safe_divide(time["median"], points[-1].time["median"])


def record_histories(found: History, snippet: str) -> list[RecordHistory]:
    """The versions of each record of a snippet, in the order of their keys."""
    return list(_iter_histories(found, snippet))


def _iter_histories(found: History, snippet: str) -> Iterator[RecordHistory]:
    known = {key: own for (one, key), own in found.of.items() if one == snippet}
    slugs = sorted({store.key_slug(key) or key for key in known})
    for slug in slugs:
        for key in store.record_keys(slug):
            if key in known:
                yield RecordHistory(key, known[key], (snippet, key) in found.here)


FIGURES = 2  # cases that are drawn; the table has all
CHANGES = 6  # lines of a legend that say what changed
COMMIT = 8  # characters of one in a table
LOW = 0.5  # of the highest rate: where all are above, the axis does not start at 0


def state_history(exhibit: SnippetPage, state: MachineState) -> RecordHistory | None:
    """The versions of the record of a measured state, if there are two."""
    versions = exhibit.history.get(state.machine, ())
    return RecordHistory(state.machine, versions, True) if len(versions) > 1 else None


def render_history(exhibit: SnippetPage, state: MachineState) -> str:
    """The plots and the table of one machine; "" where there is but one version."""
    line = state_history(exhibit, state)
    courses = line.case_histories() if line else []
    if line is None or not courses:
        return ""
    chosen = sorted(courses, key=lambda one: (-one.change_count, -one.amount))[:FIGURES]
    drawings = [found for one in chosen if (found := draw_history(line, one))]
    figures = [svg.render_figure(found, _history_note(line, state)) for found in drawings]
    plots = ['<div class="ws-plots">', *figures, "</div>"] if figures else []
    return "\n".join((*plots, _history_table(line, courses, state)))


def _date_span(line: RecordHistory) -> str:
    first, last = (units.format_date(line.versions[at].record["date"]) for at in (0, -1))
    return f"on {first}" if first == last else f"from {first} to {last}"


def _history_note(line: RecordHistory, state: MachineState) -> str:
    return (
        f"{state.name}: {tables.format_count(len(line.versions), 'version')}, {_date_span(line)}."
    )


def draw_history(line: RecordHistory, course: CaseHistory) -> svg.Drawing | None:
    """The rates of each function over the versions; None where no cost is stated."""
    series = [
        (name, role, points)
        for name, role, moments in course.functions
        if (points := [moment.point for moment in moments if moment.point])
    ]
    found = [point for *_, points in series for point in points]
    if not found or len({one.x for one in found}) < 2:
        return None
    low, step, top = _axis_levels(min(one.low for one in found), max(one.high for one in found))
    unit = units.format_rate(top, course.unit).split(" ")[1]
    x = svg.x_scale(0, len(line.versions) - 1, margin=8)
    y = svg.Scale(low, top, svg.TOP + svg.AREA, svg.TOP)
    levels = [low + tick * step for tick in range(round((top - low) / step) + 1)]
    numbers = [(float(at), str(at + 1)) for at in range(len(line.versions))]
    parts = [
        *svg.draw_y_axis(y, svg.label_ticks(levels, svg.prefix_factor(unit)), unit),
        *svg.draw_x_labels(x, numbers, "version"),
    ]
    changed = list(_version_changes(line))
    for at in dict.fromkeys(at for at, _ in changed):
        parts.append(svg.draw_line(x(at), svg.TOP, x(at), svg.TOP + svg.AREA, "ws-changed"))
        parts.append(svg.draw_text(x(at), svg.TOP - 6, str(at + 1), end="middle", kind="ws-letter"))
    legend, ends = [], []
    for index, (name, role, points) in enumerate(series):
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.draw_polyline(((x(one.x), y(one.rate)) for one in points), colour))
        parts += [
            svg.draw_line(x(one.x), y(one.low), x(one.x), y(one.high), colour) for one in points
        ]
        parts += [svg.draw_mark(x(one.x), y(one.rate), index) for one in points]
        rate = units.format_rate(points[-1].rate, course.unit)
        value = f"{' (peer)' if role == 'peer' else ''}, {rate}"
        legend.append(svg.LegendEntry(index, name, value))
        ends.append(points[-1])
    heights = svg.spread_labels(
        [y(one.rate) for one in ends], svg.TEXT, svg.TOP, svg.TOP + svg.AREA
    )
    parts += [
        svg.draw_text(x(end.x) + 8, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        for entry, end, height in zip(legend, ends, heights, strict=True)
    ]
    told = [f"{at + 1}: {contrast}" for at, contrast in changed]
    shown = told if len(told) <= CHANGES else [*told[: CHANGES - 1], "further changes: see below"]
    below, foot = svg.draw_legend(svg.FOOT, legend, [("ws-changed", words) for words in shown])
    kind = "Bytes" if course.unit == "B/s" else "FLOPs"
    remark = "A dotted line is a change of code or software. " if changed else ""
    if low:
        remark += f"The axis starts at {units.format_rate(low, course.unit)}. "
    return svg.Drawing(
        f"{kind} per second over time, {course.label}",
        [*(entry.name + entry.value for entry in legend), *told],
        foot - 8,
        [*parts, *below],
        remark,
    )


def _axis_levels(lowest: float, highest: float) -> tuple[float, float, float]:
    """Where an axis of rates starts, its step, and its end."""
    if lowest < LOW * highest:
        step, top = svg.nice_step(highest)
        return 0.0, step, top
    step, _ = svg.nice_step(max(highest - lowest, 0.05 * highest))
    return step * math.floor(lowest / step), step, step * math.ceil(highest / step)


def _version_changes(
    line: RecordHistory,
) -> Iterator[tuple[int, record_comparison.ChangedCondition]]:
    for number in range(1, len(line.versions)):
        for contrast in line.version_contrasts(number):
            yield number, contrast


def _history_table(line: RecordHistory, courses: list[CaseHistory], state: MachineState) -> str:
    """A row for each version of each case, the newest first, in a fold with what changed last."""
    names = list(dict.fromkeys((name, role) for one in courses for name, role, _ in one.functions))
    told = line.describe_versions()
    heads = [f"{name} (peer)" if role == "peer" else name for name, role in names]
    groups = []
    for course in courses:
        times: dict[tuple[str, str], dict[int, VersionTime]] = {
            (name, role): {point.version: point for point in points}
            for name, role, points in course.functions
        }
        rows = []
        for number in reversed(range(len(line.versions))):
            moments = [times.get(pair, {}).get(number) for pair in names]
            if any(moments):
                cells = "".join(
                    f" <td>{_time_cell(moment, course.unit)}</td>" for moment in moments
                )
                own = told[number]
                put = (
                    f"commit {own['put'][:COMMIT]}"
                    if line.versions[number].commit
                    else "not committed"
                )
                note = f"{own['made on']}, {put}"
                head = f"{number + 1} <small>{escape_markdown(note)}</small>"
                changed = escape_markdown(
                    own["changed"] or ("the first" if number == 0 else "nothing")
                )
                rows.append(f'<tr><th scope="row">{head}</th>{cells} <td>{changed}</td></tr>')
        groups.append(tables.row_group(course.label, rows, len(names) + 2))
    caption = (
        f"Times by version on {state.name}\n{_history_note(line, state)} A time is marked "
        "where it differs from the one before by more than the spread of both"
    )
    columns = ("Version", *heads, "Changed since the one before")
    inner = tables.render_table(caption, columns, groups, "history")
    count = tables.format_count(len(line.versions), "version")
    last = [point for one in courses for *_, points in one.functions for point in points[-1:]]
    newest = [one for one in last if one.version == len(line.versions) - 1]
    slower, faster = (
        sum(one.factor is not None and (one.factor > 1) == up for one in newest)
        for up in (True, False)
    )
    answer = (
        f"Over time: {count} {_date_span(line)}; of {tables.format_count(len(newest), 'time')} of "
        f"the last one {slower} are slower than before, {faster} faster"
    )
    return tables.render_fold(answer, inner, tables.FEW + 1, "history")


def _time_cell(moment: VersionTime | None, unit: str) -> str:
    if moment is None:
        return "no time"
    rate = (
        f" <small>{escape_markdown(units.format_rate(moment.rate, unit))}</small>"
        if moment.rate
        else ""
    )
    marked = (
        f" <strong>{escape_markdown(moment.change_text)}</strong>" if moment.change_text else ""
    )
    return f"{escape_markdown(units.format_seconds(moment.time['median']))}{rate}{marked}"


def slowdown_notice(exhibit: SnippetPage, state: MachineState) -> str:
    """What is said above the times of a record that is slower than the one before it."""
    line = state_history(exhibit, state)
    found = line.find_slowdowns() if line else []
    if line is None or not found:
        return ""
    worst = max(found, key=lambda one: one.factor)
    why = line.versions[-1].slower
    reason = f": {escape_markdown(why)}" if why else ": nobody has said why yet."
    ended = "" if not why or why.endswith((".", "!", "?")) else "."
    before, after = (line.versions[at].record for at in (-2, -1))
    other = (
        ", ".join(map(str, record_comparison.changed_conditions(before, after)))
        or "nothing that is recorded"
    )
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    text = (
        f"{reason}{ended} {escape_markdown(record_comparison.format_difference(worst))}{more}, the "
        f"earlier time first. What else is different: {escape_markdown(other)}."
    )
    return render_notice("slower", f"Slower than before on {escape_markdown(state.name)}", text)
