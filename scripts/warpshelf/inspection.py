"""What a pull request must pass: no GPU, no network, and nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from warpshelf import (
    crosscheck,
    everything,
    exhibits,
    health,
    listschema,
    pages,
    paths,
    readings,
    record,
    snippet,
    timelines,
)
from warpshelf.findings import Finding, ShelfError
from warpshelf.machine import CPU
from warpshelf.messages import nearest
from warpshelf.project import Project
from warpshelf.snippet import Snippet

LINK = re.compile(r"\]\((?P<target>[^)\s#:]+\.md)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)`*~*\s*$", re.M | re.S)
SECTION = re.compile(r'^[ \t]*-{1,}8<-{1,}[ \t]+"(?P<target>[^"\n]+)"', re.M)


def check(project: Project) -> list[Finding]:
    """Every finding on snippets, records, readings and pages, sorted."""
    found = snippet.discover(project)
    shelf = readings.load(project.root)
    findings = [*shelf.findings, *crosscheck.check(shelf, {one.id for one in found})]
    shown = exhibits.pages(project, (one.id for one in found))
    for one in found:
        findings.extend(_snippet(one, shelf, shown))
    written, wrong = pages.load(project)
    findings.extend([*wrong, *paths.paths(written, shelf)[1]])
    findings.extend(_pages(project, {one.id for one in found}, shelf, written))
    findings.extend(listschema.check(project))
    try:
        health.load(project.root)
    except ShelfError as error:
        findings.extend(error.findings)
    return sorted(set(findings))


def _snippet(one: Snippet, shelf: readings.Shelf, shown: dict[str, str]) -> Iterator[Finding]:
    path = one.project.relative(one.path)
    yield from one.findings
    if one.findings:
        return
    records, wrong = record.load_all(one)
    yield from wrong
    committed = records.get(CPU)
    again = f"run `shelf run {one.id}` and commit {one.project.relative(one.results)}/cpu.json"
    if committed is None and not one.cannot_run(None, 0):
        yield Finding(path, None, "has no record of a check on a CPU", again)
    elif committed is not None and committed["digest"] != one.digest:
        where = one.project.relative(record.path_of(one, CPU))
        yield Finding(where, None, "is stale: the source has changed since", again)
    if one.id not in shown:
        mend = f'embed it by `--8<-- "{one.id}/whole.md"` on a page'
        yield Finding(path, None, "is on no page", mend)
    for name in one.sources:
        if name not in shelf.readings and name not in shelf.unread:
            near = nearest(name, shelf.readings, alike=70)
            meant = f"write {near}" if near else "name the id of a reading in docs/"
            mend = f"{meant}, or add the reading"
            yield Finding(path, 1, f"its Source {name!r} is no reading", mend)
    for stray in sorted(one.results.glob("*")):
        if stray.suffix != ".json":
            where = one.project.relative(stray)
            yield Finding(where, None, "is no record", "remove it")


def _pages(
    project: Project, ids: set[str], shelf: readings.Shelf, written: Mapping[str, pages.Page]
) -> Iterator[Finding]:
    """Links between pages, and what pages embed."""
    for page in sorted(project.docs.rglob("*.md")):
        where = project.relative(page)
        text = page.read_text(encoding="utf-8", errors="replace")
        plain = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
        for match in LINK.finditer(plain):
            line = plain.count("\n", 0, match.start()) + 1
            target = match["target"]
            base = project.docs if target.startswith("/") else page.parent
            if not (base / target.lstrip("/")).is_file():
                yield Finding(where, line, f"links to {target}, which is no page", "mend the link")
        for match in SECTION.finditer(text):  # what stands in a fence is embedded as well
            line = text.count("\n", 0, match.start()) + 1
            if what := _embedded(project, match["target"], ids, shelf, written):
                yield Finding(where, line, what, _instead(match["target"], ids, shelf))
            elif (own := _own_page(match["target"])) and where != f"docs/{own}":
                what = f"embeds a list whose links are those of docs/{own}"
                yield Finding(where, line, what, 'show single ones, by --8<-- "reading/<id>.md"')


def embedded_readings(written: Mapping[str, pages.Page]) -> list[str]:
    """The ids of readings that a page shows by itself, by `reading/<id>.md`."""
    found: set[str] = set()
    for page in written.values():
        for match in SECTION.finditer(page.text):
            first, _, rest = match["target"].partition("/")
            if first == "reading":
                found.add(rest.removesuffix(".md"))
    return sorted(found)


def _instead(target: str, ids: set[str], shelf: readings.Shelf) -> str:
    """What to embed in place of something that is not there."""
    first, _, rest = target.partition("/")
    name = rest.removesuffix(".md")
    if first == "reading" and (near := nearest(name, shelf.readings, alike=70)):
        return f'write "reading/{near}.md"'
    if first == "readings" and (near := nearest(name, shelf.topics, alike=70)):
        return f'write "readings/{near}.md"'
    if first not in ids and (near := nearest(first, ids, alike=70)):
        return f'write "{near}/{rest}"'
    return "embed something that is there"


def _own_page(target: str) -> str | None:
    """The one page that a list of readings may stand on, below docs/."""
    first, _, rest = target.partition("/")
    if first != "readings" or rest == "all.md":
        return None
    return everything.PAGE if target == everything.FRAGMENT else rest


def _embedded(
    project: Project,
    target: str,
    ids: set[str],
    shelf: readings.Shelf,
    written: Mapping[str, pages.Page],
) -> str | None:
    """Why what a page embeds is not there, or None."""
    from warpshelf.fragments import KEYS

    name, _, section = target.partition(":")
    first, _, rest = name.partition("/")
    if first == "readings":
        topic = rest.removesuffix(".md")
        good = topic in shelf.topics or topic in ("all", "every")
        return None if good else f"embeds the readings of {topic!r}, which is no topic"
    if first == "reading":
        good = rest.removesuffix(".md") in {*shelf.readings, *shelf.unread}
        return None if good else f"embeds the reading {rest.removesuffix('.md')!r}, which is no id"
    if first == "paths":
        page = written.get(name.removesuffix(".md"))
        good = page is not None and "path" in page.meta
        return None if good else f"embeds {name!r}, but that page has no path in its front matter"
    if first in ("home", "reference"):
        return None
    if first == "diagrams" and rest.endswith(".md"):
        good = rest.removesuffix(".md") in timelines.DRAWN
        return None if good else f"embeds {name!r}, but timelines draws no schedule of that name"
    if (project.docs / "assets" / name).is_file():
        return None
    if rest.removesuffix(".md") in KEYS and rest.endswith(".md"):
        return None if first in ids else f"embeds the snippet {first!r}, which is not there"
    path = project.snippets / name
    if not path.is_file():
        return f"embeds {name!r}, which is neither a fragment nor a file of snippets/"
    if section and not _has_section(path, section):
        return f"embeds the section {section!r} of {name}, which it does not mark"
    return None


def _has_section(path: Path, section: str) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.fullmatch(r"\d*:\d*|\d+", section) is not None or f"[start:{section}]" in text
