"""The Markdown pieces of one snippet's page, each as its state allows.

A page may claim only what a current record holds: see `MachineState`. Every name, label and
program output passes through `markup`, so none of it can act as Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from warpshelf.core.markup import escape, href, preformatted
from warpshelf.records import attestation
from warpshelf.records.schema import Record
from warpshelf.render import claims, diagrams, figures, histories, plots, provenance, rivals, views
from warpshelf.render.claims import reported
from warpshelf.render.exhibit import Exhibit, MachineState
from warpshelf.render.listings import listings
from warpshelf.render.notices import idea, notice, notices
from warpshelf.render.pairs import disagreements

KEYS = (
    "idea", "code", "output", "accuracy", "timing", "plot", "history", "compile", "look", "space",
    "beside", "predictions", "facts", "reported", "provenance", "reproduce", "whole", "folded",
)  # fmt: skip


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _output(exhibit: Exhibit) -> str:
    shown = [s for s in exhibit.shown("measured", "verified") if s.record and s.record["demo"]]
    if not shown:
        return ""
    record, here = shown[0].record or {}, shown[0].here
    origin = provenance.line(record) + (f"; {here}" if here else "")
    command = f"<code>python snippets/{exhibit.id}/{exhibit.id}.py</code>"
    return (
        f'<figure class="ws-output"><figcaption>What {command} prints '
        f"({escape(origin)})</figcaption>{preformatted(record['demo'])}</figure>"
    )


def _tabs(exhibit: Exhibit, key: str, bodies: Sequence[tuple[MachineState, str]]) -> str:
    """HTML by machine, in content tabs where there are several.

    These are Material's content tabs written out: Python-Markdown leaves HTML alone at the margin
    only, so a table with caption and scopes cannot stand indented in a `===` tab.
    """
    bodies = [(state, body) for state, body in bodies if body]
    if len(bodies) < 2:
        return bodies[0][1] if bodies else ""
    group = f"ws-{exhibit.id}-{key}"
    inputs, names, blocks = [], [], []
    for index, (state, body) in enumerate(bodies, 1):
        checked = ' checked="checked"' if index == 1 else ""
        inputs.append(f'<input{checked} id="{group}-{index}" name="{group}" type="radio">')
        names.append(f'<label for="{group}-{index}">{escape(state.name)}</label>')
        blocks.append(f'<div class="tabbed-block">\n{body}\n</div>')
    return (
        f'<div class="tabbed-set tabbed-alternate" data-tabs="{group}:{len(bodies)}">'
        f'{"".join(inputs)}<div class="tabbed-labels">{"".join(names)}</div>\n'
        f'<div class="tabbed-content">\n' + "\n".join(blocks) + "\n</div></div>"
    )


def _records(exhibit: Exhibit, states: Sequence[MachineState]) -> str:
    links = [
        f"[{escape(s.name)}](/records/{exhibit.id}/{s.machine}.json)" for s in states if s.record
    ]
    if not links:
        return ""
    return f"Raw record: {', '.join(links)}. Again: `shelf run {exhibit.id}`.\n{{ .ws-origin }}"


def _results(
    exhibit: Exhibit,
    key: str,
    states: Sequence[MachineState],
    draw: Callable[[Record], str],
) -> str:
    return _by_machine(exhibit, key, states, lambda state: draw(state.record or {}))


def _by_machine(
    exhibit: Exhibit,
    key: str,
    states: Sequence[MachineState],
    draw: Callable[[MachineState], str],
) -> str:
    """What `draw` makes of each state, with links to the records."""
    bodies = [(s, draw(s)) for s in states if s.record]
    used = [s for s, body in bodies if body]
    return _join((_tabs(exhibit, key, bodies), _records(exhibit, used)))


def _accuracy(record: Record) -> str:
    skips = " ".join(
        f"<li>{escape(skip['what'])}: {escape(skip['reason'])}</li>"
        for skip in record.get("skips", [])
    )
    left_out = f'<p class="ws-skips">Not run here:</p>\n<ul class="ws-skips">{skips}</ul>'
    return "\n".join(filter(None, (figures.accuracy(record), left_out if skips else "")))


def _plot(state: MachineState) -> str:
    figures = plots.plots(state.record or {}, state.apart)
    return '<div class="ws-plots">\n' + "\n".join(figures) + "\n</div>" if figures else ""


def _timing(state: MachineState) -> str:
    return figures.timing(state.record or {}, state.apart)


def _provenance(exhibit: Exhibit, state: MachineState) -> str:
    record = state.record or {}
    verb = {"measured": "Measured", "verified": "Checked"}.get(state.state, "Compiled")
    origin = ", ".join(filter(None, (provenance.line(record), state.apart)))
    origin += f"; {state.here}" if state.here else ""
    rows = "\n".join(
        f"<dt>{escape(k)}</dt> <dd>{_job(record) if k == provenance.JOB else escape(v)}</dd>"
        for k, v in provenance.pairs(record)
    )
    return (
        f'<details class="ws-provenance" data-search-exclude="yes" markdown="1">\n'
        f"<summary>{verb} on {escape(origin)}</summary>\n<dl>\n{rows}\n</dl>\n\n"
        f"[raw record](/records/{exhibit.id}/{state.machine}.json)"
        f"{_attested(exhibit, state) if state.attestation else ''}\n\n</details>"
    )


def _job(record: Record) -> str:
    """The job that made a record, as HTML with a link to its log."""
    address = record["origin"]["job"]
    number = address.rpartition("/")[2]
    return f"a job of this project, <a href={href(address)}>run {number}</a>"


def _attested(exhibit: Exhibit, state: MachineState) -> str:
    """The signed statement of the job that made a record, and how anyone can verify it."""
    place = f"snippets/{exhibit.id}/results/{state.machine}.json"
    command = f"gh attestation verify {place} --repo {attestation.REPOSITORY}"
    kept = f"/records/{exhibit.id}/{state.machine}.{attestation.PUBLISHED}"
    return f" · attested: [what the job signed]({kept}), which anyone can verify by\n\n`{command}`"


def _reproduce(exhibit: Exhibit) -> str:
    timed = exhibit.shown("measured")
    commands = (
        (f"python snippets/{exhibit.id}/{exhibit.id}.py", "prints the demo"),
        (f"shelf run {exhibit.id}", "verifies, and times on a GPU"),
        (f"shelf compare {exhibit.id}", "sets it beside the records"),
        *([(f"shelf history {exhibit.id}", "shows the versions of each record")] if timed else []),
    )
    room = max(len(command) for command, _ in commands)
    lines = "\n".join(f"{command:{room}}  # {does}" for command, does in commands)
    return f"```sh\n{lines}\n```"


def _surveyed(states: Sequence[MachineState]) -> list[MachineState]:
    """Who has looked at every configuration: GPUs, and where none has, the CPU."""
    found = [s for s in states if s.record and "space" in s.record]
    return [s for s in found if s.machine != "cpu"] or found


def fragments(exhibit: Exhibit) -> dict[str, str]:
    """The Markdown of each piece in `KEYS`, for `build/fragments/<id>/<key>.md`.

    A piece with nothing to show says so in words; `whole` leaves such pieces out and says once
    what is missing. `folded` is `whole` for a page that quotes the code: it repeats none of it.
    """
    current = exhibit.shown("measured", "verified", "compiled")
    ran = exhibit.shown("measured", "verified")
    timed = exhibit.shown("measured")
    compiled = [s for s in current if s.record and s.record.get("compiled")]
    titles = {link.rpartition("#reading-")[2]: title for title, link in exhibit.sources if link}
    parts = {
        "idea": idea(exhibit),
        "code": listings(exhibit.code, exhibit.kind),
        "output": _output(exhibit),
        "accuracy": _results(exhibit, "accuracy", ran, _accuracy),
        "timing": _by_machine(exhibit, "timing", timed, _timing),
        "plot": _by_machine(exhibit, "plot", timed, _plot),
        "history": _by_machine(
            exhibit, "history", timed, lambda state: histories.history(exhibit, state)
        ),
        "compile": _results(exhibit, "compile", compiled[:1], figures.compiled),
        "look": views.table(exhibit),
        "space": _results(exhibit, "space", _surveyed(current), figures.spaces),
        "beside": _join(
            (
                rivals.languages(
                    exhibit.rivals,
                    exhibit.code,
                    exhibit.views,
                    ((s.name, s.record) for s in timed if s.record),
                ),
                rivals.table(exhibit.rivals),
            )
        ),
        "predictions": _results(
            exhibit, "predictions", ran, lambda r: claims.predictions(r, titles)
        ),
        "facts": _results(exhibit, "facts", ran, lambda r: claims.facts(r, titles)),
        "reported": reported(exhibit),
        "provenance": _join(_provenance(exhibit, s) for s in current),
        "reproduce": _reproduce(exhibit),
    }
    said = notices(exhibit)
    above = _join((disagreements(exhibit), *(histories.slower(exhibit, s) for s in timed)))

    def everything(state: MachineState) -> str:
        record = state.record or {}
        shown: tuple[str, ...] = ()
        if state in timed:
            shown = (_plot(state), _timing(state), histories.history(exhibit, state))
        stated = (claims.predictions(record, titles), claims.facts(record, titles))
        return "\n".join(filter(None, (*shown, _accuracy(record), *stated)))

    bodies = [(s, everything(s)) for s in ran if s.record]
    made = "".join(figures.compiled(s.record) for s in compiled[:1] if s.record)
    results = (
        above,
        _tabs(exhibit, "whole", bodies),
        said,
        made,
        parts["look"],
        *(figures.spaces(s.record) for s in _surveyed(current) if s.record),
        parts["beside"],
        parts["reported"],
    )
    ends = (parts["provenance"], parts["reproduce"])
    rest = (parts["output"], *results, *ends)
    whole = _join((parts["idea"], parts["code"], *rest))
    folded = _join((parts["idea"], listings(exhibit.code, exhibit.kind, folded=True), *rest))
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
            parts[key] = _join((f'<p class="ws-absent">{words}</p>', said))
        elif key in ("accuracy", "timing", "plot", "history", "predictions", "facts"):
            over = above if key in ("timing", "plot", "history") else ""
            parts[key] = _join((over, parts[key], said))
    return {**parts, "whole": whole, "folded": folded}


DRAWN = {"timelines": diagrams.timelines, "grids": diagrams.grids}


def pictures(exhibit: Exhibit, embedded: Iterable[str]) -> dict[str, str]:
    """The pictures that pages embed, as `timelines/gpipe`, for `build/fragments/<id>/<that>.md`.

    One that no record of the present code has is withheld, with words in its place.
    """
    records = [s.record for s in exhibit.shown("measured", "verified") if s.record]
    drawn: dict[str, str] = {}
    for kind, draw in DRAWN.items():
        rows: list[dict[str, Any]] = next(
            (record[kind] for record in records if kind in record), []
        )
        drawn |= {f"{kind}/{name}": text for name, text in draw(rows).items()}
    for name in sorted(set(embedded) - drawn.keys()):
        run = f"<code>shelf run {exhibit.id}</code>"
        text = f": no record of the present code has it. {run} makes one."
        said = f"The picture {escape(name.partition('/')[2])} is withheld"
        drawn[name] = notice("absent", said, text) + "\n"
    return drawn
