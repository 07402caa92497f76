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
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.core.places import OnPage
from warpshelf.records.schema import Record
from warpshelf.render import figures, tables
from warpshelf.render.snippet_page import MachineState, SnippetPage

PLACE = OnPage("results/index.md")
TIMES = ("Of its limit", "Against the peer")  # columns that only a machine with times fills
HEAD = ("Snippet", "Machine", "State", "Checks passed", "Largest error", "Fastest of ours")
WORDS = {"verified": "checked", "compiled": "compiled only"}
NO_TIME = {"kernel": "no time", "program": "none due", "model": "none due"}


class BestTime(NamedTuple):
    """The time of ours that comes closest to its limit, or else has the highest rate."""

    label: str
    name: str
    rate: float
    unit: str
    share: float | None
    against: float | None  # times faster than the first peer
    peer: str


def best_time(record: Record) -> BestTime | None:
    """The best time of ours in a record; None where none of known cost was taken."""
    cases = tables.timed_cases(record)
    found = []
    for label, case in zip(units.case_labels([case["case"] for case in cases]), cases, strict=True):
        limit = tables.case_bound(record, case)
        peer = next((one for one in case["results"] if one["role"] == "peer"), None)
        for result in case["results"]:
            time = tables.result_time(result)
            if limit is None or time is None or result["role"] != "variant":
                continue
            rate = limit.rate(time["median"])
            if rate is None:
                continue
            other = tables.result_time(peer) if peer else None
            share = units.safe_divide(rate, limit.ceiling or limit.peak)
            against = units.safe_divide(other["median"], time["median"]) if other else None
            named = peer["name"] if peer else ""
            found.append(BestTime(label, result["name"], rate, limit.unit, share, against, named))
    return max(found, key=lambda one: (one.share or 0.0, one.rate), default=None)


def _sortable_cell(text: str, sort: object = None, note: str = "", html: str = "") -> str:
    key = "" if sort is None else f" data-sort={quote_attribute(str(sort))}"
    extra = f" <small>{escape_markdown(note)}</small>" if note else ""
    return f" <td{key}>{html or escape_markdown(text)}{extra}</td>"


def _checks_cell(record: Record) -> str:
    results = [
        result
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant"
    ]
    passed = sum(result["verdict"] == "passed" for result in results)
    facts = len(record.get("facts", ()))
    skipped = len(results) - passed
    return _sortable_cell(
        units.format_integer(passed + facts),
        passed + facts,
        f"{skipped} skipped" if skipped else "",
    )


def _error_cell(record: Record) -> str:
    worst = figures.worst_result(record)
    if worst is None:
        text = "facts, each as allowed" if record.get("facts") else "none"
        return _sortable_cell(text)
    error, allowed = (units.format_error(worst.get(key)) for key in ("error", "tolerance"))
    return _sortable_cell(error, figures.tolerance_share(worst), f"of {allowed}")


def _time_cells(exhibit: SnippetPage, state: MachineState, timed: bool) -> str:
    found = best_time(state.record) if state.state == "measured" and state.record else None
    if found is None:
        return _sortable_cell(NO_TIME[exhibit.kind]) + (
            _sortable_cell("") + _sortable_cell("") if timed else ""
        )
    against = _sortable_cell("no peer")
    if found.against is not None:
        against = _sortable_cell(units.format_ratio(found.against), found.against, found.peer)
    rate = units.format_rate(found.rate, found.unit)
    # Rates of bytes and of FLOPs do not compare, so they are sorted apart.
    key = found.rate * (1e-40 if found.unit == "B/s" else 1.0)
    return (
        _sortable_cell(rate, f"{key:.6e}", f"{found.name}, {found.label}")
        + (
            _sortable_cell(units.format_percent(found.share), found.share)
            if found.share
            else _sortable_cell("unknown")
        )
        + against
    )


