"""The site: records and readings rendered to fragments, then built or served by MkDocs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from warpshelf import (
    everything,
    exhibits,
    exports,
    health,
    home,
    inspection,
    ledger,
    paths,
    readings,
    shelves,
    snippet,
    timelines,
)
from warpshelf import pages as webpages
from warpshelf.files import dump, write_atomically
from warpshelf.findings import Finding, ShelfError
from warpshelf.fragments import Exhibit, fragments
from warpshelf.item import Room
from warpshelf.pages import Page
from warpshelf.project import Project

PUBLISHED = ("measured", "verified", "compiled")
PAUSE = 0.4  # seconds of quiet before a change is taken up


@dataclass(frozen=True)
class Rendered:
    """What a rendering found wrong, and how many files it changed."""

    findings: list[Finding]
    changed: int


def render(project: Project) -> Rendered:
    """Write every fragment and every published record; what is no longer due is removed."""
    found = snippet.discover(project)
    pages = exhibits.pages(project, (one.id for one in found))
    shelf = readings.load(project.root)
    targets = shelves.reading_targets(shelf)
    book = ledger.load(project)
    findings = list(shelf.findings)
    site = _setting(project, r"site_url: *(https?://\S+)")
    known, wrong = _health(project)
    findings.extend(wrong)
    room = Room(shelf, pages, known, everything.page(project))
    texts = shelves.fragments(room, repository(project), exports=site is not None)
    texts[everything.FRAGMENT] = everything.rows(room, exports=site is not None)
    written, wrong = webpages.load(project)
    findings.extend(wrong)
    texts |= shelves.singles(room, inspection.embedded_readings(written))
    texts["readings/all.md"] = shelves.contents(shelf)
    texts |= timelines.fragments()
    published: dict[str, str] = {}
    shown = []
    for one in found:
        if not snippet.ID.fullmatch(one.id):  # it has no page, and no anchor, of its own
            findings.extend(one.findings)
            continue
        exhibit, wrong = exhibits.exhibit(one, shelf, targets, book)
        findings.extend(wrong)
        shown.append(exhibit)
        for piece, text in fragments(exhibit).items():
            texts[f"{one.id}/{piece}.md"] = text + "\n"
        for state in exhibit.states:
            if state.state in PUBLISHED and state.record is not None:
                published[f"{one.id}/{state.machine}.json"] = dump(state.record)
    texts["home/shelf.md"] = home.counts(shelf, shown)
    texts["home/result.md"] = home.result(shown, pages)
    sound = [one.id for one in found if not one.findings]
    texts["reference/snippets.md"] = _reference(f"snippets.{name}.{name}" for name in sound)
    modules = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    texts["reference/tooling.md"] = _reference(f"warpshelf.{name}" for name in modules)
    built, wrong = paths.paths(written, shelf)
    findings.extend(wrong)
    texts |= paths.fragments(built, pages, {exhibit.id: exhibit.title for exhibit in shown})
    changed = _mirror(project.fragments, texts) + _mirror(project.published_records, published)
    changed += _export(project, shelf, shown, written)
    return Rendered(sorted(set(findings)), changed)


def _health(project: Project) -> tuple[dict[str, health.Health], list[Finding]]:
    """What is known of the links; a file that cannot be read takes no reading off its page."""
    try:
        return health.load(project.root), []
    except ShelfError as error:
        return {}, error.findings


def _export(
    project: Project, shelf: readings.Shelf, shown: list[Exhibit], written: dict[str, Page]
) -> int:
    """Write the lists for other programs, where the site's address is known."""
    address = _setting(project, r"site_url: *(https?://\S+)")
    name = _setting(project, r"site_name: *(.+?) *$")
    if address is None or name is None:
        return _mirror(project.exports, {})
    said = {where: page.description for where, page in written.items()}
    texts = exports.files(shelf, shown, address, name, said)
    overview = exports.overview(shelf, address, name, said)
    return _mirror(project.exports, texts) + write_atomically(project.docs / "llms.txt", overview)


def repository(project: Project) -> str | None:
    """The project's address, as mkdocs.yml gives it in `edit_uri_template`."""
    return _setting(project, r"edit_uri_template: *(https://\S+?)/edit/")


