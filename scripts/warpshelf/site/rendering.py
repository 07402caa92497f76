"""The fragments: all that pages include, written as the records and readings now have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from warpshelf.catalogue import exports, glossary, lists, paths
from warpshelf.catalogue.lists import Surroundings
from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.markup import passed_on
from warpshelf.core.project import Project
from warpshelf.look import kept
from warpshelf.records import attestation, history, ledger, schema
from warpshelf.render import pairs, reference, results
from warpshelf.render.exhibit import Exhibit
from warpshelf.render.fragments import fragments, pictures
from warpshelf.site import calculators, exhibits, holdings, home, inspection
from warpshelf.site.holdings import Holdings

PUBLISHED = ("measured", "verified", "compiled")
SORTS = ("triton", "cuda", "programs", "models")  # of snippets, each with a page of the reference

Texts = Mapping[str, str] | Mapping[str, bytes] | Mapping[str, str | bytes]  # by file


def render(project: Project) -> tuple[list[Finding], int]:
    """Write every fragment and every published record; what is no longer due is removed.

    Returns what was found wrong, and how many files changed.
    """
    held = holdings.gather(project)
    findings = list(held.findings)
    pages = exhibits.pages(held.pages, (one.id for one in held.snippets))
    texts = _lists(held, pages)
    shown, wrong = _exhibits(held)
    findings += wrong
    published: dict[str, str] = {}
    drawn = inspection.embedded_pictures(held.pages)
    for one in shown:
        for piece, text in fragments(one).items():
            texts[f"{one.id}/{piece}.md"] = text + "\n"
        for name, text in pictures(one, drawn.get(one.id, ())).items():
            texts[f"{one.id}/{name}.md"] = text
        for state in one.states:
            if state.state in PUBLISHED and state.record is not None:
                published[f"{one.id}/{state.machine}.json"] = schema.text(state.record)
                if state.attestation:
                    name = f"{one.id}/{state.machine}.{attestation.PUBLISHED}"
                    published[name] = state.attestation
    built, wrong = paths.paths(held.pages, held.shelf)
    findings += wrong
    texts |= paths.fragments(built, pages, shown)
    texts |= glossary.fragments(held.glossary, held.shelf, held.pages)
    texts["home/shelf.md"] = home.counts(held.shelf, shown)
    texts["home/result.md"] = home.result(shown, pages)
    texts["home/machines.md"] = home.machines(shown)
    texts["home/invitation.md"] = home.invitation(shown)
    texts["results/summary.md"] = results.summary(shown)
    texts["results/overview.md"] = results.overview(shown, pages)
    texts["results/machines.md"] = pairs.side_by_side(shown)
    texts["results/reach.md"] = results.table(shown, pages)
    texts["results/note.md"] = results.note(shown)
    live = calculators.render(project, held.pages, held.shelf, shown, pages)
    findings += live.findings
    texts |= live.fragments
    texts |= _references(held.snippets)
    changed = _mirror(project.fragments, {name: passed_on(text) for name, text in texts.items()})
    changed += _mirror(project.published_records, published)
    views, wrong = _views(held.snippets)
    findings += wrong
    changed += _mirror(project.published_views, views)
    changed += calculators.publish(project, live.files)
    files = {f"{one.id}/{file.name}": file.text for one in shown for file in one.code}
    changed += _mirror(project.published_sources, {**files, **_traces(held.snippets)})
    changed += _export(held, shown)
    return sorted(set(findings)), changed


def _views(snippets: Iterable[Snippet]) -> tuple[dict[str, bytes], list[Finding]]:
    """The views that pages load, compressed one by one, and what is wrong with others."""
    views: dict[str, bytes] = {}
    findings: list[Finding] = []
    for one in snippets:
        pages, wrong = kept.pages(one)
        views |= {f"{one.id}/{name}": data for name, data in pages.items()}
        findings += wrong
    return views, findings


def _traces(snippets: Iterable[Snippet]) -> dict[str, bytes]:
    """The recorded traces beside snippets, which a page hands to a viewer as they are."""
    return {
        f"{one.id}/{path.name}": path.read_bytes()
        for one in snippets
        for path in sorted(one.path.parent.glob("*.trace.json*"))
    }


def _lists(held: Holdings, pages: Mapping[str, str]) -> dict[str, str]:
    """The reading lists, and single readings where pages show them."""
    around = Surroundings(held.shelf, pages, held.health, lists.page(held.pages))
    exported = held.settings.address is not None
    texts = lists.fragments(around, held.settings.repository, exports=exported)
    texts |= lists.starts(around)
    texts[lists.EVERY_FRAGMENT] = lists.every_row(around, exports=exported)
    texts |= lists.singles(around, inspection.embedded_readings(held.pages))
    texts["readings/all.md"] = lists.contents(held.shelf)
    return texts


def _exhibits(held: Holdings) -> tuple[list[Exhibit], list[Finding]]:
    """What may be shown of each snippet."""
    targets = lists.reading_targets(held.shelf)
    book = ledger.load(held.project)
    past = history.read(held.project)
    address = held.settings.repository
    shown: list[Exhibit] = []
    findings: list[Finding] = []
    for one in held.snippets:
        if not snippet.ID.fullmatch(one.id):  # it has no page, and no anchor, of its own
            findings += one.findings
            continue
        exhibit, wrong = exhibits.exhibit(one, held.shelf, targets, book, address, past)
        findings += wrong
        shown.append(exhibit)
    return shown, findings


def _export(held: Holdings, shown: list[Exhibit]) -> int:
    """Write the lists for other programs, where the site's address is known."""
    project, address, name = held.project, held.settings.address, held.settings.name
    if address is None or name is None:
        return _mirror(project.exports, {})
    said = {where: page.description for where, page in held.pages.items()}
    texts = exports.files(held.shelf, shown, address, name, said)
    overview = exports.overview(held.shelf, address, name, said)
    written = write_atomically(project.docs / "llms.txt", overview, durable=False)
    return _mirror(project.exports, texts) + written


def _references(snippets: Iterable[Snippet]) -> dict[str, str]:
    """What the reference pages include: the contract of each snippet, the rooms of the tooling."""
    found: dict[str, list[str]] = {sort: [] for sort in SORTS}
    for one in snippets:
        if not one.findings:
            found[_sort(one)].append(one.id)
    texts = {f"reference/snippets/{sort}.md": _contracts(found[sort]) for sort in SORTS}
    return texts | {"reference/tooling.md": reference.rooms(Path(__file__).parents[1]) + "\n"}


def _contracts(names: list[str]) -> str:
    """What mkdocstrings makes the contracts of.

    It looks through all folders for what it has not read yet, so the first one has it read all.
    """
    blocks = [f"::: {name}\n" for name in names]
    if names[1:]:
        blocks[0] += f"    options:\n      preload_modules: [{', '.join(names)}]\n"
    return "\n".join(blocks) or "\n"


def _sort(one: Snippet) -> str:
    if one.kind == "kernel":
        return "cuda" if one.cuda_path is not None and not one.uses_triton else "triton"
    return f"{one.kind}s"


def _mirror(folder: Path, texts: Texts) -> int:
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
