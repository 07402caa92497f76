"""The same case and function in several records, side by side, and where two of a kind disagree.

Every machine has its column. The two that measured most are shown; a script of the site lets a
reader choose others, and works their comparison out anew from the times that the cells carry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.records import limits, record_comparison
from warpshelf.records.limits import times_tie
from warpshelf.records.store import key_slug
from warpshelf.render import tables
from warpshelf.render.snippet_page import MachineState, SnippetPage

Key = tuple[str, str, str]  # the case as text, the role and the name of a function
SHOWN = 2  # machines
ORDINALS = {2: "second", 3: "third", 4: "fourth"}


@dataclass(frozen=True)
class MachineColumn:
    """The records of one key: the key, a name for all of them, and how many snippets they are of.

    The name is that of the machine, with what tells its records apart where all say the same.
    """

    slug: str
    name: str
    measured: int


@dataclass(frozen=True)
class TimeCell:
    """The time of a function in a case on a machine, with what it means there."""

    time: dict[str, Any]
    rate: str
    share: str


def rank_machines(exhibits: Iterable[SnippetPage]) -> list[MachineColumn]:
    """The machines with times, those that measured most first."""
    states: dict[str, list[MachineState]] = {}
    for exhibit in exhibits:
        for state in exhibit.select_states("measured"):
            states.setdefault(state.machine, []).append(state)
    found = [MachineColumn(key, _column_name(key, own), len(own)) for key, own in states.items()]
    return sorted(found, key=lambda one: (-one.measured, one.slug))


def _column_name(key: str, states: Sequence[MachineState]) -> str:
    """What the column of a key is called, which has several snippets below it."""
    names = {state.name for state in states}
    if len(names) == 1:
        return names.pop()
    number = int(key.partition(".")[2] or 1)
    beside = f", {ORDINALS.get(number, str(number))} record" if number > 1 else ""
    return f"{states[0].device}{beside}"


def _collect_times(
    exhibit: SnippetPage,
) -> tuple[list[dict[str, Any]], dict[str, dict[Key, TimeCell]]]:
    """The timed cases of all machines, each once, and the times of each machine."""
    cases: dict[str, dict[str, Any]] = {}
    found: dict[str, dict[Key, TimeCell]] = {}
    for state in exhibit.select_states("measured"):
        record = state.record or {}
        own = found.setdefault(state.machine, {})
        for case in tables.timed_cases(record):
            text = json.dumps(case["case"], sort_keys=True)
            cases.setdefault(text, case["case"])
            limit = tables.case_bound(record, case)
            for result in case["results"]:
                if time := tables.result_time(result):
                    own[text, result["role"], result["name"]] = _make_cell(time, limit)
    return list(cases.values()), found


def _make_cell(time: dict[str, Any], limit: tables.Bound | None) -> TimeCell:
    speed = limit.rate(time["median"]) if limit else None
    if limit is None or speed is None:
        return TimeCell(time, units.format_seconds(time["median"]), "")
    part = units.safe_divide(speed, limit.ceiling or limit.peak)
    share = f"{units.format_percent(part)} of its limit" if part is not None else ""
    return TimeCell(time, units.format_rate(speed, limit.unit), share)


def compare_times(first: TimeCell | None, second: TimeCell | None) -> str:
    """How many times faster the second is, in words."""
    if first is None or second is None:
        return "on one only"
    if times_tie(first.time, second.time):
        return "tie"
    return units.format_ratio(units.safe_divide(first.time["median"], second.time["median"]))


def summarize_pairs(
    names: Sequence[str], pairs: Iterable[tuple[TimeCell | None, TimeCell | None]]
) -> str:
    """What the rows of a table come to."""
    both = [(first, second) for first, second in pairs if first and second]
    if not both:
        return f"no time on both {names[0]} and {names[1]}"
    ties = sum(times_tie(first.time, second.time) for first, second in both)
    faster = sum(
        not times_tie(first.time, second.time) and first.time["median"] > second.time["median"]
        for first, second in both
    )
    slower = len(both) - ties - faster
    return (
        f"of {tables.format_count(len(both), 'time')}, {names[1]} is faster in {faster}, "
        f"slower in {slower}, tied in {ties}"
    )


def _time_attributes(cell: TimeCell) -> str:
    return "".join(f' data-{key}="{cell.time[key]!r}"' for key in ("median", "p20", "p80"))


def _function_row(
    name: str,
    role: str,
    key: Key,
    order: Sequence[MachineColumn],
    found: dict[str, dict[Key, TimeCell]],
) -> str:
    peer = " <small>peer</small>" if role == "peer" else ""
    cells = []
    for place, machine in enumerate(order):
        hidden = " hidden" if place >= SHOWN else ""
        cell = found.get(machine.slug, {}).get(key)
        opening = f' <td data-machine="{machine.slug}"{hidden}'
        if cell is None:
            cells.append(f"{opening}>no time</td>")
            continue
        note = f" <small>{escape_markdown(cell.share)}</small>" if cell.share else ""
        cells.append(f"{opening}{_time_attributes(cell)}>{escape_markdown(cell.rate)}{note}</td>")
    if len(order) > 1:
        pair = (found.get(machine.slug, {}).get(key) for machine in order[:SHOWN])
        cells.append(f' <td class="ws-pair-ratio">{escape_markdown(compare_times(*pair))}</td>')
    return f'<tr><th scope="row">{escape_markdown(name)}{peer}</th>{"".join(cells)}</tr>'


def _case_groups(
    exhibit: SnippetPage, order: Sequence[MachineColumn]
) -> tuple[list[str], list[tuple[TimeCell | None, TimeCell | None]]]:
    """The rows of a snippet's table by case, and the pairs of times that they show."""
    cases, found = _collect_times(exhibit)
    columns = len(order) + 2
    groups, pairs = [], []
    for label, case in zip(units.case_labels(cases), cases, strict=True):
        text = json.dumps(case, sort_keys=True)
        keys = dict.fromkeys(key for own in found.values() for key in own if key[0] == text)
        rows = [_function_row(key[2], key[1], key, order, found) for key in keys]
        groups.append(tables.row_group(label, rows, columns))
        first, *rest = [found.get(machine.slug, {}) for machine in order[:SHOWN]]
        pairs += [(first.get(key), rest[0].get(key) if rest else None) for key in keys]
    return groups, pairs


