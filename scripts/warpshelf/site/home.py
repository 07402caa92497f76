"""The generated parts of the front page: what the shelf holds, and one verified result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, preformatted_block
from warpshelf.readings.model import Shelf
from warpshelf.records.schema import Record
from warpshelf.records.siblings import key_slug
from warpshelf.render import provenance, results
from warpshelf.render.snippet_page import MachineState, SnippetPage


def render_counts(shelf: Shelf, exhibits: Sequence[SnippetPage]) -> str:
    """How many readings, snippets and machines there are, as one line."""
    machines = {
        key_slug(state.machine)
        for exhibit in exhibits
        for state in exhibit.states
        if state.state in ("measured", "verified")
    }
    cases = sum(_count_passed(state) for exhibit in exhibits for state in _current_states(exhibit))
    rows = (
        (len(shelf.readings), "reading", "readings"),
        (len(exhibits), "snippet", "snippets"),
        (cases, "check passed", "checks passed"),
        (len(machines), "machine", "machines"),
    )
    items = "".join(
        f"<li><strong>{number:,}</strong> {one if number == 1 else many}</li>"
        for number, one, many in rows
    )
    return f'<ul class="ws-counts">{items}</ul>\n'


def render_machines(exhibits: Sequence[SnippetPage]) -> str:
    """On which machines the results were taken, in a sentence of a paragraph."""
    found = results.count_snippets(exhibits)
    if not found.gpus:
        return "So far each is of a CPU: no GPU has been measured yet.\n"
    return f"{escape_markdown(found.gpu_sentence)}\n"


def render_invitation(exhibits: Sequence[SnippetPage]) -> str:
    """What somebody with a GPU can add."""
    if not results.count_snippets(exhibits).gpus:
        first = (
            "No time is recorded here yet. Run the shelf on your machine, and hand in the first."
        )
        return f"{first}\n"
    return "Run the shelf on your machine, see it beside the others, and hand in its times.\n"


def _current_states(exhibit: SnippetPage) -> list[MachineState]:
    return exhibit.select_states("measured", "verified")


def _count_passed(state: MachineState) -> int:
    record = state.record or {}
    results = [
        result
        for case in record.get("cases", ())
        for result in case["results"]
        if result["verdict"] == "passed" and result["role"] == "variant"
    ]
    return len(results) + len(record.get("facts", ()))


def render_result(exhibits: Sequence[SnippetPage], pages: Mapping[str, str]) -> str:
    """A card with one real result: of the snippet measured last, else checked in most cases."""
    shown = [
        (exhibit, state)
        for exhibit in exhibits
        for state in _current_states(exhibit)
        if exhibit.kind == "kernel"
    ]
    if not shown:
        return '<p class="ws-absent">No result of the present code is recorded yet.</p>\n'
    exhibit, state = max(
        shown,
        key=lambda pair: (
            pair[1].state == "measured",
            pair[1].date[:10] if pair[1].state == "measured" else "",
            _count_passed(pair[1]),
        ),
    )
    record = state.record or {}
    verb = "Verified and timed" if state.state == "measured" else "Checked"
    rows = "\n".join(
        f"<div><dt>{escape_markdown(name)}</dt><dd>{escape_markdown(value)}</dd></div>"
        for name, value in _result_rows(record)
    )
    link = pages.get(exhibit.id)
    more = f"\n\n[See the kernel and every case]({link}){{ .ws-result-more }}" if link else ""
    return (
        f'<figure class="ws-result">\n<figcaption>{escape_markdown(exhibit.title)}</figcaption>\n'
        f"{preformatted_block(record['demo'])}\n<dl>\n{rows}\n</dl>\n"
        f'<p class="ws-origin">{verb} on {escape_markdown(provenance.origin_line(record))}</p>\n'
        f"</figure>{more}\n"
    )


def _result_rows(record: Record) -> list[tuple[str, str]]:
    """The worst error of our variants by dtype, against what is allowed, and the best rate."""
    worst: dict[str, tuple[float, float, int]] = {}
    for case in record.get("cases", ()):
        for found in case["results"]:
            if found["role"] != "variant" or found["verdict"] != "passed":
                continue
            dtype = str(case["case"].get("dtype", "float32"))
            error, allowed, count = worst.get(dtype, (0.0, found["tolerance"], 0))
            worst[dtype] = (max(error, found["error"]), allowed, count + 1)
    rows = [
        (
            f"worst error, {dtype}",
            f"{units.format_error(error)} of {units.format_error(allowed)} allowed, {count} checks",
        )
        for dtype, (error, allowed, count) in sorted(worst.items())
    ]
    return [*_fastest_row(record), *rows]


def _fastest_row(record: Record) -> list[tuple[str, str]]:
    """The best rate of ours over the timed cases which memory bounds."""
    rates = [
        (
            case["bytes"] / result["time"]["median"],
            result["name"],
            units.case_labels([case["case"]])[0],
        )
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant" and "time" in result
    ]
    if not rates:
        return []
    rate, name, label = max(rates)
    return [(f"fastest, {label}", f"{units.format_rate(rate, 'B/s')} by {name}")]
