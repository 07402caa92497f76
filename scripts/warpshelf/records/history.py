"""How the times of a record changed: its earlier versions, newest last, and what is slower now.

Enters: the records of GPUs in a checkout and in its version control. Leaves: for each what a
comparison needs of every version. Where nothing of a GPU is on record, git is not even asked; else
one `git log` and one `git cat-file` read all there is, however many commits there are. The line of
first parents is followed, so a branch that was merged counts as one step.

Why a record may be slower than the one before it, a person says in slower.yml beside a snippet,
apart from what machines wrote: a record stays byte for byte what its machine made and, where a job
made it, what the job signed. Each reason names its record by key and date, so words about one
measurement never excuse the next.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.digest import SLOWER_FILE
from warpshelf.contract.snippet import ID
from warpshelf.core import files, project
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import store
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import DATE, RECORD, Record
from warpshelf.records.store import TimeDifference, key_slug

RECORDS = (":(glob)snippets/*/results/*.json", f":(exclude,glob)snippets/*/results/{CPU}.json")
COMMIT = "commit "
RAW = re.compile(r":\d+ \d+ [0-9a-f]+ (?P<blob>[0-9a-f]+) (?P<what>[A-Z])\d*\t(?P<paths>.+)")
PLACE = re.compile(r"snippets/(?P<id>[^/]+)/results/(?P<key>[^/]+)\.json")
OBJECT = re.compile(rb"(?P<blob>[0-9a-f]+) blob (?P<size>\d+)")

Place = tuple[str, str]  # the id of a snippet and the key of a record


class FileVersion(NamedTuple):
    """A version of a file: the commit that put it there, its blob, and its path back then."""

    commit: str
    blob: str
    path: str


class RecordLog(NamedTuple):
    """The versions of every record, newest first; `shallow` where the clone lacks older ones."""

    steps: Mapping[Place, list[FileVersion]]
    shallow: bool
    text: str  # that it was read from


def record_place(path: str) -> Place | None:
    """The snippet and the key whose record a path is; None for any other file, and for a CPU's."""
    match = PLACE.fullmatch(path)
    if not match or not ID.fullmatch(match["id"]) or key_slug(match["key"]) in (None, CPU):
        return None
    return match["id"], match["key"]


def present_records(project: Project) -> dict[Place, Path]:
    """The records of GPUs that lie in the checkout."""
    found = {}
    for path in sorted(project.snippets.glob("*/results/*.json")):
        if place := record_place(project.relative_path(path)):
            found[place] = path
    return found


def read_log(project: Project) -> RecordLog | None:
    """What version control knows of the records of GPUs; None where there is none."""
    words = ("log", "--first-parent", "-m", "--raw", "--no-abbrev", "--find-renames", "--relative")
    text = _run_git(project.root, *words, f"--format={COMMIT}%H", "--", *RECORDS)
    if text is None:
        return None
    said = _run_git(project.root, "rev-parse", "--is-shallow-repository")
    told = text.decode("utf-8", "replace")
    return RecordLog(_parse_log(told), (said or b"").strip() == b"true", told)


def _parse_log(text: str) -> dict[Place, list[FileVersion]]:
    steps: dict[Place, list[FileVersion]] = {}
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
            steps.setdefault(place, []).append(FileVersion(commit, match["blob"], path))
            if match["what"] == "R" and _is_rename(old, path):
                now[old] = place
                now.pop(path, None)
    return steps


def _is_rename(old: str, new: str) -> bool:
    """Whether a snippet was renamed: its record has the same key in another folder."""
    before, after = record_place(old), record_place(new)
    return before is not None and after is not None and before[1] == after[1]


def read_blobs(project: Project, blobs: Iterable[str]) -> dict[str, bytes]:
    """The bytes of blobs; one that this clone lacks is left out."""
    asked = "".join(f"{blob}\n" for blob in dict.fromkeys(blobs))
    if not asked:
        return {}
    return dict(
        _parse_objects(_run_git(project.root, "cat-file", "--batch", given=asked.encode()) or b"")
    )


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


def _run_git(root: Path, *words: str, given: bytes = b"") -> bytes | None:
    """What git prints; None where it fails, or is not there."""
    settings = ("-c", "core.quotePath=false", "-c", "log.diffMerges=separate")
    return project.run_git(root, *settings, *words, given=given)


Reasons = Mapping[tuple[str, str], str]  # by the key and the date of a record

ROWS = [{"record": str, "date": DATE, "because": str}]
MEND = "write `record`, `date` and `because` of each, or let `shelf history ID --because` do it"


def reasons_path(project: Project, snippet: str) -> Path:
    """Where the reasons of a snippet stand."""
    return project.snippets / snippet / SLOWER_FILE


def load_reasons(project: Project, snippet: str) -> Reasons:
    """The reasons of a snippet; none where there is no file.

    Raises:
        ShelfError: the file is no list of them.
    """
    path = reasons_path(project, snippet)
    if not path.is_file():
        return {}
    import yaml  # takes a while, and hardly any snippet has such a file

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _reasons_error(project, path, None, f"cannot be read: {error}") from None
    try:
        rows = yaml.load(text, yaml.BaseLoader)  # dates stay text
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise _reasons_error(project, path, mark and mark.line + 1, "is not YAML") from None
    if wrong := files.shape_problem(rows or [], ROWS, "slower"):
        raise _reasons_error(project, path, None, wrong)
    return {(row["record"], row["date"]): row["because"] for row in rows or []}


def add_reason(project: Project, snippet: str, key: str, date: str, because: str) -> Path:
    """Write down why the record of `key` and `date` is slower; the file's path.

    Raises:
        ShelfError: the file that is there is no list of reasons.
    """
    import yaml

    reasons = {**load_reasons(project, snippet), (key, date): because}
    rows = [
        {"record": record, "date": made, "because": words}
        for (record, made), words in sorted(reasons.items())
    ]
    path = reasons_path(project, snippet)
    write_atomically(path, yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=88))
    return path