def _result_row(exhibit: SnippetPage, state: MachineState, link: str | None, timed: bool) -> str:
    name = f"<code>{exhibit.id}</code>"
    if link:
        name = f'<a href="{PLACE.escape_text(PLACE.relative_link(link))}">{name}</a>'
    head = f'<th scope="row" data-sort="{exhibit.id}">{name} <small>{exhibit.kind}</small></th>'
    kind = "absent" if state.state == "not measured" else state.state
    badge = f'<span class="ws-badge ws-{kind}">{WORDS.get(state.state, state.state)}</span>'
    machine = "any GPU" if state.machine == "gpu" else state.name
    cells = _sortable_cell(machine, machine) + _sortable_cell("", state.state, html=badge)
    record = state.record or {}
    if state.state in ("measured", "verified"):
        cells += _checks_cell(record) + _error_cell(record)
    else:
        cells += _sortable_cell("") + _sortable_cell("")
    cells += _time_cells(exhibit, state, timed)
    if record and state.state in ("measured", "verified", "compiled"):
        file = PLACE.relative_link(f"/records/{exhibit.id}/{state.machine}.json")
        day = f'<a href="{PLACE.escape_text(file)}">{units.format_date(record["date"])}</a>'
        cells += _sortable_cell("", record["date"], html=day)
    else:
        cells += _sortable_cell(state.date and f"withheld, of {units.format_date(state.date)}")
    return f"<tr>{head}{cells}</tr>"


def _ordered_states(exhibit: SnippetPage) -> Iterator[MachineState]:
    """Its machines, GPUs first; and, where none is known, the GPU that it waits for."""
    yield from sorted(exhibit.states, key=lambda state: state.machine == "cpu")
    if exhibit.wants_gpu and not exhibit.ran_on_gpu:
        yield MachineState(None, "not measured", "gpu")


