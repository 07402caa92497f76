"""Bundles: the records of a run in one file, who vouches for them, and their way into a checkout.

Enters: what `shelf run --out FILE` wrote on another machine. Leaves: records in their places, or
every reason why the bundle is refused.
"""

from __future__ import annotations

import base64
import binascii
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
from warpshelf.core.files import Batch, dump_json
from warpshelf.core.findings import Finding, ShelfError, install_hint
from warpshelf.core.project import Project
from warpshelf.records import claim_check, schema, store, validate_import
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import JOB, PERSON, SCHEMA, Record

# Who made a record of a GPU: a person by name, or a job of this project, which signs what it made.
#
# Enters: a name, the environment of a process, or a Sigstore bundle, as GitHub's action attest
# writes it. Leaves: what stands under `origin` in a record; the digests and the job that a
# statement names, and where that does not fit the records in place. The record of a CPU has no
# origin: anyone can make it again. Whether a signature holds is seen with the library sigstore,
# the extra `trust`, and no network; all else needs the standard library alone.

Origin = dict[str, str]  # {"who": a name} or {"job": the address of a job's log}


def person_origin(name: str) -> Origin:
    """The origin of records that a person made.

    Raises:
        ValueError: it is no name.
    """
    if not PERSON.fullmatch(name):
        raise ValueError(f"{name!r:.60} is no name: up to 80 characters on a line, without < and >")
    return {"who": name}


