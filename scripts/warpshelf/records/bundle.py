"""Bundles: the records of a run in one file, and their way into a checkout, all or none.

Enters: what `shelf run --out FILE` wrote on another machine. Leaves: records in their places, or
every reason why the bundle is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core.batches import Batch
from warpshelf.core.files import dump_json
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import attestation, claim_check, store, validate_import
from warpshelf.records import attestation as origins
from warpshelf.records.attestation import Origin, Statement
from warpshelf.records.machine import CPU
from warpshelf.records.schema import SCHEMA, Record

LARGEST = 2**30  # bytes of one to read: that of a fleet holds thousands of records
MOST = 10_000  # records in a bundle; each may have a finding
AGAIN = "make it again with `shelf run`"


def bundle_text(records: Iterable[Record]) -> str:
    """The records of a run as the text of one file, for `shelf import`."""
    return dump_json({"schema": SCHEMA, "records": list(records)})


def join_texts(texts: Iterable[str]) -> str:
    """The same, of records as `dump` writes each: thousands need not be in memory as objects."""
    inner = ",\n".join("  " + one.rstrip("\n").replace("\n", "\n  ") for one in texts)
    records = f"[\n{inner}\n ]" if inner else "[]"
    return f'{{\n "records": {records},\n "schema": {SCHEMA}\n}}\n'


def _read_items(path: Path, shown: str) -> list[object]:
    value = store.read_json(path, shown, LARGEST)
    if store.schema_version(value) > SCHEMA:
        store.check_record(value, shown)
    records = value.get("records") if isinstance(value, dict) and len(value) == 2 else None
    if not isinstance(records, list) or store.schema_version(value) < 1:
        what = "is no bundle of records"
        raise ShelfError(Finding(shown, None, what, "name what `shelf run --out FILE` wrote"))
    if len(records) > MOST:
        what, mend = f"holds {len(records)} records; {MOST} are the most", "import it in parts"
        raise ShelfError(Finding(shown, None, what, mend))
    return records


def read_bundle(path: Path) -> list[Record]:
    """The records of a bundle.

    Raises:
        ShelfError: it is no bundle, or a record in it is malformed.
    """
    shown = path.as_posix()
    items = _read_items(path, shown)
    return [
        store.check_record(item, f"{shown} records[{index}]") for index, item in enumerate(items)
    ]


class ImportTerms(NamedTuple):
    """On what terms a bundle is taken in.

    `by` is who made its records, whatever they say; `otherwise` who made those that do not say. A
    job's records need the `attested` statement of that job. `now` is the present time.
    """

    skip_stale: bool = False
    by: Origin | None = None
    otherwise: Origin | None = None
    attested: Statement | None = None
    now: datetime | None = None


class ImportResult(NamedTuple):
    """What an import did.

    The paths written, the ids of stale records left out, and all records that were in order.
    """

    written: list[Path]
    left: list[str]
    records: list[tuple[Snippet, Record]]


class _Candidate(NamedTuple):
    snippet: Snippet
    record: Record
    place: str


def import_bundle(
    project: Project, snippets: Iterable[Snippet], path: Path, terms: ImportTerms | None = None
) -> ImportResult:
    """Put the records of a bundle in place: all of them, or none.

    A current record of the CPU stays where there is one, since it is made again everywhere.

    Raises:
        ShelfError: the file is truncated, foreign or of a newer schema, a record is malformed or
            of a snippet that is not here, was made from other code than this checkout's, claims
            other than what its snippet's record of the CPU says is due or than any run here would
            have written, or does not say who made it.
        OSError: a file cannot be written; then none is.
    """
    terms = terms or ImportTerms()
    shown = path.as_posix()
    by_id = {snippet.id: snippet for snippet in snippets}
    findings: list[Finding] = []
    good: list[_Candidate] = []
    left: list[str] = []
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(_read_items(path, shown)):
        place = f"{shown} records[{index}]"
        try:
            record = store.check_record(item, place)
        except ShelfError as error:
            findings.extend(error.findings)
            continue
        snippet = by_id.get(record["snippet"])
        machine = record["machine"]["slug"]
        if snippet is None:
            what = f"is of the snippet {record['snippet']!r}, which is not here"
            findings.append(Finding(place, None, what, "check out the branch that has it"))
        elif (snippet.id, machine) in seen:
            what = f"is a second record of {snippet.id} on {machine}"
            findings.append(Finding(place, None, what, "leave one of them out"))
        elif record["digest"] != snippet.digest and terms.skip_stale:
            left.append(snippet.id)
        elif record["digest"] != snippet.digest:
            what = f"{snippet.id}: was made from other code than this checkout's"
            mend = "check out the code it ran, or leave such records out by --skip-stale"
            findings.append(Finding(place, None, what, mend))
        elif record["kind"] != snippet.kind:
            what = f"{snippet.id}: is a {snippet.kind}, not a {record['kind']}"
            findings.append(Finding(place, None, what, AGAIN))
        else:
            good.append(_Candidate(snippet, _with_origin(record, terms), place))
        seen.add((record["snippet"], machine))
    findings.extend(_claim_findings(good, terms))
    findings.extend(_origin_findings(good, terms, shown))
    batch, planned = Batch(), []
    for snippet, record, _ in good:
        if record["machine"]["slug"] == CPU and store.current_record(snippet, CPU):
            continue
        try:
            statement = terms.attested if "job" in record.get("origin", {}) else None
            planned.append(store.plan_write(batch, snippet, record, statement and statement.text))
        except ShelfError as error:
            findings.extend(error.findings)
    if findings:
        raise ShelfError(findings)
    made = batch.commit()
    written = [path for path in planned if path in made]
    return ImportResult(written, left, [(one.snippet, one.record) for one in good])


def _with_origin(record: Record, terms: ImportTerms) -> Record:
    """A record of a GPU with who made it, as far as that is known."""
    if record["machine"]["slug"] == CPU:
        return record
    origin = terms.by or record.get("origin") or terms.otherwise
    return record | {"origin": origin} if origin else record


def _origin_findings(
    good: Iterable[_Candidate], terms: ImportTerms, shown: str
) -> Iterator[Finding]:
    """Records of GPUs of which nobody knows who made them, or that no job attests as it should."""
    jobs = 0
    for snippet, record, place in good:
        what = f"{snippet.id} on {record['machine']['slug']}: "
        origin = record.get("origin")
        if record["machine"]["slug"] == CPU:
            continue
        if origin is None:
            what += "does not say who made it"
            yield Finding(place, None, what, "say so by `--by NAME`, or set git's user.name")
        elif "job" in origin and terms.attested is None:
            what += f"says that {origins.format_origin(origin)} made it, and nothing attests that"
            mend = "give the job's attestation by `--attestation FILE`, or your name by `--by NAME`"
            yield Finding(place, None, what, mend)
        elif "job" in origin and terms.attested is not None:
            jobs += 1
            for fault in attestation.attestation_errors(terms.attested, record):
                yield Finding(place, None, what + fault, attestation.MEND)
    if terms.attested is not None and not jobs:
        what = "holds no record that a job made, so there is nothing to attest"
        yield Finding(shown, None, what, "leave out --attestation")


def _claim_findings(good: Iterable[_Candidate], terms: ImportTerms) -> Iterator[Finding]:
    """What records claim that this checkout would not have made.

    They are held against the CPU's record: that in place, or else that of the same bundle.
    """
    taken = list(good)
    brought = {one.id: record for one, record, _ in taken if record["machine"]["slug"] == CPU}
    for snippet, record, place in taken:
        what = f"{snippet.id} on {record['machine']['slug']}: "
        for fault in validate_import.record_errors(record, snippet, terms.now):
            yield Finding(place, None, what + fault, AGAIN)
        at = origins.commit_time(snippet.project.root, record["commit"] or "0")
        if at is not None and validate_import.creation_time(record) + validate_import.AHEAD < at:
            fault = (
                f"was made on {record['date']}, before the commit {record['commit']} that it ran"
            )
            yield Finding(place, None, what + fault, AGAIN)
        truth = store.current_record(snippet, CPU) or brought.get(snippet.id)
        if truth is None and snippet.kind != "kernel" and snippet.cannot_run(None, 0):
            continue  # there can be none, and a program or model lists nothing that is due
        if truth is None:
            what = f"{snippet.id}: there is no current record of the CPU to check it against"
            mend = f"run `shelf run {snippet.id}` first, on any machine"
            yield Finding(place, None, what, mend)
            continue
        for fault in claim_check.claim_errors(record, truth, snippet):
            yield Finding(place, None, what + fault, AGAIN)