def _column_head(machine: MachineColumn, apart: str) -> str:
    """The head of a column, with what its record here is told apart by, where the name has not."""
    more = (
        f" <small>{escape_markdown(apart)}</small>" if apart and apart not in machine.name else ""
    )
    return escape_markdown(machine.name) + more


def _snippet_table(exhibit: SnippetPage, order: Sequence[MachineColumn]) -> str:
    groups, pairs = _case_groups(exhibit, order)
    names = [machine.name for machine in order[:SHOWN]]
    own = {state.machine: state.apart for state in exhibit.select_states("measured")}
    heads = "".join(
        f' <th scope="col" data-machine="{machine.slug}"'
        f" data-name={quote_attribute(machine.name)}{' hidden' if place >= SHOWN else ''}>"
        f"{_column_head(machine, own.get(machine.slug, ''))}</th>"
        for place, machine in enumerate(order)
    )
    ratio = ""
    if len(order) > 1:
        ratio = ' <th scope="col" class="ws-pair-ratio">Second against first</th>'
        answer = summarize_pairs(names, pairs)
    else:
        answer = f"{tables.format_count(len(pairs), 'time')} on {names[0]}"
    title = f"Times of {exhibit.id} by machine"
    return (
        f'<details class="ws-fold ws-pair"><summary><code>{exhibit.id}</code>: '
        f'<span class="ws-pair-said">{escape_markdown(answer)}</span></summary>\n'
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={quote_attribute(title)}>'
        f'<table class="ws-table ws-pairs">'
        f"<caption><strong>{escape_markdown(title)}</strong></caption>\n"
        f'<thead><tr><th scope="col">Function</th>{heads}{ratio}</tr></thead>\n'
        + "\n".join(groups)
        + "\n</table></div>\n</details>"
    )


def _comparison_parts(
    exhibits: Sequence[SnippetPage], order: Sequence[MachineColumn]
) -> Iterator[str]:
    names = [machine.name for machine in order]
    if len(order) == 1:
        yield (
            f"<p>One machine has times: {escape_markdown(names[0])}. With a second one the two "
            "stand side by side here.</p>"
        )
    else:
        yield (
            f'<p>Side by side: <span class="ws-pair-names">{escape_markdown(names[0])}, then '
            f"{escape_markdown(names[1])}</span>. Above 1, the second is faster; where the "
            "intervals from p20 to p80 overlap, it is a tie.</p>"
        )
    for exhibit in sorted(exhibits, key=lambda one: one.id):
        if any(
            tables.timed_cases(state.record or {}) for state in exhibit.select_states("measured")
        ):
            yield _snippet_table(exhibit, order)


