"""The Markdown pieces of one snippet's page, and the page of evidence that one line of it opens.

A page may claim only what a current record holds: see `MachineState`. Every name, label and
program output passes through `markup`, so none of it can act as Markdown or HTML.

The evidence is HTML as the site serves it, `evidence/<id>.html`, and no builder reads it. A browser
with JavaScript fetches it when the line is opened, and shows it there; without, the line links to
it. Its links are relative to its own address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Template

from warpshelf.core.markup import escape_markdown, preformatted_block, quote_href
from warpshelf.core.places import OnPage
from warpshelf.records import bundle
from warpshelf.records.schema import Record
from warpshelf.render import (
    claims,
    diagrams,
    figures,
    plots,
    snippet_page,
    tables,
    views,
)
from warpshelf.render.listings import render_listings
from warpshelf.render.results import render_disagreements
from warpshelf.render.snippet_page import MachineState, SnippetPage, render_notice
from warpshelf.render.tables import Html

KEYS = ("whole", "folded", "ladder", "predictions")


def _join_parts(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _local_origin(record: Record, apart: str, here: str) -> str:
    origin = snippet_page.origin_line(record, apart)
    return f"{origin}; {here}" if here else origin


def _render_output(page: SnippetPage) -> str:
    for state in page.select_states("measured", "verified"):
        if state.known["demo"]:
            origin = _local_origin(state.known, "", state.here)
            command = f"<code>python snippets/{page.id}/{page.id}.py</code>"
            return (
                f'<figure class="ws-output"><figcaption>What {command} prints ('
                f"{escape_markdown(origin)})</figcaption>{preformatted_block(state.known['demo'])}"
                "</figure>"
            )
    return ""


def _render_plots(page: SnippetPage) -> str:
    """Two pictures at most: the times of the GPU measured last, and what the kernel spends."""
    timed = page.select_states("measured")
    drawn = plots.draw_plots(timed[0].known, timed[0].apart)[:1] if timed else []
    found = "\n".join(filter(None, (*drawn, views.spending_figure(page))))
    return f'<div class="ws-plots">\n{found}\n</div>' if found else ""


def build_fragments(page: SnippetPage) -> dict[str, str]:
    """The Markdown of each piece in `KEYS`, for `build/fragments/<id>/<key>.md`.

    `folded` is `whole` for a page that quotes the code: it repeats none of it. `ladder` compares
    the variants in a table. What was verified lies on a page of its own, which one line opens.
    """
    slower = (plots.slowdown_notice(page, one) for one in page.select_states("measured"))
    rest = (
        _render_output(page),
        render_disagreements(page),
        *slower,
        snippet_page.state_notices(page),
        _render_plots(page),
        evidence_fold(page),
    )
    idea = snippet_page.render_idea(page)
    shown, folded = (
        render_listings(page.code, page.id, page.kind, folded=one) for one in (False, True)
    )
    titles, states = source_titles(page), page.select_states("measured", "verified")
    predictions = (claims.render_predictions(state.known, titles) for state in states)
    return {
        "whole": _join_parts((idea, shown, *rest)),
        "folded": _join_parts((idea, folded, *rest)),
        "ladder": views.ladder_table(page),
        "predictions": _join_parts(predictions) or snippet_page.state_notices(page),
    }


def render_pictures(page: SnippetPage, embedded: Iterable[str]) -> dict[str, str]:
    """The pictures that pages embed, as `timelines/gpipe`, for `build/fragments/<id>/<that>.md`."""
    records = [state.known for state in page.select_states("measured", "verified")]
    drawn: dict[str, str] = {}
    for kind, draw in diagrams.DRAWN.items():
        rows = next((one[kind] for one in records if kind in one), ())
        drawn |= {f"{kind}/{name}": text for name, text in draw(rows).items()}
    for name in sorted(set(embedded) - drawn.keys()):
        run = f"<code>shelf run {page.id}</code>"
        text = f": no record of the present code has it. {run} makes one."
        said = f"The picture {escape_markdown(name.partition('/')[2])} is withheld"
        drawn[name] = render_notice("absent", said, text) + "\n"
    return drawn


PLACE = OnPage("evidence/index.md")  # the folder of all such pages
TEMPLATE = Path(__file__).with_name("evidence.html")


def source_titles(page: SnippetPage) -> dict[str, str]:
    """The titles of its sources by the ids of their readings."""
    return {link.rpartition("#reading-")[2]: title for title, link in page.sources if link}


def evidence_fold(page: SnippetPage) -> str:
    """The line that opens the evidence: what it says in one sentence, and the link to it."""
    link = f"[What was verified, all cases and figures](/evidence/{page.id}.html)"
    return f'??? ws-fold ws-evidence "{escape_markdown(_answer(page))}"\n\n    {link}'


def _answer(page: SnippetPage) -> str:
    for state in page.select_states("measured", "verified"):
        if said := figures.accuracy_summary(state.known):
            return f"Verified in {said}"
        if facts := state.known.get("facts"):
            return f"Verified: {tables.format_count(len(facts), 'fact')}, each within its tolerance"
    return "What is on record"


def render_evidence(page: SnippetPage, link: str | None, topic: str) -> str:
    """The page of a snippet that stands at the docs-absolute `link`, on the page called `topic`."""
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        title=escape_markdown(f"{page.id}: what was verified"),
        back=PLACE.relative_link(link or "/index.md"),
        topic=escape_markdown(topic),
        body="\n".join(filter(None, _parts(page))),
    )


def _parts(page: SnippetPage) -> Iterator[str]:
    current = page.select_states("measured", "verified", "compiled")
    for state in current:
        own = "\n".join(filter(None, _state_parts(page, state)))
        head = f"<h2>{escape_markdown(state.name)}</h2>\n" if len(current) > 1 else ""
        yield head + own if own else ""
    if len(current) > 1:
        yield "<h2>On any machine</h2>"
    compiled = (figures.render_compiled(state.known) for state in current)
    yield next(filter(None, compiled), "")
    yield views.views_table(page)
    # Who has looked at every configuration: GPUs, and where none has, the CPU.
    spaces = [state for state in current if "space" in state.known]
    for state in [one for one in spaces if one.machine != "cpu"] or spaces:
        yield figures.render_space(state.known)
    yield claims.languages_table(page)
    yield claims.rivals_table(page)
    yield claims.render_claims(page, PLACE)
    yield from (_render_provenance(page, state) for state in current)
    yield from (file.ways for file in page.code)
    yield _render_commands(page)


def _state_parts(page: SnippetPage, state: MachineState) -> Iterator[str]:
    record, titles = state.known, source_titles(page)
    if state.state == "measured":
        drawn = "\n".join(plots.draw_plots(record, state.apart))
        yield f'<div class="ws-plots">\n{drawn}\n</div>' if drawn else ""
        if times := figures.render_timing(record, state.apart):
            count = tables.format_count(len(tables.timed_cases(record)), "case")
            yield tables.render_fold(f"Times of {count}", times, "times")
        yield plots.render_history(page, state)
    yield figures.render_accuracy(record)
    skips = " ".join(
        f"<li>{escape_markdown(skip['what'])}: {escape_markdown(skip['reason'])}</li>"
        for skip in record.get("skips", ())
    )
    if skips and state.state != "compiled":
        yield f'<p class="ws-skips">Not run here:</p>\n<ul class="ws-skips">{skips}</ul>'
    yield claims.render_predictions(record, titles)
    yield claims.render_facts(record, titles)


def _render_provenance(page: SnippetPage, state: MachineState) -> str:
    """A fold with all that says where a record comes from."""
    place = f"../records/{page.id}/{state.machine}"
    verb = {"measured": "Measured", "verified": "Checked"}.get(state.state, "Compiled")
    origin = _local_origin(state.known, state.apart, state.here)
    rows = []
    for name, text in snippet_page.origin_pairs(state.known):
        shown = escape_markdown(text)
        if name == snippet_page.JOB:  # the address of its log
            address = state.known["origin"]["job"]
            number = address.rpartition("/")[2]
            shown = f"a job of this project, <a href={quote_href(address)}>run {number}</a>"
        rows.append(f"<dt>{escape_markdown(name)}</dt> <dd>{shown}</dd>")
    ways = f'<a href="{place}.json">raw record</a>'
    if state.attestation:
        file = f"snippets/{page.id}/results/{state.machine}.json"
        verify = escape_markdown(f"gh attestation verify {file} --repo {bundle.REPOSITORY}")
        ways += (
            f' · attested: <a href="{place}.{bundle.PUBLISHED}">what the job signed</a>, which '
            f"anyone can verify by <code>{verify}</code>"
        )
    inner = "<dl>\n" + "\n".join(rows) + f"\n</dl>\n<p>{ways}</p>"
    return tables.render_fold(Html(f"{verb} on {escape_markdown(origin)}"), inner, "provenance")


def _render_commands(page: SnippetPage) -> str:
    rows = [
        (f"python snippets/{page.id}/{page.id}.py", "prints the demo"),
        (f"shelf run {page.id}", "verifies, and times on a GPU"),
        (f"shelf compare {page.id}", "sets it beside the records"),
    ]
    if page.select_states("measured"):
        rows.append((f"shelf history {page.id}", "shows the versions of each record"))
    room = max(len(command) for command, _ in rows)
    return preformatted_block("\n".join(f"{command:{room}}  # {does}" for command, does in rows))
