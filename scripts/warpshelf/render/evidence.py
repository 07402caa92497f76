"""What was verified of a snippet: a page of its own, which one line of its topic's page opens.

The page is HTML as the site serves it, `evidence/<id>.html`, and no builder reads it. A browser
with JavaScript fetches it when the line is opened, and shows it there; without, the line links to
it. Its links are relative to its own address.
"""

from __future__ import annotations

from collections.abc import Iterator

from warpshelf.core.markup import escape_markdown, preformatted_block, quote_href
from warpshelf.core.places import OnPage
from warpshelf.records import bundle
from warpshelf.render import claims, figures, histories, plots, rivals, snippet_page, tables, views
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.render.tables import Html

PLACE = OnPage("evidence/index.md")  # the folder of all such pages
HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<link rel="icon" type="image/svg+xml" href="../assets/logo.svg">
<link rel="stylesheet" href="../assets/site.css">
<link rel="stylesheet" href="../assets/warpshelf.css">
<link rel="stylesheet" href="../assets/evidence.css">
<script src="../assets/evidence.js" defer></script>
<script src="../assets/opener.js" defer></script>
</head>
<body data-md-color-scheme="default">
<main class="md-typeset">
<p><a href="{back}">{topic}</a></p>
<h1>{title}</h1>
<div id="evidence">
{body}
</div>
</main>
</body>
</html>
"""


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
    title = f"{page.id}: what was verified"
    back = PLACE.relative_link(link or "/index.md")
    body = "\n".join(filter(None, _parts(page)))
    return HEAD.format(
        title=escape_markdown(title), back=back, topic=escape_markdown(topic), body=body
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
    yield rivals.languages_table(page)
    yield rivals.rivals_table(page)
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
        yield histories.render_history(page, state)
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
    origin = snippet_page.origin_line(state.known, state.apart)
    origin += f"; {state.here}" if state.here else ""
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
    commands = {
        f"python snippets/{page.id}/{page.id}.py": "prints the demo",
        f"shelf run {page.id}": "verifies, and times on a GPU",
        f"shelf compare {page.id}": "sets it beside the records",
    }
    if page.select_states("measured"):
        commands[f"shelf history {page.id}"] = "shows the versions of each record"
    room = max(map(len, commands))
    return preformatted_block(
        "\n".join(f"{command:{room}}  # {does}" for command, does in commands.items())
    )
