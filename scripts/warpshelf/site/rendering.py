"""The fragments: all that pages include, the front page's among them, as things now stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from warpshelf.catalogue import exports, glossary, learning_paths, reading_lists
from warpshelf.catalogue.reading_lists import ReadingContext
from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.markup import escape_markdown, mark_unread, preformatted_block
from warpshelf.core.project import Project
from warpshelf.look import view_store
from warpshelf.readings.model import Shelf
from warpshelf.records import bundle, history, ledger, schema
from warpshelf.records.schema import Record
from warpshelf.records.store import key_slug
from warpshelf.render import listings, machine_comparison, results, snippet_page
from warpshelf.render.fragments import build_fragments, render_pictures
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.site import build_snippet_pages, calculators, inspection, project_content
from warpshelf.site.project_content import ProjectContent

# The generated parts of the front page: what the shelf holds, and one verified result.


def render_counts(shelf: Shelf, exhibits: Sequence[SnippetPage]) -> str:
    """How many readings, snippets and machines there are, as one line."""
    machines = {
        key_slug(state.machine)
        for exhibit in exhibits
        for state in exhibit.states
        if state.state in ("measured", "verified")
    }
    cases = sum(_count_passed(state) for exhibit in exhibits for state in _current_states(exhibit))
    rows = (
        (len(shelf.readings), "reading", "readings"),
        (len(exhibits), "snippet", "snippets"),
        (cases, "check passed", "checks passed"),
        (len(machines), "machine", "machines"),
    )
    items = "".join(
        f"<li><strong>{number:,}</strong> {one if number == 1 else many}</li>"
        for number, one, many in rows
    )
    return f'<ul class="ws-counts">{items}</ul>\n'


def render_machines(exhibits: Sequence[SnippetPage]) -> str:
    """On which machines the results were taken, in a sentence of a paragraph."""
    found = results.count_snippets(exhibits)
    if not found.gpus:
        return "So far each is of a CPU: no GPU has been measured yet.\n"
    return f"{escape_markdown(found.gpu_sentence)}\n"


def render_invitation(exhibits: Sequence[SnippetPage]) -> str:
    """What somebody with a GPU can add."""
    if not results.count_snippets(exhibits).gpus:
        first = (
            "No time is recorded here yet. Run the shelf on your machine, and hand in the first."
        )
        return f"{first}\n"
    return "Run the shelf on your machine, see it beside the others, and hand in its times.\n"


def _current_states(exhibit: SnippetPage) -> list[MachineState]:
    return exhibit.select_states("measured", "verified")


def _count_passed(state: MachineState) -> int:
    record = state.record or {}
    results = [
        result
        for case in record.get("cases", ())
        for result in case["results"]
        if result["verdict"] == "passed" and result["role"] == "variant"
    ]
    return len(results) + len(record.get("facts", ()))


def render_result(exhibits: Sequence[SnippetPage], pages: Mapping[str, str]) -> str:
    """A card with one real result: of the snippet measured last, else checked in most cases."""
    shown = [
        (exhibit, state)
        for exhibit in exhibits
        for state in _current_states(exhibit)
        if exhibit.kind == "kernel"
    ]
    if not shown:
        return '<p class="ws-absent">No result of the present code is recorded yet.</p>\n'
    exhibit, state = max(
        shown,
        key=lambda pair: (
            pair[1].state == "measured",
            pair[1].date[:10] if pair[1].state == "measured" else "",
            _count_passed(pair[1]),
        ),
    )
    record = state.record or {}
    verb = "Verified and timed" if state.state == "measured" else "Checked"
    rows = "\n".join(
        f"<div><dt>{escape_markdown(name)}</dt><dd>{escape_markdown(value)}</dd></div>"
        for name, value in _result_rows(record)
    )
    link = pages.get(exhibit.id)
    more = f"\n\n[See the kernel and every case]({link}){{ .ws-result-more }}" if link else ""
    return (
        f'<figure class="ws-result">\n<figcaption>{escape_markdown(exhibit.title)}</figcaption>\n'
        f"{preformatted_block(record['demo'])}\n<dl>\n{rows}\n</dl>\n"
        f'<p class="ws-origin">{verb} on {escape_markdown(snippet_page.origin_line(record))}</p>\n'
        f"</figure>{more}\n"
    )


def _result_rows(record: Record) -> list[tuple[str, str]]:
    """The worst error of our variants by dtype, against what is allowed, and the best rate."""
    worst: dict[str, tuple[float, float, int]] = {}
    for case in record.get("cases", ()):
        for found in case["results"]:
            if found["role"] != "variant" or found["verdict"] != "passed":
                continue
            dtype = str(case["case"].get("dtype", "float32"))
            error, allowed, count = worst.get(dtype, (0.0, found["tolerance"], 0))
            worst[dtype] = (max(error, found["error"]), allowed, count + 1)
    rows = [
        (
            f"worst error, {dtype}",
            f"{units.format_error(error)} of {units.format_error(allowed)} allowed, {count} checks",
        )
        for dtype, (error, allowed, count) in sorted(worst.items())
    ]
    return [*_fastest_row(record), *rows]


def _fastest_row(record: Record) -> list[tuple[str, str]]:
    """The best rate of ours over the timed cases which memory bounds."""
    rates = [
        (
            case["bytes"] / result["time"]["median"],
            result["name"],
            units.case_labels([case["case"]])[0],
        )
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant" and "time" in result
    ]
    if not rates:
        return []
    rate, name, label = max(rates)
    return [(f"fastest, {label}", f"{units.format_rate(rate, 'B/s')} by {name}")]


PUBLISHED = ("measured", "verified", "compiled")
SORTS = ("triton", "cuda", "programs", "models")  # of snippets, each with a page of the reference

Texts = Mapping[str, str] | Mapping[str, bytes] | Mapping[str, str | bytes]  # by file


def render_project(project: Project) -> tuple[list[Finding], int]:
    """Write every fragment and every published record; what is no longer due is removed.

    Returns what was found wrong, and how many files changed.
    """
    held = project_content.load_project(project)
    findings = list(held.findings)
    pages = build_snippet_pages.snippet_links(held.pages, (one.id for one in held.snippets))
    texts = _render_lists(held, pages)
    shown, wrong = _build_snippet_pages(held)
    findings += wrong
    published: dict[str, str] = {}
    drawn = inspection.embedded_pictures(held.pages)
    for one in shown:
        for piece, text in build_fragments(one).items():
            texts[f"{one.id}/{piece}.md"] = text + "\n"
        for name, text in render_pictures(one, drawn.get(one.id, ())).items():
            texts[f"{one.id}/{name}.md"] = text
        for state in one.states:
            if state.state in PUBLISHED and state.record is not None:
                published[f"{one.id}/{state.machine}.json"] = schema.record_text(state.record)
                if state.attestation:
                    name = f"{one.id}/{state.machine}.{bundle.PUBLISHED}"
                    published[name] = state.attestation
    built, wrong = learning_paths.build_paths(held.pages, held.shelf)
    findings += wrong
    texts |= learning_paths.render_paths(built, pages, shown)
    texts |= glossary.render_glossary(held.glossary, held.shelf, held.pages)
    texts["home/shelf.md"] = render_counts(held.shelf, shown)
    texts["home/result.md"] = render_result(shown, pages)
    texts["home/machines.md"] = render_machines(shown)
    texts["home/invitation.md"] = render_invitation(shown)
    texts["results/summary.md"] = results.render_counts(shown)
    texts["results/overview.md"] = results.results_table(shown, pages)
    texts["results/machines.md"] = machine_comparison.side_by_side(shown)
    texts["results/reach.md"] = results.architecture_tables(shown, pages)
    texts["results/note.md"] = results.gpu_note(shown)
    live = calculators.render_calculators(project, held.pages, held.shelf, shown, pages)
    findings += live.findings
    texts |= live.fragments
    texts |= _render_references(held.snippets)
    changed = _mirror_folder(
        project.fragments, {name: mark_unread(text) for name, text in texts.items()}
    )
    changed += _mirror_folder(project.published_records, published)
    views, wrong = _collect_views(held.snippets)
    findings += wrong
    changed += _mirror_folder(project.published_views, views)
    changed += calculators.publish_runtime(project, live.files)
    files = {f"{one.id}/{file.name}": file.text for one in shown for file in one.code}
    changed += _mirror_folder(
        project.published_sources, {**files, **_collect_traces(held.snippets)}
    )
    changed += _write_exports(held, shown)
    return sorted(set(findings)), changed


def _collect_views(snippets: Iterable[Snippet]) -> tuple[dict[str, bytes], list[Finding]]:
    """The views that pages load, compressed one by one, and what is wrong with others."""
    views: dict[str, bytes] = {}
    findings: list[Finding] = []
    for one in snippets:
        pages, wrong = view_store.page_files(one)
        views |= {f"{one.id}/{name}": data for name, data in pages.items()}
        findings += wrong
    return views, findings


def _collect_traces(snippets: Iterable[Snippet]) -> dict[str, bytes]:
    """The recorded traces beside snippets, which a page hands to a viewer as they are."""
    return {
        f"{one.id}/{path.name}": path.read_bytes()
        for one in snippets
        for path in sorted(one.path.parent.glob("*.trace.json*"))
    }


def _render_lists(held: ProjectContent, pages: Mapping[str, str]) -> dict[str, str]:
    """The reading lists, and single readings where pages show them."""
    around = ReadingContext(
        held.shelf, pages, held.health, reading_lists.all_readings_link(held.pages)
    )
    exported = held.settings.address is not None
    texts = reading_lists.render_lists(around, held.settings.repository, exports=exported)
    texts |= reading_lists.start_blocks(around)
    texts[reading_lists.EVERY_FRAGMENT] = reading_lists.all_readings_list(around, exports=exported)
    texts |= reading_lists.single_entries(around, inspection.embedded_readings(held.pages))
    texts["readings/all.md"] = reading_lists.render_contents(held.shelf)
    return texts


def _build_snippet_pages(held: ProjectContent) -> tuple[list[SnippetPage], list[Finding]]:
    """What may be shown of each snippet."""
    targets = reading_lists.reading_targets(held.shelf)
    book = ledger.load_ledger(held.project)
    past = history.read_history(held.project)
    address = held.settings.repository
    shown: list[SnippetPage] = []
    findings: list[Finding] = []
    for one in held.snippets:
        if not snippet.ID.fullmatch(one.id):  # it has no page, and no anchor, of its own
            findings += one.findings
            continue
        exhibit, wrong = build_snippet_pages.build_snippet_page(
            one, held.shelf, targets, book, address, past
        )
        findings += wrong
        shown.append(exhibit)
    return shown, findings


def _write_exports(held: ProjectContent, shown: list[SnippetPage]) -> int:
    """Write the lists for other programs, where the site's address is known."""
    project, address, name = held.project, held.settings.address, held.settings.name
    if address is None or name is None:
        return _mirror_folder(project.exports, {})
    said = {where: page.description for where, page in held.pages.items()}
    texts = exports.export_files(held.shelf, shown, address, name, said)
    overview = exports.llms_overview(held.shelf, address, name, said)
    written = write_atomically(project.docs / "llms.txt", overview, durable=False)
    return _mirror_folder(project.exports, texts) + written


