"""The Markdown pieces of one snippet's page, each as its state allows.

A page may claim only what a current record holds: see `MachineState`. Every name, label and
program output passes through `markup`, so none of it can act as Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from warpshelf.core.markup import escape_markdown, preformatted_block, quote_href
from warpshelf.records import bundle
from warpshelf.records.schema import Record
from warpshelf.render import (
    claims,
    diagrams,
    figures,
    histories,
    plots,
    rivals,
    snippet_page,
    views,
)
from warpshelf.render.claims import render_claims
from warpshelf.render.listings import render_listings
from warpshelf.render.machine_comparison import render_disagreements
from warpshelf.render.snippet_page import (
    MachineState,
    SnippetPage,
    render_idea,
    render_notice,
    state_notices,
)

KEYS = (
    "idea", "code", "output", "accuracy", "timing", "plot", "history", "compile", "look", "space",
    "beside", "predictions", "facts", "reported", "provenance", "reproduce", "whole", "folded",
)  # fmt: skip


def _join_parts(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _render_output(page: SnippetPage) -> str:
    shown = [s for s in page.select_states("measured", "verified") if s.record and s.record["demo"]]
    if not shown:
        return ""
    record, here = shown[0].record or {}, shown[0].here
    origin = snippet_page.origin_line(record) + (f"; {here}" if here else "")
    command = f"<code>python snippets/{page.id}/{page.id}.py</code>"
    return (
        f'<figure class="ws-output"><figcaption>What {command} prints '
        f"({escape_markdown(origin)})</figcaption>{preformatted_block(record['demo'])}</figure>"
    )


def _machine_tabs(page: SnippetPage, key: str, bodies: Sequence[tuple[MachineState, str]]) -> str:
    """HTML by machine, in content tabs where there are several.

    These are Material's content tabs written out: Python-Markdown leaves HTML alone at the margin
    only, so a table with caption and scopes cannot stand indented in a `===` tab.
    """
    bodies = [(state, body) for state, body in bodies if body]
    if len(bodies) < 2:
        return bodies[0][1] if bodies else ""
    group = f"ws-{page.id}-{key}"
    inputs, names, blocks = [], [], []
    for index, (state, body) in enumerate(bodies, 1):
        checked = ' checked="checked"' if index == 1 else ""
        inputs.append(f'<input{checked} id="{group}-{index}" name="{group}" type="radio">')
        names.append(f'<label for="{group}-{index}">{escape_markdown(state.name)}</label>')
        blocks.append(f'<div class="tabbed-block">\n{body}\n</div>')
    return (
        f'<div class="tabbed-set tabbed-alternate" data-tabs="{group}:{len(bodies)}">'
        f'{"".join(inputs)}<div class="tabbed-labels">{"".join(names)}</div>\n'
        f'<div class="tabbed-content">\n' + "\n".join(blocks) + "\n</div></div>"
    )


def _record_links(page: SnippetPage, states: Sequence[MachineState]) -> str:
    links = [
        f"[{escape_markdown(s.name)}](/records/{page.id}/{s.machine}.json)"
        for s in states
        if s.record
    ]
    if not links:
        return ""
    return f"Raw record: {', '.join(links)}. Again: `shelf run {page.id}`.\n{{ .ws-origin }}"


def _render_by_record(
    page: SnippetPage,
    key: str,
    states: Sequence[MachineState],
    draw: Callable[[Record], str],
) -> str:
    return _render_by_state(page, key, states, lambda state: draw(state.record or {}))


def _render_by_state(
    page: SnippetPage,
    key: str,
    states: Sequence[MachineState],
    draw: Callable[[MachineState], str],
) -> str:
    """What `draw` makes of each state, with links to the records."""
    bodies = [(s, draw(s)) for s in states if s.record]
    used = [s for s, body in bodies if body]
    return _join_parts((_machine_tabs(page, key, bodies), _record_links(page, used)))


def _accuracy_with_skips(record: Record) -> str:
    skips = " ".join(
        f"<li>{escape_markdown(skip['what'])}: {escape_markdown(skip['reason'])}</li>"
        for skip in record.get("skips", [])
    )
    left_out = f'<p class="ws-skips">Not run here:</p>\n<ul class="ws-skips">{skips}</ul>'
    return "\n".join(filter(None, (figures.render_accuracy(record), left_out if skips else "")))


def _state_plots(state: MachineState) -> str:
    figures = plots.draw_plots(state.record or {}, state.apart)
    return '<div class="ws-plots">\n' + "\n".join(figures) + "\n</div>" if figures else ""


def _state_timing(state: MachineState) -> str:
    return figures.render_timing(state.record or {}, state.apart)


def _render_provenance(page: SnippetPage, state: MachineState) -> str:
    record = state.record or {}
    verb = {"measured": "Measured", "verified": "Checked"}.get(state.state, "Compiled")
    origin = ", ".join(filter(None, (snippet_page.origin_line(record), state.apart)))
    origin += f"; {state.here}" if state.here else ""
    rows = "\n".join(
        f"<dt>{escape_markdown(k)}</dt> "
        f"<dd>{_job_link(record) if k == snippet_page.JOB else escape_markdown(v)}</dd>"
        for k, v in snippet_page.origin_pairs(record)
    )
    return (
        f'<details class="ws-provenance" data-search-exclude="yes" markdown="1">\n'
        f"<summary>{verb} on {escape_markdown(origin)}</summary>\n<dl>\n{rows}\n</dl>\n\n"
        f"[raw record](/records/{page.id}/{state.machine}.json)"
        f"{_attestation_note(page, state) if state.attestation else ''}\n\n</details>"
    )


def _job_link(record: Record) -> str:
    """The job that made a record, as HTML with a link to its log."""
    address = record["origin"]["job"]
    number = address.rpartition("/")[2]
    return f"a job of this project, <a href={quote_href(address)}>run {number}</a>"


def _attestation_note(page: SnippetPage, state: MachineState) -> str:
    """The signed statement of the job that made a record, and how anyone can verify it."""
    place = f"snippets/{page.id}/results/{state.machine}.json"
    command = f"gh attestation verify {place} --repo {bundle.REPOSITORY}"
    kept = f"/records/{page.id}/{state.machine}.{bundle.PUBLISHED}"
    return f" · attested: [what the job signed]({kept}), which anyone can verify by\n\n`{command}`"


def _reproduce_commands(page: SnippetPage) -> str:
    timed = page.select_states("measured")
    commands = (
        (f"python snippets/{page.id}/{page.id}.py", "prints the demo"),
        (f"shelf run {page.id}", "verifies, and times on a GPU"),
        (f"shelf compare {page.id}", "sets it beside the records"),
        *([(f"shelf history {page.id}", "shows the versions of each record")] if timed else []),
    )
    room = max(len(command) for command, _ in commands)
    lines = "\n".join(f"{command:{room}}  # {does}" for command, does in commands)
    return f"```sh\n{lines}\n```"


def _states_with_space(states: Sequence[MachineState]) -> list[MachineState]:
    """Who has looked at every configuration: GPUs, and where none has, the CPU."""
    found = [s for s in states if s.record and "space" in s.record]
    return [s for s in found if s.machine != "cpu"] or found


def build_fragments(page: SnippetPage) -> dict[str, str]:
    """The Markdown of each piece in `KEYS`, for `build/fragments/<id>/<key>.md`.

    A piece with nothing to show says so in words; `whole` leaves such pieces out and says once
    what is missing. `folded` is `whole` for a page that quotes the code: it repeats none of it.
    """
    current = page.select_states("measured", "verified", "compiled")
    ran = page.select_states("measured", "verified")
    timed = page.select_states("measured")
    compiled = [s for s in current if s.record and s.record.get("compiled")]
    titles = {link.rpartition("#reading-")[2]: title for title, link in page.sources if link}
    parts = {
        "idea": render_idea(page),
        "code": render_listings(page.code, page.kind),
        "output": _render_output(page),
        "accuracy": _render_by_record(page, "accuracy", ran, _accuracy_with_skips),
        "timing": _render_by_state(page, "timing", timed, _state_timing),
        "plot": _render_by_state(page, "plot", timed, _state_plots),
        "history": _render_by_state(
            page, "history", timed, lambda state: histories.render_history(page, state)
        ),
        "compile": _render_by_record(page, "compile", compiled[:1], figures.render_compiled),
        "look": views.views_table(page),
        "space": _render_by_record(
            page, "space", _states_with_space(current), figures.render_space
        ),
        "beside": _join_parts(
            (
                rivals.languages_table(
                    page.rivals,
                    page.code,
                    page.views,
                    ((s.name, s.record) for s in timed if s.record),
                ),
                rivals.rivals_table(page.rivals),
            )
        ),
        "predictions": _render_by_record(
            page, "predictions", ran, lambda r: claims.render_predictions(r, titles)
        ),
        "facts": _render_by_record(page, "facts", ran, lambda r: claims.render_facts(r, titles)),
        "reported": render_claims(page),
        "provenance": _join_parts(_render_provenance(page, s) for s in current),
        "reproduce": _reproduce_commands(page),
    }
    said = state_notices(page)
    above = _join_parts(
        (render_disagreements(page), *(histories.slowdown_notice(page, s) for s in timed))
    )

    def render_state(state: MachineState) -> str:
        record = state.record or {}
        shown: tuple[str, ...] = ()
        if state in timed:
            shown = (
                _state_plots(state),
                _state_timing(state),
                histories.render_history(page, state),
            )
        stated = (claims.render_predictions(record, titles), claims.render_facts(record, titles))
        return "\n".join(filter(None, (*shown, _accuracy_with_skips(record), *stated)))

    bodies = [(s, render_state(s)) for s in ran if s.record]
    made = "".join(figures.render_compiled(s.record) for s in compiled[:1] if s.record)
    results = (
        above,
        _machine_tabs(page, "whole", bodies),
        said,
        made,
        parts["look"],
        *(figures.render_space(s.record) for s in _states_with_space(current) if s.record),
        parts["beside"],
        parts["reported"],
    )
    ends = (parts["provenance"], parts["reproduce"])
    rest = (parts["output"], *results, *ends)
    whole = _join_parts((parts["idea"], parts["code"], *rest))
    folded = _join_parts((parts["idea"], render_listings(page.code, page.kind, folded=True), *rest))
    nothing = {
        "output": "No output of the present code is recorded.",
        "accuracy": "No errors are recorded for the present code.",
        "timing": "No times are recorded for the present code.",
        "plot": "There is nothing to plot: no times are recorded for the present code.",
        "history": "There is no history yet: it takes two measurements on one kind of GPU.",
        "compile": "No compile figures are recorded for the present code.",
        "look": "No view of the present code is recorded.",
        "space": "No space of configurations of the present code is recorded.",
        "beside": "No public kernel is compiled beside it.",
        "predictions": "No predictions are recorded for the present code.",
        "facts": "No facts are recorded for the present code.",
        "reported": "No figure that others state for it is on file.",
        "provenance": "No record of the present code exists.",
    }
    for key, words in nothing.items():
        if not parts[key]:
            parts[key] = _join_parts((f'<p class="ws-absent">{words}</p>', said))
        elif key in ("accuracy", "timing", "plot", "history", "predictions", "facts"):
            over = above if key in ("timing", "plot", "history") else ""
            parts[key] = _join_parts((over, parts[key], said))
    return {**parts, "whole": whole, "folded": folded}


DRAWN = {"timelines": diagrams.draw_timelines, "grids": diagrams.draw_grids}


def render_pictures(page: SnippetPage, embedded: Iterable[str]) -> dict[str, str]:
    """The pictures that pages embed, as `timelines/gpipe`, for `build/fragments/<id>/<that>.md`.

    One that no record of the present code has is withheld, with words in its place.
    """
    records = [s.record for s in page.select_states("measured", "verified") if s.record]
    drawn: dict[str, str] = {}
    for kind, draw in DRAWN.items():
        rows: list[dict[str, Any]] = next(
            (record[kind] for record in records if kind in record), []
        )
        drawn |= {f"{kind}/{name}": text for name, text in draw(rows).items()}
    for name in sorted(set(embedded) - drawn.keys()):
        run = f"<code>shelf run {page.id}</code>"
        text = f": no record of the present code has it. {run} makes one."
        said = f"The picture {escape_markdown(name.partition('/')[2])} is withheld"
        drawn[name] = render_notice("absent", said, text) + "\n"
    return drawn
