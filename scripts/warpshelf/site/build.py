"""A build: what has changed is rendered, then MkDocs or Zensical makes the pages, strictly."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.live import pyodide
from warpshelf.site import freshness, mkdocs, zensical

BUILDERS = ("mkdocs", "zensical")


@dataclass(frozen=True)
class Rendered:
    """What a rendering found wrong, and how many files it changed."""

    findings: list[Finding]
    changed: int


def render(project: Project) -> Rendered:
    """Bring every fragment up to date; nothing is read twice that has not changed since.

    Raises:
        OSError: a file that must be there cannot be read.
    """
    if missing := pyodide.prepare(project):
        sys.stderr.write(f"calculators are not live in this build: {missing}\n")
    inputs = freshness.sources(project)
    known = freshness.recall(project, inputs)
    if known is not None:
        return Rendered(known, 0)
    from warpshelf.site import rendering  # brings in the schema of readings and all that draws

    findings, changed = rendering.render(project)
    freshness.remember(project, inputs, findings)
    return Rendered(findings, changed)


def build(project: Project, site_dir: Path | None = None, builder: str = "mkdocs") -> int:
    """Render and build, strictly; 0 where nothing at all was wrong.

    A snippet or reading with a fault loses its place on the page, and the rest is built as usual.

    Raises:
        ShelfError: the builder is not installed, or there is none of that name.
    """
    if builder not in BUILDERS:
        what, mend = f"is {builder!r}", f"write one of {', '.join(BUILDERS)}"
        raise ShelfError(Finding("--builder", None, what, mend))
    (mkdocs if builder == "mkdocs" else zensical).needed()
    rendered = render(project)
    for finding in rendered.findings:
        sys.stderr.write(f"{finding}\n")
    target = (site_dir or project.root / "site").resolve()
    made = mkdocs.build if builder == "mkdocs" else zensical.build
    return 1 if made(project, target) or rendered.findings else 0
