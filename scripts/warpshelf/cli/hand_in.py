"""Handing in: who made records, what is odd about them, and the words for both.

Enters: the options of `shelf run` and `shelf import`. Leaves: origins, terms, lines on stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from warpshelf.contract import snippet as snippets
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import bundle, plausibility, store
from warpshelf.records.ledger import CPU

if TYPE_CHECKING:
    from warpshelf.bench.run import Verdict
    from warpshelf.contract.snippet import Snippet
    from warpshelf.records.bundle import ImportTerms, Origin
    from warpshelf.records.schema import Record


def parse_origin(by: str | None) -> Origin | None:
    """The origin that `--by` gives; no name is wrong usage."""
    try:
        return None if by is None else bundle.person_origin(by)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--by") from None


def run_origin(project: Project, by: str | None, out: Path | None) -> Origin | None:
    """Who makes the records of a run: the person named, else the job, else the user of Git.

    What goes into one file may be made on a borrowed machine, whose git knows somebody else.
    """
    found = parse_origin(by) or bundle.job_origin(os.environ)
    return found if found or out is not None else bundle.user_origin(project.root)


def import_terms(
    project: Project, skip_stale: bool, by: str | None, attested: Path | None, root: Path | None
) -> ImportTerms:
    """The terms on which a bundle is imported; `root` is the trust root of an attestation."""
    if by is not None and attested is not None:
        what = "names a person, --attestation a job; give only one of the two"
        raise typer.BadParameter(what, param_hint="--by")
    if root is not None and attested is None:
        raise typer.BadParameter("needs --attestation", param_hint="--trusted-root")
    statement = None if attested is None else bundle.verify_statement(attested, root)
    user = bundle.user_origin(project.root)
    return bundle.ImportTerms(skip_stale, parse_origin(by), user, statement)


def report_records(made: list[tuple[Snippet, Record]], known: Iterable[Snippet]) -> list[str]:
    """Print who is credited with the records of GPUs; return a line for each oddity."""
    for who in sorted({bundle.format_origin(one["origin"]) for _, one in made if "origin" in one}):
        hint = "" if who.startswith("the job ") else "; --by sets another name"
        sys.stderr.write(f"handed in by {who}{hint}\n")
    fresh = [(snippet, one) for snippet, one in made if one["machine"]["slug"] != CPU]
    if not fresh:
        return []
    ids = {snippet.id for snippet, _ in fresh}
    others = [one for snippet in known for one in _sound_records(snippet, snippet.id in ids)]
    found = []
    for snippet, one in fresh:
        beside = [other for other in others if other != one]
        for doubt in plausibility.plausibility_warnings(one, beside):
            found.append(f"doubtful: {snippet.id} on {one['machine']['slug']}: {doubt}")
    return found


def _sound_records(snippet: Snippet, with_cpu: bool) -> Iterator[Record]:
    """The sound records of a snippet; the CPU's, which is the largest, only on request."""
    for path in sorted(snippet.results.glob("*.json")):
        if with_cpu or path.stem != CPU:
            with contextlib.suppress(ShelfError):  # `shelf check` says what is wrong with it
                yield store.load_record(snippet.project, path)


def report_run(
    project: Project, picked: list[Snippet], verdicts: Sequence[Verdict], out: Path | None
) -> None:
    """Print who is credited with a run's records of GPUs, and what is odd about them."""
    made = sorted(
        (one.snippet, one.machine)
        for one in verdicts
        if one.machine != CPU and one.state == "passed"
    )
    if not made:
        return
    by_id = {snippet.id: snippet for snippet in picked}
    if out is not None:
        rows = [(one["snippet"], one["machine"]["slug"], one) for one in bundle.read_bundle(out)]
        found = [(by_id[name], one) for name, slug, one in rows if (name, slug) in made]
    else:
        found = []
        for name, slug in made:
            known = store.load_records(by_id[name])[0]
            if newest := store.newest_record(known, slug, by_id[name].digest):
                found.append((by_id[name], newest))
    for line in report_records(found, snippets.discover_snippets(project)):
        sys.stderr.write(f"{line}\n")
