"""Every snippet on every machine: in one table, in words, by architecture, and side by side.

Enters: the pages of snippets, and where each stands on the site. Leaves: HTML for the page of
results, whose links are those of that page, and Markdown tables of what runs on which GPU, whose
links hold on any page: known from what snippets need, before anything runs. Side by side every
machine has its column. The two that measured most are shown; a script of the site lets a reader
choose others, and compares them by the times that the cells carry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from warpshelf.contract import architectures
from warpshelf.contract.architectures import Architectures
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.core.places import OnPage
from warpshelf.records import limits, record_comparison
from warpshelf.records.schema import Record
from warpshelf.records.store import key_slug
from warpshelf.render import figures, tables
from warpshelf.render.figures import compare_times
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.render.tables import Cell, Html, format_count

PLACE = OnPage("results/index.md")
HEAD = ("Snippet", "Machine", "State", "Checks passed", "Largest error")
TIMES = ("Fastest of ours", "Of its limit", "Against the peer")  # kernels'; the last two if timed
NOWHERE = [MachineState(None, "not measured", "none")]
WORDS = {"verified": "checked", "compiled": "compiled only"}


def _sort_cell(text: str, sort: object = None, note: str = "") -> Cell:
    key = "" if sort is None else f" data-sort={quote_attribute(str(sort))}"
    return tables.make_cell(text, note, key)


def _check_cells(record: Record) -> Iterator[Cell]:
    """What passed, and the largest error."""
    rows = (result for case in record.get("cases", ()) for result in case["results"])
    due = sum(result["role"] == "variant" for result in rows)
    facts, ran = len(record.get("facts", ())), len(figures.passed_results(record))
    skipped = f"{due - ran} skipped" if due > ran else ""
    yield _sort_cell(units.format_integer(ran + facts), ran + facts, skipped)
    worst = figures.worst_result(record)
    if worst is None:
        yield _sort_cell("facts, all within tolerance" if facts else "none")
        return
    error, allowed = (units.format_error(worst.get(key)) for key in ("error", "tolerance"))
    yield _sort_cell(error, figures.tolerance_share(worst), f"of {allowed}")


def _best_time_cells(record: Record) -> list[Cell]:
    """Our time that is closest to its limit, or has the highest rate, and how it compares."""
    best, cells = (0.0, 0.0), list[Cell]()
    for label, case in tables.label_cases(tables.timed_cases(record)):
        limit = tables.case_bound(record, case)
        peer = next((one for one in case["results"] if one["role"] == "peer"), None)
        other = tables.result_time(peer) if peer else None
        for result, time in tables.timed_results(case):
            rate = limit.rate(time["median"]) if limit else None
            if limit is None or rate is None or result["role"] != "variant":
                continue
            share = units.safe_divide(rate, limit.ceiling or limit.peak)
            if cells and (share or 0.0, rate) <= best:
                continue
            best = (share or 0.0, rate)
            # Rates of bytes and of FLOPs do not compare, so they are sorted apart.
            key = f"{rate * (1e-40 if limit.unit == 'B/s' else 1.0):.6e}"
            shown = units.format_rate(rate, limit.unit)
            cells = [_sort_cell(shown, key, f"{result['name']}, {label}")]
            cells.append(
                _sort_cell(units.format_percent(share), share) if share else _sort_cell("unknown")
            )
            against = units.safe_divide(other["median"], time["median"]) if other else None
            if peer is None or against is None:
                cells.append(_sort_cell("no peer"))
            else:
                cells.append(_sort_cell(units.format_ratio(against), against, peer["name"]))
    return cells


def _result_row(page: SnippetPage, state: MachineState, link: str | None, columns: int) -> str:
    """A row; `columns` says how much there is of times."""

    def link_text(target: str, text: str) -> Html:
        return Html(f'<a href="{PLACE.escape_text(PLACE.relative_link(target))}">{text}</a>')

    name = Html(f"<code>{page.id}</code>")
    name = link_text(link, name) if link else name
    colour = "absent" if state.state == "not measured" else state.state
    badge = f'<span class="ws-badge ws-{colour}">{WORDS.get(state.state, state.state)}</span>'
    ran = state.state in ("measured", "verified")
    times = _best_time_cells(state.known) if state.state == "measured" else []
    times = times or [_sort_cell(text) for text in ("no time", "", "")]
    cells = [
        _sort_cell(state.name, state.name),
        _sort_cell(Html(badge), state.state),
        *(_check_cells(state.known) if ran else map(_sort_cell, ("", ""))),
        *times[:columns],
    ]
    day = units.format_date(state.date)
    if state.record and (ran or state.state == "compiled"):
        file = f"/records/{page.id}/{state.machine}.json"
        cells.append(_sort_cell(link_text(file, day), state.date))
    else:
        cells.append(_sort_cell(f"withheld, of {day}" if state.date else ""))
    kind = "" if page.kind == "kernel" else page.kind
    return tables.table_row(name, cells, kind, head=f' data-sort="{page.id}"')


def results_table(pages: Sequence[SnippetPage], links: Mapping[str, str]) -> str:
    """A row for each kernel and machine; folded below them what has facts and no times.

    `links` has the docs-absolute link of each snippet.
    """
    timed = any(page.select_states("measured") for page in pages)

    def render(shown: Iterable[SnippetPage], caption: str, times: Sequence[str]) -> str:
        rows = [
            _result_row(page, state, links.get(page.id), len(times))
            for page in sorted(shown, key=lambda one: one.id)
            for state in sorted(page.states, key=lambda state: state.machine == "cpu") or NOWHERE
        ]
        return tables.render_table(caption, (*HEAD, *times, "Record"), rows, "results")

    others = [page for page in pages if page.kind != "kernel"]
    html = "" if pages else "<p>There are no snippets yet.</p>\n"
    if len(others) < len(pages):
        caption = "Every kernel by machine\nOne without a row of a GPU was not measured on any"
        if timed:
            caption += (
                ". The fastest of ours is the time that comes closest to what the machine can do; "
                "its limit was measured in the same run"
            )
        kernels = (page for page in pages if page.kind == "kernel")
        html = render(kernels, caption, TIMES if timed else TIMES[:1]) + "\n"
    if others:
        inner = render(others, "Models and programs", ())
        html += tables.render_fold(f"Models and programs: {len(others)}", inner) + "\n"
    return html


NOT_YET = {
    "home/machines.md": "So far all are from a CPU: no GPU has been measured yet.\n",
    "home/invitation.md": "No times are recorded yet. Run the shelf on your machine and hand in "
    "the first.\n",
    "results/note.md": """\
