"""What may be shown of each snippet: its state on each machine, its code, its readings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from warpshelf import record
from warpshelf.findings import Finding
from warpshelf.fragments import Exhibit, MachineState
from warpshelf.ledger import Ledger
from warpshelf.machine import CPU
from warpshelf.project import Project
from warpshelf.readings import Shelf
from warpshelf.snippet import Snippet

INCLUDE = re.compile(r'^\s*-{1,}8<-{1,}\s+"(?P<id>[a-z][a-z0-9_]*)/(?P<piece>[a-z]+)\.md"', re.M)


def state_of(snippet: Snippet, found: dict, ledger: Ledger) -> MachineState:
    """What a record, and what this checkout has seen since, allow a page to claim."""
    slug = found["machine"]["slug"]
    if failure := ledger.failure(snippet.id, slug, snippet.digest):
        return MachineState(found, "failed", slug, failure)
    if found["digest"] != snippet.digest:
        return MachineState(found, "stale", slug)
    if found["machine"]["gpus"]:
        return MachineState(found, "measured", slug)
    if found.get("facts") or any(
        result["role"] == "variant" and result["verdict"] == "passed"
        for case in found.get("cases", ())
        for result in case["results"]
    ):
        return MachineState(found, "verified", slug)
    reasons = [skip["reason"] for skip in found.get("skips", ())]
    return MachineState(found, "compiled", slug, "; ".join(dict.fromkeys(reasons)))


def states(snippet: Snippet, ledger: Ledger) -> tuple[list[MachineState], list[Finding]]:
    """The state of a snippet on every machine that is known, and the faults of its records."""
    if snippet.findings:
        first = str(snippet.findings[0])
        return [MachineState(None, "failed", CPU, first)], list(snippet.findings)
    records, findings = record.load_all(snippet)
    known = [state_of(snippet, found, ledger) for found in records.values()]
    for slug in ledger.machines(snippet.id):
        failure = ledger.failure(snippet.id, slug, snippet.digest)
        if slug not in records and failure:
            known.append(MachineState(None, "failed", slug, failure))
    if not any(state.machine == CPU for state in known):
        why = snippet.cannot_run(None, 0) or ""
        known.append(MachineState(None, "not measured", CPU, why))
    return known, findings


def code(snippet: Snippet) -> list[tuple[str, str, str, str]]:
    """The listings of a snippet: (tab, language, file name, text), Triton or CUDA C++ first."""
    if snippet.findings:
        return []
    label = "Triton" if snippet.uses_triton else "Python"
    listings = [(label, "python", snippet.path.name, _text(snippet.path))]
    if snippet.cuda_path is not None:
        cuda = ("CUDA C++", "cuda", snippet.cuda_path.name, _text(snippet.cuda_path))
        listings.insert(1 if snippet.uses_triton else 0, cuda)
    return listings


def _text(path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace")


def exhibit(
    snippet: Snippet, shelf: Shelf, targets: Mapping[str, str], ledger: Ledger
) -> tuple[Exhibit, list[Finding]]:
    """All that the page of `snippet` shows, and what was found wrong on the way."""
    known, findings = states(snippet, ledger)
    sources = [
        (shelf.readings[name].title, targets[name]) if name in shelf.readings else (name, None)
        for name in snippet.sources
    ]
    return (
        Exhibit(
            id=snippet.id,
            kind=snippet.kind,
            title=snippet.title or snippet.id,
            sections=snippet.sections,
            code=code(snippet),
            sources=sources,
            needs=snippet.needs,
            states=known,
        ),
        findings,
    )


def pages(project: Project, ids: Iterable[str]) -> dict[str, str]:
    """The docs-absolute link of each snippet that a page embeds; its whole before its parts."""
    known = set(ids)
    found: dict[str, tuple[bool, str]] = {}
    for page in sorted(project.docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8", errors="replace")
        where = "/" + page.relative_to(project.docs).as_posix()
        for match in INCLUDE.finditer(text):
            whole = match["piece"] in ("whole", "idea")
            name = match["id"]
            if name in known and (name not in found or (whole and not found[name][0])):
                found[name] = (whole, where)
    return {
        name: f"{where}#snippet-{name}" if whole else where
        for name, (whole, where) in found.items()
    }
