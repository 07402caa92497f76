"""The Markdown pieces of one snippet's page, each as its state allows.

A page may claim only what a current record holds: see `MachineState`. Every name, label and
program output passes through `markup`, so none of it can act as Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from warpshelf.core.markup import escape_markdown, preformatted_block, quote_href
from warpshelf.records import bundle
from warpshelf.records.schema import Record
from warpshelf.render import claims, diagrams, figures, histories, plots, rivals, snippet_page
from warpshelf.render.listings import render_listings
from warpshelf.render.machine_comparison import render_disagreements
from warpshelf.render.snippet_page import MachineState, SnippetPage, render_notice
from warpshelf.render.views import views_table

KEYS = (
    "idea", "code", "output", "accuracy", "timing", "plot", "history", "compile", "look", "space",
    "beside", "predictions", "facts", "reported", "provenance", "reproduce", "whole", "folded",
)  # fmt: skip
NOTHING = {  # what a piece says where it has nothing to show
    "output": "No output of the present code is recorded.",
    "accuracy": "No errors are recorded for the present code.",
    "timing": "No times are recorded for the present code.",
    "plot": "There is nothing to plot: no times are recorded for the present code.",
    "history": "There is no history yet: it takes two measurements on one kind of GPU.",
    "compile": "No compile figures are recorded for the present code.",
    "look": "No view of the present code is recorded.",
    "space": "No configurations of the present code are recorded.",
    "beside": "No public kernel is compiled beside it.",
    "predictions": "No predictions are recorded for the present code.",
    "facts": "No facts are recorded for the present code.",
    "reported": "No figures from others are on file.",
    "provenance": "No record of the present code exists.",
}
Bodies = Sequence[tuple[MachineState, str]]  # what each state has to show, if anything


def _join_parts(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _render_output(page: SnippetPage) -> str:
    for state in page.select_states("measured", "verified"):
        if state.known["demo"]:
            origin = snippet_page.origin_line(state.known)
            origin += f"; {state.here}" if state.here else ""
            command = f"<code>python snippets/{page.id}/{page.id}.py</code>"
            return (
                f'<figure class="ws-output"><figcaption>What {command} prints ('
                f"{escape_markdown(origin)})</figcaption>{preformatted_block(state.known['demo'])}"
                "</figure>"
            )
    return ""


def _machine_tabs(page: SnippetPage, key: str, bodies: Bodies) -> str:
    """HTML by machine, in content tabs where there are several.

    These are Material's content tabs written out: Python-Markdown leaves HTML alone at the margin
    only, so a table with caption and scopes cannot stand indented in a `===` tab.
    """
    bodies = [(state, body) for state, body in bodies if body]
    if len(bodies) < 2:
        return bodies[0][1] if bodies else ""
    group, checked = f"ws-{page.id}-{key}", ' checked="checked"'
    inputs = names = blocks = ""
    for index, (state, body) in enumerate(bodies, 1):
        inputs += f'<input{checked} id="{group}-{index}" name="{group}" type="radio">'
        names += f'<label for="{group}-{index}">{escape_markdown(state.name)}</label>'
        blocks += f'<div class="tabbed-block">\n{body}\n</div>\n'
        checked = ""
    return (
        f'<div class="tabbed-set tabbed-alternate" data-tabs="{group}:{len(bodies)}">'
        f'{inputs}<div class="tabbed-labels">{names}</div>\n'
        f'<div class="tabbed-content">\n{blocks}</div></div>'
    )


def _join_states(page: SnippetPage, key: str, bodies: Bodies) -> str:
    """What each state has to show, with links to the records."""
    links = ", ".join(
        f"[{escape_markdown(state.name)}](/records/{page.id}/{state.machine}.json)"
        for state, body in bodies
        if body
    )
    said = f"Raw record: {links}. Rerun: `shelf run {page.id}`.\n{{ .ws-origin }}" if links else ""
    return _join_parts((_machine_tabs(page, key, bodies), said))


def _accuracy_with_skips(state: MachineState) -> str:
    skips = " ".join(
        f"<li>{escape_markdown(skip['what'])}: {escape_markdown(skip['reason'])}</li>"
        for skip in state.known.get("skips", [])
    )
    left_out = f'<p class="ws-skips">Not run here:</p>\n<ul class="ws-skips">{skips}</ul>'
    found = figures.render_accuracy(state.known)
    return "\n".join(filter(None, (found, left_out if skips else "")))


def _state_plots(state: MachineState) -> str:
    drawn = "\n".join(plots.draw_plots(state.known, state.apart))
    return f'<div class="ws-plots">\n{drawn}\n</div>' if drawn else ""


def _render_provenance(page: SnippetPage, state: MachineState) -> str:
    record, place = state.known, f"{page.id}/{state.machine}"
    verb = {"measured": "Measured", "verified": "Checked"}.get(state.state, "Compiled")
    origin = snippet_page.origin_line(record, state.apart)
    origin += f"; {state.here}" if state.here else ""
    rows = []
    for name, text in snippet_page.origin_pairs(record):
        shown = escape_markdown(text)
        if name == snippet_page.JOB:  # the address of its log
            address = record["origin"]["job"]
            number = address.rpartition("/")[2]
            shown = f"a job of this project, <a href={quote_href(address)}>run {number}</a>"
        rows.append(f"<dt>{escape_markdown(name)}</dt> <dd>{shown}</dd>")
    attested = ""
    if state.attestation:
        file = f"snippets/{page.id}/results/{state.machine}.json"
        attested = (
            f" · attested: [what the job signed](/records/{place}.{bundle.PUBLISHED}), which "
            f"anyone can verify by\n\n`gh attestation verify {file} --repo {bundle.REPOSITORY}`"
        )
    told = "\n".join(rows)
    return (
        '<details class="ws-provenance" data-search-exclude="yes" markdown="1">\n'
        f"<summary>{verb} on {escape_markdown(origin)}</summary>\n<dl>\n{told}\n</dl>\n\n"
        f"[raw record](/records/{place}.json){attested}\n\n</details>"
    )


def _reproduce_commands(page: SnippetPage) -> str:
    commands = {
        f"python snippets/{page.id}/{page.id}.py": "prints the demo",
        f"shelf run {page.id}": "verifies, and times on a GPU",
        f"shelf compare {page.id}": "sets it beside the records",
    }
    if page.select_states("measured"):
        commands[f"shelf history {page.id}"] = "shows the versions of each record"
    room = max(map(len, commands))
    lines = "\n".join(f"{command:{room}}  # {does}" for command, does in commands.items())
    return f"```sh\n{lines}\n```"


def build_fragments(page: SnippetPage) -> dict[str, str]:
    """The Markdown of each piece in `KEYS`, for `build/fragments/<id>/<key>.md`.

    A piece with nothing to show says so; `whole` leaves such pieces out and says once what is
    missing. `folded` is `whole` for a page that quotes the code: it repeats none of it.
    """
    current = page.select_states("measured", "verified", "compiled")
    ran, timed = page.select_states("measured", "verified"), page.select_states("measured")
    compiled = [state for state in current if state.known.get("compiled")][:1]
    spaces = [state for state in current if "space" in state.known]
    # Who has looked at every configuration: GPUs, and where none has, the CPU.
    spaces = [state for state in spaces if state.machine != "cpu"] or spaces
    titles = {link.rpartition("#reading-")[2]: title for title, link in page.sources if link}
    by_machine = {
        "plot": [(state, _state_plots(state)) for state in timed],
        "timing": [(state, figures.render_timing(state.known, state.apart)) for state in timed],
        "history": [(state, histories.render_history(page, state)) for state in timed],
        "accuracy": [(state, _accuracy_with_skips(state)) for state in ran],
        "predictions": [(state, claims.render_predictions(state.known, titles)) for state in ran],
        "facts": [(state, claims.render_facts(state.known, titles)) for state in ran],
    }
    once = {
        "compile": [(state, figures.render_compiled(state.known)) for state in compiled],
        "space": [(state, figures.render_space(state.known)) for state in spaces],
    }
    parts = {key: _join_states(page, key, own) for key, own in (by_machine | once).items()}
    parts |= {
        "idea": snippet_page.render_idea(page),
        "code": render_listings(page.code, page.kind),
        "output": _render_output(page),
        "look": views_table(page),
        "beside": _join_parts((rivals.languages_table(page), rivals.rivals_table(page))),
        "reported": claims.render_claims(page),
        "provenance": _join_parts(_render_provenance(page, state) for state in current),
        "reproduce": _reproduce_commands(page),
    }
    said = snippet_page.state_notices(page)
    slower = (histories.slowdown_notice(page, state) for state in timed)
    above = _join_parts((render_disagreements(page), *slower))
    bodies = []
    for state in ran:
        own = (text for drawn in by_machine.values() for one, text in drawn if one is state)
        bodies.append((state, "\n".join(filter(None, own))))
    rest = (
        parts["output"],
        above,
        _machine_tabs(page, "whole", bodies),
        said,
        *(text for _, text in once["compile"]),
        parts["look"],
        *(text for _, text in once["space"]),
        *(parts[key] for key in ("beside", "reported", "provenance", "reproduce")),
    )
    whole = _join_parts((parts["idea"], parts["code"], *rest))
    folded = render_listings(page.code, page.kind, folded=True)
    for key in NOTHING:
        if not parts[key]:
            parts[key] = _join_parts((f'<p class="ws-absent">{NOTHING[key]}</p>', said))
        elif key in by_machine:
            over = above if key in ("timing", "plot", "history") else ""
            parts[key] = _join_parts((over, parts[key], said))
    parts |= {"whole": whole, "folded": _join_parts((parts["idea"], folded, *rest))}
    return {key: parts[key] for key in KEYS}


DRAWN = {"timelines": diagrams.draw_timelines, "grids": diagrams.draw_grids}


def render_pictures(page: SnippetPage, embedded: Iterable[str]) -> dict[str, str]:
    """The pictures that pages embed, as `timelines/gpipe`, for `build/fragments/<id>/<that>.md`.

    One that no record of the present code has is withheld, with words in its place.
    """
    records: list[Record] = [state.known for state in page.select_states("measured", "verified")]
    drawn: dict[str, str] = {}
    for kind, draw in DRAWN.items():
        rows: list[dict[str, Any]] = next((one[kind] for one in records if kind in one), [])
        drawn |= {f"{kind}/{name}": text for name, text in draw(rows).items()}
    for name in sorted(set(embedded) - drawn.keys()):
        run = f"<code>shelf run {page.id}</code>"
        text = f": no record of the present code has it. {run} makes one."
        said = f"The picture {escape_markdown(name.partition('/')[2])} is withheld"
        drawn[name] = render_notice("absent", said, text) + "\n"
    return drawn
