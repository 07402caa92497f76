"""The fragments: all that pages include, the generated parts of the front page among them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from warpshelf.catalogue import exports, glossary, learning_paths, reading_lists
from warpshelf.catalogue.reading_lists import ReadingContext
from warpshelf.contract import pictures
from warpshelf.contract.snippet import ID, Snippet
from warpshelf.core import places, units
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.markup import escape_markdown, mark_unread, preformatted_block
from warpshelf.core.pages import Page
from warpshelf.core.project import LIST, Project, is_made
from warpshelf.live import form, launches, runtime
from warpshelf.live.runtime import CalculatorSpec
from warpshelf.look import view_store
from warpshelf.readings.model import Shelf
from warpshelf.records import bundle, history, ledger, schema
from warpshelf.records.schema import Record
from warpshelf.records.store import key_slug
from warpshelf.render import fragments, listings, results, snippet_page
from warpshelf.render.figures import passed_results
from warpshelf.render.fragments import build_fragments, render_pictures
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.site import inspection, project_content
from warpshelf.site.project_content import ProjectContent

PUBLISHED = ("measured", "verified", "compiled")
# The pages of the reference by sort of snippet; a second one has those that no page of
# docs/kernels shows.
SORTS = {"triton": 2, "cuda": 1, "programs": 1, "models": 2}


def render_project(project: Project) -> tuple[list[Finding], int]:
    """Write every fragment and published record, and remove those no longer needed.

    Returns what is wrong, and how many files changed.
    """
    held = project_content.load_project(project)
    findings = list(held.findings)
    links = project_content.snippet_links(held.pages, (one.id for one in held.snippets))
    book, past = ledger.load_ledger(project), history.read_history(project)
    shown: list[SnippetPage] = []
    views: dict[str, bytes] = {}
    sources: dict[str, str | bytes] = {}
    for one in held.snippets:
        if ID.fullmatch(one.id):
            page, wrong = project_content.build_snippet_page(
                one, held.shelf, book, held.settings.repository, past
            )
            shown.append(page)
            findings += wrong
            sources |= {f"{one.id}/{file.name}": file.text for file in page.code}
        else:  # it has no page, and no anchor, of its own
            findings += one.findings
        files, wrong = view_store.page_files(one)
        findings += wrong
        views |= {f"{one.id}/{name}": data for name, data in files.items()}
        # Recorded traces beside a snippet, which a page hands to a viewer as they are.
        traces = one.folder.glob("*.trace.json*")
        sources |= {f"{one.id}/{path.name}": path.read_bytes() for path in traces}
    texts: dict[str, str] = {}
    records: dict[str, str] = {}
    drawn = inspection.embedded_pictures(held.pages)
    for _, match in project_content.find_embeds(held.pages, inspection.STEP):
        code = next((page.code for page in shown if page.id == match["id"]), ())
        with suppress(ValueError):  # the check says what is wrong, and the build what is missing
            texts[match[0]] = listings.render_step(code, match["old"], match["new"])
    for page in shown:
        for piece, text in build_fragments(page).items():
            texts[f"{page.id}/{piece}.md"] = text + "\n"
        for name, text in render_pictures(page, drawn.get(page.id, ())).items():
            texts[f"{page.id}/{name}.md"] = text
        for state in page.states:
            if state.state in PUBLISHED and state.record is not None:
                records[f"{page.id}/{state.machine}.json"] = schema.record_text(state.record)
                if state.attestation:
                    name = f"{page.id}/{state.machine}.{bundle.PUBLISHED}"
                    records[name] = state.attestation
    paths, wrong = learning_paths.build_paths(held.pages, held.shelf)
    findings += wrong
    forms, sent, wrong = render_calculators(project, held.pages, held.shelf, shown, links)
    findings += wrong
    embeds = project_content.find_embeds(held.pages, RUN)
    panels, packs, wrong = launches.render_panels(
        project, held.snippets, {match["id"] for _, match in embeds}
    )
    findings += wrong
    texts |= panels
    texts |= _render_lists(held, links)
    texts |= learning_paths.render_paths(paths, links, shown)
    texts |= glossary.render_glossary(held.glossary, held.shelf, held.pages)
    texts |= forms
    texts |= _render_references(held.snippets, links)
    texts |= {
        "home/shelf.md": render_counts(held.shelf, shown),
        "home/result.md": render_result(shown, links),
        "results/summary.md": results.render_counts(shown),
        "results/overview.md": results.results_table(shown, links),
        "results/machines.md": results.side_by_side(shown),
        "results/reach.md": results.architecture_tables(shown, links),
        **results.gpu_texts(shown),
    }
    proofs = {}
    for page in shown:
        link = links.get(page.id)
        topic = held.pages.get((link or "").partition(".md")[0].lstrip("/"))
        back = str(topic.meta.get("title", topic.where)) if topic else "Home"
        proofs[f"{page.id}.html"] = fragments.render_evidence(page, link, back)
    folders: dict[Path, Mapping[str, str | bytes]] = {
        project.published_evidence: proofs,
        project.fragments: {name: mark_unread(text) for name, text in texts.items()},
        project.published_records: records,
        project.published_views: views,
        project.published_runtime: sent | packs,
        project.published_sources: sources,
        project.exports: {},
    }
    changed = _write_lists(project, held.pages.values())
    address, title = held.settings.address, held.settings.name
    if address is not None and title is not None:
        said = {where: page.description for where, page in held.pages.items()}
        words = {reading_lists.WORDS: reading_lists.search_words(held.shelf)}
        lists = exports.export_files(held.shelf, shown, address, title, said)
        folders[project.exports] = lists | words
        overview = exports.llms_overview(held.shelf, address, title, said)
        changed += write_atomically(project.docs / "llms.txt", overview, durable=False)
    changed += sum(_mirror_folder(folder, files) for folder, files in folders.items())
    return sorted(set(findings)), changed


def _write_lists(project: Project, pages: Iterable[Page]) -> int:
    """Write the pages that are made and remove others of their kind; how many were changed.

    A file of somebody stays, and the check names it.
    """
    found = {*project.docs.rglob(f"{LIST}.md")}
    ours = set(filter(is_made, found))
    due = {project.docs / f"{one.where}.md": one.text for one in pages if one.made}
    for path in ours - due.keys():
        path.unlink()
    free = due.keys() - (found - ours)
    written = sum(write_atomically(path, due[path], durable=False) for path in sorted(free))
    return written + len(ours - due.keys())


def _mirror_folder(folder: Path, texts: Mapping[str, str | bytes]) -> int:
    """Make `folder` hold just these files; how many were written or removed."""
    due = {folder / name: text for name, text in texts.items()}
    changed = sum(write_atomically(path, text, durable=False) for path, text in due.items())
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in due:
            path.unlink()
            changed += 1
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _render_lists(held: ProjectContent, links: Mapping[str, str]) -> dict[str, str]:
    """The reading lists, and single readings where pages show them."""
    page = reading_lists.EVERY_PAGE
    every = f"/{page}" if page.removesuffix(".md") in held.pages else None
    around = ReadingContext(held.shelf, links, held.health, every)
    exported = held.settings.address is not None
    single = project_content.find_embeds(held.pages, inspection.READING)
    return {
        **reading_lists.render_lists(around, held.settings.repository, exports=exported),
        reading_lists.EVERY_FRAGMENT: reading_lists.all_readings_list(around, exports=exported),
        **reading_lists.single_entries(around, sorted({match["id"] for _, match in single})),
        "readings/all.md": reading_lists.render_contents(held.shelf),
    }


def _render_references(snippets: Iterable[Snippet], links: Mapping[str, str]) -> dict[str, str]:
    """What the reference pages include: the contract of each snippet, the rooms of the tooling."""
    found = {f"{sort}{place}": list[str]() for sort, n in SORTS.items() for place in ("", "-2")[:n]}
    for one in snippets:
        kernel = "cuda" if one.cuda_path is not None and not one.uses_triton else "triton"
        sort = kernel if one.kind == "kernel" else f"{one.kind}s"
        apart = SORTS[sort] > 1 and not links.get(one.id, "").startswith("/kernels/")
        if not one.findings:
            found[f"{sort}-2" if apart else sort].append(one.id)
    texts = {"reference/tooling.md": listings.render_reference(Path(__file__).parents[1]) + "\n"}
    for sort, names in found.items():
        blocks = [f"::: {name}\n" for name in names]
        if names[1:]:
            # mkdocstrings searches all folders for a module it has not loaded, so the first block
            # loads them all.
            blocks[0] += f"    options:\n      preload_modules: [{', '.join(names)}]\n"
        texts[f"reference/snippets/{sort}.md"] = "\n".join(blocks) or "\n"
    return texts


# The generated parts of the front page: what the shelf holds, and one verified result.


def render_counts(shelf: Shelf, shown: Sequence[SnippetPage]) -> str:
    """How many readings, snippets and machines there are, as one line."""
    states = [one for page in shown for one in page.select_states("measured", "verified")]
    rows = (
        (len(shelf.readings), "reading", "readings"),
        (len(shown), "snippet", "snippets"),
        (sum(map(_count_passed, states)), "check passed", "checks passed"),
        (len({key_slug(state.machine) for state in states}), "machine", "machines"),
    )
    items = "".join(
        f"<li><strong>{number:,}</strong> {one if number == 1 else many}</li>"
        for number, one, many in rows
    )
    return f'<ul class="ws-counts">{items}</ul>\n'


def _count_passed(state: MachineState) -> int:
    return len(passed_results(state.known)) + len(state.known.get("facts", ()))


def render_result(shown: Sequence[SnippetPage], links: Mapping[str, str]) -> str:
    """A card with one real result: the snippet measured last, else the one with most checks."""
    kernels = [page for page in shown if page.kind == "kernel"]
    pairs = [
        (page, state) for page in kernels for state in page.select_states("measured", "verified")
    ]
    if not pairs:
        return '<p class="ws-absent">No result of the present code is recorded yet.</p>\n'

    def rank(pair: tuple[SnippetPage, MachineState]) -> tuple[str, int]:
        state = pair[1]
        return state.date[:10] if state.state == "measured" else "", _count_passed(state)

    page, state = max(pairs, key=rank)
    record = state.known
    verb = "Verified and timed" if state.state == "measured" else "Checked"
    rows = "\n".join(
        f"<div><dt>{escape_markdown(name)}</dt><dd>{escape_markdown(value)}</dd></div>"
        for name, value in _result_rows(record)
    )
    link = links.get(page.id)
    more = f"\n\n[See the kernel and every case]({link}){{ .ws-result-more }}" if link else ""
    return (
        f'<figure class="ws-result">\n<figcaption>{escape_markdown(page.title)}</figcaption>\n'
        f"{preformatted_block(record['demo'])}\n<dl>\n{rows}\n</dl>\n"
        f'<p class="ws-origin">{verb} on {escape_markdown(snippet_page.origin_line(record))}</p>\n'
        f"</figure>{more}\n"
    )


def _result_rows(record: Record) -> list[tuple[str, str]]:
    """Our best rate over the timed memory-bound cases, and the worst error of each dtype."""
    passed = passed_results(record)
    rates = [
        (c["bytes"] / r["time"]["median"], r["name"], units.case_labels([c["case"]])[0])
        for c, r in passed
        if "time" in r
    ]
    rows = []
    if rates:
        rate, name, label = max(rates)
        rows.append((f"fastest, {label}", f"{units.format_rate(rate, 'B/s')} by {name}"))
    by_dtype: dict[str, list[Record]] = {}
    for case, result in passed:
        by_dtype.setdefault(str(case["case"].get("dtype", "float32")), []).append(result)
    for dtype, found in sorted(by_dtype.items()):
        error = units.format_error(max(one["error"] for one in found))
        allowed = units.format_error(found[0]["tolerance"])
        rows.append((f"worst error, {dtype}", f"{error} of {allowed} allowed, {len(found)} checks"))
    return rows


# The calculators: their fragments, and the files that a browser runs them with.

CALCULATOR = r"calculators/(?P<id>[a-z][a-z0-9_]*)\.md"
RUN = r"runs/(?P<id>[a-z][a-z0-9_]*)\.md"
WITHHELD = (
    '<p class="ws-absent">The calculator is withheld: its model could not be run when this page '
    "was built.</p>\n"
)


def render_calculators(
    project: Project, written: Mapping[str, Page], shelf: Shelf, shown: Sequence[SnippetPage],
    snippet_pages: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str | bytes], list[Finding]]:  # fmt: skip
    """Every calculator that a page shows, with the results of its defaults."""
    embeds = project_content.find_embeds(written, CALCULATOR)
    where = {match["id"]: f"{page.where}.md" for page, match in embeds}
    there = [name for name in runtime.list_calculators(project) if name in where]
    fragments = {f"calculators/{name}.md": WITHHELD for name in there}
    findings: list[Finding] = []
    contexts: dict[str, dict[str, Any]] = {}
    described = runtime.describe_calculators(project, there)
    models = {page.id: page for page in shown}
    for name, one in described.items():
        path = f"snippets/{name}/{runtime.CALCULATOR}"
        findings.extend(Finding(path, None, fault, "fix it") for fault in one["faults"])
        if not one["faults"] and name in models:
            read = (file.read_text("utf-8") for file in runtime.model_files(project, name).values())
            text, link = "".join(read), snippet_pages.get(name)
            sources = {
                id_: [reading.title, _site_address(reading.target)]
                for id_, reading in sorted(shelf.readings.items())
                if f'"{id_}"' in text
            }
            # What its answers link to, and how far its predictions were off.
            page = link and _site_address(link)
            bands = error_bands(models[name])
            contexts[name] = {"sources": sources, "bands": bands, "page": page}
            findings.extend(_unknown_references(path, one, models[name], sources))
    if not contexts:
        return fragments, {}, findings
    file, text = runtime.models_file(project, contexts)
    files: dict[str, str | bytes] = {file: text}
    addresses, weight = {}, 0
    if python := runtime.cached_runtime(project):  # without it, nothing is asked for
        files |= {f"{python.name}/{path.name}": path.read_bytes() for path in python.iterdir()}
        addresses = {"models": f"runtime/{file}", "python": f"runtime/{python.name}/"}
        weight = runtime.transfer_bytes(python)
    for name, context in contexts.items():
        one, root = described[name], places.OnPage(where[name]).relative_link("/index.md")
        fragments[f"calculators/{name}.md"] = form.render_calculator(
            name, one["inputs"], one["result"], context, root, addresses, weight
        )
    return fragments, files, findings


def _site_address(target: str) -> str:
    """The address below the site's own of a docs-absolute link."""
    page, mark, anchor = target.lstrip("/").partition("#")
    return f"{places.page_address(page)}{mark}{anchor}"


