"""Whether the last rendering, check and build still match the sources, by digest.

A note in .shelf/ has one digest of all that was read (pages, lists, snippets with their records and
earlier versions of these, settings, the ledger, the tooling itself) and one of all that was
written. The work is skipped only if both are unchanged. A check counts the day as well, since no
reading may be dated tomorrow. A damaged note counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from warpshelf.core.files import dump_json, shape_problem, write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.project import LIST, Project, is_made
from warpshelf.live import runtime
from warpshelf.records import history

MAKES = re.compile("mkdocs|zensical|markdown$|pymdown|pygments|jinja2", re.IGNORECASE)
SHOWN = (".py", ".cu", ".cuh", ".h")  # what pages include of snippets
ENGINE = Path(__file__).parents[2] / "papergpu"  # decodes what a page runs, and runs it there
READ = (".md", ".yml", ".yaml", ".json")  # what a rendering reads below docs/
FINDINGS = [{"path": str, "line": (int, type(None)), "what": str, "mend": str}]
SHAPES: dict[str, dict[str, Any]] = {  # of the notes
    "rendered": {"inputs": str, "outputs": str, "findings": FINDINGS},
    "checked": {"inputs": str, "findings": FINDINGS, "remarks": [str]},
    "built": {"inputs": str, "site": str, "outputs": str},
}


def read_note(project: Project, of: str, inputs: str | None) -> dict[str, Any] | None:
    """The note of a rendering, a check or a build of `inputs`; None if there is none."""
    try:
        note: dict[str, Any] = json.loads(project.ledger.with_name(f"{of}.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return None if shape_problem(note, SHAPES[of], of) or note["inputs"] != inputs else note


def write_note(
    project: Project, of: str, inputs: str | None, findings: Iterable[Finding] = (), **more: Any
) -> None:
    """Note the results of `inputs`; nothing if a digest is None because a file cannot be read."""
    path = project.ledger.with_name(f"{of}.json")
    if inputs is None or None in more.values():
        path.unlink(missing_ok=True)
        return
    told = {"findings": [asdict(one) for one in findings]} if "findings" in SHAPES[of] else {}
    write_atomically(path, dump_json({"inputs": inputs, **told, **more}), durable=False)


def cached_check(project: Project) -> tuple[list[Finding], list[str]]:
    """What a check finds, and its remarks: from the note if nothing changed, else checked again."""
    inputs = _check_digest(project)
    if known := read_note(project, "checked", inputs):
        return [Finding(**finding) for finding in known["findings"]], known["remarks"]
    from warpshelf.site import inspection  # not before: it takes longer than a check with a note

    findings, remarks = inspection.inspect_project(project)
    write_note(project, "checked", inputs, findings, remarks=remarks)
    return findings, remarks


def _check_digest(project: Project) -> str | None:
    """The digest of all that a check reads, and of the names of what pages may embed."""
    docs = _walk_files(project.docs, project.published)
    docs = (path for path in docs if not is_made(path))
    names = sorted(os.fspath(path) for path in (*docs, *_walk_files(project.recipes)))
    mutants = _walk_files(project.root / "tests" / "snippets" / "mutants")
    today, sources = datetime.now(UTC).date().isoformat(), source_digest(project)
    paths = (*mutants, project.root / ".vscode" / "settings.json")
    return sources and _hash_files(paths, "\0".join((sources, today, *names)))


def source_digest(project: Project) -> str | None:
    """The digest of all that a rendering reads; None where a file cannot be read."""
    docs = _walk_files(project.docs, project.published)
    python = runtime.runtime_dir(project) / runtime.MANIFEST
    paths = (
        project.root / "mkdocs.yml",
        project.ledger,
        python,
        *(path for path in docs if path.suffix in READ and not is_made(path)),
        *_walk_files(project.snippets),
        *(
            path
            for room in (Path(__file__).parents[1], ENGINE)
            for path in _walk_files(room)
            if path.suffix in (".py", ".html", ".js", ".xz")
        ),
    )
    return _hash_files(paths, history.history_fingerprint(project))


def output_digest(project: Project) -> str | None:
    """The digest of all that a rendering writes; None where a file cannot be read."""
    folders = (project.fragments, *project.published)
    inner = (path for folder in folders for path in _walk_files(folder))
    lists = sorted(filter(is_made, project.docs.rglob(f"{LIST}.md")))
    return _hash_files((project.docs / "llms.txt", *lists, *inner))


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


def hash_folder(folder: Path) -> str:
    """The digest of a folder's files; empty where one cannot be read."""
    return _hash_files(_walk_files(folder)) or ""


def _walk_files(folder: Path, but: Iterable[Path] = ()) -> Iterator[Path]:
    left_out = {os.fspath(path) for path in but}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and os.path.join(place, name) not in left_out
        )
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


def _hash_files(paths: Iterable[Path], more: str = "") -> str | None:
    total = hashlib.sha256(f"{sys.version}\0{more}\0".encode("utf-8", "surrogateescape"))
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
