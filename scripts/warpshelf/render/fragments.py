"""The Markdown pieces of one snippet's page, each as its state allows.

A page may claim only what a current record holds: see `MachineState`. Every name, label and
program output passes through `markup`, so none of it can act as Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warpshelf.core.markup import escape_markdown, preformatted_block
from warpshelf.records.schema import Record
from warpshelf.render import claims, diagrams, evidence, histories, ladders, plots, snippet_page
from warpshelf.render.listings import render_listings
from warpshelf.render.machine_comparison import render_disagreements
from warpshelf.render.snippet_page import SnippetPage, render_notice

KEYS = ("whole", "folded", "ladder", "predictions")


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


def _render_plots(page: SnippetPage) -> str:
    """Two pictures at most: the times of the GPU measured last, and what the kernel spends."""
    timed = page.select_states("measured")
    drawn = plots.draw_plots(timed[0].known, timed[0].apart)[:1] if timed else []
    found = "\n".join(filter(None, (*drawn, ladders.spending_figure(page))))
    return f'<div class="ws-plots">\n{found}\n</div>' if found else ""


def build_fragments(page: SnippetPage) -> dict[str, str]:
    """The Markdown of each piece in `KEYS`, for `build/fragments/<id>/<key>.md`.

    `folded` is `whole` for a page that quotes the code: it repeats none of it. `ladder` compares
    the variants in a table. What was verified lies on a page of its own, which one line opens.
    """
    slower = (histories.slowdown_notice(page, one) for one in page.select_states("measured"))
    rest = (
        _render_output(page),
        render_disagreements(page),
        *slower,
        snippet_page.state_notices(page),
        _render_plots(page),
        evidence.evidence_fold(page),
    )
    idea = snippet_page.render_idea(page)
    shown, folded = (
        render_listings(page.code, page.id, page.kind, folded=one) for one in (False, True)
    )
    predictions = [
        claims.render_predictions(state.known, evidence.source_titles(page))
        for state in page.select_states("measured", "verified")
    ]
    return {
        "whole": _join_parts((idea, shown, *rest)),
        "folded": _join_parts((idea, folded, *rest)),
        "ladder": ladders.ladder_table(page),
        "predictions": _join_parts(predictions) or snippet_page.state_notices(page),
    }


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