def results_table(exhibits: Sequence[SnippetPage], links: Mapping[str, str]) -> str:
    """A row for each snippet and machine; `links` has the docs-absolute link of each snippet."""
    timed = any(exhibit.select_states("measured") for exhibit in exhibits)
    rows = [
        _result_row(exhibit, state, links.get(exhibit.id), timed)
        for exhibit in sorted(exhibits, key=lambda one: one.id)
        for state in _ordered_states(exhibit)
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
    return tables.render_table(caption, head, ["<tbody>", *rows, "</tbody>"], "results") + "\n"


NOT_YET = """\
!!! note "No GPU has been measured yet"
    Every result on the site comes from a CPU: errors, facts, figures of the compiler, and no times.
    Where a time would stand the page says *not measured on a GPU*. What follows about timing is how
    the first ones will be taken. The [page of results](/results/index.md) counts what there is.
"""


@dataclass(frozen=True)
class SnippetCounts:
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
    def gpu_sentence(self) -> str:
        """What is measured on a GPU, in words."""
        if not self.gpus:
            return "No snippet has been measured on a GPU yet: no time of ours stands on this site."
        verb = "is" if self.measured == 1 else "are"
        of = tables.format_count(self.snippets, "snippet")
        return f"{self.measured} of {of} {verb} measured on a GPU: {'; '.join(self.gpus)}."


def count_snippets(exhibits: Iterable[SnippetPage]) -> SnippetCounts:
    """Count them; a snippet counts once by the most that a current record claims."""
    shown = list(exhibits)
    best = dict.fromkeys(("measured", "verified", "compiled", ""), 0)
    gpus: dict[str, None] = {}
    for exhibit in shown:
        known = {state.state for state in exhibit.states}
        best[next((state for state in best if state in known), "")] += 1
        gpus |= dict.fromkeys(state.device for state in exhibit.select_states("measured"))
    amiss = {
        name: sum(any(state.state == name for state in one.states) for one in shown)
        for name in ("stale", "failed")
    }
    return SnippetCounts(
        len(shown),
        best["measured"],
        best["verified"],
        best["compiled"],
        best[""],
        amiss["stale"],
        amiss["failed"],
        tuple(gpus),
    )


def render_counts(exhibits: Iterable[SnippetPage]) -> str:
    """The counts, each with its words, and the sentence about GPUs."""
    found = count_snippets(exhibits)
    rows = (
        (found.measured, "measured on a GPU"),
        (found.checked, "checked with no GPU"),
        (found.compiled, "compiled only"),
        (found.nothing, "without a current record"),
        (found.stale, "stale on some machine"),
        (found.failed, "failed when last run"),
    )
    items = " ".join(f"<li><strong>{number}</strong> {words}</li>" for number, words in rows)
    return (
        f"<p><strong>{escape_markdown(found.gpu_sentence)}</strong></p>\n"
        f'<ul class="ws-counts">{items}</ul>\n'
    )


def gpu_note(exhibits: Iterable[SnippetPage]) -> str:
    """What the page that explains the numbers says of those that there are, as Markdown."""
    found = count_snippets(exhibits)
    if found.gpus:
        said = f'!!! note "{escape_markdown(found.gpu_sentence)}"'
        return f"{said}\n    The [page of results](/results/index.md) has them all.\n"
    return NOT_YET


WHOLE, PART, NONE = "whole", "in part", "skipped"


class Skip(NamedTuple):
    """A kernel, or one of its variants or peers, that is not for an architecture, and what is."""

    exhibit: SnippetPage
    name: str  # of the variant or peer; "" is all of it
    needed: Architectures


def architecture_tables(exhibits: Iterable[SnippetPage], pages: Mapping[str, str]) -> str:
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
            skips = list(find_skips(one, sm))
            counts[run_coverage(one, skips)] += 1
            for skip in skips:
                shown, name = _snippet_link(one, pages), _skip_label(skip)
                reasons.setdefault((_format_requirement(skip.needed), shown, name), []).append(sm)
        cells = f"SM {sm}", ", ".join(cards), *map(str, counts.values())
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| Needs | What is skipped | on SM |", "| --- | --- | --- |"]
    for reason, places, whats in sorted(_group_skips(reasons), key=lambda row: row[1]):
        named = (
            f"{shown}{': ' if all(names) else ''}{', '.join(names)}"
            for shown, names in sorted(whats.items())
        )
        rows.append(f"| {reason} | {'; '.join(named)} | {', '.join(map(str, places))} |")
    return "\n".join(rows) + "\n"


Row = tuple[str, tuple[int, ...], dict[str, list[str]]]


def _group_skips(reasons: Mapping[tuple[str, str, str], Sequence[int]]) -> Iterator[Row]:
    """What is skipped for one reason on the same architectures: snippets, and names of each."""
    found: dict[tuple[str, tuple[int, ...]], dict[str, list[str]]] = {}
    for (reason, shown, name), places in reasons.items():
        whats = found.setdefault((reason, tuple(places)), {})
        whats.setdefault(shown, []).append(name)
    for (reason, where), whats in found.items():
        yield reason, where, whats


def find_skips(one: SnippetPage, sm: int) -> Iterator[Skip]:
    """What of a kernel is not for SM version `sm`: all of it, or some variants and peers."""
    if whole := next(
        (each for each in architectures.required_architectures(one.needs) if not each.covers(sm)),
        None,
    ):
        yield Skip(one, "", whole)
        return
    for name in one.needs.get("variants", {}):
        for needed in architectures.required_architectures(one.needs, name):
            if not needed.covers(sm):
                yield Skip(one, name, needed)


def run_coverage(one: SnippetPage, skips: Iterable[Skip]) -> str:
    """Whether a kernel runs whole, in part or not at all; a peer that is skipped counts nothing."""
    names = {skip.name for skip in skips}
    if "" in names:
        return NONE
    ours = variant_names(one)
    left = ours - names
    return NONE if ours and not left else WHOLE if left == ours else PART


def variant_names(one: SnippetPage) -> set[str]:
    """The variants of a kernel, as its records say what is due."""
    rows = (row for state in one.states if state.record for row in state.record.get("due", ()))
    return {name for row in rows for name in row["variants"]}


def _format_requirement(needed: Architectures) -> str:
    return escape_markdown(f"{needed}: {needed.why}" if needed.why else str(needed))


def _snippet_link(one: SnippetPage, pages: Mapping[str, str]) -> str:
    link = pages.get(one.id)
    return f"[`{one.id}`]({link})" if link else f"`{one.id}`"


def _skip_label(skip: Skip) -> str:
    if not skip.name:
        return ""
    return escape_markdown(skip.name) + (
        "" if skip.name in variant_names(skip.exhibit) else " (peer)"
    )
