"""The same case and function in several records, side by side, and where two of a kind disagree.

Every machine has its column. The two that measured most are shown; a script of the site lets a
reader choose others, and compares them by the times that the cells carry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.records import limits, record_comparison
from warpshelf.records.store import key_slug
from warpshelf.render import tables
from warpshelf.render.figures import compare_times
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.render.tables import Cell, Html, format_count

SHOWN = 2  # machines
ORDINALS = {2: "second", 3: "third", 4: "fourth"}
NUMBERS = {2: "Two", 3: "Three", 4: "Four"}


class MachineColumn(NamedTuple):
    """The records of one key: the key, a name for all of them, and how many snippets they are of.

    The name is that of the machine, with what tells its records apart where all say the same.
    """

    slug: str
    name: str
    measured: int


class TimeCell(NamedTuple):
    """The time of a function in a case on a machine, and what limits the case there."""

    state: MachineState
    time: dict[str, Any]
    limit: tables.Bound | None


# By the case as text, the role and the name of a function; then by machine.
Found = dict[tuple[str, str, str], dict[str, TimeCell]]


def rank_machines(pages: Iterable[SnippetPage]) -> list[MachineColumn]:
    """The machines with times, those that measured most first."""
    states: dict[str, list[MachineState]] = {}
    for page in pages:
        for state in page.select_states("measured"):
            states.setdefault(state.machine, []).append(state)
    found = []
    for key, own in states.items():
        names, number = {state.name for state in own}, int(key.partition(".")[2] or 1)
        beside = f", {ORDINALS.get(number, str(number))} record" if number > 1 else ""
        name = names.pop() if len(names) == 1 else f"{own[0].device}{beside}"
        found.append(MachineColumn(key, name, len(own)))
    return sorted(found, key=lambda one: (-one.measured, one.slug))


def _collect_times(states: Iterable[MachineState]) -> tuple[dict[str, str], Found]:
    """The timed cases, each once by its text, in words; and the times of each function."""
    cases: dict[str, dict[str, Any]] = {}
    found: Found = {}
    for state in states:
        for case in tables.timed_cases(state.known):
            text = json.dumps(case["case"], sort_keys=True)
            cases.setdefault(text, case["case"])
            limit = tables.case_bound(state.known, case)
            for result, time in tables.timed_results(case):
                own = found.setdefault((text, result["role"], result["name"]), {})
                own[state.machine] = TimeCell(state, time, limit)
    return dict(zip(cases, units.case_labels(list(cases.values())), strict=True)), found


def _time_cell(cell: TimeCell | None, attributes: str) -> Cell:
    if cell is None:
        return tables.make_cell("no time", attributes=attributes)
    time, limit = cell.time, cell.limit
    attributes += "".join(f' data-{key}="{time[key]!r}"' for key in ("median", "p20", "p80"))
    speed = limit.rate(time["median"]) if limit else None
    if limit is None or speed is None:
        return tables.make_cell(units.format_seconds(time["median"]), attributes=attributes)
    part = units.safe_divide(speed, limit.ceiling or limit.peak)
    note = f"{units.format_percent(part)} of its limit" if part is not None else ""
    return tables.make_cell(units.format_rate(speed, limit.unit), note, attributes)


def _snippet_table(page: SnippetPage, order: Sequence[MachineColumn]) -> str:
    labels, found = _collect_times(page.select_states("measured"))
    hidden = ["" if place < SHOWN else " hidden" for place in range(len(order))]
    groups, pairs = [], []
    for text, label in labels.items():
        rows = []
        for (of, role, name), own in found.items():
            if of != text:
                continue
            cells = [
                _time_cell(own.get(one.slug), f' data-machine="{one.slug}"{mark}')
                for one, mark in zip(order, hidden, strict=True)
            ]
            pairs.append([own.get(machine.slug) for machine in order[:SHOWN]])
            if len(order) > 1:
                first, second = pairs[-1]
                ratio = "on one only"
                if first and second:
                    ratio = compare_times(first.time, second.time)
                cells.append(tables.make_cell(ratio, attributes=' class="ws-pair-ratio"'))
            rows.append(tables.table_row(name, cells, tables.note_peer(role)))
        groups.append(tables.row_group(label, rows, len(order) + 2))
    apart_by = {state.machine: state.apart for state in page.select_states("measured")}
    head = ["Function"]
    for machine, mark in zip(order, hidden, strict=True):
        apart = apart_by.get(machine.slug, "")  # the name of the column may tell it already
        shown = tables.add_note(machine.name, "" if apart in machine.name else apart)
        data = f'data-machine="{machine.slug}" data-name={quote_attribute(machine.name)}{mark}'
        head.append(Cell(f'<th scope="col" {data}>{shown}</th>'))
    answer = f"{format_count(len(pairs), 'time')} on {order[0].name}"
    if len(order) > 1:
        head.append(Cell('<th scope="col" class="ws-pair-ratio">Second against first</th>'))
        answer = _summarize_pairs(order[0].name, order[1].name, pairs)
    said = f'<code>{page.id}</code>: <span class="ws-pair-said">{escape_markdown(answer)}</span>'
    caption = f"Times of {page.id} by machine"
    table = tables.render_table(caption, head, groups, "pairs", searched=True)
    return tables.render_fold(Html(said), table, "pair")


def _summarize_pairs(first: str, second: str, pairs: Iterable[list[TimeCell | None]]) -> str:
    """The summary of a table's rows."""
    both = [(one.time, other.time) for one, other in pairs if one and other]
    if not both:
        return f"no time on both {first} and {second}"
    apart = [pair for pair in both if not limits.times_tie(*pair)]
    faster = sum(one["median"] > other["median"] for one, other in apart)
    return (
        f"of {format_count(len(both), 'time')}, {second} is faster in {faster}, "
        f"slower in {len(apart) - faster}, tied in {len(both) - len(apart)}"
    )