!!! note "No GPU has been measured yet"
    Every result on the site comes from a CPU: errors, facts, figures of the compiler, and no times.
    Where a time would be, the page says *not measured on a GPU*. The part about timing says how the
    first ones will be taken. The [page of results](/results/index.md) counts what there is.
""",
}


# By the state of a snippet's machines: the most that is claimed of it, then what is amiss.
CLAIMED = {
    "measured": "measured on a GPU", "verified": "checked with no GPU",
    "compiled": "compiled only", "": "without a current record",
}  # fmt: skip
AMISS = {"stale": "stale on some machine", "failed": "failed when last run"}


class SnippetCounts(NamedTuple):
    """How many snippets there are, in all and by state, and on which GPUs."""

    snippets: int
    said: dict[str, int]
    gpus: tuple[str, ...]

    @property
    def gpu_sentence(self) -> str:
        """What is measured on a GPU, in words."""
        if not self.gpus:
            return "No snippet has been measured on a GPU yet: this site has no times of its own."
        measured, of = self.said[CLAIMED["measured"]], tables.format_count(self.snippets, "snippet")
        verb = "is" if measured == 1 else "are"
        return f"{measured} of {of} {verb} measured on a GPU: {'; '.join(self.gpus)}."


def count_snippets(pages: Iterable[SnippetPage]) -> SnippetCounts:
    """Count the snippets, each once, by the most that a current record claims."""
    shown = list(pages)
    said = dict.fromkeys((*CLAIMED.values(), *AMISS.values()), 0)
    for page in shown:
        known = {state.state for state in page.states}
        said[CLAIMED[next((one for one in CLAIMED if one in known), "")]] += 1
        for state, words in AMISS.items():
            said[words] += state in known
    gpus = dict.fromkeys(one.device for page in shown for one in page.select_states("measured"))
    return SnippetCounts(len(shown), said, tuple(gpus))


def render_counts(pages: Iterable[SnippetPage]) -> str:
    """The counts, each with its words, and the sentence about GPUs."""
    found = count_snippets(pages)
    counts = found.said.items()
    items = " ".join(f"<li><strong>{number}</strong> {words}</li>" for words, number in counts)
    sentence = f"<p><strong>{escape_markdown(found.gpu_sentence)}</strong></p>"
    return f'{sentence}\n<ul class="ws-counts">{items}</ul>\n'


def gpu_texts(pages: Iterable[SnippetPage]) -> dict[str, str]:
    """What pages say of results on GPUs and of those to come, as Markdown by fragment."""
    found = count_snippets(pages)
    said = escape_markdown(found.gpu_sentence)
    if not found.gpus:
        return NOT_YET
    return {
        "home/machines.md": f"{said}\n",
        "home/invitation.md": "Run the shelf on your machine, see it beside the others, and hand "
        "in its times.\n",
        "results/note.md": f'!!! note "{said}"\n'
        "    The [page of results](/results/index.md) has them all.\n",
    }


def architecture_tables(pages: Iterable[SnippetPage], links: Mapping[str, str]) -> str:
    """What runs on which GPU, and why what does not.

    `links` has the docs-absolute link of each snippet that a page shows. A kernel runs whole, in
    part or not at all; a peer that is skipped counts nothing.
    """
    kernels = [page for page in pages if page.kind == "kernel"]
    rows = [
        "| GPU | Cards | Kernels that run whole | in part | skipped |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    where: dict[tuple[str, str, str], list[int]] = {}  # by reason, snippet and variant
    for sm, cards in architectures.CARDS.items():
        counts = dict.fromkeys(("whole", "in part", "skipped"), 0)
        for page in kernels:
            skips = list(_find_skips(page, sm))
            names = {name for name, _ in skips}
            due = (row for state in page.states for row in state.known.get("due", ()))
            ours = {name for row in due for name in row["variants"]}
            left_out = "" in names or (ours and ours <= names)
            counts["skipped" if left_out else "in part" if ours & names else "whole"] += 1
            link = links.get(page.id)
            shown = f"[`{page.id}`]({link})" if link else f"`{page.id}`"
            for name, needed in skips:
                reason = escape_markdown(f"{needed}: {needed.why}" if needed.why else str(needed))
                label = escape_markdown(name) + ("" if name in ours or not name else " (peer)")
                where.setdefault((reason, shown, label), []).append(sm)
        rows.append(f"| SM {sm} | {', '.join(cards)} | {' | '.join(map(str, counts.values()))} |")
    groups: dict[tuple[str, tuple[int, ...]], dict[str, list[str]]] = {}
    for (reason, shown, label), sms in where.items():
        groups.setdefault((reason, tuple(sms)), {}).setdefault(shown, []).append(label)
    rows += ["", "| Needs | What is skipped | on SM |", "| --- | --- | --- |"]
    for (reason, on), whats in sorted(groups.items(), key=lambda group: group[0][1]):
        named = (
            f"{shown}{': ' if all(labels) else ''}{', '.join(labels)}"
            for shown, labels in sorted(whats.items())
        )
        rows.append(f"| {reason} | {'; '.join(named)} | {', '.join(map(str, on))} |")
    return "\n".join(rows) + "\n"


def _find_skips(page: SnippetPage, sm: int) -> Iterator[tuple[str, Architectures]]:
    """What cannot run on SM version `sm`, a variant or "" for the whole kernel, and what can."""
    for needed in architectures.required_architectures(page.needs):
        if not needed.covers(sm):
            yield "", needed
            return
    for name in page.needs.get("variants", {}):
        for needed in architectures.required_architectures(page.needs, name):
            if not needed.covers(sm):
                yield name, needed


SHOWN = 2  # machines
ORDINALS = {2: "second", 3: "third", 4: "fourth"}
NUMBERS = {2: "Two", 3: "Three", 4: "Four"}


class MachineColumn(NamedTuple):
    """The records of one key: the key, a name for them all, and how many snippets they are of."""

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
    rows: dict[str, list[str]] = {text: [] for text in labels}
    pairs = []
    for (text, role, name), own in found.items():
        cells = [
            _time_cell(own.get(one.slug), f' data-machine="{one.slug}"{mark}')
            for one, mark in zip(order, hidden, strict=True)
        ]
        pair = [own.get(machine.slug) for machine in order[:SHOWN]]
        if len(order) > 1:
            times = [cell.time for cell in pair if cell]
            ratio = compare_times(*times) if len(times) > 1 else "on one only"
            cells.append(tables.make_cell(ratio, attributes=' class="ws-pair-ratio"'))
        rows[text].append(tables.table_row(name, cells, tables.note_peer(role)))
        pairs.append(pair)
    groups = [tables.row_group(labels[text], own, len(order) + 2) for text, own in rows.items()]
    apart_by = {state.machine: state.apart for state in page.states}
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