def _reasons_error(project: Project, path: Path, line: int | None, what: str) -> ShelfError:
    return ShelfError(Finding(project.relative_path(path), line, what, MEND))


# What is kept of a version. Other parts may have been shaped in other ways at their time.
KEPT = (
    "snippet", "digest", "date", "commit", "method", "machine", "origin", "cases", "ceilings",
    "conditions",
)  # fmt: skip
SHAPE = {key: shape for key, shape in RECORD.items() if key.rstrip("?") in KEPT}
ABOUT = ("origin", "commit")  # a change of these alone is no other measurement
NEWEST = 4  # versions that surely hold the last two measurements: words about one make another
SHALLOW = (
    "this clone lacks older commits, and what they had is not in it; "
    "`git fetch --unshallow` brings it"
)
UNVERSIONED = "git knows nothing of this checkout, so what was measured before is not known"


class Version(NamedTuple):
    """A measurement: what is kept of its record, the commit that put it in place, its path then.

    Before it is committed, `commit` is None. `slower` says why it may be slower than before.
    """

    record: Record
    commit: str | None
    path: str
    slower: str = ""


@dataclass(frozen=True)
class History:
    """The versions of each record of a GPU, newest last, and what is not known of them."""

    of: Mapping[Place, Sequence[Version]] = field(default_factory=dict)
    damaged: Mapping[Place, Sequence[str]] = field(default_factory=dict)
    here: frozenset[Place] = frozenset()  # of which a record lies in the checkout
    shallow: bool = False
    versioned: bool = True

    def missing_remarks(self) -> list[str]:
        """What is missing from all of it, in words."""
        return [
            *([] if self.versioned else [UNVERSIONED]),
            *([SHALLOW] if self.shallow else []),
        ]


def history_fingerprint(project: Project) -> str:
    """What changes with the history of the records that there are; empty without any of a GPU."""
    if not present_records(project):
        return ""
    found = read_log(project)
    told = "none" if found is None else f"{found.shallow} {found.text}"
    return hashlib.sha256(told.encode()).hexdigest()


def read_history(
    project: Project, ids: Collection[str] | None = None, newest: int | None = None
) -> History:
    """The history of every record that lies in the checkout; of all snippets unless told which.

    Of the snippets in `ids` records are found as well that only version control has. With `newest`
    no more than so many versions of each are read.
    """
    here = present_records(project)
    if ids is None and not here:
        return History()
    found = read_log(project)
    steps = dict(found.steps) if found else {}
    every = {*here, *steps}
    places = set(here) if ids is None else {place for place in every if place[0] in ids}
    wanted = {place: steps.get(place, [])[:newest] for place in sorted(places)}
    texts = read_blobs(project, (step.blob for own in wanted.values() for step in own))
    known: dict[Place, list[Version]] = {}
    damaged: dict[Place, list[str]] = {}
    for place, own in wanted.items():
        known[place] = []
        for step in reversed(own):
            record = parse_kept(texts.get(step.blob, b""))
            if isinstance(record, str):
                damaged.setdefault(place, []).append(f"{step.commit[:12]}: {record}")
            else:
                _add_version(known[place], Version(record, step.commit, step.path))
        if place in here:
            record = parse_kept(here[place].read_bytes())
            if not isinstance(record, str):  # else it is a finding on the file itself
                _add_version(
                    known[place], Version(record, None, project.relative_path(here[place]))
                )
    return History(
        {place: _attach_reasons(project, place, own) for place, own in known.items() if own},
        damaged,
        frozenset(here),
        found is not None and found.shallow,
        found is not None,
    )


def _attach_reasons(project: Project, place: Place, own: list[Version]) -> list[Version]:
    """Versions with the words that people have put beside them."""
    try:
        found = load_reasons(project, place[0])
    except ShelfError:
        return own  # a finding of its own
    key = place[1]
    return [one._replace(slower=found.get((key, one.record["date"]), "")) for one in own]


def _add_version(known: list[Version], version: Version) -> None:
    """Add a version, or where it is of the same measurement as the last, take its words over."""
    if known and _measured_part(known[-1].record) == _measured_part(version.record):
        known[-1] = known[-1]._replace(record=version.record)
    else:
        known.append(version)


def _measured_part(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in ABOUT}


def parse_kept(data: bytes) -> Record | str:
    """What is kept of a record as it was written, or why nothing can be."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return "is not the JSON of a record" if data else "is not in this clone"
    if not isinstance(value, dict):
        return "is no record"
    record: dict[str, Any] = {key: value[key] for key in KEPT if key in value}
    if isinstance(record.get("cases"), list):
        record["cases"] = [
            case for case in record["cases"] if not isinstance(case, dict) or case.get("timed")
        ]
    if wrong := files.shape_problem(record, SHAPE, "record"):
        return wrong
    return next(_impossible_times(record), record)


def _impossible_times(record: Record) -> Iterator[str]:
    for case in record.get("cases", ()):
        for result in case["results"]:
            time = result.get("time")
            if time and not 0 < time["p20"] <= time["median"] <= time["p80"]:
                yield f"{result['name']!r} has no possible time: {time}"


def slower_results(before: Record, after: Record) -> list[TimeDifference]:
    """Where our variants take longer than in the record before, by more than the spread of both.

    A library that became slower is not ours to mend.
    """
    if before["machine"]["gpus"] != after["machine"]["gpus"]:
        return []
    return [
        one
        for one in store.time_differences(before, after)
        if one.role == "variant" and one.factor > 1
    ]