def _render_references(snippets: Iterable[Snippet]) -> dict[str, str]:
    """What the reference pages include: the contract of each snippet, the rooms of the tooling."""
    found: dict[str, list[str]] = {sort: [] for sort in SORTS}
    for one in snippets:
        if not one.findings:
            found[_reference_group(one)].append(one.id)
    texts = {f"reference/snippets/{sort}.md": _contract_directives(found[sort]) for sort in SORTS}
    return texts | {
        "reference/tooling.md": listings.render_reference(Path(__file__).parents[1]) + "\n"
    }


def _contract_directives(names: list[str]) -> str:
    """What mkdocstrings makes the contracts of.

    It looks through all folders for what it has not read yet, so the first one has it read all.
    """
    blocks = [f"::: {name}\n" for name in names]
    if names[1:]:
        blocks[0] += f"    options:\n      preload_modules: [{', '.join(names)}]\n"
    return "\n".join(blocks) or "\n"


def _reference_group(one: Snippet) -> str:
    if one.kind == "kernel":
        return "cuda" if one.cuda_path is not None and not one.uses_triton else "triton"
    return f"{one.kind}s"


def _mirror_folder(folder: Path, texts: Texts) -> int:
    """Make `folder` hold just these files; how many were written or removed."""
    changed = sum(
        write_atomically(folder / name, text, durable=False) for name, text in texts.items()
    )
    due = {folder / name for name in texts}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in due:
            path.unlink()
            changed += 1
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    folder.mkdir(parents=True, exist_ok=True)
    return changed
