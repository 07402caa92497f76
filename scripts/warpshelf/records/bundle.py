"""Bundles: the records of a run in one file, who vouches for them, and their way into a checkout.

Enters: what `shelf run --out FILE` wrote on another machine. Leaves: records in their places, or
every reason why the bundle is refused.

A record of a GPU was made by a person, by name, or by a job of this project, which signs what it
made: its `origin`. The record of a CPU has none: anyone can make it again. Whether a signature
holds is seen with the library sigstore, the extra `trust`, and no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core import files, project
from warpshelf.core.findings import Finding, ShelfError, file_error, install_hint
from warpshelf.core.project import Project
from warpshelf.records import claim_check, schema, store, validate_import
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import JOB, PERSON, SCHEMA, Record
from warpshelf.records.store import AGAIN

Origin = dict[str, str]  # {"who": a name} or {"job": the address of a job's log}

REPOSITORY = "warpshelf/warpshelf"
WORKFLOW = ".github/workflows/gpu.yml"  # whose jobs measure
IDENTITY = f"https://github.com/{REPOSITORY}/{WORKFLOW}@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
PAYLOAD = "application/vnd.in-toto+json"
STATED = {
    "_type": (STATEMENT,),
    "subject": [{"name": str, "digest": {"*": str}}],
    "predicateType": (PROVENANCE,),
    "predicate": {"*": object},
}
INVOCATION = re.compile(rf"(?P<job>{JOB.pattern})/attempts/[0-9]{{1,6}}", re.ASCII)
PUBLISHED = "sigstore.json"  # how the name of an attestation ends beside a published record
MEND = "give the attestation that the job uploaded with the records"

LARGEST = 2**30  # bytes of a bundle to read: that of a fleet holds thousands of records
MOST = 10_000  # records in a bundle; each may have a finding


def person_origin(name: str) -> Origin:
    """The origin of records that a person made; ValueError if `name` is not a name."""
    if not PERSON.fullmatch(name):
        raise ValueError(f"{name!r:.60} is not a name: at most 80 characters on a line, no < or >")
    return {"who": name}


def job_origin(environment: Mapping[str, str]) -> Origin | None:
    """The origin of what this process makes, where it is a job of GitHub Actions."""
    parts = [environment.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    address = f"{parts[0]}/{parts[1]}/actions/runs/{parts[2]}"
    is_job = environment.get("GITHUB_ACTIONS") == "true" and JOB.fullmatch(address)
    return {"job": address} if is_job else None


def user_origin(root: Path) -> Origin | None:
    """The origin of what the user of a checkout makes, by the name that git has of them."""
    name = project.git_line(root, "config", "user.name") or ""
    return {"who": name} if PERSON.fullmatch(name) else None


def format_origin(origin: Origin) -> str:
    """An origin as it is told: a name, or a job by its address."""
    return origin.get("who") or f"the job {origin['job']}"


def commit_time(root: Path, commit: str) -> datetime | None:
    """When a commit was made; None where this checkout does not have it."""
    name = commit.partition("+")[0]
    told = project.git_line(root, "show", "--no-patch", "--format=%ct", f"{name}^{{commit}}")
    return datetime.fromtimestamp(int(told), UTC) if told and told.isdigit() else None


class Statement(NamedTuple):
    """What a bundle states: SHA-256 digests of files, and the run of a job that made them."""

    text: str  # the bundle as it is kept
    digests: frozenset[str]
    job: str
    invocation: str  # names the attempt at the run as well


def record_checksum(record: Record) -> str:
    """The SHA-256 of the file that holds a record."""
    return hashlib.sha256(schema.record_text(record).encode("utf-8")).hexdigest()


def checksum_lines(records: list[Record]) -> str:
    """A line for each record of a GPU, as `sha256sum` has them: what a job has attested."""
    return "".join(
        f"{record_checksum(one)}  snippets/{one['snippet']}/results/{one['machine']['slug']}.json\n"
        for one in records
        if one["machine"]["gpus"]
    )


def read_statement(path: Path, shown: str) -> Statement:
    """What the Sigstore bundle at `path` states, as GitHub's action attest writes it."""
    value: Any = store.read_json(path, shown)
    try:
        envelope = value["dsseEnvelope"]
        if envelope["payloadType"] != PAYLOAD:
            raise ValueError(f"its payload is {envelope['payloadType']!r:.60}")
        stated = json.loads(base64.b64decode(envelope["payload"], validate=True))
        if wrong := files.shape_problem(stated, STATED, "statement"):
            raise ValueError(wrong)
        invocation = stated["predicate"]["runDetails"]["metadata"]["invocationId"]
        if not (found := INVOCATION.fullmatch(invocation)):
            raise ValueError(f"its job is {invocation!r:.80}")
    except (ValueError, TypeError, KeyError) as error:
        raise file_error(shown, f"is not the attestation of a job: {error}", MEND) from None
    digests = {one["digest"].get("sha256", "") for one in stated["subject"]} - {""}
    return Statement(files.dump_json(value), frozenset(digests), found["job"], invocation)


