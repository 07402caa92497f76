"""Every snippet on every machine: in one table, in words, and by the architectures it runs on.

Enters: the pages of snippets, and where each stands on the site. Leaves: HTML for the page of
results, whose links are those of that page, and Markdown tables of what runs on which GPU, whose
links hold on any page: known from what snippets need, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.contract.architectures import Architectures
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.core.places import OnPage
from warpshelf.records.schema import Record
from warpshelf.render import figures, tables
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.render.tables import Cell, Html

PLACE = OnPage("results/index.md")
TIMES = ("Of its limit", "Against the peer")  # columns that only a machine with times fills
HEAD = ("Snippet", "Machine", "State", "Checks passed", "Largest error", "Fastest of ours")
WORDS = {"verified": "checked", "compiled": "compiled only"}
NO_TIME = {"kernel": "no time", "program": "none due", "model": "none due"}


def _sort_cell(text: str, sort: object = None, note: str = "") -> Cell:
    key = "" if sort is None else f" data-sort={quote_attribute(str(sort))}"
    return tables.make_cell(text, note, key)


def _check_cells(record: Record) -> Iterator[Cell]:
    """What passed, and the largest error."""
    verdicts = [result["verdict"] for result in figures.our_results(record)]
    facts, ran = len(record.get("facts", ())), verdicts.count("passed")
    skipped = f"{len(verdicts) - ran} skipped" if len(verdicts) > ran else ""
    yield _sort_cell(units.format_integer(ran + facts), ran + facts, skipped)
    worst = figures.worst_result(record)
    if worst is None:
        yield _sort_cell("facts, all within tolerance" if facts else "none")
        return
    error, allowed = (units.format_error(worst.get(key)) for key in ("error", "tolerance"))
    yield _sort_cell(error, figures.tolerance_share(worst), f"of {allowed}")


def _best_time_cells(record: Record) -> list[Cell]:
    """Our time that is closest to its limit, or has the highest rate, and how it compares.

    Its rate, its share of the limit, and its speed against the first peer; none where no time of
    known cost was taken.
    """
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


def _result_row(page: SnippetPage, state: MachineState, link: str | None, timed: bool) -> str:
    def link_text(target: str, text: str) -> Html:
        return Html(f'<a href="{PLACE.escape_text(PLACE.relative_link(target))}">{text}</a>')

    name = Html(f"<code>{page.id}</code>")
    name = link_text(link, name) if link else name
    kind = "absent" if state.state == "not measured" else state.state
    badge = f'<span class="ws-badge ws-{kind}">{WORDS.get(state.state, state.state)}</span>'
    machine = "any GPU" if state.machine == "gpu" else state.name
    ran = state.state in ("measured", "verified")
    times = _best_time_cells(state.known) if state.state == "measured" else []
    times = times or [_sort_cell(text) for text in (NO_TIME[page.kind], "", "")]
    cells = [
        _sort_cell(machine, machine),
        _sort_cell(Html(badge), state.state),
        *(_check_cells(state.known) if ran else map(_sort_cell, ("", ""))),
        *times[: 3 if timed else 1],
    ]
    if state.record and (ran or state.state == "compiled"):
        file = f"/records/{page.id}/{state.machine}.json"
        cells.append(_sort_cell(link_text(file, units.format_date(state.date)), state.date))
    else:
        withheld = f"withheld, of {units.format_date(state.date)}" if state.date else ""
        cells.append(_sort_cell(withheld))
    return tables.table_row(name, cells, page.kind, head=f' data-sort="{page.id}"')


def results_table(pages: Sequence[SnippetPage], links: Mapping[str, str]) -> str:
    """A row for each snippet and machine; `links` has the docs-absolute link of each snippet."""
    timed, rows = any(page.select_states("measured") for page in pages), []
    for page in sorted(pages, key=lambda one: one.id):
        states = sorted(page.states, key=lambda state: state.machine == "cpu")
        if page.wants_gpu and not page.ran_on_gpu:
            states.append(MachineState(None, "not measured", "gpu"))
        rows += [_result_row(page, state, links.get(page.id), timed) for state in states]
    if not rows:
        return "<p>There are no snippets yet.</p>\n"
    caption = "Every snippet by machine"
    if timed:
        caption += (
            "\nThe fastest of ours is the time that comes closest to what the machine can do; its "
            "limit was measured in the same run"
        )
    head = (*HEAD, *(TIMES if timed else ()), "Record")
    return tables.render_table(caption, head, rows, "results") + "\n"


NOT_YET = """\
!!! note "No GPU has been measured yet"
    Every result on the site comes from a CPU: errors, facts, figures of the compiler, and no times.
    Where a time would be, the page says *not measured on a GPU*. The part about timing says how the
    first ones will be taken. The [page of results](/results/index.md) counts what there is.
"""


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


def gpu_note(pages: Iterable[SnippetPage]) -> str:
    """What the page that explains the numbers says of those on record, as Markdown."""
    found = count_snippets(pages)
    if not found.gpus:
        return NOT_YET
    said = f'!!! note "{escape_markdown(found.gpu_sentence)}"'
    return f"{said}\n    The [page of results](/results/index.md) has them all.\n"


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