def side_by_side(pages: Sequence[SnippetPage]) -> str:
    """A fold for each snippet with times; says what is missing if there are none."""
    order = rank_machines(pages)
    if not order:
        return (
            '<p class="ws-absent">No machine has times yet, so there is nothing to set side by '
            "side. <code>shelf run</code> on a machine with a GPU makes the first.</p>\n"
        )
    first, *rest = [escape_markdown(machine.name) for machine in order]
    said = f"<p>One machine has times: {first}. A second one will be shown beside it.</p>"
    if rest:
        said = (
            f'<p>Side by side: <span class="ws-pair-names">{first}, then {rest[0]}</span>. Above '
            "1, the second is faster; where the intervals from p20 to p80 overlap, it is a tie.</p>"
        )
    shown = [
        _snippet_table(page, order)
        for page in sorted(pages, key=lambda one: one.id)
        if any(tables.timed_cases(state.known) for state in page.select_states("measured"))
    ]
    return '<div class="ws-machines">\n' + "\n".join((said, *shown)) + "\n</div>\n"


def render_disagreements(page: SnippetPage) -> str:
    """A block for each kind of GPU with several current records; "" where there is none."""
    groups: dict[str, list[MachineState]] = {}
    for state in page.select_states("measured"):
        groups.setdefault(key_slug(state.machine) or state.machine, []).append(state)
    return "\n\n".join(_disagreement_block(states) for states in groups.values() if len(states) > 1)


def _disagreement_block(states: Sequence[MachineState]) -> str:
    labels, found = _collect_times(states)
    shared = {key: list(own.values()) for key, own in found.items() if len(own) > 1}
    apart = []
    for (text, role, name), cells in shared.items():
        pairs = combinations((cell.time for cell in cells), 2)
        if any(limits.times_differ(*pair) for pair in pairs):
            times = (record_comparison.format_time(cell.time) for cell in cells)
            said = "; ".join(
                f"{one} with {cell.state.apart}" for one, cell in zip(times, cells, strict=True)
            )
            line = f"{name}{tables.mark_peer(role)}, {labels[text]}: {said}"
            apart.append(f"<li>{escape_markdown(line)}</li>")
    items = "\n".join(
        f"<li><strong>{escape_markdown(state.apart)}</strong>: "
        f"{escape_markdown(record_comparison.format_conditions(state.known))}</li>"
        for state in states
    )
    many = NUMBERS.get(len(states), str(len(states)))
    head = f"<strong>{many} records of {escape_markdown(states[0].device)}"
    where = ""
    if apart:
        kept = "Both are" if len(states) == 2 else "All are"
        head += (
            " disagree</strong> by more than the spread of both, in "
            f"{len(apart)} of {format_count(len(shared), 'time')}. {kept} kept. "
        )
        where = "<ul>\n" + "\n".join(apart) + "\n</ul>"
        answer = f"Where they disagree: {format_count(len(apart), 'time')}"
        if len(apart) > tables.FEW:
            where = f"\n{tables.render_fold(answer, where, 'apart')}"
        else:
            where = f"\n<p>Where they disagree:</p>\n{where}"
    else:
        head += " agree</strong> within the spread of both. "
    made = f"<p>{head}They were made under:</p>\n<ul>\n{items}\n</ul>"
    return f'<div class="ws-notice ws-apart">{made}{where}</div>'
