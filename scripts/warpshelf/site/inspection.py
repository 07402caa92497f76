"""What a pull request must pass: no GPU, no network, and nothing is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from warpshelf.catalogue import glossary, learning_paths, reading_lists
from warpshelf.contract import architectures, mutants
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.live import launches, runtime
from warpshelf.look import builds, view_store
from warpshelf.readings import crosscheck
from warpshelf.readings.entries import closest_match, suggest_match
from warpshelf.readings.model import Shelf
from warpshelf.records import (
    bundle,
    claim_check,
    history,
    record_comparison,
    store,
    validate_import,
)
from warpshelf.records.history import History
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import Record
from warpshelf.records.store import TimeDifference, key_slug
from warpshelf.render import figures, listings
from warpshelf.render.fragments import KEYS
from warpshelf.site import project_content
from warpshelf.site.project_content import EMBED, ProjectContent, find_embeds

LINK = re.compile(r"\]\((?P<target>[^)\s#:]+\.md)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)`*~*\s*$", re.M | re.S)
LISTING = re.compile(r"^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)`*~*\s*$", re.M | re.S)
READING = r"reading/(?P<id>.*?)(?:\.md)?"
PICTURE = r"(?P<id>[^/]+)/(?P<name>(?:timelines|grids)/[^/]+)\.md"
STEP = r"(?P<id>[a-z][a-z0-9_]*)/steps/(?P<old>[a-z][\w-]*)/(?P<new>[a-z][\w-]*)\.md"
LINES = re.compile(r"\d*:\d*|\d+")  # in the place of a section's name


def inspect_project(project: Project) -> tuple[list[Finding], list[str]]:
    """Every finding on snippets, records, readings, pages and settings, sorted.

    Also remarks, which are not faults: records that differ from others, and why.
    """
    held = project_content.load_project(project)
    ids = {one.id for one in held.snippets}
    shown = project_content.snippet_links(held.pages, ids)
    past = history.read_history(project, newest=history.NEWEST)
    anchors: dict[str, set[str]] = {}  # of snippets, by the page that shows them
    for link in shown.values():
        page, _, anchor = link.lstrip("/").partition("#")
        anchors.setdefault(page.removesuffix(".md"), set()).add(anchor)
    findings = [*held.findings, *crosscheck.check_shelf(held.shelf, ids)]
    for one in held.snippets:
        findings.extend(one.findings or _check_snippet(one, held.shelf, shown, past))
    findings.extend((*mutants.check_lists(project, ids), *builds.check_file(project, ids)))
    findings.extend(learning_paths.build_paths(held.pages, held.shelf)[1])
    findings.extend(glossary.check_glossary(held.glossary, held.pages, held.shelf, anchors))
    findings.extend(_check_pages(held))
    findings.extend(crosscheck.check_schema(project))
    return sorted(set(findings)), list(record_comparison.find_disagreements(held.snippets))


def _check_snippet(
    one: Snippet, shelf: Shelf, shown: Mapping[str, str], past: History
) -> Iterator[Finding]:
    """What is wrong around a snippet whose own source is valid."""
    path = one.project.relative_path(one.path)
    yield from mutants.check_mutants(one)
    yield from project_content.check_published(one, shelf)
    records, wrong = store.load_records(one)
    yield from wrong
    committed = records.get(CPU)
    current = committed if committed and committed["digest"] == one.digest else None
    again = f"run `shelf run {one.id}` and commit {one.project.relative_path(one.results)}/cpu.json"
    if committed is None and not one.cannot_run(None, 0):
        yield Finding(path, None, "has no record of a check on a CPU", again)
    elif committed is not None and current is None:
        where = one.project.relative_path(store.record_path(one, CPU))
        yield Finding(where, None, "is stale: the source has changed since", again)
    for slug, record in records.items() if current else ():
        if record["digest"] != one.digest:
            continue
        where = one.project.relative_path(store.record_path(one, slug))
        faults = validate_import.record_errors(record, one)
        for fault in (*faults, *claim_check.claim_errors(record, current or {}, one)):
            yield Finding(where, None, fault, f"make it again with `shelf run {one.id}`")
        if key_slug(slug) != CPU and "origin" not in record:
            mend = "import it again with `shelf import --by NAME`"
            yield Finding(where, None, "does not say who made it", mend)
    yield from bundle.check_attestations(one, records)
    if one.id not in shown:
        mend = f'embed it on a page with `--8<-- "{one.id}/whole.md"`'
        yield Finding(path, None, "is not on any page", mend)
    for name in one.readings:
        if name not in shelf.readings and name not in shelf.refused:
            mend = project_content.suggest_reading(name, shelf)
            yield Finding(path, 1, f"its Source {name!r} is not a reading", mend)
    for stray in sorted(one.results.glob("*")):
        if stray.suffix != ".json" and stray.name not in (store.PACK, store.ATTESTATIONS):
            where = one.project.relative_path(stray)
            yield Finding(where, None, "is not a record", "remove it")
    yield from _check_views(one, current)
    yield from _check_slowdowns(one, past)


def _check_views(one: Snippet, record: Record | None) -> Iterator[Finding]:
    """What is wrong with the views of a snippet; `record` is that of the present code on a CPU.

    Each variant that passed there has a view on each architecture that was executed. One run makes
    the record and the views, so their counts are not compared; loading a view checks that it agrees
    with itself.
    """
    yield from view_store.load_views(one)[1]
    found, wrong = view_store.load_summaries(one)
    if record is None or wrong:
        return
    where = one.project.relative_path(one.results / store.PACK)
    again = f"run `shelf run --force {one.id}` and commit {where}"
    passed = {result["name"] for _, result in figures.passed_results(record)}
    due = set()
    for target in record.get("targets", ()):
        sm = architectures.sm_version(target)
        due |= {
            (name, target)
            for name in passed
            if claim_check.skip_reason(one.needs, name, sm, on_cpu=True) is None
        }
    views = {(view["variant"], view["arch"]): view for view in found}
    if missing := sorted(due - views.keys()):
        name, target = missing[0]
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield Finding(where, None, f"has no view of {name} on {target}{more}", again)
    cases = [case["case"] for case in record.get("cases", ()) if not case["timed"]]
    for (name, target), view in sorted(views.items()):
        if (name, target) not in due or view["case"] not in cases:
            what = f"has a view of {name} on {target}, {view['case']}, which its record lacks"
            yield Finding(where, None, what, again)


def _check_slowdowns(one: Snippet, past: History) -> Iterator[Finding]:
    """A finding for each variant of a present record that takes longer than in the one before."""
    try:
        history.load_reasons(one.project, one.id)
    except ShelfError as error:
        yield from error.findings
    for (name, key), versions in past.of.items():
        if name != one.id or len(versions) < 2 or versions[-1].slower:
            continue
        before, after = (version.record for version in versions[-2:])
        if after["digest"] != one.digest:
            continue
        found: dict[str, list[TimeDifference]] = {}
        for difference in history.slower_results(before, after):
            found.setdefault(difference.name, []).append(difference)
        where = one.project.relative_path(store.record_path(one, key))
        say = f'`shelf history {one.id} --machine {key} --because "WHY"`'
        mend = f"make it fast again, measure again on an idle GPU, or say why with {say}"
        for rows in found.values():
            slower = record_comparison.format_difference(max(rows, key=lambda row: row.factor))
            more = f" (and in {len(rows) - 1} more)" if len(rows) > 1 else ""
            other = record_comparison.side_by_side(before, after)
            what = f"is slower than before: {slower}{more}; {other}"
            yield Finding(where, None, what, mend)


def embedded_pictures(written: Mapping[str, Page]) -> dict[str, list[str]]:
    """The pictures that pages embed, by snippet: `timelines/gpipe` of `<id>/timelines/gpipe.md`."""
    found: dict[str, set[str]] = {}
    for _, named in find_embeds(written, PICTURE):
        found.setdefault(named["id"], set()).add(named["name"])
    return {one: sorted(names) for one, names in found.items()}


def _check_pages(held: ProjectContent) -> Iterator[Finding]:
    """Links between pages, and what pages embed."""
    embeds = _Embeds(held)
    made = {held.project.docs / f"{one.where}.md" for one in held.pages.values() if one.made}
    for page in held.pages.values():
        where, text = page.path, page.text
        plain = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
        for match in LINK.finditer(plain):
            target = match["target"]
            base = held.project.docs if target[0] == "/" else (held.project.root / where).parent
            linked = Path(os.path.normpath(base / target.lstrip("/")))
            if linked not in made and not linked.is_file():
                number = plain.count("\n", 0, match.start()) + 1
                yield Finding(where, number, f"links to {target}, which is not a page", "fix it")
        listings = [match.span() for match in LISTING.finditer(text)]
        for match in EMBED.finditer(text):  # what stands in a fence is embedded as well
            target = match["target"]
            # A page that is made stands for the front matter of its overview.
            line = None if page.made else text.count("\n", 0, match.start()) + 1
            # Code must stand in a fence; Markdown and pictures need none.
            is_code = Path(target.partition(":")[0]).suffix not in (".md", ".svg", ".html")
            fenced = any(first < match.start() < last for first, last in listings)
            if what := embeds.find_problem(target):
                yield Finding(where, line, what, embeds.suggest_target(target))
            elif (own := _own_page(target, held.shelf)) and f"{page.where}.md" != own:
                what = f"embeds a list whose links only work on docs/{own}"
                yield Finding(where, line, what, 'embed single readings: --8<-- "reading/<id>.md"')
            elif is_code and not fenced:
                what = f"embeds {target} outside a code fence"
                yield Finding(where, line, what, "put it between ```python and ```")


def _own_page(target: str, shelf: Shelf) -> str | None:
    """The one page that a list of readings, or what to start with, may stand on, below docs/."""
    if target == reading_lists.EVERY_FRAGMENT:
        return reading_lists.EVERY_PAGE
    first, _, rest = target.partition("/")
    topic = shelf.topics.get(rest.removesuffix(".md"))
    if topic is None or first not in ("readings", "start"):
        return None
    return topic.list_page if first == "readings" else topic.overview


@dataclass(frozen=True)
class _Embeds:
    """What pages of a project may embed."""

    held: ProjectContent

    @cached_property
    def pictures_drawn(self) -> dict[str, set[str] | None]:
        """The pictures of each snippet's present code; None where no record tells them."""
        found: dict[str, set[str] | None] = {}
        pictured = embedded_pictures(self.held.pages)
        for one in (one for one in self.held.snippets if one.id in pictured):
            record = store.current_record(one, CPU)
            rows = ((k, row) for k in ("timelines", "grids") for row in (record or {}).get(k, ()))
            found[one.id] = {f"{k}/{row['name']}" for k, row in rows} if record else None
        return found

    def find_problem(self, target: str) -> str | None:
        """Why a page cannot embed `target`, or None."""
        project, shelf = self.held.project, self.held.shelf
        name, _, section = target.partition(":")
        first, _, rest = name.partition("/")
        stem = rest.removesuffix(".md")
        page, picture = self.held.pages.get(name.removesuffix(".md")), re.fullmatch(PICTURE, target)
        snippet = next((one for one in self.held.snippets if one.id == first), None)
        if first in ("readings", "start"):
            good = stem in shelf.topics or (first == "readings" and stem in ("all", "every"))
            what = f"embeds the readings of {stem!r}, which is not a topic"
        elif first == "reading":
            good = stem in shelf.readings or stem in shelf.refused
            what = f"embeds the reading {stem!r}, which does not exist"
        elif first == "paths" and rest != "minutes.md":
            good = page is not None and "path" in page.meta
            what = f"embeds {name!r}, but that page has no path in its front matter"
        elif first == "calculators":
            good = (project.snippets / stem / runtime.CALCULATOR).is_file()
            what = f"embeds the calculator of {stem!r}, which has none"
        elif first == "runs":
            good = stem in (*launches.ALONE, *launches.load_runs(project)[0])
            what = f"embeds the run of {stem!r}, which {launches.FILE} does not have"
        elif first in ("glossary", "home", "paths", "reference", "results"):
            return None
        elif picture and snippet is None:
            return f"embeds a picture of the snippet {first!r}, which does not exist"
        elif picture:
            known = self.pictures_drawn.get(first)
            good = known is None or picture["name"] in known  # without a record, none can tell
            what = f"embeds {name!r}, but {first} draws no picture of that name"
        elif snippet and (step := re.fullmatch(STEP, target)):
            try:
                listings.render_step(project_content.code_listings(snippet), *step.group(2, 3))
            except ValueError as error:
                return f"embeds a step of {first}, but its files have {error}"
            return None
        elif any((at / name).is_file() for at in (project.docs / "assets", project.recipes)):
            return None
        elif stem in KEYS and rest.endswith(".md"):
            good, what = bool(snippet), f"embeds the snippet {first!r}, which does not exist"
        elif not (project.snippets / name).is_file():
            return f"embeds {name!r}, which is neither a fragment nor a file of snippets/"
        elif not section or LINES.fullmatch(section):
            return None
        else:
            text = (project.snippets / name).read_text(encoding="utf-8", errors="replace")
            good = f"[start:{section}]" in text
            what = f"embeds the section {section!r}, which {name} does not mark"
        return None if good else what

    def suggest_target(self, target: str) -> str:
        """What to embed instead of `target`."""
        shelf, nothing = self.held.shelf, "embed something that exists"
        first, _, rest = target.partition("/")
        name = rest.removesuffix(".md")
        if re.fullmatch(PICTURE, target) and (known := self.pictures_drawn.get(first)):
            return f"write one of {', '.join(sorted(known))}"
        if first in ("reading", "readings", "start"):
            listed = [*(shelf.readings if first == "reading" else shelf.topics)]
            return suggest_match(name, listed, nothing, form=f'write "{first}/{{}}.md"')
        ids = {one.id for one in self.held.snippets}
        near = None if first in ids else closest_match(first, ids, alike=70)
        return f'write "{near}/{rest}"' if near else nothing
