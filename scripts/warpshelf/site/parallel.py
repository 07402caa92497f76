"""`mkdocs build` in two processes: one goes through the pages forwards, its fork backwards.

`build` starts it as a process of its own. What becomes of a page in the fork comes back in a file,
with what was logged, so that the first process says it once and in order. They meet where they
meet; a page that both have begun is made twice, alike. Pages of mkdocstrings are left to the first
process, since references find there what was rendered.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import re
from collections.abc import Callable, Sequence
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from mkdocs.__main__ import cli
from mkdocs.commands import build
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from warpshelf.site.finishing import finish_page, finish_site

LOG = logging.getLogger("mkdocs")
RENDERED = ("content", "toc", "_title_from_render", "present_anchor_ids")
DOCUMENTED = re.compile(r"^(?:::: |--8<-- \"reference/)", re.MULTILINE)


def rendered_state(page: Page) -> dict[str, Any]:
    """What rendering its Markdown made of a page."""
    links = {file.src_uri: to for file, to in (page.links_to_anchors or {}).items()}
    return {**{name: getattr(page, name) for name in RENDERED}, "links": links}


def restore_state(page: Page, state: dict[str, Any], files: Files) -> None:
    """Give a page what rendering made of it."""
    vars(page).update({name: state[name] for name in RENDERED})
    found = ((files.get_file_from_path(name), to) for name, to in state["links"].items())
    page.links_to_anchors = {file: to for file, to in found if file}


def search_indices(config: MkDocsConfig) -> list[Any]:
    """The indices of search plugins."""
    indices = (getattr(plugin, "search_index", None) for plugin in config.plugins.values())
    return [index for index in indices if hasattr(index, "entries")]


class Fork:
    """Works through pages from the last to the first, beside this process, until it is stopped."""

    def __init__(self, pages: Sequence[Page], work: Callable[[Page], Any]) -> None:
        self.folder = TemporaryDirectory(prefix="pages-")
        self.end = Path(self.folder.name, "end")
        self.parent = os.getpid()
        self.child = os.fork() if hasattr(os, "fork") and (os.cpu_count() or 1) > 1 else -1
        if self.child == 0:
            try:
                self._work_backwards(pages, work)
            finally:  # whatever failed, the first process does it again, and says so
                os._exit(0)

    def _file(self, page: Page) -> Path:
        return Path(self.folder.name, quote(page.file.src_uri, safe=""))

    def _work_backwards(self, pages: Sequence[Page], work: Callable[[Page], Any]) -> None:
        said: SimpleQueue[logging.LogRecord] = SimpleQueue()
        LOG.handlers = [QueueHandler(said)]
        for page in reversed(pages):
            if self.end.exists() or os.getppid() != self.parent:
                return
            made = work(page)
            data = pickle.dumps((made, [said.get() for _ in range(said.qsize())]))
            file = self._file(page)
            file.with_suffix(".part").write_bytes(data)
            file.with_suffix(".part").rename(file)

    def take(self, page: Page) -> Any:
        """What the work made of a page, or None where it has not come so far."""
        file = self._file(page)
        if not file.exists():
            return None
        made, records = pickle.loads(file.read_bytes())
        for record in records:
            logging.getLogger(record.name).handle(record)
        return made

    def stop(self) -> None:
        """End it after the page that it is at."""
        if self.child > 0:
            self.end.touch()
            os.waitpid(self.child, 0)
            self.child = -1
        self.folder.cleanup()


class ParallelBuild:
    """Replaces what MkDocs does to a page; everything else is MkDocs' own."""

    def __init__(self) -> None:
        self.fork: Fork | None = None
        self.built: set[Path] = set()
        self.site = Path()
        self.render, self.populate = Page.render, build._populate_page
        self.build = build._build_page

        def render_page(page: Page, config: MkDocsConfig, files: Files) -> None:
            if state := self.fork and self.fork.take(page):
                restore_state(page, state, files)
            else:
                self.render(page, config, files)

        places: tuple[tuple[Any, str, Any], ...] = (
            (Page, "render", render_page),
            (build, "_populate_page", self.populate_page),
            (build, "_build_page", self.build_page),
        )
        for owner, name, ours in places:
            setattr(owner, name, ours)

    def populate_page(self, page: Page, config: MkDocsConfig, files: Files, *rest: Any) -> None:
        """Read a page and render its Markdown."""

        def populate(one: Page) -> dict[str, Any]:
            self.populate(one, config, files)
            return rendered_state(one)

        if self.fork is None:
            found = [file.page or Page(None, file, config) for file in files.documentation_pages()]
            texts = ((one, Path(one.file.abs_src_path or "").read_bytes()) for one in found)
            apart = [one for one, text in texts if not DOCUMENTED.search(text.decode("utf-8"))]
            self.fork = Fork(apart, populate)
        self.populate(page, config, files, *rest)

    def build_page(
        self, page: Page, config: MkDocsConfig, doc_files: Sequence[File], *rest: Any, **more: Any
    ) -> None:
        """Write the file of a page."""

        def build_one(one: Page) -> list[list[Any]]:
            indices = search_indices(config)
            before = [len(index.entries) for index in indices]
            self.build(one, config, doc_files, *rest, **more)
            finish_page(Path(one.file.abs_dest_path))
            pairs = zip(indices, before, strict=True)
            return [index.entries[start:] for index, start in pairs]

        if not self.built:
            self.stop()
            self.site = Path(config.site_dir)
            self.fork = Fork([file.page for file in doc_files if file.page], build_one)
        self.built.add(Path(page.file.abs_dest_path))
        made = self.fork.take(page) if self.fork else None
        if made is None:
            build_one(page)
        else:
            for index, entries in zip(search_indices(config), made, strict=True):
                index.entries += entries

    def stop(self) -> None:
        """End what works beside."""
        if self.fork:
            self.fork.stop()


def main() -> None:
    """Run `mkdocs` with the arguments of this process."""
    gc.set_threshold(200_000, 50, 100)  # pages are trees of many small objects
    pages = ParallelBuild()
    try:
        cli(prog_name="mkdocs")
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        pages.stop()
    finish_site(pages.site, pages.built)


if __name__ == "__main__":
    main()
