"""What stands above the times where several records of one kind of GPU lie side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from warpshelf.core import units
from warpshelf.core.markup import escape
from warpshelf.records import conditions, limits
from warpshelf.records.siblings import slug_of
from warpshelf.render import tables
from warpshelf.render.exhibit import Exhibit, MachineState

NUMBERS = {2: "Two", 3: "Three", 4: "Four"}
Times = list[tuple[MachineState, dict[str, Any]]]


def disagreements(exhibit: Exhibit) -> str:
    """A block for each kind of GPU with several current records; "" where there is none."""
    groups: dict[str, list[MachineState]] = {}
    for state in exhibit.shown("measured"):
        groups.setdefault(slug_of(state.machine) or state.machine, []).append(state)
    return "\n\n".join(_block(states) for states in groups.values() if len(states) > 1)


def _block(states: Sequence[MachineState]) -> str:
    many = NUMBERS.get(len(states), str(len(states)))
    device = escape(states[0].device)
    rows = list(_times(states))
    apart = [said for row in rows if (said := _apart(*row))]
    items = "\n".join(
        f"<li><strong>{escape(state.apart)}</strong>: {escape(conditions.line(state.record))}</li>"
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
        f"{len(apart)} of {tables.count(len(rows), 'time')}. {neither} thrown away. They were made "
        "under:"
    )
    where = "<ul>\n" + "\n".join(f"<li>{escape(row)}</li>" for row in apart) + "\n</ul>"
    if len(apart) > tables.FEW:
        answer = f"Where they disagree: {tables.count(len(apart), 'time')}"
        where = tables.fold(answer, where, len(apart), "apart")
    else:
        where = f"<p>Where they disagree:</p>\n{where}"
    return f'<div class="ws-notice ws-apart"><p>{head}</p>\n{under}\n{where}</div>'


def _apart(label: str, name: str, times: Times) -> str:
    """All times of a function on a case, in one line, if two of them lie apart; else ""."""
    pairs = combinations((time for _, time in times), 2)
    if not any(limits.apart(first, second) for first, second in pairs):
        return ""
    said = "; ".join(f"{conditions.time(time)} with {one.apart}" for one, time in times)
    return f"{name}, {label}: {said}"


def _times(states: Iterable[MachineState]) -> Iterator[tuple[str, str, Times]]:
    """The functions that several records have timed: the case in words, the name, the times."""
    cases: dict[str, dict[str, Any]] = {}
    found: dict[tuple[str, str, str], Times] = {}
    for state in states:
        for case in tables.timed(state.record or {}):
            text = json.dumps(case["case"], sort_keys=True)
            cases.setdefault(text, case["case"])
            for result in case["results"]:
                if time := tables.time_of(result):
                    key = (text, result["role"], result["name"])
                    found.setdefault(key, []).append((state, time))
    labels = dict(zip(cases, units.labels(list(cases.values())), strict=True))
    for (text, role, name), times in found.items():
        if len(times) > 1:
            yield labels[text], f"{name} (peer)" if role == "peer" else name, times
