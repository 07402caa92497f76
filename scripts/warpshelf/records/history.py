"""How the times of a record changed: its earlier versions, newest last, and what is slower now.

Enters: the records of GPUs in a checkout and in its version control. Leaves: for each what a
comparison needs of every version. One `git log` and one `git cat-file` read all there is, along
first parents: a branch that was merged counts as one step. Why a record may be slower than the one
before it, a person says in slower.yml beside a snippet, by key and date of the record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.digest import SLOWER_FILE
from warpshelf.contract.snippet import ID
from warpshelf.core import files, project
from warpshelf.core.findings import ShelfError, file_error
from warpshelf.core.project import Project
from warpshelf.records import store
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import DATE, RECORD, Record, timed_results
from warpshelf.records.store import TimeDifference, key_slug

RECORDS = (":(glob)snippets/*/results/*.json", f":(exclude,glob)snippets/*/results/{CPU}.json")
COMMIT = "commit "
RAW = re.compile(r":\d+ \d+ [0-9a-f]+ (?P<blob>[0-9a-f]+) (?P<what>[A-Z])\d*\t(?P<paths>.+)")
PLACE = re.compile(r"snippets/(?P<id>[^/]+)/results/(?P<key>[^/]+)\.json")
OBJECT = re.compile(rb"(?P<blob>[0-9a-f]+) blob (?P<size>\d+)")

ROWS = [{"record": str, "date": DATE, "because": str}]
MEND = "give each `record`, `date` and `because`, or use `shelf history ID --because`"

# What is kept of a version. Other parts may have been shaped in other ways at their time.
KEPT = (
    "snippet", "digest", "date", "commit", "method", "machine", "origin", "cases", "ceilings",
    "conditions",
)  # fmt: skip
SHAPE = {key: shape for key, shape in RECORD.items() if key.rstrip("?") in KEPT}
ABOUT = ("origin", "commit")  # a change of these alone is no other measurement
NEWEST = 4  # versions that surely hold the last two measurements: words about one make another
SHALLOW = (
    "this clone is shallow, so older measurements are missing; `git fetch --unshallow` fetches them"
)
UNVERSIONED = "this checkout has no Git history, so earlier measurements are unknown"

Place = tuple[str, str]  # the id of a snippet and the key of a record
Step = tuple[str, str, str]  # a version of a file: its commit, its blob, and its path back then


class Version(NamedTuple):
    """A measurement: what is kept of its record, the commit that put it in place, its path then."""

    record: Record
    commit: str | None  # None before it is committed
    path: str
    slower: str = ""  # why it may be slower than before


@dataclass(frozen=True)
class History:
    """The versions of each record of a GPU, newest last, and what is not known of them."""

    of: Mapping[Place, Sequence[Version]] = field(default_factory=dict)
    damaged: Mapping[Place, Sequence[str]] = field(default_factory=dict)
    here: frozenset[Place] = frozenset()  # of which a record lies in the checkout
    remarks: tuple[str, ...] = ()  # what is missing from all of it, in words


def record_place(path: str) -> Place | None:
    """The snippet and the key whose record a path is; None for any other file, and for a CPU's."""
    match = PLACE.fullmatch(path)
    if not match or not ID.fullmatch(match["id"]) or key_slug(match["key"]) in (None, CPU):
        return None
    return match["id"], match["key"]


def _present_records(project: Project) -> dict[Place, Path]:
    paths = sorted(project.snippets.glob("*/results/*.json"))
    return {place: path for path in paths if (place := record_place(project.relative_path(path)))}


def _run_git(root: Path, *words: str, given: bytes = b"") -> bytes | None:
    settings = ("-c", "core.quotePath=false", "-c", "log.diffMerges=separate")
    return project.run_git(root, *settings, *words, given=given)


def _read_log(root: Path) -> tuple[str, bool] | None:
    """What git tells of the records of GPUs, newest first, and whether its clone is shallow."""
    words = ("log", "--first-parent", "-m", "--raw", "--no-abbrev", "--find-renames", "--relative")
    text = _run_git(root, *words, f"--format={COMMIT}%H", "--", *RECORDS)
    if text is None:
        return None
    shallow = _run_git(root, "rev-parse", "--is-shallow-repository") or b""
    return text.decode("utf-8", "replace"), shallow.strip() == b"true"


def _parse_log(text: str) -> dict[Place, list[Step]]:
    """The versions of every record, newest first."""
    steps: dict[Place, list[Step]] = {}
    now: dict[str, Place] = {}  # where what stood at a path then is today, if it was renamed since
    commit = ""
    for row in text.splitlines():
        if row.startswith(COMMIT):
            commit = row.removeprefix(COMMIT)
        elif match := RAW.fullmatch(row):
            old, _, new = match["paths"].partition("\t")
            path = new or old
            place = now.get(path) or record_place(path)
            if place is None or match["what"] == "D":
                continue
            steps.setdefault(place, []).append((commit, match["blob"], path))
            before, after = record_place(old), record_place(path)
            # A snippet was renamed where its record has the same key in another folder.
            if match["what"] == "R" and before and after and before[1] == after[1]:
                now[old] = place
                now.pop(path, None)
    return steps


