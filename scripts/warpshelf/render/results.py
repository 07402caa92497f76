"""Every snippet on every machine in one table.

Enters: exhibits, and where each stands on the site. Leaves: HTML for the page of results, whose
links are those of that page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import attribute, escape
from warpshelf.core.places import OnPage
from warpshelf.records.schema import Record
from warpshelf.render import errors, rates, tables
from warpshelf.render.exhibit import Exhibit, MachineState

PLACE = OnPage("results/index.md")
TIMES = ("Of its limit", "Against the peer")  # columns that only a machine with times fills
HEAD = ("Snippet", "Machine", "State", "Checks passed", "Largest error", "Fastest of ours")
WORDS = {"verified": "checked", "compiled": "compiled only"}
NO_TIME = {"kernel": "no time", "program": "none due", "model": "none due"}


class Best(NamedTuple):
    """The time of ours that comes closest to its limit, or else has the highest rate."""

    label: str
    name: str
    rate: float
    unit: str
    share: float | None
    against: float | None  # times faster than the first peer
    peer: str


def best(record: Record) -> Best | None:
    """The best time of ours in a record; None where none of known cost was taken."""
    cases = tables.timed(record)
    found = []
    for label, case in zip(units.labels([case["case"] for case in cases]), cases, strict=True):
        limit = rates.bound(record, case)
        peer = next((one for one in case["results"] if one["role"] == "peer"), None)
        for result in case["results"]:
            time = tables.time_of(result)
            if limit is None or time is None or result["role"] != "variant":
                continue
            rate = limit.rate(time["median"])
            if rate is None:
                continue
            other = tables.time_of(peer) if peer else None
            share = units.divided(rate, limit.ceiling or limit.peak)
            against = units.divided(other["median"], time["median"]) if other else None
            named = peer["name"] if peer else ""
            found.append(Best(label, result["name"], rate, limit.unit, share, against, named))
    return max(found, key=lambda one: (one.share or 0.0, one.rate), default=None)


def _cell(text: str, sort: object = None, note: str = "", html: str = "") -> str:
    key = "" if sort is None else f" data-sort={attribute(str(sort))}"
    extra = f" <small>{escape(note)}</small>" if note else ""
    return f" <td{key}>{html or escape(text)}{extra}</td>"


def _checks(record: Record) -> str:
    results = [
        result
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant"
    ]
    passed = sum(result["verdict"] == "passed" for result in results)
    facts = len(record.get("facts", ()))
    skipped = len(results) - passed
    return _cell(
        units.integer(passed + facts), passed + facts, f"{skipped} skipped" if skipped else ""
    )


def _error(record: Record) -> str:
    worst = errors.worst(record)
    if worst is None:
        text = "facts, each as allowed" if record.get("facts") else "none"
        return _cell(text)
    error, allowed = (units.error(worst.get(key)) for key in ("error", "tolerance"))
    return _cell(error, errors.closeness(worst), f"of {allowed}")


def _times(exhibit: Exhibit, state: MachineState, timed: bool) -> str:
    found = best(state.record) if state.state == "measured" and state.record else None
    if found is None:
        return _cell(NO_TIME[exhibit.kind]) + (_cell("") + _cell("") if timed else "")
    against = _cell("no peer")
    if found.against is not None:
        against = _cell(units.ratio(found.against), found.against, found.peer)
    rate = units.rate(found.rate, found.unit)
    # Rates of bytes and of FLOPs do not compare, so they are sorted apart.
    key = found.rate * (1e-40 if found.unit == "B/s" else 1.0)
    return (
        _cell(rate, f"{key:.6e}", f"{found.name}, {found.label}")
        + (_cell(units.share(found.share), found.share) if found.share else _cell("unknown"))
        + against
    )


def _row(exhibit: Exhibit, state: MachineState, link: str | None, timed: bool) -> str:
    name = f"<code>{exhibit.id}</code>"
    if link:
        name = f'<a href="{PLACE.text(PLACE.to(link))}">{name}</a>'
    head = f'<th scope="row" data-sort="{exhibit.id}">{name} <small>{exhibit.kind}</small></th>'
    kind = "absent" if state.state == "not measured" else state.state
    badge = f'<span class="ws-badge ws-{kind}">{WORDS.get(state.state, state.state)}</span>'
    machine = "any GPU" if state.machine == "gpu" else state.name
    cells = _cell(machine, machine) + _cell("", state.state, html=badge)
    record = state.record or {}
    if state.state in ("measured", "verified"):
        cells += _checks(record) + _error(record)
    else:
        cells += _cell("") + _cell("")
    cells += _times(exhibit, state, timed)
    if record and state.state in ("measured", "verified", "compiled"):
        file = PLACE.to(f"/records/{exhibit.id}/{state.machine}.json")
        day = f'<a href="{PLACE.text(file)}">{units.day(record["date"])}</a>'
        cells += _cell("", record["date"], html=day)
    else:
        cells += _cell(state.date and f"withheld, of {units.day(state.date)}")
    return f"<tr>{head}{cells}</tr>"


def _states(exhibit: Exhibit) -> Iterator[MachineState]:
    """Its machines, GPUs first; and, where none is known, the GPU that it waits for."""
    yield from sorted(exhibit.states, key=lambda state: state.machine == "cpu")
    if exhibit.wants_gpu and not exhibit.known_on_gpu:
        yield MachineState(None, "not measured", "gpu")


def overview(exhibits: Sequence[Exhibit], links: Mapping[str, str]) -> str:
    """A row for each snippet and machine; `links` has the docs-absolute link of each snippet."""
    timed = any(exhibit.shown("measured") for exhibit in exhibits)
    rows = [
        _row(exhibit, state, links.get(exhibit.id), timed)
        for exhibit in sorted(exhibits, key=lambda one: one.id)
        for state in _states(exhibit)
    ]
    if not rows:
        return "<p>There is no snippet yet.</p>\n"
    caption = "Every snippet by machine"
    head: tuple[str, ...] = (*HEAD, *TIMES, "Record")
    if timed:
        caption += (
            "\nThe fastest of ours is the time that comes closest to what the machine can do; its "
            "limit was measured in the same run"
        )
    else:
        head = (*HEAD, "Record")
    return tables.table(caption, head, ["<tbody>", *rows, "</tbody>"], "results") + "\n"