def _attestation_errors(statement: Statement, record: Record) -> Iterator[str]:
    """Why a statement does not attest a record that says that a job made it."""
    if (job := record["origin"]["job"]) != statement.job:
        yield f"names {job} as its origin, but its attestation names {statement.job}"
    if record_checksum(record) not in statement.digests:
        yield "is not among the files that its attestation names, or was changed since"


def check_attestations(snippet: Snippet, records: Mapping[str, Record]) -> Iterator[Finding]:
    """What is wrong with the attestations beside the records of a snippet, offline."""
    relative = snippet.project.relative_path
    by_job = {key: one for key, one in records.items() if "job" in one.get("origin", {})}
    for key, record in by_job.items():
        place, path = store.record_path(snippet, key), store.attestation_path(snippet, key)
        try:
            if path.is_file():
                faults = list(_attestation_errors(read_statement(path, relative(path)), record))
                # The file as it lies there, since that is what others verify.
                text = place.read_bytes().replace(b"\r\n", b"\n")
                if text != schema.record_text(record).encode("utf-8"):
                    faults.append("differs from the attested file")
            else:
                faults = ["names a job as its origin, but has no attestation"]
        except ShelfError as error:
            yield from error.findings
            continue
        again = "import it again with `--attestation`, or remove it"
        yield from (Finding(relative(place), None, fault, again) for fault in faults)
    for path in sorted((snippet.results / store.ATTESTATIONS).glob("*")):
        if path.suffix != ".json" or path.stem not in by_job:
            yield Finding(relative(path), None, "belongs to no record", "remove it")


def verify_statement(path: Path, trusted_root: Path | None = None) -> Statement:
    """What the bundle at `path` states, once its signature is verified.

    The certificate must be of Fulcio, chain to the trusted root, be logged, and name this project's
    GPU workflow on main and the run that the statement names; the signature must be of its key and
    in the transparency log, at a time at which the certificate was valid.

    Raises:
        ShelfError: any of this fails, or sigstore is not installed.
    """
    shown = path.as_posix()
    statement = read_statement(path, shown)
    try:
        from sigstore.errors import Error
        from sigstore.models import Bundle, TrustedRoot
        from sigstore.verify import Verifier, policy
    except ModuleNotFoundError:
        what = "cannot be verified: sigstore is not installed in this environment"
        raise file_error(shown, what, install_hint("trust")) from None
    logging.getLogger("sigstore").setLevel(logging.ERROR)  # that it is offline is no news
    run = policy.OIDCRunInvocationURI(statement.invocation)
    identity = policy.AllOf([policy.Identity(identity=IDENTITY, issuer=ISSUER), run])
    try:
        if trusted_root is None:
            verifier = Verifier.production(offline=True)
        else:
            verifier = Verifier(trusted_root=TrustedRoot.from_file(str(trusted_root)))
    except (Error, ValueError, OSError) as error:
        what = f"is not a trusted root: {' '.join(str(error).split())[:400]}"
        where = shown if trusted_root is None else trusted_root.as_posix()
        raise file_error(where, what, "give a Sigstore trusted root") from None
    try:
        kind, _ = verifier.verify_dsse(Bundle.from_json(statement.text), identity)
        if kind != PAYLOAD:
            raise ValueError(f"its payload is {kind!r:.60}")
    except (Error, ValueError) as error:
        what = f"does not verify: {' '.join(str(error).split())[:400]}"
        raise file_error(shown, what, MEND) from None
    return statement


