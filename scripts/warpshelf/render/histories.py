"""The history of a measured snippet on one machine: a plot over its versions, and a table behind.

Nothing is drawn before there are two versions. Only what has a current record is shown: earlier
times stand on a page beside the present one, never in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from warpshelf.core import units
from warpshelf.core.markup import escape
from warpshelf.records import conditions
from warpshelf.render import axes, svg, tables
from warpshelf.render.exhibit import Exhibit, MachineState
from warpshelf.render.notices import notice
from warpshelf.render.overtime import Course, Line, Moment

FIGURES = 2  # cases that are drawn; the table has all
CHANGES = 6  # lines of a legend that say what changed
COMMIT = 8  # characters of one in a table
LOW = 0.5  # of the highest rate: where all are above, the axis does not start at 0


def line_of(exhibit: Exhibit, state: MachineState) -> Line | None:
    """The versions of the record of a measured state, if there are two."""
    versions = exhibit.history.get(state.machine, ())
    return Line(state.machine, versions, True) if len(versions) > 1 else None


def history(exhibit: Exhibit, state: MachineState) -> str:
    """The plots and the table of one machine; "" where there is but one version."""
    line = line_of(exhibit, state)
    courses = line.cases() if line else []
    if line is None or not courses:
        return ""
    chosen = sorted(courses, key=lambda one: (-one.changes, -one.amount))[:FIGURES]
    drawings = [found for one in chosen if (found := drawing(line, one))]
    figures = [svg.figure(found, _note(line, state)) for found in drawings]
    plots = ['<div class="ws-plots">', *figures, "</div>"] if figures else []
    return "\n".join((*plots, _table(line, courses, state)))


def _span(line: Line) -> str:
    first, last = (units.day(line.versions[at].record["date"]) for at in (0, -1))
    return f"on {first}" if first == last else f"from {first} to {last}"


def _note(line: Line, state: MachineState) -> str:
    return f"{state.name}: {tables.count(len(line.versions), 'version')}, {_span(line)}."


def drawing(line: Line, course: Course) -> svg.Drawing | None:
    """The rates of each function over the versions; None where no cost is stated."""
    series = [
        (name, role, points)
        for name, role, moments in course.functions
        if (points := [moment.point for moment in moments if moment.point])
    ]
    found = [point for *_, points in series for point in points]
    if not found or len({one.x for one in found}) < 2:
        return None
    low, step, top = _levels(min(one.low for one in found), max(one.high for one in found))
    unit = units.rate(top, course.unit).split(" ")[1]
    x = axes.across(0, len(line.versions) - 1, margin=8)
    y = axes.Scale(low, top, axes.TOP + axes.AREA, axes.TOP)
    levels = [low + tick * step for tick in range(round((top - low) / step) + 1)]
    numbers = [(float(at), str(at + 1)) for at in range(len(line.versions))]
    parts = [
        *axes.rows(y, axes.labelled(levels, axes.prefix(unit)), unit),
        *axes.sizes(x, numbers, "version"),
    ]
    changed = list(_changes(line))
    for at in dict.fromkeys(at for at, _ in changed):
        parts.append(svg.line(x(at), axes.TOP, x(at), axes.TOP + axes.AREA, "ws-changed"))
        parts.append(svg.text(x(at), axes.TOP - 6, str(at + 1), end="middle", kind="ws-letter"))
    legend, ends = [], []
    for index, (name, role, points) in enumerate(series):
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.path(((x(one.x), y(one.rate)) for one in points), colour))
        parts += [svg.line(x(one.x), y(one.low), x(one.x), y(one.high), colour) for one in points]
        parts += [svg.mark(x(one.x), y(one.rate), index) for one in points]
        value = f"{' (peer)' if role == 'peer' else ''}, {units.rate(points[-1].rate, course.unit)}"
        legend.append(svg.Entry(index, name, value))
        ends.append(points[-1])
    heights = svg.spread([y(one.rate) for one in ends], svg.TEXT, axes.TOP, axes.TOP + axes.AREA)
    parts += [
        svg.text(x(end.x) + 8, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        for entry, end, height in zip(legend, ends, heights, strict=True)
    ]
    told = [f"{at + 1}: {contrast}" for at, contrast in changed]
    shown = told if len(told) <= CHANGES else [*told[: CHANGES - 1], "further changes: see below"]
    below, foot = svg.legend(axes.FOOT, legend, [("ws-changed", words) for words in shown])
    kind = "Bytes" if course.unit == "B/s" else "FLOPs"
    remark = "A dotted line is a change of code or software. " if changed else ""
    if low:
        remark += f"The axis starts at {units.rate(low, course.unit)}. "
    return svg.Drawing(
        f"{kind} per second over time, {course.label}",
        [*(entry.name + entry.value for entry in legend), *told],
        foot - 8,
        [*parts, *below],
        remark,
    )


def _levels(lowest: float, highest: float) -> tuple[float, float, float]:
    """Where an axis of rates starts, its step, and its end."""
    if lowest < LOW * highest:
        step, top = axes.rounded(highest)
        return 0.0, step, top
    step, _ = axes.rounded(max(highest - lowest, 0.05 * highest))
    return step * math.floor(lowest / step), step, step * math.ceil(highest / step)


def _changes(line: Line) -> Iterator[tuple[int, conditions.Contrast]]:
    for number in range(1, len(line.versions)):
        for contrast in line.contrasts(number):
            yield number, contrast


def _table(line: Line, courses: list[Course], state: MachineState) -> str:
    """A row for each version of each case, the newest first, in a fold with what changed last."""
    names = list(dict.fromkeys((name, role) for one in courses for name, role, _ in one.functions))
    told = line.told()
    heads = [f"{name} (peer)" if role == "peer" else name for name, role in names]
    groups = []
    for course in courses:
        times: dict[tuple[str, str], dict[int, Moment]] = {
            (name, role): {point.version: point for point in points}
            for name, role, points in course.functions
        }
        rows = []
        for number in reversed(range(len(line.versions))):
            moments = [times.get(pair, {}).get(number) for pair in names]
            if any(moments):
                cells = "".join(f" <td>{_cell(moment, course.unit)}</td>" for moment in moments)
                own = told[number]
                put = (
                    f"commit {own['put'][:COMMIT]}"
                    if line.versions[number].commit
                    else "not committed"
                )
                note = f"{own['made on']}, {put}"
                head = f"{number + 1} <small>{escape(note)}</small>"
                changed = escape(own["changed"] or ("the first" if number == 0 else "nothing"))
                rows.append(f'<tr><th scope="row">{head}</th>{cells} <td>{changed}</td></tr>')
        groups.append(tables.group(course.label, rows, len(names) + 2))
    caption = (
        f"Times by version on {state.name}\n{_note(line, state)} A time is marked where it differs "
        "from the one before by more than the spread of both"
    )
    columns = ("Version", *heads, "Changed since the one before")
    inner = tables.table(caption, columns, groups, "history")
    count = tables.count(len(line.versions), "version")
    last = [point for one in courses for *_, points in one.functions for point in points[-1:]]
    newest = [one for one in last if one.version == len(line.versions) - 1]
    slower, faster = (
        sum(one.factor is not None and (one.factor > 1) == up for one in newest)
        for up in (True, False)
    )
    answer = (
        f"Over time: {count} {_span(line)}; of {tables.count(len(newest), 'time')} of the last one "
        f"{slower} are slower than before, {faster} faster"
    )
    return tables.fold(answer, inner, tables.FEW + 1, "history")


def _cell(moment: Moment | None, unit: str) -> str:
    if moment is None:
        return "no time"
    rate = f" <small>{escape(units.rate(moment.rate, unit))}</small>" if moment.rate else ""
    marked = f" <strong>{escape(moment.standing)}</strong>" if moment.standing else ""
    return f"{escape(units.seconds(moment.time['median']))}{rate}{marked}"


def slower(exhibit: Exhibit, state: MachineState) -> str:
    """What is said above the times of a record that is slower than the one before it."""
    line = line_of(exhibit, state)
    found = line.slower() if line else []
    if line is None or not found:
        return ""
    worst = max(found, key=lambda one: one.factor)
    why = line.versions[-1].slower
    reason = f": {escape(why)}" if why else ": nobody has said why yet."
    ended = "" if not why or why.endswith((".", "!", "?")) else "."
    before, after = (line.versions[at].record for at in (-2, -1))
    other = ", ".join(map(str, conditions.contrasts(before, after))) or "nothing that is recorded"
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    text = (
        f"{reason}{ended} {escape(conditions.difference_line(worst))}{more}, the earlier time "
        f"first. What else is different: {escape(other)}."
    )
    return notice("slower", f"Slower than before on {escape(state.name)}", text)
