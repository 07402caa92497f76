"""Every snippet on every machine: in one table, in words, and by the architectures it runs on.

Enters: exhibits, and where each stands on the site. Leaves: HTML for the page of results, whose
links are those of that page, and Markdown tables of what runs on which GPU, whose links hold on any
page: known from what snippets need, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.contract.architectures import Architectures
from warpshelf.core import units
from warpshelf.core.markup import attribute, escape
from warpshelf.core.places import OnPage
from warpshelf.records.schema import Record
from warpshelf.render import figures, tables
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
        limit = tables.bound(record, case)
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
    worst = figures.worst(record)
    if worst is None:
        text = "facts, each as allowed" if record.get("facts") else "none"
        return _cell(text)
    error, allowed = (units.error(worst.get(key)) for key in ("error", "tolerance"))
    return _cell(error, figures.closeness(worst), f"of {allowed}")


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


NOT_YET = """\
!!! note "No GPU has been measured yet"
    Every result on the site comes from a CPU: errors, facts, figures of the compiler, and no times.
    Where a time would stand the page says *not measured on a GPU*. What follows about timing is how
    the first ones will be taken. The [page of results](/results/index.md) counts what there is.
"""


@dataclass(frozen=True)
class Tally:
    """How many snippets there are by the most that is claimed of them, and on which GPUs."""

    snippets: int
    measured: int
    checked: int
    compiled: int
    nothing: int
    stale: int
    failed: int
    gpus: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is measured on a GPU, in words."""
        if not self.gpus:
            return "No snippet has been measured on a GPU yet: no time of ours stands on this site."
        verb = "is" if self.measured == 1 else "are"
        of = tables.count(self.snippets, "snippet")
        return f"{self.measured} of {of} {verb} measured on a GPU: {'; '.join(self.gpus)}."


def tally(exhibits: Iterable[Exhibit]) -> Tally:
    """Count them; a snippet counts once by the most that a current record claims."""
    shown = list(exhibits)
    best = dict.fromkeys(("measured", "verified", "compiled", ""), 0)
    gpus: dict[str, None] = {}
    for exhibit in shown:
        known = {state.state for state in exhibit.states}
        best[next((state for state in best if state in known), "")] += 1
        gpus |= dict.fromkeys(state.device for state in exhibit.shown("measured"))
    amiss = {
        name: sum(any(state.state == name for state in one.states) for one in shown)
        for name in ("stale", "failed")
    }
    return Tally(
        len(shown),
        best["measured"],
        best["verified"],
        best["compiled"],
        best[""],
        amiss["stale"],
        amiss["failed"],
        tuple(gpus),
    )


def summary(exhibits: Iterable[Exhibit]) -> str:
    """The counts, each with its words, and the sentence about GPUs."""
    found = tally(exhibits)
    rows = (
        (found.measured, "measured on a GPU"),
        (found.checked, "checked with no GPU"),
        (found.compiled, "compiled only"),
        (found.nothing, "without a current record"),
        (found.stale, "stale on some machine"),
        (found.failed, "failed when last run"),
    )
    items = " ".join(f"<li><strong>{number}</strong> {words}</li>" for number, words in rows)
    return f'<p><strong>{escape(found.sentence)}</strong></p>\n<ul class="ws-counts">{items}</ul>\n'


def note(exhibits: Iterable[Exhibit]) -> str:
    """What the page that explains the numbers says of those that there are, as Markdown."""
    found = tally(exhibits)
    if found.gpus:
        said = f'!!! note "{escape(found.sentence)}"'
        return f"{said}\n    The [page of results](/results/index.md) has them all.\n"
    return NOT_YET


WHOLE, PART, NONE = "whole", "in part", "skipped"


class Skip(NamedTuple):
    """A kernel, or one of its variants or peers, that is not for an architecture, and what is."""

    exhibit: Exhibit
    name: str  # of the variant or peer; "" is all of it
    needed: Architectures


def table(exhibits: Iterable[Exhibit], pages: Mapping[str, str]) -> str:
    """Both tables; `pages` has the docs-absolute link of each snippet that a page shows."""
    kernels = [one for one in exhibits if one.kind == "kernel"]
    rows = [
        "| GPU | Cards | Kernels that run whole | in part | skipped |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    reasons: dict[tuple[str, str, str], list[int]] = {}  # by reason, snippet and variant
    for sm, cards in architectures.CARDS.items():
        counts = dict.fromkeys((WHOLE, PART, NONE), 0)
        for one in kernels:
            skips = list(skipped(one, sm))
            counts[standing(one, skips)] += 1
            for skip in skips:
                shown, name = _shown(one, pages), _named(skip)
                reasons.setdefault((_needed(skip.needed), shown, name), []).append(sm)
        cells = f"SM {sm}", ", ".join(cards), *map(str, counts.values())
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| Needs | What is skipped | on SM |", "| --- | --- | --- |"]
    for reason, places, whats in sorted(_grouped(reasons), key=lambda row: row[1]):
        named = (
            f"{shown}{': ' if all(names) else ''}{', '.join(names)}"
            for shown, names in sorted(whats.items())
        )
        rows.append(f"| {reason} | {'; '.join(named)} | {', '.join(map(str, places))} |")
    return "\n".join(rows) + "\n"


Row = tuple[str, tuple[int, ...], dict[str, list[str]]]


def _grouped(reasons: Mapping[tuple[str, str, str], Sequence[int]]) -> Iterator[Row]:
    """What is skipped for one reason on the same architectures: snippets, and names of each."""
    found: dict[tuple[str, tuple[int, ...]], dict[str, list[str]]] = {}
    for (reason, shown, name), places in reasons.items():
        whats = found.setdefault((reason, tuple(places)), {})
        whats.setdefault(shown, []).append(name)
    for (reason, where), whats in found.items():
        yield reason, where, whats


def skipped(one: Exhibit, sm: int) -> Iterator[Skip]:
    """What of a kernel is not for SM version `sm`: all of it, or some variants and peers."""
    if whole := next((each for each in architectures.of(one.needs) if not each.covers(sm)), None):
        yield Skip(one, "", whole)
        return
    for name in one.needs.get("variants", {}):
        for needed in architectures.of(one.needs, name):
            if not needed.covers(sm):
                yield Skip(one, name, needed)


def standing(one: Exhibit, skips: Iterable[Skip]) -> str:
    """Whether a kernel runs whole, in part or not at all; a peer that is skipped counts nothing."""
    names = {skip.name for skip in skips}
    if "" in names:
        return NONE
    ours = variants(one)
    left = ours - names
    return NONE if ours and not left else WHOLE if left == ours else PART


def variants(one: Exhibit) -> set[str]:
    """The variants of a kernel, as its records say what is due."""
    rows = (row for state in one.states if state.record for row in state.record.get("due", ()))
    return {name for row in rows for name in row["variants"]}


def _needed(needed: Architectures) -> str:
    return escape(f"{needed}: {needed.why}" if needed.why else str(needed))


def _shown(one: Exhibit, pages: Mapping[str, str]) -> str:
    link = pages.get(one.id)
    return f"[`{one.id}`]({link})" if link else f"`{one.id}`"


def _named(skip: Skip) -> str:
    if not skip.name:
        return ""
    return escape(skip.name) + ("" if skip.name in variants(skip.exhibit) else " (peer)")
