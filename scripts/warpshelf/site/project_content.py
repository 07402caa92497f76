"""What a checkout holds, read once for a command, and what may be shown of each snippet.

Both the rendering and the check start from it, and neither opens a page again. Of a snippet it is
its state on each machine, its code, its readings, the figures that others publish for it, and the
public kernels shown beside its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from warpshelf.catalogue import glossary
from warpshelf.catalogue.glossary import Glossary
from warpshelf.contract import architectures, snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import pages
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.links import health
from warpshelf.links.health import Health
from warpshelf.look import builds, view_store
from warpshelf.look.view import View
from warpshelf.readings import model, published
from warpshelf.readings.entries import suggest_match
from warpshelf.readings.model import Shelf
from warpshelf.readings.published import Published, PublishedFigure, Rival
from warpshelf.records import record_comparison, store
from warpshelf.records.history import History
from warpshelf.records.ledger import CPU, Ledger
from warpshelf.records.schema import Record
from warpshelf.render import figures, listings
from warpshelf.render.claims import matches_case, our_builds
from warpshelf.render.listings import Listing
from warpshelf.render.snippet_page import (
    Claim,
    MachineState,
    RivalComparison,
    SnippetPage,
    SourceLink,
)

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


class Settings(NamedTuple):
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
        if key not in nodes or not (value := _setting_text(node := nodes[key])):
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


class ProjectContent(NamedTuple):
    """Everything read. `findings` is what is wrong with it, without the snippets' own."""

    project: Project
    snippets: list[Snippet]
    shelf: Shelf
    pages: Mapping[str, Page]
    settings: Settings
    health: Mapping[str, Health]
    glossary: Glossary
    findings: tuple[Finding, ...]


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


EMBED = re.compile(r'^[ \t]*-+8<-+[ \t]+"(?P<target>[^"\n]+)"', re.M)
SNIPPET = r"(?P<id>[a-z][a-z0-9_]*)/(?P<piece>[a-z]+)\.md"


def find_embeds(written: Mapping[str, Page], name: str) -> Iterator[tuple[Page, re.Match[str]]]:
    """Each embed whose whole target matches the pattern `name`, with its page."""
    for page in written.values():
        for embed in EMBED.finditer(page.text):
            if found := re.fullmatch(name, embed["target"]):
                yield page, found


def snippet_links(written: Mapping[str, Page], ids: Iterable[str]) -> dict[str, str]:
    """The docs-absolute link of each snippet that a page embeds; its whole before its parts."""
    known = set(ids)
    found: dict[str, str] = {}
    for page, match in find_embeds(written, SNIPPET):
        name, link = match["id"], f"/{page.where}.md"
        if match["piece"] in ("whole", "folded", "idea"):
            link += f"#snippet-{name}"
        if name in known and (name not in found or ("#" in link and "#" not in found[name])):
            found[name] = link
    return found


def build_snippet_page(
    snippet: Snippet,
    shelf: Shelf,
    ledger: Ledger,
    repository: str | None = None,
    history: History | None = None,
) -> tuple[SnippetPage, list[Finding]]:
    """All that the page of `snippet` shows, and what is wrong with it."""
    states, findings = snippet_states(snippet, ledger)
    stated, wrong = load_published(snippet)
    findings += wrong
    views, wrong = view_store.load_summaries(snippet)
    findings += wrong
    pairs, wrong = pair_rivals(snippet, stated.rivals, views)
    findings += wrong
    kernels = {  # of CUDA C++, as the records of the present code have compiled them
        row["kernel"]
        for state in states
        if state.record and state.state in ("measured", "verified", "compiled")
        for row in state.record.get("compiled", ())
        if row["language"] == "CUDA C++"
    }
    known = shelf.readings
    page = SnippetPage(
        id=snippet.id,
        kind=snippet.kind,
        title=snippet.title or snippet.id,
        sections=snippet.sections,
        code=code_listings(snippet, stated.calls, sorted(kernels), repository),
        sources=[
            SourceLink(known[name].title, known[name].target) if name in known else SourceLink(name)
            for name in snippet.readings
        ],
        needs=snippet.needs,
        states=states,
        reported=list_claims(stated.reported, shelf),
        views=views,
        rivals=pairs,
        history={
            key: versions
            for (name, key), versions in (history.of if history else {}).items()
            if name == snippet.id
        },
    )
    return page, findings


