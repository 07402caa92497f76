"""What a checkout holds, read once for a command: snippets, readings, pages, terms, settings.

Both the rendering and the check start from it, and neither opens a page again. The settings come
from mkdocs.yml, which may hold whatever MkDocs reads, such as `!!python/name:` and `!ENV`; only the
wanted values are looked at, and no tag runs any code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from warpshelf.catalogue import glossary
from warpshelf.catalogue.glossary import Glossary
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

FILE = "mkdocs.yml"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The settings that are read: how a good value looks, what of it is wanted, and the mend.
WANTED = {
    "name": ("site_name", r"(?P<it>.+)", "write the name on one line"),
    "address": (
        "site_url", r"(?P<it>https?://[^\s/]+(?:/\S*)?)",
        "write an address that begins with https://",
    ),
    "repository": (
        "edit_uri_template", r"(?P<it>https://\S+?)/edit/\S+",
        "write https://…/edit/<branch>/docs/{path}",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Each is None if it is missing or invalid."""

    name: str | None = None
    address: str | None = None  # of the site, as it is published
    repository: str | None = None  # address of the project, from `edit_uri_template`


def read_settings(project: Project) -> tuple[Settings, list[Finding]]:
    """The settings, and what is wrong with them."""
    text = (project.root / FILE).read_text(encoding="utf-8", errors="replace")
    try:
        root = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = f"is not YAML: {getattr(error, 'problem', None) or error}"
        line = mark.line + 1 if mark else None
        return Settings(), [Finding(FILE, line, what, "quote the value, or fix the indent")]
    if not isinstance(root, yaml.MappingNode):
        what = "is not a mapping of settings"
        return Settings(), [Finding(FILE, 1, what, "write `site_name: …` and the like")]
    nodes = {key.value: node for key, node in root.value}
    found: dict[str, str] = {}
    findings = []
    for name, (key, good, mend) in WANTED.items():
        node = nodes.get(key)
        value = _setting_text(node) if node else None
        if node is None or not value:
            continue
        plain = node.tag == "!ENV" or isinstance(node, yaml.ScalarNode)
        if plain and (match := re.fullmatch(good, value.strip())):
            found[name] = match["it"]
        else:
            what = f"{key} is {value!r:.80}"
            findings.append(Finding(FILE, node.start_mark.line + 1, what, mend))
    return Settings(**found), findings


def _setting_text(node: yaml.Node) -> str | None:
    """The value of a setting as text; None where it says that there is none."""
    listed = isinstance(node, yaml.SequenceNode)
    if node.tag == "!ENV":  # `!ENV NAME`, or `!ENV [NAME, OTHER, default]`: the first that is set
        names = [str(item.value) for item in (node.value if listed else [node])]
        default = names.pop() if len(names) > 1 else None
        return next((os.environ[name] for name in names if name in os.environ), default)
    if node.tag == "tag:yaml.org,2002:null":
        return None
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    return "a list" if listed else "a mapping"


@dataclass(frozen=True)
class ProjectContent:
    """Everything read. `findings` is what is wrong with it, without the snippets' own."""

    project: Project
    snippets: list[Snippet]
    shelf: Shelf
    pages: Mapping[str, Page]
    settings: Settings = field(default_factory=Settings)
    health: Mapping[str, Health] = field(default_factory=dict)
    glossary: Glossary = field(default_factory=Glossary)
    findings: tuple[Finding, ...] = ()


def load_project(project: Project) -> ProjectContent:
    """Read the checkout."""
    said, findings = read_settings(project)
    written, wrong = pages.load_pages(project)
    shelf = model.load_shelf(project.root, pages=written)
    terms = glossary.load_glossary(project)
    findings += (*wrong, *shelf.findings, *terms.findings)
    known: Mapping[str, Health] = {}
    try:
        known = health.load_health(project.root)
    except ShelfError as error:  # unreadable link states take no reading off its page
        findings += error.findings
    found = snippet.discover_snippets(project)
    return ProjectContent(project, found, shelf, written, said, known, terms, tuple(findings))
