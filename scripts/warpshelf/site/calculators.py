"""The calculators of a site: their fragments, and the files that a browser runs them with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpshelf.contract import pictures
from warpshelf.core import places
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


def render_calculators(
    project: Project, written: Mapping[str, Page], shelf: Shelf, shown: Sequence[SnippetPage],
    snippet_pages: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str | bytes], list[Finding]]:  # fmt: skip
    """Every calculator that a page shows, with the results of its defaults.

    Returns the fragments by name, the files for the browser by name, and what was found wrong.
    """
    where = {  # the page that shows each, such as calculators/memory.md
        match["id"]: f"{page.where}.md"
        for page in written.values()
        for match in INCLUDE.finditer(page.text)
    }
    there = [name for name in runtime.list_calculators(project) if name in where]
    fragments = {f"calculators/{name}.md": WITHHELD for name in there}
    findings: list[Finding] = []
    contexts: dict[str, dict[str, Any]] = {}
    described = runtime.describe_calculators(project, there)
    models = {page.id: page for page in shown}
    for name, one in described.items():
        path = f"snippets/{name}/{runtime.CALCULATOR}"
        findings.extend(Finding(path, None, fault, "mend it") for fault in one.faults)
        if not one.faults and name in models:
            texts = [
                file.read_text("utf-8") for file in runtime.model_files(project, name).values()
            ]
            link = snippet_pages.get(name)
            contexts[name] = {  # what its answers link to, and how far its predictions were off
                "sources": {
                    id_: [reading.title, _site_address(reading.target)]
                    for id_, reading in sorted(shelf.readings.items())
                    if any(f'"{id_}"' in text for text in texts)
                },
                "bands": error_bands(models[name]),
                "page": link and _site_address(link),
            }
            sources = contexts[name]["sources"]
            findings.extend(_unknown_references(path, one, models[name], sources))
    if not contexts:
        return fragments, {}, findings
    text = runtime.models_text(project, contexts)
    file = runtime.models_name(text)
    files: dict[str, str | bytes] = {file: text}
    addresses, weight = {}, 0
    if python := runtime.cached_runtime(project):  # without it, nothing is asked for
        files |= {f"{python.name}/{path.name}": path.read_bytes() for path in python.iterdir()}
        addresses = {"models": f"runtime/{file}", "python": f"runtime/{python.name}/"}
        weight = runtime.transfer_bytes(python)
    for name, context in contexts.items():
        one, root = described[name], places.OnPage(where[name]).relative_link("/index.md")
        fragments[f"calculators/{name}.md"] = form.render_calculator(
            name, one.inputs, one.result, context, root, addresses, weight
        )
    return fragments, files, findings


def _site_address(target: str) -> str:
    """The address below the site's own of a docs-absolute link."""
    page, mark, anchor = target.lstrip("/").partition("#")
    return f"{places.page_address(page)}{mark}{anchor}"


def error_bands(page: SnippetPage) -> dict[str, dict[str, float]]:
    """What half, nine in ten and all of a model's predictions are off by at most, by data set.

    Rows that a constant of the model was fitted on do not count.
    """
    states = page.select_states("measured", "verified")
    offered = (s.record["predictions"] for s in states if s.record and "predictions" in s.record)
    bands = {}
    for one in pictures.errors_by_set(next(offered, [])):
        if errors := sorted(one.errors):
            half, most = (errors[math.ceil(share * len(errors)) - 1] for share in (0.5, 0.9))
            bands[one.name] = {
                "count": len(errors), "half": half, "most": most, "worst": errors[-1]
            }  # fmt: skip
    return bands


def _unknown_references(
    path: str, one: CalculatorSpec, page: SnippetPage, sources: Mapping[str, Any]
) -> Iterator[Finding]:
    """Lines of the defaults' result whose test or source is not there."""
    facts = {
        fact["name"]
        for state in page.select_states("measured", "verified")
        for key in ("facts", "predictions", "goals")
        for fact in (state.record or {}).get(key, ())
    }
    for row in one.result["rows"]:
        if facts and row["test"] not in facts:
            what = f"the line {row['name']!r} names the fact {row['test']!r}, which is none"
            yield Finding(path, None, what, "name a fact of cases.py")
        if row["source"] not in sources:
            what = f"the line {row['name']!r} has the source {row['source']!r}, which is no reading"
            yield Finding(path, None, what, "name the id of a reading in docs/")
