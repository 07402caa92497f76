"""Serves the site while you write: MkDocs serves it, and a watcher renders what changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.site import build

PAUSE = 0.4  # seconds of quiet before a change is handled
LATER = 5.0  # the same for prose alone, so that MkDocs shows the page first
TOLD = re.compile(r"(?s:\A---.*?^---$)|^.*8<.*$|^ *#.*$", re.MULTILINE)
KINDS = (".yml", ".py", ".cu", ".cuh", ".hpp", ".h", ".json", ".md")


def serve_site(project: Project, address: str) -> int:
    """Serve with live reload: MkDocs rebuilds pages, the watcher renders readings and snippets."""
    build.require_builder("mkdocs")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # MkDocs must end with this process
    build.report_fragments(project)
    watcher = Watcher(project)
    observer = Observer()
    observer.schedule(watcher, str(project.docs), recursive=True)
    observer.schedule(watcher, str(project.snippets), recursive=True)
    observer.start()
    threading.Thread(target=watcher.run_forever, daemon=True).start()
    words = [sys.executable, "-m", "warpshelf.site.preview", address, str(project.fragments)]
    environment = build.child_environment()
    try:
        return subprocess.run(words, cwd=project.root, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 0
    finally:
        observer.stop()
        if watcher.run is not None:
            watcher.run.kill()  # its children go with it


class Watcher(FileSystemEventHandler):
    """Renders, and runs snippets, after a pause in the changes."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.changed: set[Path] = set()
        self.lock = threading.Lock()
        self.news = threading.Event()
        self.run: subprocess.Popen[bytes] | None = None  # that is under way
        self.told: dict[Path, list[str]] = {}
        for page in project.docs.rglob("*.md"):
            self.is_prose(page)

    def dispatch(self, event: FileSystemEvent) -> None:
        """Note a change that concerns us; called by watchdog."""
        if event.event_type in ("opened", "closed", "closed_no_write"):
            return
        # Many editors save by moving a new file over the old one.
        for path in (Path(os.fsdecode(p)) for p in (event.src_path, event.dest_path) if p):
            ours = path.suffix in KINDS and not path.name.startswith(".")
            if ours and not any(path.is_relative_to(one) for one in self.project.published):
                with self.lock:
                    self.changed.add(path)
                self.news.set()

    def run_forever(self) -> None:
        """Handle changes forever."""
        while True:
            self.news.wait()
            while self.news.is_set():
                self.news.clear()
                self.news.wait(PAUSE)
            with self.lock:
                prose = [self.is_prose(path) for path in self.changed]
            if all(prose) and self.news.wait(LATER):
                continue
            with self.lock:
                changed, self.changed = self.changed, set()
            self.handle_changes(changed)

    def is_prose(self, path: Path) -> bool:
        """Whether a page changed in prose alone, of which a rendering reads at most the length."""
        if path.suffix != ".md" or not path.is_file():
            return False
        told = TOLD.findall(path.read_text(encoding="utf-8", errors="replace"))
        known, self.told[path] = self.told.get(path), told
        return known == told

    def handle_changes(self, changed: set[Path]) -> None:
        """Run what is stale if code changed, then render."""
        code = [p for p in changed if p.suffix != ".json" and self.project.snippets in p.parents]
        if code and find_spec("torch") is not None:
            words = [sys.executable, "-m", "warpshelf", "run"]
            environment = build.child_environment()
            self.run = subprocess.Popen(words, cwd=self.project.root, env=environment)
            self.run.wait()
        try:
            build.report_fragments(self.project)
        except (OSError, ShelfError) as error:  # a file half saved: its next change mends it
            sys.stderr.write(f"not rendered: {error}\n")
