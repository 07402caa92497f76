"""The public kernels that stand beside a snippet's, and what is wrong with what is said of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.look import kept, rivalry
from warpshelf.look.kept import Kept
from warpshelf.readings import rivals
from warpshelf.render.rivals import Pair, ours


def pairs(snippet: Snippet, views: Iterable[Kept]) -> tuple[list[Pair], list[Finding]]:
    """Each public kernel that was compiled as its entry now has it, and ours of `views`."""
    shown = snippet.project.relative(snippet.folder)
    known, findings = rivals.load(snippet.folder, shown)
    answers, wrong = rivalry.load(snippet.folder, shown)
    views = list(views)
    found = [
        Pair(one, answers[one.digest], ours(views, one)) for one in known if one.digest in answers
    ]
    return found, findings + wrong


def check(snippet: Snippet) -> Iterator[Finding]:
    """What is wrong with a snippet's rivals.yml and rivals.json, beside its current views."""
    shown = snippet.project.relative(snippet.folder)
    where = f"{shown}/{rivals.FILE}"
    views = kept.summaries_of(snippet)[0]
    found, findings = pairs(snippet, views)
    yield from findings
    known = rivals.load(snippet.folder, shown)[0]
    folder = " --checkouts FOLDER" if any(one.repository for one in known) else ""
    again = f"run `shelf rivals {snippet.id}{folder}`"
    done = {one.rival.digest for one in found}
    for rival in known:
        if rival.digest not in done:
            what = f"{rival.kernel} is not compiled as its entry has it"
            yield Finding(where, rival.line, what, again)
    if extra := rivalry.load(snippet.folder, shown)[0].keys() - {one.digest for one in known}:
        what = f"has {len(extra)} of kernels that {rivals.FILE} does not name"
        yield Finding(f"{shown}/{rivalry.FILE}", None, what, again)
    by = {(one.view["variant"], one.view["kernel"]): one.view["compiler"] for one in views}
    for pair in found if views else ():  # without current views there is no telling
        beside = (pair.rival.beside.variant, pair.rival.beside.kernel)
        if beside not in by:
            names = "; ".join(sorted(f"{variant}: {kernel}" for variant, kernel in by))
            what = f"beside names {': '.join(beside)}, which has no view"
            yield Finding(where, pair.rival.line, what, f"name one of {names}")
        elif not pair.rival.package and by[beside] != pair.answer.compiler:
            what = (
                f"{pair.rival.kernel} is compiled by {pair.answer.compiler}, ours by {by[beside]}"
            )
            yield Finding(where, pair.rival.line, what, again)