def _setting(project: Project, line: str) -> str | None:
    """What the line of mkdocs.yml that starts like the expression `line` says."""
    text = (project.root / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.search(f"^{line}", text, re.M)
    return found[1] if found else None


def _reference(names) -> str:
    return "\n\n".join(f"::: {name}" for name in names) + "\n"


def _mirror(folder: Path, texts: dict[str, str]) -> int:
    """Make `folder` hold just these files; how many were written or removed."""
    changed = sum(write_atomically(folder / name, text) for name, text in texts.items())
    due = {folder / name for name in texts}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in due:
            path.unlink()
            changed += 1
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def build(project: Project, site_dir: Path | None = None) -> int:
    """Render and build, strictly; 0 where nothing at all was wrong.

    A snippet or reading with a fault loses its place on the page, and the rest is built as usual.
    """
    _need_mkdocs()
    rendered = render(project)
    for finding in rendered.findings:
        sys.stderr.write(f"{finding}\n")
    target = (site_dir or project.root / "site").resolve()
    words = [*_mkdocs(), "build", "--strict", "--site-dir", str(target)]
    status = subprocess.run(words, cwd=project.root, env=_environment(), check=False).returncode
    return 1 if status or rendered.findings else 0


def serve(project: Project, address: str) -> int:
    """Serve with live reload: pages by MkDocs, readings and snippets by rendering them anew.

    A snippet whose code changes is run again first, where torch is installed.
    """
    _need_mkdocs()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # MkDocs must end with this process
    for finding in render(project).findings:
        sys.stderr.write(f"{finding}\n")
    from watchdog.observers import Observer

    watcher = _Watcher(project)
    observer = Observer()
    observer.schedule(watcher, str(project.docs), recursive=True)
    observer.schedule(watcher, str(project.snippets), recursive=True)
    observer.start()
    worker = threading.Thread(target=watcher.work, daemon=True)
    worker.start()
    words = [*_mkdocs(), "serve", "--dev-addr", address, "--watch", str(project.fragments)]
    try:
        return subprocess.run(words, cwd=project.root, env=_environment(), check=False).returncode
    except KeyboardInterrupt:
        return 0
    finally:
        observer.stop()
        watcher.end()


class _Watcher:
    """Renders, and runs snippets, after a pause in the changes."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.changed: set[Path] = set()
        self.lock = threading.Lock()
        self.news = threading.Event()
        self.run: subprocess.Popen | None = None

    def dispatch(self, event) -> None:
        """Note a change that concerns us; called by watchdog."""
        if event.event_type in ("opened", "closed", "closed_no_write"):
            return
        # Many editors save by moving a new file over the old one.
        places = filter(None, (event.src_path, getattr(event, "dest_path", "")))
        ours = {path for path in map(Path, map(os.fsdecode, places)) if self._concerns(path)}
        if not ours:
            return
        with self.lock:
            self.changed |= ours
        self.news.set()

    def _concerns(self, path: Path) -> bool:
        kinds = (".yml", ".py", ".cu", ".cuh", ".hpp", ".h", ".json", ".md")
        ours = (self.project.published_records, self.project.exports)
        own = any(path.is_relative_to(folder) for folder in ours)
        return path.suffix in kinds and not own and not path.name.startswith(".")

    def work(self) -> None:
        """Take up changes for ever."""
        while True:
            self.news.wait()
            while self.news.is_set():
                self.news.clear()
                self.news.wait(PAUSE)
            with self.lock:
                changed, self.changed = self.changed, set()
            self.take_up(changed)

    def take_up(self, changed: set[Path]) -> None:
        """Run what is stale if code changed, then render."""
        code = [p for p in changed if p.suffix != ".json" and self.project.snippets in p.parents]
        if code and find_spec("torch") is not None:
            words = [sys.executable, "-m", "warpshelf", "run"]
            self.run = subprocess.Popen(words, cwd=self.project.root, env=_environment())
            self.run.wait()
        try:
            for finding in render(self.project).findings:
                sys.stderr.write(f"{finding}\n")
        except (OSError, ShelfError) as error:  # a file half saved: its next change mends it
            sys.stderr.write(f"not rendered: {error}\n")

    def end(self) -> None:
        """End the run that is under way, if there is one; its children go with it."""
        if self.run is not None:
            self.run.kill()


def _mkdocs() -> list[str]:
    return [sys.executable, "-m", "mkdocs"]


def _environment() -> dict[str, str]:
    ours = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}


def _need_mkdocs() -> None:
    if find_spec("mkdocs") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("mkdocs", None, what, "run `make pages`, which installs it"))
