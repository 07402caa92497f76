"""The calculators of a site: their fragments, and the files that a browser runs them with."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpshelf.contract import pictures
from warpshelf.core import places
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.live import form, runtime
from warpshelf.live.runtime import CalculatorSpec
from warpshelf.readings.model import Shelf
from warpshelf.render.snippet_page import SnippetPage

INCLUDE = re.compile(r'^\s*-{1,}8<-{1,}\s+"calculators/(?P<id>[a-z][a-z0-9_]*)\.md"', re.M)
WITHHELD = (
    '<p class="ws-absent">The calculator is withheld: its model could not be run when this page '
    "was built.</p>\n"
)


@dataclass(frozen=True)
class RenderedCalculators:
    """The fragments by name, the files for the browser by name, and what was found wrong."""

    fragments: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def calculator_pages(written: Mapping[str, Page]) -> dict[str, str]:
    """The page, such as `calculators/memory.md`, that shows each calculator."""
    return {
        match["id"]: f"{page.where}.md"
        for page in written.values()
        for match in INCLUDE.finditer(page.text)
    }


def render_calculators(
    project: Project, written: Mapping[str, Page], shelf: Shelf, shown: Sequence[SnippetPage],
    snippet_pages: Mapping[str, str],
) -> RenderedCalculators:  # fmt: skip
    """Every calculator that a page shows, with the results of its defaults."""
    where = calculator_pages(written)
    there = [name for name in runtime.list_calculators(project) if name in where]
    made = RenderedCalculators()
    contexts: dict[str, dict[str, Any]] = {}
    described = runtime.describe_calculators(project, there)
    exhibits = {one.id: one for one in shown}
    for name, one in described.items():
        path = f"snippets/{name}/{runtime.CALCULATOR}"
        made.findings.extend(Finding(path, None, fault, "mend it") for fault in one.faults)
        made.fragments[f"calculators/{name}.md"] = WITHHELD
        if one.faults or name not in exhibits:
            continue
        contexts[name] = calculator_context(project, exhibits[name], shelf, snippet_pages.get(name))
        made.findings.extend(_unknown_references(path, one, exhibits[name], contexts[name]))
    if not contexts:
        return made
    text = runtime.models_text(project, contexts)
    made.files[runtime.models_name(text)] = text
    files = runtime_addresses(project, runtime.models_name(text))
    packed = runtime.cached_runtime(project)
    weight = runtime.transfer_bytes(packed) if packed else 0
    for name in contexts:
        root = places.OnPage(where[name]).relative_link("/index.md")
        one = described[name]
        made.fragments[f"calculators/{name}.md"] = form.render_calculator(
            name, one.inputs, one.result, contexts[name], root, files, weight
        )
    return made


def runtime_addresses(project: Project, models: str) -> dict[str, str]:
    """Where a browser finds what it runs, below the site's address; nothing without Pyodide."""
    found = runtime.cached_runtime(project)
    return {"models": f"runtime/{models}", "python": f"runtime/{found.name}/"} if found else {}


def calculator_context(
    project: Project, exhibit: SnippetPage, shelf: Shelf, page: str | None
) -> dict[str, Any]:
    """What the answers of a calculator link to, and how far its predictions were off."""
    files = runtime.model_files(project, exhibit.id).values()
    texts = [path.read_text(encoding="utf-8") for path in files]
    sources = {
        name: [reading.title, _site_address(reading.target)]
        for name, reading in sorted(shelf.readings.items())
        if any(f'"{name}"' in text for text in texts)
    }
    return {"sources": sources, "bands": error_bands(exhibit), "page": page and _site_address(page)}


def _site_address(target: str) -> str:
    """The address below the site's own of a docs-absolute link."""
    page, mark, anchor = target.lstrip("/").partition("#")
    return f"{places.page_address(page)}{mark}{anchor}"


def error_bands(exhibit: SnippetPage) -> dict[str, dict[str, float]]:
    """The errors of a model's predictions by data set, of rows that no constant was fitted on."""
    records = [
        state.record for state in exhibit.select_states("measured", "verified") if state.record
    ]
    rows: list[dict[str, Any]] = next(
        (record["predictions"] for record in records if "predictions" in record), []
    )
    return {
        one.name: _error_band(sorted(one.errors))
        for one in pictures.errors_by_set(rows)
        if one.errors
    }


def _error_band(errors: Sequence[float]) -> dict[str, float]:
    """How many there are, and what half, nine in ten and all of them stay within."""
    half, most = (math.ceil(share * len(errors)) for share in (0.5, 0.9))
    return {
        "count": len(errors),
        "half": errors[half - 1],
        "most": errors[most - 1],
        "worst": errors[-1],
    }


def _unknown_references(
    path: str, one: CalculatorSpec, exhibit: SnippetPage, around: Mapping[str, Any]
) -> Iterator[Finding]:
    """Lines of the defaults' result whose test or source is not there."""
    facts = {
        fact["name"]
        for state in exhibit.select_states("measured", "verified")
        for key in ("facts", "predictions", "goals")
        for fact in (state.record or {}).get(key, ())
    }
    for row in one.result["rows"]:
        if facts and row["test"] not in facts:
            what = f"the line {row['name']!r} names the fact {row['test']!r}, which is none"
            yield Finding(path, None, what, "name a fact of cases.py")
        if row["source"] not in around["sources"]:
            what = f"the line {row['name']!r} has the source {row['source']!r}, which is no reading"
            yield Finding(path, None, what, "name the id of a reading in docs/")


def publish_runtime(project: Project, files: Mapping[str, str]) -> int:
    """Lay the files for the browser where the site serves them; how many were changed."""
    target = project.published_runtime
    changed = sum(
        write_atomically(target / name, text, durable=False) for name, text in files.items()
    )
    due = {target / name for name in files}
    found = runtime.cached_runtime(project) if files else None
    for path in sorted(found.iterdir()) if found else ():
        place = target / found.name / path.name if found else path
        due.add(place)
        if not (place.is_file() and place.read_bytes() == path.read_bytes()):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            changed += 1
    return changed + _remove_stale(target, due)


def _remove_stale(folder: Path, due: set[Path]) -> int:
    """Remove what is no longer due."""
    removed = 0
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path not in due:
            path.unlink()
            removed += 1
    return removed
