"""Handing in: who made records, what is odd about them, and the words for both.

Enters: the options of `shelf run` and `shelf import`. Leaves: origins, terms, lines on stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import bundle as origins
from warpshelf.records import plausibility, store
from warpshelf.records.ledger import CPU

if TYPE_CHECKING:
    from warpshelf.contract.snippet import Snippet
    from warpshelf.records.bundle import ImportResult, ImportTerms, Origin
    from warpshelf.records.schema import Record


def parse_origin(by: str | None) -> Origin | None:
    """The origin that `--by` gives; no name is wrong usage."""
    try:
        return None if by is None else origins.person_origin(by)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--by") from None


def run_origin(project: Project, by: str | None, out: Path | None) -> Origin | None:
    """Who makes the records of a run: who is named, else the job, else who uses the checkout.

    What goes into one file may be made on a borrowed machine, whose git knows somebody else.
    """
    found = parse_origin(by) or origins.job_origin(os.environ)
    return found if found or out is not None else origins.user_origin(project.root)


def import_terms(
    project: Project,
    skip_stale: bool,
    by: str | None,
    attested: Path | None,
    trusted_root: Path | None,
) -> ImportTerms:
    """On what terms a bundle is taken in; an attestation is verified here.

    Raises:
        ShelfError: the attestation does not hold.
    """
    from warpshelf.records.bundle import ImportTerms

    if by is not None and attested is not None:
        what = "names a person, and --attestation the job that made the records; leave out one"
        raise typer.BadParameter(what, param_hint="--by")
    if trusted_root is not None and attested is None:
        raise typer.BadParameter("goes with --attestation", param_hint="--trusted-root")
    statement = None
    if attested is not None:
        from warpshelf.records import bundle

        statement = bundle.verify_statement(attested, trusted_root)
    return ImportTerms(skip_stale, parse_origin(by), origins.user_origin(project.root), statement)


def print_origins(records: Iterable[Record]) -> None:
    """Say aloud who is taken to have made records of GPUs, and how to name another."""
    told = {origins.format_origin(one["origin"]) for one in records if "origin" in one}
    for who in sorted(told):
        hint = "" if who.startswith("the job ") else "; another name: --by"
        sys.stderr.write(f"handed in by {who}{hint}\n")


def find_doubts(records: Iterable[tuple[Snippet, Record]], known: Iterable[Snippet]) -> list[str]:
    """What is odd about records of GPUs beside all that are in place, a line each."""
    fresh = [(snippet, one) for snippet, one in records if one["machine"]["slug"] != CPU]
    if not fresh:
        return []
    ids = {snippet.id for snippet, _ in fresh}
    others = [one for snippet in known for one in _sound_records(snippet, snippet.id in ids)]
    return [
        f"doubtful: {snippet.id} on {one['machine']['slug']}: {doubt}"
        for snippet, one in fresh
        for doubt in plausibility.plausibility_warnings(
            one, [other for other in others if other != one]
        )
    ]


def _sound_records(snippet: Snippet, with_cpu: bool) -> Iterator[Record]:
    """The sound records of a snippet; that of the CPU, which is the largest, only if asked for."""
    for path in sorted(snippet.results.glob("*.json")):
        if with_cpu or path.stem != CPU:
            with contextlib.suppress(ShelfError):  # `shelf check` says what is wrong with it
                yield store.load_record(snippet.project, path)


def report_run(
    project: Project,
    snippets: list[Snippet],
    made: set[tuple[str, str]],
    out: Path | None,
) -> None:
    """Say who made the records of GPUs that a run has written, and what is odd about them.

    `made` names them by snippet and machine.
    """
    if not made:
        return
    from warpshelf.contract import snippet as contract
    from warpshelf.records import bundle

    by_id = {snippet.id: snippet for snippet in snippets}
    if out is not None:
        found = [
            one
            for one in bundle.read_bundle(out)
            if (one["snippet"], one["machine"]["slug"]) in made
        ]
    else:
        here = [(name, slug, store.load_records(by_id[name])[0]) for name, slug in sorted(made)]
        newest = (
            store.newest_record(known, slug, by_id[name].digest) for name, slug, known in here
        )
        found = [one for one in newest if one is not None]
    print_origins(found)
    for line in find_doubts(
        ((by_id[one["snippet"]], one) for one in found), contract.discover_snippets(project)
    ):
        sys.stderr.write(f"{line}\n")


def report_import(done: ImportResult, known: Iterable[Snippet]) -> list[str]:
    """Say who handed in the records of a bundle; what is odd about them."""
    print_origins(one for _, one in done.records)
    return find_doubts(done.records, known)
