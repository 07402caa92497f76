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
from warpshelf.core.project import LIST, MADE, Project, is_made

FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$", re.MULTILINE | re.DOTALL)
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ALSO = "These stand under other topics, and belong here as well."


@dataclass(frozen=True)
class Page:
    """One page, its `path` relative to the project root."""

    where: str  # its path below docs/ without the ending: `kernels/softmax`
    path: str
    meta: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    made: bool = False  # from another, and written by the build

    @property
    def description(self) -> str:
        """What it says of itself, on one line; empty where it says nothing."""
        said = self.meta.get("description")
        return " ".join(said.split()) if isinstance(said, str) else ""

    def find_line(self, found: Callable[[str], bool]) -> int | None:
        """The first line, from 1, for which `found` is true."""
        lines = enumerate(self.text.splitlines(), 1)
        return next((number for number, line in lines if found(line)), None)


def list_page(overview: Page) -> Page:
    """The page with the list of a topic whose folder has this overview.

    Its front matter follows the overview's, whose `see_also` names readings of other topics.
    """
    where, given = overview.where.removesuffix("/index"), overview.meta
    title = given.get("title", where)
    said = f"What to read on {title}: every entry of the shelf, with what it is good for."
    meta = {"title": f"{title}: readings", "description": said}
    front = yaml.safe_dump(meta, allow_unicode=True, sort_keys=False, width=1000)
    also = [f"reading/{name}.md" for name in given.get("see_also", [])]
    parts = ["# Readings", f'--8<-- "readings/{where}.md"']
    parts += [ALSO] * bool(also) + [f'--8<-- "{name}"' for name in also]
    text = f"{MADE}{front}---\n\n" + "\n\n".join(parts) + "\n"
    return Page(f"{where}/{LIST}", overview.path, meta, text, made=True)


def load_pages(project: Project) -> tuple[dict[str, Page], list[Finding]]:
    """Every page by its `where`, and what cannot be read of their front matter.

    The page of a folder's list is made from its overview, whether the build has written it or not.
    """
    pages: dict[str, Page] = {}
    findings: list[Finding] = []
    for file in sorted(project.docs.rglob("*.md")):
        inside = file.relative_to(project.docs)
        if not file.is_file() or any(name.startswith(".") for name in inside.parts):
            continue  # MkDocs passes over hidden files as well
        if is_made(file):
            continue
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
    for page in [one for one in pages.values() if one.where.endswith("/index")]:
        if not (project.docs / page.where).parent.with_suffix(".yml").is_file():
            continue
        made = list_page(page)
        if written := pages.get(made.where):
            mend = f"say it in {page.path} (`see_also` names more readings), and remove the file"
            findings.append(Finding(written.path, None, "is a page that the build writes", mend))
        pages[made.where] = made
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