def _parse_objects(answer: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(answer):
        head, _, _ = answer[at : at + 200].partition(b"\n")
        at += len(head) + 1
        if match := OBJECT.fullmatch(head):
            size = int(match["size"])
            yield match["blob"].decode(), answer[at : at + size]
            at += size + 1


def read_version(project: Project, commit: str, path: str) -> tuple[str, bytes] | None:
    """The commit that a name means, and a file as it was there; None where either is not there."""
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    full = (_run_git(project.root, *asked) or b"").decode().strip()
    data = _run_git(project.root, "cat-file", "blob", f"{full}:./{path}") if full else None
    return None if data is None else (full, data)


def load_reasons(project: Project, snippet: str) -> dict[tuple[str, str], str]:
    """The reasons of a snippet by key and date of a record; ShelfError if malformed."""
    path = project.snippets / snippet / SLOWER_FILE
    if not path.is_file():
        return {}
    import yaml  # takes a while, and hardly any snippet has such a file

    line = None
    try:
        rows = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) or []  # dates stay text
        wrong = files.shape_problem(rows, ROWS, "slower")
    except (OSError, UnicodeDecodeError) as error:
        wrong = f"cannot be read: {error}"
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        wrong, line = "is not YAML", mark and mark.line + 1
    if wrong:
        raise file_error(project.relative_path(path), wrong, MEND, line)
    return {(row["record"], row["date"]): row["because"] for row in rows}


def add_reason(project: Project, snippet: str, key: str, date: str, because: str) -> Path:
    """Note why the record of `key` and `date` is slower; return the file's path."""
    import yaml

    reasons = {**load_reasons(project, snippet), (key, date): because}
    rows = [
        dict(zip(ROWS[0], (*which, why), strict=True)) for which, why in sorted(reasons.items())
    ]
    path = project.snippets / snippet / SLOWER_FILE
    text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=88)
    files.write_atomically(path, text)
    return path


def history_fingerprint(project: Project) -> str:
    """What changes with the history of the records that there are; empty without any of a GPU."""
    if not _present_records(project):
        return ""
    return hashlib.sha256(repr(_read_log(project.root)).encode()).hexdigest()


def read_history(
    project: Project, ids: Collection[str] | None = None, newest: int | None = None
) -> History:
    """The history of every record that lies in the checkout; of all snippets unless told which.

    Of the snippets in `ids` records are found as well that only version control has. With `newest`
    no more than so many versions of each are read.
    """
    here = _present_records(project)
    if ids is None and not here:
        return History()
    log = _read_log(project.root)
    steps = _parse_log(log[0]) if log else {}
    places = here if ids is None else {place for place in (*here, *steps) if place[0] in ids}
    wanted = {place: steps.get(place, [])[:newest] for place in sorted(places)}
    asked = "".join(sorted({f"{blob}\n" for own in wanted.values() for _, blob, _ in own}))
    answer = asked and _run_git(project.root, "cat-file", "--batch", given=asked.encode())
    texts = dict(_parse_objects(answer or b""))
    known: dict[Place, list[Version]] = {}
    damaged: dict[Place, list[str]] = {}
    for place, own in wanted.items():
        reasons: Mapping[tuple[str, str], str] = {}
        with suppress(ShelfError):  # a finding of its own
            reasons = load_reasons(project, place[0])
        rows: list[tuple[bytes, str | None, str]] = [
            (texts.get(blob, b""), commit, path) for commit, blob, path in reversed(own)
        ]
        if place in here:
            rows.append((here[place].read_bytes(), None, project.relative_path(here[place])))
        versions: list[Version] = []
        for data, commit, path in rows:
            record = parse_kept(data)
            if isinstance(record, str):
                if commit:  # else it is a finding on the file itself
                    damaged.setdefault(place, []).append(f"{commit[:12]}: {record}")
            elif versions and _measured_part(versions[-1].record) == _measured_part(record):
                versions[-1] = versions[-1]._replace(record=record)  # its words alone are other
            else:
                slower = reasons.get((place[1], record["date"]), "")
                versions.append(Version(record, commit, path, slower))
        if versions:
            known[place] = versions
    remarks = [UNVERSIONED] if log is None else [SHALLOW] if log[1] else []
    return History(known, damaged, frozenset(here), tuple(remarks))


def _measured_part(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in ABOUT}


def parse_kept(data: bytes) -> Record | str:
    """What is kept of a record as it was written, or why nothing is."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return "is not the JSON of a record" if data else "is missing from this clone"
    if not isinstance(value, dict):
        return "is not a record"
    try:
        value = store.restore_rows(value)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        return f"has rows that do not fit its columns: {error}"
    record: dict[str, Any] = {key: value[key] for key in KEPT if key in value}
    if isinstance(record.get("cases"), list):
        record["cases"] = [
            case for case in record["cases"] if not isinstance(case, dict) or case.get("timed")
        ]
    if wrong := files.shape_problem(record, SHAPE, "record"):
        return wrong
    for _, result in timed_results(record):
        time = result["time"]
        if not 0 < time["p20"] <= time["median"] <= time["p80"]:
            return f"{result['name']!r} has no possible time: {time}"
    return record


def slower_results(before: Record, after: Record) -> list[TimeDifference]:
    """Where our variants, not a library, take longer than before, beyond the spread of both."""
    if before["machine"]["gpus"] != after["machine"]["gpus"]:
        return []
    found = store.time_differences(before, after)
    return [one for one in found if one.role == "variant" and one.factor > 1]
