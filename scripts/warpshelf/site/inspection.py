"""What a pull request must pass: no GPU, no network, and nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from warpshelf.catalogue import glossary, learning_paths, reading_lists
from warpshelf.contract import architectures, mutants
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.live import runtime
from warpshelf.look import view_store
from warpshelf.readings import crosscheck, model
from warpshelf.readings.entries import closest_match
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
from warpshelf.render.fragments import KEYS
from warpshelf.site import build_snippet_pages, project_content

LINK = re.compile(r"\]\((?P<target>[^)\s#:]+\.md)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)`*~*\s*$", re.M | re.S)
LISTING = re.compile(r"^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)`*~*\s*$", re.M | re.S)
PICTURE = re.compile(r"(?P<id>[^/]+)/(?P<name>(?P<kind>timelines|grids)/[^/]+)\.md")
SECTION = re.compile(r'^[ \t]*-{1,}8<-{1,}[ \t]+"(?P<target>[^"\n]+)"', re.M)


def check_project(project: Project) -> list[Finding]:
    """Every finding on snippets, records, readings, pages and settings, sorted."""
    return inspect_project(project)[0]


def inspect_project(project: Project) -> tuple[list[Finding], list[str]]:
    """Every finding, and what is no fault but good to know: records beside others, and why."""
    held = project_content.load_project(project)
    ids = {one.id for one in held.snippets}
    findings = [*held.findings, *crosscheck.check_shelf(held.shelf, ids)]
    shown = build_snippet_pages.snippet_links(held.pages, ids)
    past = history.read_history(project, newest=history.NEWEST)
    for one in held.snippets:
        findings.extend(_check_snippet(one, held.shelf, shown))
        if not one.findings:
            findings.extend(_check_slowdowns(one, past))
    findings.extend(learning_paths.build_paths(held.pages, held.shelf)[1])
    findings.extend(
        glossary.check_glossary(held.glossary, held.pages, held.shelf, _snippet_anchors(shown))
    )
    pictured = embedded_pictures(held.pages)
    drawn = {one.id: _recorded_pictures(one) for one in held.snippets if one.id in pictured}
    findings.extend(_check_pages(project, ids, held.shelf, held.pages, drawn))
    findings.extend(crosscheck.check_schema(project))
    return sorted(set(findings)), list(record_comparison.find_disagreements(held.snippets))


def _check_snippet(one: Snippet, shelf: model.Shelf, shown: dict[str, str]) -> Iterator[Finding]:
    path = one.project.relative_path(one.path)
    yield from one.findings
    if one.findings:
        return
    yield from mutants.check_mutants(one)
    yield from build_snippet_pages.check_claims(one, shelf)
    records, wrong = store.load_records(one)
    yield from wrong
    committed = records.get(CPU)
    again = f"run `shelf run {one.id}` and commit {one.project.relative_path(one.results)}/cpu.json"
    if committed is None and not one.cannot_run(None, 0):
        yield Finding(path, None, "has no record of a check on a CPU", again)
    elif committed is not None and committed["digest"] != one.digest:
        where = one.project.relative_path(store.record_path(one, CPU))
        yield Finding(where, None, "is stale: the source has changed since", again)
    elif committed is not None:
        for slug, record in records.items():
            if record["digest"] == one.digest:
                where = one.project.relative_path(store.record_path(one, slug))
                mend = f"make it again with `shelf run {one.id}`"
                told = [
                    *validate_import.record_errors(record, one),
                    *claim_check.claim_errors(record, committed, one),
                ]
                for fault in told:
                    yield Finding(where, None, fault, mend)
                if key_slug(slug) != CPU and "origin" not in record:
                    named = "hand it in again by `shelf import --by NAME`"
                    yield Finding(where, None, "does not say who made it", named)
    yield from bundle.check_attestations(one, records)
    if one.id not in shown:
        mend = f'embed it by `--8<-- "{one.id}/whole.md"` on a page'
        yield Finding(path, None, "is on no page", mend)
    for name in one.readings:
        if name not in shelf.readings and name not in shelf.refused:
            near = closest_match(name, shelf.readings, alike=70)
            meant = f"write {near}" if near else "name the id of a reading in docs/"
            mend = f"{meant}, or add the reading"
            yield Finding(path, 1, f"its Source {name!r} is no reading", mend)
    for stray in sorted(one.results.glob("*")):
        if stray.suffix != ".json" and stray.name not in (store.PACK, store.ATTESTATIONS):
            where = one.project.relative_path(stray)
            yield Finding(where, None, "is no record", "remove it")
    current = committed if committed and committed["digest"] == one.digest else None
    yield from _check_views(one, current)
    yield from build_snippet_pages.check_rivals(one)


def _check_views(one: Snippet, record: Record | None) -> Iterator[Finding]:
    """What is wrong with the views of a snippet; `record` is that of the present code on a CPU.

    Whatever passed there on a case that is counted has views on each architecture that was
    executed. What they hold is counted once, in the run that makes both, so there is nothing to
    hold it against; that a view agrees with itself is seen when it is read.
    """
    yield from view_store.load_views(one)[1]
    found, wrong = view_store.load_summaries(one)
    if record is None or wrong:
        return
    where = one.project.relative_path(one.results / store.PACK)
    again = f"run `shelf run --force {one.id}` and commit {where}"
    targets = record.get("targets", ())
    passed = {
        result["name"]
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant" and result["verdict"] == "passed"
    }
    due = {
        (name, target)
        for name in passed
        for target in targets
        if claim_check.skip_reason(one.needs, name, architectures.sm_version(target), on_cpu=True)
        is None
    }
    views = {(view["variant"], view["arch"]): view for view in found}
    if missing := sorted(due - views.keys()):
        name, target = missing[0]
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield Finding(where, None, f"has no view of {name} on {target}{more}", again)
    cases = [case["case"] for case in record.get("cases", ()) if not case["timed"]]
    for (name, target), view in sorted(views.items()):
        if (name, target) not in due or view["case"] not in cases:
            what = f"has a view of {name} on {target}, {view['case']}, which its record has not"
            yield Finding(where, None, what, again)


def _check_slowdowns(one: Snippet, past: History) -> Iterator[Finding]:
    """A finding for each variant of a present record that takes longer than in the one before."""
    try:
        history.load_reasons(one.project, one.id)
    except ShelfError as error:
        yield from error.findings
    for (name, key), versions in past.of.items():
        if name != one.id or len(versions) < 2:
            continue
        before, after = (version.record for version in versions[-2:])
        if after["digest"] != one.digest or versions[-1].slower:
            continue
        found: dict[str, list[TimeDifference]] = {}
        for difference in history.slower_results(before, after):
            found.setdefault(difference.name, []).append(difference)
        where = one.project.relative_path(store.record_path(one, key))
        other = record_comparison.side_by_side(before, after)
        say = f'`shelf history {one.id} --machine {key} --because "WHY"`'
        mend = f"make it fast again, measure again when the GPU is alone, or say why by {say}"
        for rows in found.values():
            worst = max(rows, key=lambda row: row.factor)
            more = f" (and in {len(rows) - 1} more)" if len(rows) > 1 else ""
            slower = record_comparison.format_difference(worst)
            what = f"is slower than before: {slower}{more}; {other}"
            yield Finding(where, None, what, mend)


def _snippet_anchors(shown: Mapping[str, str]) -> dict[str, set[str]]:
    """The anchors of snippets, by the page that shows them."""
    found: dict[str, set[str]] = {}
    for link in shown.values():
        page, _, anchor = link.lstrip("/").partition("#")
        found.setdefault(page.removesuffix(".md"), set()).add(anchor)
    return found


def _recorded_pictures(one: Snippet) -> set[str] | None:
    """The pictures of its present code; None where no record tells them."""
    committed = store.load_records(one)[0].get(CPU)
    if committed is None or committed["digest"] != one.digest:
        return None
    kinds = ("timelines", "grids")
    return {f"{kind}/{row['name']}" for kind in kinds for row in committed.get(kind, ())}


def _check_pages(
    project: Project,
    ids: set[str],
    shelf: model.Shelf,
    written: Mapping[str, Page],
    drawn: Mapping[str, set[str] | None],
) -> Iterator[Finding]:
    """Links between pages, and what pages embed."""
    for page in written.values():
        where, text = page.path, page.text
        plain = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
        for match in LINK.finditer(plain):
            line = plain.count("\n", 0, match.start()) + 1
            target = match["target"]
            base = project.docs if target.startswith("/") else (project.root / where).parent
            if not (base / target.lstrip("/")).is_file():
                yield Finding(where, line, f"links to {target}, which is no page", "mend the link")
        listings = [match.span() for match in LISTING.finditer(text)]
        for match in SECTION.finditer(text):  # what stands in a fence is embedded as well
            line = text.count("\n", 0, match.start()) + 1
            if what := _embed_problem(project, match["target"], ids, shelf, written, drawn):
                yield Finding(
                    where, line, what, _suggest_target(match["target"], ids, shelf, drawn)
                )
            elif (own := _own_page(match["target"])) and where != f"docs/{own}":
                what = f"embeds a list whose links are those of docs/{own}"
                yield Finding(where, line, what, 'show single ones, by --8<-- "reading/<id>.md"')
            elif _is_code(match["target"]) and not any(
                first < match.start() < last for first, last in listings
            ):
                what = f"embeds {match['target']} as prose, not as code"
                yield Finding(where, line, what, "put it between ```python and ```")


def _is_code(target: str) -> bool:
    """Whether what is embedded must stand in a fence: Markdown and pictures need none."""
    return Path(target.partition(":")[0]).suffix not in (".md", ".svg", ".html")


def embedded_readings(written: Mapping[str, Page]) -> list[str]:
    """The ids of readings that a page shows by itself, by `reading/<id>.md`."""
    found: set[str] = set()
    for page in written.values():
        for match in SECTION.finditer(page.text):
            first, _, rest = match["target"].partition("/")
            if first == "reading":
                found.add(rest.removesuffix(".md"))
    return sorted(found)


def embedded_pictures(written: Mapping[str, Page]) -> dict[str, list[str]]:
    """The pictures that pages embed, by snippet: `timelines/gpipe` of `<id>/timelines/gpipe.md`."""
    found: dict[str, set[str]] = {}
    for page in written.values():
        for match in SECTION.finditer(page.text):
            if named := PICTURE.fullmatch(match["target"]):
                found.setdefault(named["id"], set()).add(named["name"])
    return {one: sorted(names) for one, names in found.items()}


def _suggest_target(
    target: str, ids: set[str], shelf: model.Shelf, drawn: Mapping[str, set[str] | None]
) -> str:
    """What to embed in place of something that is not there."""
    first, _, rest = target.partition("/")
    name = rest.removesuffix(".md")
    if PICTURE.fullmatch(target) and (known := drawn.get(first)):
        return f"write one of {', '.join(sorted(known))}"
    if first == "reading" and (near := closest_match(name, shelf.readings, alike=70)):
        return f'write "reading/{near}.md"'
    if first in ("readings", "start") and (near := closest_match(name, shelf.topics, alike=70)):
        return f'write "{first}/{near}.md"'
    if first not in ids and (near := closest_match(first, ids, alike=70)):
        return f'write "{near}/{rest}"'
    return "embed something that is there"


def _own_page(target: str) -> str | None:
    """The one page that a list of readings may stand on, below docs/."""
    first, _, rest = target.partition("/")
    if first not in ("readings", "start") or target == "readings/all.md":
        return None
    return reading_lists.EVERY_PAGE if target == reading_lists.EVERY_FRAGMENT else rest


def _embed_problem(
    project: Project,
    target: str,
    ids: set[str],
    shelf: model.Shelf,
    written: Mapping[str, Page],
    drawn: Mapping[str, set[str] | None],
) -> str | None:
    """Why what a page embeds is not there, or None."""
    name, _, section = target.partition(":")
    first, _, rest = name.partition("/")
    if first in ("readings", "start"):
        topic = rest.removesuffix(".md")
        good = topic in shelf.topics or (first == "readings" and topic in ("all", "every"))
        return None if good else f"embeds the readings of {topic!r}, which is no topic"
    if first == "reading":
        good = rest.removesuffix(".md") in {*shelf.readings, *shelf.refused}
        return None if good else f"embeds the reading {rest.removesuffix('.md')!r}, which is no id"
    if first == "paths" and rest != "minutes.md":
        page = written.get(name.removesuffix(".md"))
        good = page is not None and "path" in page.meta
        return None if good else f"embeds {name!r}, but that page has no path in its front matter"
    if first == "calculators":
        one = rest.removesuffix(".md")
        good = (project.snippets / one / runtime.CALCULATOR).is_file()
        return None if good else f"embeds the calculator of {one!r}, which has none"
    if first in ("glossary", "home", "paths", "reference", "results"):
        return None
    if named := PICTURE.fullmatch(target):
        if first not in ids:
            return f"embeds a picture of the snippet {first!r}, which is not there"
        known = drawn.get(first)
        good = known is None or named["name"] in known  # without a record there is no telling
        return None if good else f"embeds {name!r}, but {first} draws no picture of that name"
    if any((folder / name).is_file() for folder in (project.docs / "assets", project.recipes)):
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
