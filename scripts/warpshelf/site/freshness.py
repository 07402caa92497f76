"""Whether the last rendering, check and build are those of the present sources, by their bytes.

A note in .shelf/ has one digest of everything that a rendering reads (pages, lists, snippets with
their records and earlier versions of these, settings, the ledger, the tooling itself) and one of
everything that it wrote. Only where both are as they were is the rendering skipped. Another note
has what a check read and found, and the day, since no reading may be of tomorrow. Files are
compared by their bytes, never by their dates; a note that is missing, damaged or of another version
is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from warpshelf.core import files
from warpshelf.core.files import dump_json, write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project
from warpshelf.live import runtime
from warpshelf.records import history

MAKES = re.compile("mkdocs|zensical|markdown$|pymdown|pygments|jinja2", re.IGNORECASE)
SHOWN = (".py", ".cu", ".cuh", ".h")  # what pages include of snippets
READ = (".md", ".yml", ".yaml", ".json")  # what a rendering reads below docs/
BUILT = {"inputs": str, "site": str, "outputs": str}
LINE = (int, type(None))
SHAPE: dict[str, Any] = {
    "inputs": str,
    "outputs": str,
    "findings": [{"path": str, "line": LINE, "what": str, "mend": str}],
}


CHECKED = {"inputs": str, "findings": SHAPE["findings"], "remarks": [str]}


def cached_check(project: Project) -> tuple[list[Finding], list[str]]:
    """What a check finds, and its remarks: as noted where all is as it was, or else anew."""
    inputs = _check_digest(project)
    note = _note_path(project, "checked")
    known = _read_note(note, CHECKED)
    if inputs is not None and known is not None and known["inputs"] == inputs:
        return [Finding(**finding) for finding in known["findings"]], known["remarks"]
    from warpshelf.site import inspection  # not before: it takes longer than a check with a note

    findings, remarks = inspection.inspect_project(project)
    if inputs is not None:
        found = [finding.__dict__ for finding in findings]
        text = dump_json({"inputs": inputs, "findings": found, "remarks": remarks})
        write_atomically(note, text, durable=False)
    return findings, remarks


def _check_digest(project: Project) -> str | None:
    """The digest of all that a check reads, and of the names of what pages may embed."""
    here = source_digest(project)
    mutants = _walk_files(project.root / "tests" / "snippets" / "mutants")
    more = _hash_files((*mutants, project.root / ".vscode" / "settings.json"))
    if here is None or more is None:
        return None
    docs = _walk_files(project.docs, _published_folders(project))
    names = sorted(os.fspath(path) for path in (*docs, *_walk_files(project.recipes)))
    today = datetime.now(UTC).date().isoformat()
    whole = "\0".join((here, more, today, *names))
    return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()


def source_digest(project: Project) -> str | None:
    """The digest of all that a rendering reads; None where a file cannot be read."""
    written = {*_published_folders(project)}
    docs = (path for path in _walk_files(project.docs, written) if path.suffix in READ)
    tooling = (path for path in _walk_files(Path(__file__).parents[1]) if path.suffix == ".py")
    own = (
        project.root / "mkdocs.yml",
        project.ledger,
        runtime.runtime_dir(project) / runtime.MANIFEST,
    )
    return _hash_files(
        (*own, *docs, *_walk_files(project.snippets), *tooling),
        history.history_fingerprint(project),
    )


def output_digest(project: Project) -> str | None:
    """The digest of all that a rendering writes; None where a file cannot be read."""
    folders = (project.fragments, *_published_folders(project))
    inner = (path for folder in folders for path in _walk_files(folder))
    return _hash_files((project.docs / "llms.txt", *inner))


def _published_folders(project: Project) -> tuple[Path, ...]:
    """The folders below docs/ that a rendering fills."""
    views, records = project.published_views, project.published_records
    return records, project.published_sources, views, project.exports, project.published_runtime


def recall_findings(project: Project, inputs: str | None) -> list[Finding] | None:
    """What the last rendering found wrong, if it was of `inputs` and its files are whole."""
    note = _read_note(_note_path(project), SHAPE)
    if inputs is None or note is None or note["inputs"] != inputs:
        return None
    if note["outputs"] != output_digest(project):
        return None
    return [Finding(**finding) for finding in note["findings"]]


def remember_findings(project: Project, inputs: str | None, findings: Iterable[Finding]) -> None:
    """Note that the files are now those of `inputs`."""
    outputs = output_digest(project)
    if inputs is None or outputs is None:
        _note_path(project).unlink(missing_ok=True)
        return
    found = [finding.__dict__ for finding in findings]
    note = dump_json({"inputs": inputs, "outputs": outputs, "findings": found})
    write_atomically(_note_path(project), note, durable=False)


def _read_note(note: Path, shape: dict[str, Any]) -> dict[str, Any] | None:
    try:
        read: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return None if files.shape_problem(read, shape, "note") else read


def builder_digest(builder: str, project: Project) -> str | None:
    """The digest of all that a builder makes the site from; None where it cannot be told."""
    settings = project.root / "mkdocs.yml"
    if b"!ENV" in settings.read_bytes():
        return None
    found = (one for one in distributions() if MAKES.match(one.metadata["Name"] or ""))
    makers = sorted(f"{one.metadata['Name']} {one.version}" for one in found)
    folders = (project.docs, project.fragments, project.root / "scripts" / "recipes")
    sources = (path for path in _walk_files(project.snippets) if path.suffix in SHOWN)
    inner = (path for folder in folders for path in _walk_files(folder))
    return _hash_files((settings, *inner, *sources), " ".join((builder, *makers)))


def is_built(project: Project, target: Path, inputs: str | None) -> bool:
    """Whether `target` is whole and what was last built into it, from `inputs`."""
    note = _read_note(_note_path(project, "built"), BUILT)
    if inputs is None or note is None:
        return False
    return bool(note == {"inputs": inputs, "site": str(target), "outputs": _site_digest(target)})


def remember_built(project: Project, target: Path, inputs: str | None) -> None:
    """Note that `target` is now what a builder made of `inputs`."""
    note = {"inputs": inputs, "site": str(target), "outputs": _site_digest(target)}
    write_atomically(_note_path(project, "built"), dump_json(note), durable=False)


def _site_digest(target: Path) -> str:
    return _hash_files(_walk_files(target)) or ""


def _note_path(project: Project, of: str = "rendered") -> Path:
    return project.ledger.with_name(f"{of}.json")


def _walk_files(folder: Path, but: Iterable[Path] = ()) -> Iterator[Path]:
    left_out = {os.fspath(path) for path in but}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and os.path.join(place, name) not in left_out
        )
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(place, name)


def _hash_files(paths: Iterable[Path], more: str = "") -> str | None:
    total = hashlib.sha256(f"{sys.version}\0{more}\0".encode())
    for path in paths:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b"absent"  # the ledger of a new checkout, say
        except OSError:
            return None
        total.update(f"{path}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        total.update(content)
    return total.hexdigest()