def side_by_side(exhibits: Sequence[SnippetPage]) -> str:
    """A fold for each snippet with times; in words what is missing where there is none."""
    order = rank_machines(exhibits)
    if not order:
        return (
            '<p class="ws-absent">No machine has times yet, so there is nothing to set side by '
            "side. <code>shelf run</code> on a machine with a GPU makes the first.</p>\n"
        )
    return (
        '<div class="ws-machines">\n' + "\n".join(_comparison_parts(exhibits, order)) + "\n</div>\n"
    )


NUMBERS = {2: "Two", 3: "Three", 4: "Four"}
Times = list[tuple[MachineState, dict[str, Any]]]


def render_disagreements(exhibit: SnippetPage) -> str:
    """A block for each kind of GPU with several current records; "" where there is none."""
    groups: dict[str, list[MachineState]] = {}
    for state in exhibit.select_states("measured"):
        groups.setdefault(key_slug(state.machine) or state.machine, []).append(state)
    return "\n\n".join(_disagreement_block(states) for states in groups.values() if len(states) > 1)


def _disagreement_block(states: Sequence[MachineState]) -> str:
    many = NUMBERS.get(len(states), str(len(states)))
    device = escape_markdown(states[0].device)
    rows = list(_timed_by_several(states))
    apart = [said for row in rows if (said := _disagreement_line(*row))]
    items = "\n".join(
        f"<li><strong>{escape_markdown(state.apart)}</strong>: "
        f"{escape_markdown(record_comparison.format_conditions(state.record))}</li>"
        for state in states
        if state.record
    )
    under = f"<ul>\n{items}\n</ul>"
    if not apart:
        head = f"<strong>{many} records of {device} agree</strong> within the spread of both."
        return f'<div class="ws-notice ws-apart"><p>{head} They were made under:</p>\n{under}</div>'
    neither = "Neither is" if len(states) == 2 else "None is"
    head = (
        f"<strong>{many} records of {device} disagree</strong> by more than the spread of both, in "
        f"{len(apart)} of {tables.format_count(len(rows), 'time')}. {neither} thrown away. They "
        "were made under:"
    )
    where = "<ul>\n" + "\n".join(f"<li>{escape_markdown(row)}</li>" for row in apart) + "\n</ul>"
    if len(apart) > tables.FEW:
        answer = f"Where they disagree: {tables.format_count(len(apart), 'time')}"
        where = tables.render_fold(answer, where, len(apart), "apart")
    else:
        where = f"<p>Where they disagree:</p>\n{where}"
    return f'<div class="ws-notice ws-apart"><p>{head}</p>\n{under}\n{where}</div>'


def _disagreement_line(label: str, name: str, times: Times) -> str:
    """All times of a function on a case, in one line, if two of them lie apart; else ""."""
    pairs = combinations((time for _, time in times), 2)
    if not any(limits.times_differ(first, second) for first, second in pairs):
        return ""
    said = "; ".join(
        f"{record_comparison.format_time(time)} with {one.apart}" for one, time in times
    )
    return f"{name}, {label}: {said}"


def _timed_by_several(states: Iterable[MachineState]) -> Iterator[tuple[str, str, Times]]:
    """The functions that several records have timed: the case in words, the name, the times."""
    cases: dict[str, dict[str, Any]] = {}
    found: dict[tuple[str, str, str], Times] = {}
    for state in states:
        for case in tables.timed_cases(state.record or {}):
            text = json.dumps(case["case"], sort_keys=True)
            cases.setdefault(text, case["case"])
            for result in case["results"]:
                if time := tables.result_time(result):
                    key = (text, result["role"], result["name"])
                    found.setdefault(key, []).append((state, time))
    labels = dict(zip(cases, units.case_labels(list(cases.values())), strict=True))
    for (text, role, name), times in found.items():
        if len(times) > 1:
            yield labels[text], f"{name} (peer)" if role == "peer" else name, times
