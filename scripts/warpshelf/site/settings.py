"""What mkdocs.yml says of the site: its address, its name, where its project lives.

The file is MkDocs' own and may hold whatever MkDocs reads, `!!python/name:` and `!ENV` among it.
Only the values that are wanted here are looked at; no tag makes anything run.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import yaml

from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

FILE = "mkdocs.yml"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ADDRESS = re.compile(r"https?://[^\s/]+(?:/\S*)?")
EDIT = re.compile(r"(?P<repository>https://\S+?)/edit/\S+")


@dataclass(frozen=True)
class Settings:
    """Each is None where it is not said, or not said well."""

    name: str | None = None
    address: str | None = None  # of the site, as it is published
    repository: str | None = None  # address of the project, from `edit_uri_template`


def load(project: Project) -> tuple[Settings, list[Finding]]:
    """The settings, and what is wrong with them.

    Raises:
        OSError: there is no mkdocs.yml, or it cannot be read.
    """
    text = (project.root / FILE).read_text(encoding="utf-8", errors="replace")
    try:
        root = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = f"is no YAML: {getattr(error, 'problem', None) or error}"
        line = mark.line + 1 if mark else None
        return Settings(), [Finding(FILE, line, what, "quote the value, or mend the indent")]
    if not isinstance(root, yaml.MappingNode):
        what = "is no mapping of settings"
        return Settings(), [Finding(FILE, 1, what, "write `site_name: …` and the like")]
    nodes = {key.value: node for key, node in root.value}
    findings: list[Finding] = []

    def said(key: str, good: re.Pattern[str], mend: str) -> re.Match[str] | None:
        node = nodes.get(key)
        value = _text(node) if node else None
        if node is None or not value:
            return None
        plain = node.tag == "!ENV" or isinstance(node, yaml.ScalarNode)
        found = good.fullmatch(value.strip()) if plain else None
        if found is None:
            line = node.start_mark.line + 1
            findings.append(Finding(FILE, line, f"{key} is {value!r:.80}", mend))
        return found

    name = said("site_name", re.compile(r".+"), "write the name on one line")
    address = said("site_url", ADDRESS, "write an address that begins with https://")
    edit = said("edit_uri_template", EDIT, "write https://…/edit/<branch>/docs/{path}")
    return (
        Settings(name and name[0], address and address[0], edit and edit["repository"]),
        findings,
    )


def _text(node: yaml.Node) -> str | None:
    """The value of a setting as text; None where it says that there is none."""
    if node.tag == "!ENV":
        return _from_environment(node)
    if node.tag == "tag:yaml.org,2002:null":
        return None
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _from_environment(node: yaml.Node) -> str | None:
    """`!ENV NAME`, or `!ENV [NAME, OTHER, default]`: the first variable that is set."""
    if not isinstance(node, yaml.SequenceNode):
        return os.environ.get(str(node.value))
    words = [str(item.value) for item in node.value]
    names, default = (words[:-1], words[-1]) if len(words) > 1 else (words, None)
    return next((os.environ[name] for name in names if name in os.environ), default)
