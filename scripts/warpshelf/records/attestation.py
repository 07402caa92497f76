"""Who made a record of a GPU: a person by name, or a job of this project, which signs what it made.

Enters: a name, the environment of a process, or a Sigstore bundle, as GitHub's action attest writes
it. Leaves: what stands under `origin` in a record; the digests and the job that a statement names,
and where that does not fit the records in place. The record of a CPU has no origin: anyone can make
it again. Whether a signature holds is seen with the library sigstore, the extra `trust`, and no
network; all else needs the standard library alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core import git, shapes
from warpshelf.core.files import dump_json
from warpshelf.core.findings import Finding, ShelfError, install_hint
from warpshelf.records import schema, store
from warpshelf.records.schema import JOB, PERSON, Record

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
    name = git.git_line(root, "config", "user.name") or ""
    return {"who": name} if PERSON.fullmatch(name) else None


def format_origin(origin: Origin) -> str:
    """An origin as it is told: a name, or a job by its address."""
    return origin.get("who") or f"the job {origin['job']}"


def commit_time(root: Path, commit: str) -> datetime | None:
    """When a commit was made; None where this checkout does not have it."""
    name = commit.removesuffix("+changes")
    told = git.git_line(root, "show", "--no-patch", "--format=%ct", f"{name}^{{commit}}")
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
    if wrong := shapes.shape_problem(stated, shape, "statement"):
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
