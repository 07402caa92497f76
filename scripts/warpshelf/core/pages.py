"""Pages of docs/ as they are written: their front matter, and what a link into them may name."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$", re.MULTILINE | re.DOTALL)
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Page:
    """One page, its `path` relative to the project root."""

    where: str  # its path below docs/ without the ending: `kernels/softmax`
    path: str
    meta: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def description(self) -> str:
        """What it says of itself, on one line; empty where it says nothing."""
        said = self.meta.get("description")
        return " ".join(said.split()) if isinstance(said, str) else ""

    def find_line(self, found: Callable[[str], bool]) -> int | None:
        """The first line, from 1, for which `found` is true."""
        lines = enumerate(self.text.splitlines(), 1)
        return next((number for number, line in lines if found(line)), None)


def load_pages(project: Project) -> tuple[dict[str, Page], list[Finding]]:
    """Every page by its `where`, and what cannot be read of their front matter."""
    pages: dict[str, Page] = {}
    findings: list[Finding] = []
    for file in sorted(project.docs.rglob("*.md")):
        inside = file.relative_to(project.docs)
        if not file.is_file() or any(name.startswith(".") for name in inside.parts):
            continue  # MkDocs passes over hidden files as well
        path = project.relative_path(file)
        where = inside.with_suffix("").as_posix()
        text = file.read_text(encoding="utf-8", errors="replace")
        meta: Any = {}
        if front := FRONT.match(text):
            try:
                meta = yaml.load(front["yaml"], Loader=LOADER)
            except yaml.YAMLError as error:
                mark = getattr(error, "problem_mark", None)
                what = f"the front matter is not YAML: {getattr(error, 'problem', None) or error}"
                line = mark.line + 2 if mark else 1
                findings.append(Finding(path, line, what, "quote the value, or fix the indent"))
        pages[where] = Page(where, path, meta if isinstance(meta, dict) else {}, text)
    return pages, findings


FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[`~]*\s*?$", re.M | re.S)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]*(?P<text>[^\n]*?)[ \t#]*$", re.M)
ATTRIBUTES = re.compile(r"[ \t]*\{:?(?P<list>[^}\n]*)\}[ \t]*$")
NAMED = re.compile(r"(?:^|\s)#(?P<id>[^\s}]+)")
WRITTEN = re.compile(r"<[a-z][^<>]*?\sid=\"(?P<id>[^\"]+)\"")
LINKED = re.compile(r"\[(?P<text>[^\]]*)\]\([^)]*\)")


def page_anchors(text: str) -> set[str]:
    """What a link may name within the page whose Markdown is `text`; what it includes is left out.

    They are the headings as Python-Markdown's table of contents names them, and every id that is
    written out: `## Bytes { #bytes }` or `<p id="bytes">`.
    """
    plain = FENCE.sub("", text)
    found = {match["id"] for match in WRITTEN.finditer(plain)}
    for match in HEADING.finditer(plain):
        heading = match["text"]
        if listed := ATTRIBUTES.search(heading):
            heading = heading[: listed.start()]
            if named := NAMED.search(listed["list"]):
                found.add(named["id"])
                continue
        if name := heading_slug(LINKED.sub(r"\g<text>", heading)):
            names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
            found.add(next(one for one in names if one not in found))
    return found


def heading_slug(text: str) -> str:
    """`text` as Python-Markdown makes an anchor of it: `Bytes in flight` -> `bytes-in-flight`."""
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    kept = re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)