def snippet_states(snippet: Snippet, ledger: Ledger) -> tuple[list[MachineState], list[Finding]]:
    """The state of a snippet on every machine that is known, and the faults of its records."""
    if snippet.findings:
        first = str(snippet.findings[0])
        return [MachineState(None, "failed", CPU, first)], list(snippet.findings)
    records, findings = store.load_records(snippet)
    known = [machine_state(snippet, key, found, ledger) for key, found in records.items()]
    for slug in ledger.tried_machines(snippet.id):
        failure = ledger.failure_line(snippet.id, slug, snippet.digest)
        if slug not in records and failure:
            known.append(MachineState(None, "failed", slug, failure))
    if not any(state.machine == CPU for state in known):
        why = snippet.cannot_run(None, 0) or ""
        known.append(MachineState(None, "not measured", CPU, why))
    known.sort(key=lambda state: state.machine.partition("."))  # else .2.json comes before .json
    apart: dict[str, str] = {}  # of several records of one kind of device, what tells them apart
    for slug in dict.fromkeys(record["machine"]["slug"] for record in records.values()):
        mine = {key: records[key] for key in store.record_keys(slug) if key in records}
        apart |= record_comparison.distinct_labels(mine)
    return [replace(state, apart=apart.get(state.machine, "")) for state in known], findings


def machine_state(snippet: Snippet, key: str, found: Record, ledger: Ledger) -> MachineState:
    """What a page may claim of one machine, by its record and this checkout's ledger."""
    slug = found["machine"]["slug"]
    run = snippet.id, slug, snippet.digest
    if failure := ledger.failure_line(*run):
        return MachineState(found, "failed", key, failure)
    if found["digest"] != snippet.digest:
        return MachineState(found, "stale", key)
    if found["machine"]["gpus"]:
        signed = store.attestation_path(snippet, key) if "job" in found.get("origin", {}) else None
        text = signed.read_text("utf-8") if signed and signed.is_file() else ""
        return MachineState(found, "measured", key, attestation=text)
    if found.get("facts") or figures.passed_results(found):
        here = "its demo run again here" if ledger.demo_alone(*run) else "verified here"
        return MachineState(found, "verified", key, here=here if ledger.has_passed(*run) else "")
    reasons = [skip["reason"] for skip in found.get("skips", ())]
    return MachineState(found, "compiled", key, "; ".join(dict.fromkeys(reasons)))


def code_listings(
    snippet: Snippet, calls: str = "", kernels: Sequence[str] = (), repository: str | None = None
) -> list[Listing]:
    """The files of a snippet, Triton or CUDA C++ first, the modules beside it last, unlabelled."""
    if snippet.findings:
        return []
    files = [("Triton" if snippet.uses_triton else "Python", "python", snippet.path)]
    if snippet.cuda_path is not None:
        files.insert(snippet.uses_triton, ("CUDA C++", "cuda", snippet.cuda_path))
    beside = snippet.modules
    files += [("", "python" if path.suffix == ".py" else "cuda", path) for path in beside]
    target = architectures.nvcc_target(snippet.needs)
    found = []
    for label, language, path in files:
        one = Listing(label, language, path.name, path.read_text("utf-8-sig", errors="replace"))
        # Compiler Explorer has none of the modules that one with neighbours imports.
        alone = label == "CUDA C++" or not beside
        imports = snippet.parsed.imports if snippet.parsed else ()
        explorer = listings.explorer_link(one, kernels, calls, imports) if alone else None
        ways = listings.source_links(snippet.id, one.name, repository, explorer, target)
        found.append(one._replace(ways=ways))
    return found


def load_published(snippet: Snippet) -> tuple[Published, list[Finding]]:
    """What others publish for a snippet, and what is wrong with its file."""
    return published.load_published(snippet.folder, snippet.project.relative_path(snippet.folder))


def list_claims(figures: Iterable[PublishedFigure], shelf: Shelf) -> list[Claim]:
    """The figures that others publish, if their reading is on the shelf."""
    return [
        Claim(figure, SourceLink(reading.title, reading.target), figure.url or reading.url)
        for figure in figures
        if (reading := shelf.readings.get(figure.reading))
    ]


