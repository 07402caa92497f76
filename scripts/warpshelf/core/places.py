"""How what is shown on a page is written, and how it links to other pages of the site.

A list stands on one known page. It is HTML alone, which the build passes on as it is, with links
written out relative to that page: that is what makes ten thousand entries cheap. A piece that may
stand on any page has Markdown links instead, which the build resolves where the piece is shown.
"""

from __future__ import annotations

import html
import posixpath
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from warpshelf.core import markup


def page_address(page: str) -> str:
    """The address of a page below the site's own: `kernels/softmax.md` -> `kernels/softmax/`."""
    stem = page.removesuffix(".md")
    folder, _, name = stem.rpartition("/")
    where = folder if name in ("index", "README") else stem
    return f"{quote(where)}/" if where else ""


def whole_address(where: str, site: str) -> str:
    """The address of the page `where`, such as `kernels/softmax`, of a site at `site`."""
    return f"{site.rstrip('/')}/{page_address(f'{where}.md')}"


@dataclass(frozen=True)
class OnPage:
    """On the page `page`, such as `kernels/softmax.md`."""

    page: str
    markdown: str = ""  # the attribute by which a paragraph's links are read as Markdown
    inner: str = ""  # the same for what holds paragraphs
    heading: str = "h3"  # each entry is a section of its own, which the search finds

    def escape_text(self, text: str) -> str:
        """HTML that shows `text`, on one line; also for a value in double quotes."""
        return html.escape(markup.join_lines(text))

    def relative_link(self, target: str) -> str:
        """The relative link to a docs-absolute page, `/models/roofline.md#reading`, or a file."""
        parts = urlsplit(target)
        path = parts.path.lstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        if path == self.page and anchor and not query:
            return anchor
        goal = page_address(path) if path.endswith(".md") else quote(path)
        way = posixpath.relpath(f"/{goal}", f"/{page_address(self.page)}")
        return way + ("/" if not goal or goal.endswith("/") else "") + query + anchor

    def link(self, shown: str, target: str, named: str = "") -> str:
        """A link to the docs-absolute `target` around `shown`, with the class `named`."""
        css = f' class="{named}"' if named else ""
        href = self.escape_text(self.relative_link(target))
        return f'<a{css} href="{href}">{self.escape_text(shown)}</a>'


@dataclass(frozen=True)
class Anywhere:
    """On whichever page includes the piece."""

    markdown: str = " markdown"
    inner: str = ' markdown="block"'
    heading: str = "p"  # no line of the page's table of contents

    def escape_text(self, text: str) -> str:
        """Markdown and HTML that show `text`, on one line; also for a value in double quotes."""
        return markup.escape_markdown(text)

    def link(self, shown: str, target: str, named: str = "") -> str:
        """A link to the docs-absolute `target` around `shown`, with the class `named`."""
        css = f"{{ .{named} }}" if named else ""
        return f"[{self.escape_text(shown)}]({target}){css}"


Place = OnPage | Anywhere


def external_link(place: Place, shown: str, url: str, more: str = "") -> str:
    """A link off the site; ValueError for what is no web address (`markup.quote_href`)."""
    markup.quote_href(url)
    return f'<a href="{place.escape_text(url)}"{more}>{place.escape_text(shown)}</a>'