def job_origin(environment: Mapping[str, str]) -> Origin | None:
    """The origin of what this process makes, where it is a job of GitHub Actions."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return None
    parts = [environment.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    address = f"{parts[0]}/{parts[1]}/actions/runs/{parts[2]}"
    return {"job": address} if JOB.fullmatch(address) else None


def user_origin(root: Path) -> Origin | None:
    """The origin of what the user of a checkout makes, by the name that git has of them."""
    name = project.git_line(root, "config", "user.name") or ""
    return {"who": name} if PERSON.fullmatch(name) else None


def format_origin(origin: Origin) -> str:
    """An origin as it is told: a name, or a job by its address."""
    return origin.get("who") or f"the job {origin['job']}"


def commit_time(root: Path, commit: str) -> datetime | None:
    """When a commit was made; None where this checkout does not have it."""
    name = commit.removesuffix("+changes")
    told = project.git_line(root, "show", "--no-patch", "--format=%ct", f"{name}^{{commit}}")
    return datetime.fromtimestamp(int(told), UTC) if told and told.isdigit() else None


REPOSITORY = "warpshelf/warpshelf"
WORKFLOW = ".github/workflows/gpu.yml"  # whose jobs measure
IDENTITY = f"https://github.com/{REPOSITORY}/{WORKFLOW}@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
PAYLOAD = "application/vnd.in-toto+json"
INVOCATION = re.compile(rf"(?P<job>{JOB.pattern})/attempts/[0-9]{{1,6}}", re.ASCII)
PUBLISHED = "sigstore.json"  # how the name of an attestation ends beside a published record
MEND = "give the file that the job handed back beside the records"


class Statement(NamedTuple):
    """What a bundle states: SHA-256 digests of files, and the run of a job that made them.

    `text` is the bundle as it is kept; `invocation` names the attempt at the run `job` as well.
    """

    text: str
    digests: frozenset[str]
    job: str
    invocation: str


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
    """What the bundle at `path` states.

    Raises:
        ShelfError: it is no Sigstore bundle of a statement on what a job made.
    """
    value = store.read_json(path, shown)
    try:
        return _parse_statement(value)
    except (ValueError, TypeError, KeyError, binascii.Error) as error:
        what = f"is no attestation of a job: {error}"
        raise ShelfError(Finding(shown, None, what, MEND)) from None


def _parse_statement(value: Any) -> Statement:
    envelope = value["dsseEnvelope"]
    if envelope["payloadType"] != PAYLOAD:
        raise ValueError(f"its payload is {envelope['payloadType']!r:.60}")
    stated = json.loads(base64.b64decode(envelope["payload"], validate=True))
    shape = {
        "_type": (STATEMENT,),
        "subject": [{"name": str, "digest": {"*": str}}],
        "predicateType": (PROVENANCE,),
        "predicate": {"*": object},
    }
    if wrong := files.shape_problem(stated, shape, "statement"):
        raise ValueError(wrong)
    invocation = stated["predicate"]["runDetails"]["metadata"]["invocationId"]
    found = INVOCATION.fullmatch(invocation)
    if not found:
        raise ValueError(f"its job is {invocation!r:.80}")
    digests = {one["digest"].get("sha256", "") for one in stated["subject"]} - {""}
    return Statement(dump_json(value), frozenset(digests), found["job"], invocation)


def attestation_errors(statement: Statement, record: Record) -> Iterator[str]:
    """Why a statement does not attest a record, in words."""
    job = record.get("origin", {}).get("job")
    if job is None:
        yield "names no job that made it"
    elif job != statement.job:
        yield f"says that {job} made it, and its attestation is of {statement.job}"
    if record_checksum(record) not in statement.digests:
        yield "is not among the files that its attestation names: it was changed since, or is other"


def check_attestations(snippet: Snippet, records: Mapping[str, Record]) -> Iterator[Finding]:
    """What is wrong with the attestations beside the records of a snippet, offline."""
    relative = snippet.project.relative_path
    for key, record in records.items():
        path = store.attestation_path(snippet, key)
        if "job" not in record.get("origin", {}):
            continue
        where = relative(store.record_path(snippet, key))
        again = "import it again with `--attestation`, or remove it"
        if not path.is_file():
            yield Finding(where, None, "says that a job made it, and has no attestation", again)
            continue
        try:
            statement = read_statement(path, relative(path))
        except ShelfError as error:
            yield from error.findings
            continue
        for fault in attestation_errors(statement, record):
            yield Finding(where, None, fault, again)
        # The file as it lies there, since that is what others verify.
        text = store.record_path(snippet, key).read_bytes().replace(b"\r\n", b"\n")
        if text != schema.record_text(record).encode("utf-8"):
            yield Finding(where, None, "is not written as it was attested", again)
    for path in sorted((snippet.results / store.ATTESTATIONS).glob("*")):
        record = records.get(path.stem, {})
        if path.suffix != ".json" or "job" not in record.get("origin", {}):
            yield Finding(relative(path), None, "attests no record", "remove it")


def verify_statement(path: Path, trusted_root: Path | None = None) -> Statement:
    """What the bundle at `path` states, once its signature has been seen to hold.

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
        raise ShelfError(Finding(shown, None, what, install_hint("trust"))) from None
    logging.getLogger("sigstore").setLevel(logging.ERROR)  # that it is offline is no news
    identity = policy.AllOf(
        [
            policy.Identity(identity=IDENTITY, issuer=ISSUER),
            policy.OIDCRunInvocationURI(statement.invocation),
        ]
    )
    try:
        if trusted_root is None:
            verifier = Verifier.production(offline=True)
        else:
            verifier = Verifier(trusted_root=TrustedRoot.from_file(str(trusted_root)))
    except (Error, ValueError, OSError) as error:
        where = shown if trusted_root is None else trusted_root.as_posix()
        what = f"is no trusted root: {_error_line(error)}"
        raise ShelfError(Finding(where, None, what, "name one of Sigstore's")) from None
    try:
        kind, _ = verifier.verify_dsse(Bundle.from_json(statement.text), identity)
        if kind != PAYLOAD:
            raise ValueError(f"its payload is {kind!r:.60}")
    except (Error, ValueError) as error:
        what = f"does not hold: {_error_line(error)}"
        raise ShelfError(Finding(shown, None, what, MEND)) from None
    return statement


def _error_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


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
            what += f"says that {format_origin(origin)} made it, and nothing attests that"
            mend = "give the job's attestation by `--attestation FILE`, or your name by `--by NAME`"
            yield Finding(place, None, what, mend)
        elif "job" in origin and terms.attested is not None:
            jobs += 1
            for fault in attestation_errors(terms.attested, record):
                yield Finding(place, None, what + fault, MEND)
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
        at = commit_time(snippet.project.root, record["commit"] or "0")
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
