"""What a checkout holds, read once for a command: snippets, readings, pages, terms, settings.

Both the rendering and the check start from it, and neither opens a page again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpshelf.catalogue import terms
from warpshelf.catalogue.terms import Glossary
from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import pages
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.links import health
from warpshelf.links.health import Health
from warpshelf.readings import model
from warpshelf.readings.model import Shelf
from warpshelf.site import settings
from warpshelf.site.settings import Settings


@dataclass(frozen=True)
class Holdings:
    """Everything read. `findings` is what was wrong with it, but for the snippets' own."""

    project: Project
    snippets: list[Snippet]
    shelf: Shelf
    pages: Mapping[str, Page]
    settings: Settings = field(default_factory=Settings)
    health: Mapping[str, Health] = field(default_factory=dict)
    glossary: Glossary = field(default_factory=Glossary)
    findings: tuple[Finding, ...] = ()


def gather(project: Project) -> Holdings:
    """Read the checkout.

    Raises:
        OSError: a file that must be there cannot be read.
    """
    said, findings = settings.load(project)
    written, wrong = pages.load(project)
    findings += wrong
    shelf = model.load(project.root, pages=written)
    findings += shelf.findings
    glossary = terms.load(project)
    findings += glossary.findings
    known: Mapping[str, Health] = {}
    try:
        known = health.load(project.root)
    except ShelfError as error:  # states that cannot be read take no reading off its page
        findings += error.findings
    found = snippet.discover(project)
    return Holdings(project, found, shelf, written, said, known, glossary, tuple(findings))