def check_published(snippet: Snippet, shelf: Shelf) -> Iterator[Finding]:
    """What is wrong with what others publish for a snippet."""
    found, findings = load_published(snippet)
    yield from findings
    yield from check_claims(snippet, found.reported, shelf)
    yield from check_rivals(snippet, found.rivals)


def suggest_reading(name: str, shelf: Shelf) -> str:
    """How to mend an id that no reading has."""
    otherwise = "name the id of a reading in docs/"
    return f"{suggest_match(name, shelf.readings, otherwise)}, or add the reading"


def check_claims(
    snippet: Snippet, figures: Sequence[PublishedFigure], shelf: Shelf
) -> Iterator[Finding]:
    """What does not fit in the figures that others publish for a snippet."""
    asked = any(figure.case is not None for figure in figures)
    truth = store.current_record(snippet, CPU) if asked else None
    due = [row for row in truth.get("due", ()) if row["timed"]] if truth else None
    for figure in figures:
        name, case = figure.reading, figure.case
        if name not in shelf.readings and name not in shelf.refused:
            what = f"the reading {name!r} is not on the shelf"
            yield figure.make_finding(what, suggest_reading(name, shelf), "reading")
        if case is not None and snippet.kind != "kernel":
            what = f"case is given, but a {snippet.kind} has no cases"
            yield figure.make_finding(what, "remove it", "case")
        if case is None or due is None or snippet.kind != "kernel":
            continue  # cannot be checked without a current CPU record
        found = [row for row in due if matches_case(case, row["case"])]
        if len(found) != 1:
            what = f"case matches {len(found) or 'none'} of the {len(due)} timed cases, not one"
            mend = "give the keys that single one out, as in TIMED of cases.py"
            yield figure.make_finding(what, mend, "case")
            continue
        peers = found[0]["peers"]
        for key, known in (("variant", [*found[0]["variants"], *peers]), ("share_of", peers)):
            said = getattr(figure, key)
            if said is not None and said not in known:
                mend = f"write one of {', '.join(known)}" if known else "remove it"
                what = f"{key} is {said!r}, which that case does not have"
                yield figure.make_finding(what, mend, key)


def pair_rivals(
    snippet: Snippet, known: Iterable[Rival], views: Sequence[View]
) -> tuple[list[RivalComparison], list[Finding]]:
    """Each public kernel that was compiled from its present entry, and ours from `views`."""
    answers, wrong = builds.load_rivals(snippet)
    return [
        RivalComparison(one, answers[one.digest], our_builds(views, one))
        for one in known
        if one.digest in answers
    ], wrong


def check_rivals(snippet: Snippet, known: Sequence[Rival]) -> Iterator[Finding]:
    """What is wrong with the builds of the public kernels, beside a snippet's current views."""
    views = view_store.load_summaries(snippet)[0]
    found, findings = pair_rivals(snippet, known, views)
    yield from findings
    folder = " --checkouts FOLDER" if any(one.repository for one in known) else ""
    again = f"run `shelf rivals {snippet.id}{folder}`"
    done = {one.rival.digest for one in found}
    for rival in (one for one in known if one.digest not in done):
        yield rival.make_finding(f"{rival.kernel} has no build that matches its entry", again)
    if extra := builds.load_rivals(snippet)[0].keys() - done:
        what = f"holds builds that no entry of {snippet.id} names: {len(extra)}"
        yield Finding(builds.FILE, None, what, again if known else "remove its lines")
    by = {(one["variant"], one["kernel"]): one["compiler"] for one in views}
    for rival, answer, _ in found if views else ():  # cannot be checked without current views
        beside = rival.beside.variant, rival.beside.kernel
        if beside not in by:
            names = "; ".join(sorted(f"{variant}: {kernel}" for variant, kernel in by))
            what = f"beside names {': '.join(beside)}, which has no view"
            yield rival.make_finding(what, f"name one of {names}")
        # NVRTC and nvcc of one release are one compiler.
        elif not rival.package and by[beside] != answer.compiler.replace("nvcc", "NVRTC"):
            what = f"{rival.kernel} is compiled by {answer.compiler}, ours by {by[beside]}"
            yield rival.make_finding(what, again)