def bundle_text(records: Iterable[Record]) -> str:
    """The records of a run as the text of one file, for `shelf import`."""
    return files.dump_json({"schema": SCHEMA, "records": list(records)})


def join_texts(texts: Iterable[str]) -> str:
    """The same, of records as `dump_json` has each: thousands need not be in memory as objects."""
    inner = ",\n".join("  " + one.rstrip("\n").replace("\n", "\n  ") for one in texts)
    records = f"[\n{inner}\n ]" if inner else "[]"
    return f'{{\n "records": {records},\n "schema": {SCHEMA}\n}}\n'


def _read_items(path: Path, shown: str) -> list[tuple[str, object]]:
    """The items of a bundle that should be records, each after its place."""
    value = store.read_json(path, shown, LARGEST)
    if store.schema_version(value) > SCHEMA:
        store.check_record(value, shown)
    records = value.get("records") if isinstance(value, dict) and len(value) == 2 else None
    if not isinstance(records, list) or store.schema_version(value) < 1:
        mend = "give a file that `shelf run --out FILE` wrote"
        raise file_error(shown, "is not a bundle of records", mend)
    if len(records) > MOST:
        what = f"holds {len(records)} records; the limit is {MOST}"
        raise file_error(shown, what, "import it in parts")
    return [(f"{shown} records[{index}]", item) for index, item in enumerate(records)]


def read_bundle(path: Path) -> list[Record]:
    """The records of a bundle; ShelfError if it or one of them is malformed."""
    return [store.check_record(item, place) for place, item in _read_items(path, path.as_posix())]


class ImportTerms(NamedTuple):
    """The terms on which a bundle is imported."""

    skip_stale: bool = False
    by: Origin | None = None  # who made its records, whatever they say
    otherwise: Origin | None = None  # who made those that do not say
    attested: Statement | None = None  # of the job whose records they are
    now: datetime | None = None


class ImportResult(NamedTuple):
    """What an import wrote, the ids of stale records left out, and all records in order."""

    written: list[Path]
    left: list[str]
    records: list[tuple[Snippet, Record]]


def import_bundle(
    project: Project, snippets: Iterable[Snippet], path: Path, terms: ImportTerms | None = None
) -> ImportResult:
    """Import the records of a bundle: all of them, or none.

    A current record of the CPU stays where there is one, since it is made again everywhere.

    Raises:
        ShelfError: the file is no bundle, or a record is malformed, of other code, claims what no
            run here would have written, or does not say who made it.
        OSError: a file cannot be written; then none is.
    """
    terms, shown = terms or ImportTerms(), path.as_posix()
    good, left, findings = _sort_records(path, {one.id: one for one in snippets}, terms)
    of_cpu = {one.id: record for one, record, _ in good if record["machine"]["slug"] == CPU}
    batch, planned = files.Batch(), []
    for snippet, record, place in good:
        slug = record["machine"]["slug"]
        here = store.current_record(snippet, CPU)
        for what, mend in _record_faults(snippet, record, here or of_cpu.get(snippet.id), terms):
            findings.append(Finding(place, None, f"{snippet.id} on {slug}: {what}", mend))
        statement = terms.attested if "job" in record.get("origin", {}) else None
        if slug != CPU or not here:
            try:
                text = statement and statement.text
                planned.append(store.plan_write(batch, snippet, record, text))
            except ShelfError as error:
                findings.extend(error.findings)
    if terms.attested and not any("job" in one.get("origin", {}) for _, one, _ in good):
        what = "holds no record of a job, so there is nothing to attest"
        findings.append(Finding(shown, None, what, "leave out --attestation"))
    if findings:
        raise ShelfError(findings)
    made = batch.commit()
    written = [path for path in planned if path in made]
    return ImportResult(written, left, [(snippet, record) for snippet, record, _ in good])


