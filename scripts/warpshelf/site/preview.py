"""`mkdocs serve` that rebuilds only the pages whose text or includes changed.

`serve` starts it as a process of its own: no other module imports MkDocs. Rendered Markdown is kept
with a digest of its input, and the written page with one of what its template shows around it, so
that only changed pages cost time. The site is the same as after a whole build.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from mkdocs import utils
from mkdocs.__main__ import cli
from mkdocs.commands import build
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from warpshelf.site.finishing import finish_page, finish_styles
from warpshelf.site.parallel import rendered_state, restore_state, search_indices

LOG = logging.getLogger("mkdocs.preview")
INCLUDE = re.compile(r'-+8<-+[ \t]+"(?P<name>[^":\n]+)')


@dataclass
class CachedPage:
    """What became of a page: `inner` is the digest of its text, `outer` of it on the site."""

    inner: str = ""
    outer: str = ""
    state: dict[str, Any] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)  # its entries in the search index


class IncrementalPreview:
    """Replaces what MkDocs does to a page; everything else is MkDocs' own."""

    def __init__(self) -> None:
        self.pages: dict[str, CachedPage] = {}
        self.made: set[str] = set()
        self.around: tuple[object, str] = (None, "")  # a build's navigation, and its digest
        self.render, self.build = Page.render, build._build_page
        copy = Files.copy_static_files

        def render_cached(page: Page, config: MkDocsConfig, files: Files) -> None:
            self.render_page(page, config, files)

        def copy_changed(files: Files, dirty: bool = False, **more: Any) -> None:
            copy(files, True, **more)

        places: tuple[tuple[Any, str, Any], ...] = (
            (Page, "render", render_cached),
            (Files, "copy_static_files", copy_changed),
            (build, "_build_page", self.build_page),
            (utils, "clean_directory", lambda directory: None),  # it is new, and then ours
        )
        for owner, name, ours in places:
            setattr(owner, name, ours)

    def render_page(self, page: Page, config: MkDocsConfig, files: Files) -> None:
        """Render the Markdown of a page to HTML, unless it is unchanged."""
        where, text = page.file.src_uri, page.markdown or ""
        names = "\n".join(file.src_uri for file in files.documentation_pages())
        parts = (names, text, *included_texts(text, config))
        inner = hash_parts([*settings_bytes(config), *(part.encode() for part in parts)])
        kept = self.pages.get(where)
        if kept is None or kept.inner != inner:
            self.pages.pop(where, None)
            self.render(page, config, files)
            self.pages[where] = CachedPage(inner, "", rendered_state(page))
        else:
            restore_state(page, kept.state, files)

    def build_page(
        self, page: Page, config: MkDocsConfig, doc_files: Sequence[File], nav: Navigation,
        *rest: Any, **more: Any,
    ) -> None:  # fmt: skip
        """Write the page's file, unless all that it shows is unchanged."""
        where = page.file.src_uri
        if self.around[0] is not nav:
            finish_styles(Path(config.site_dir))
            titles = "\n".join(f"{one.title} {one.url}" for one in nav.pages)
            self.around = (nav, hash_parts([*settings_bytes(config), titles.encode()]))
        kept = self.pages.setdefault(where, CachedPage())
        outer = hash_parts([kept.inner.encode(), repr(page.meta).encode(), self.around[1].encode()])
        indices = search_indices(config)
        if kept.outer == outer and Path(page.file.abs_dest_path).is_file():
            for index in indices:
                index.entries += kept.found
            return
        if where in self.made:
            LOG.info("Rebuilding %s", where)
        self.made.add(where)
        before = [len(index.entries) for index in indices]
        self.build(page, config, doc_files, nav, *rest, **more)
        finish_page(Path(page.file.abs_dest_path))
        pairs = zip(indices, before, strict=True)
        kept.found = [entry for index, start in pairs for entry in index.entries[start:]]
        kept.outer = outer


def included_texts(text: str, config: MkDocsConfig) -> Iterator[str]:
    """The texts that pymdownx.snippets includes in `text`, and those that these include."""
    given = config.mdx_configs.get("pymdownx.snippets", {})
    bases = [Path(base) for base in given.get("base_path", ())]
    names = INCLUDE.findall(text)
    for name in names:  # which grows
        path = next((base / name for base in bases if (base / name).is_file()), None)
        inner = path.read_text("utf-8") if path else ""
        names += [more for more in INCLUDE.findall(inner) if more not in names]
        yield inner


def settings_bytes(config: MkDocsConfig) -> list[bytes]:
    """What every page depends on: the settings, those inherited too, and our templates."""
    theme = Path(str(config.theme.custom_dir or "nowhere"))
    paths = [Path(config.config_file_path), *sorted(theme.rglob("*.html"))]
    return [repr(config.mdx_configs).encode(), *(path.read_bytes() for path in paths)]


def hash_parts(parts: list[bytes]) -> str:
    """The digest of all parts in order."""
    whole = sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()


if __name__ == "__main__":
    IncrementalPreview()
    cli(["serve", "--dev-addr", sys.argv[1], "--watch", sys.argv[2]])