def error_bands(page: SnippetPage) -> dict[str, dict[str, float]]:
    """The largest error of half, nine in ten and all of a model's predictions, by data set."""
    states = page.select_states("measured", "verified")
    offered = (s.record["predictions"] for s in states if s.record and "predictions" in s.record)
    bands = {}
    for one in pictures.errors_by_set(next(offered, [])):
        if errors := sorted(one.errors):
            half, most = (errors[math.ceil(share * len(errors)) - 1] for share in (0.5, 0.9))
            bands[one.name] = {
                "count": len(errors), "half": half, "most": most, "worst": errors[-1]
            }  # fmt: skip
    return bands


def _unknown_references(
    path: str, one: CalculatorSpec, page: SnippetPage, sources: Mapping[str, Any]
) -> Iterator[Finding]:
    """Lines of the defaults' result whose test or source does not exist."""
    facts = {
        fact["name"]
        for state in page.select_states("measured", "verified")
        for key in ("facts", "predictions", "goals")
        for fact in state.known.get(key, ())
    }
    for row in one["result"]["rows"]:
        if facts and row["test"] not in facts:
            what = f"the line {row['name']!r} names the fact {row['test']!r}, which is unknown"
            yield Finding(path, None, what, "name a fact of cases.py")
        if row["source"] not in sources:
            what = f"the line {row['name']!r} has the source {row['source']!r}, not a reading id"
            yield Finding(path, None, what, "name the id of a reading in docs/")