def _sort_records(
    path: Path, by_id: Mapping[str, Snippet], terms: ImportTerms
) -> tuple[list[tuple[Snippet, Record, str]], list[str], list[Finding]]:
    """The records of snippets that are here and unchanged, ids of stale ones, and what is wrong."""
    findings: list[Finding] = []
    good: list[tuple[Snippet, Record, str]] = []
    left: list[str] = []
    seen: set[tuple[str, str]] = set()
    for place, item in _read_items(path, path.as_posix()):
        try:
            record = store.check_record(item, place)
        except ShelfError as error:
            findings.extend(error.findings)
            continue
        name, slug = record["snippet"], record["machine"]["slug"]
        snippet = by_id.get(name)
        wrong = None
        if snippet is None:
            wrong = (
                f"belongs to the snippet {name!r}, which is missing here",
                "check out the branch that has it",
            )
        elif (name, slug) in seen:
            wrong = f"is a second record of {name} on {slug}", "remove one of them"
        elif record["digest"] != snippet.digest and terms.skip_stale:
            left.append(name)
        elif record["digest"] != snippet.digest:
            mend = "check out the code it ran, or skip such records with --skip-stale"
            wrong = f"{name}: was made from different code than this checkout has", mend
        elif record["kind"] != snippet.kind:
            wrong = f"{name}: is a {snippet.kind}, not a {record['kind']}", AGAIN
        else:
            origin = terms.by or record.get("origin") or terms.otherwise
            known = {"origin": origin} if origin and slug != CPU else {}
            good.append((snippet, record | known, place))
        if wrong:
            findings.append(Finding(place, None, *wrong))
        seen.add((name, slug))
    return good, left, findings


def _record_faults(
    snippet: Snippet, record: Record, truth: Record | None, terms: ImportTerms
) -> Iterator[tuple[str, str]]:
    """What a record claims against `truth`, the CPU's, and our rules, or lacks; with mends."""
    faults = list(validate_import.record_errors(record, snippet, terms.now))
    at = commit_time(snippet.project.root, record["commit"] or "0")
    if at is not None and validate_import.creation_time(record) + validate_import.AHEAD < at:
        commit = f"the commit {record['commit']} that it ran"
        faults.append(f"was made on {record['date']}, before {commit}")
    if truth is not None:
        faults += claim_check.claim_errors(record, truth, snippet)
    elif snippet.kind == "kernel" or snippet.cannot_run(None, 0) is None:
        # Where a program or model cannot run, there can be none, and it lists nothing that is due.
        mend = f"run `shelf run {snippet.id}` first, on any machine"
        yield "there is no current CPU record to check it against", mend
    yield from ((fault, AGAIN) for fault in faults)
    if record["machine"]["slug"] == CPU:
        return
    origin = record.get("origin")
    if origin is None:
        yield "does not say who made it", "add `--by NAME`, or set git's user.name"
    elif "job" in origin and terms.attested is None:
        mend = "add the job's `--attestation FILE`, or your name with `--by NAME`"
        yield f"names {format_origin(origin)} as its origin, without an attestation", mend
    elif "job" in origin and terms.attested is not None:
        yield from ((fault, MEND) for fault in _attestation_errors(terms.attested, record))
