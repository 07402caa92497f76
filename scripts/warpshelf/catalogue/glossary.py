"""The glossary as fragments: the list that its page includes, and what every page shows on hover.

`glossary/terms.md` is the page's list. It is HTML alone, so that no term is marked inside its own
entry. `glossary/abbreviations.md` has a line `*[form]: sentence` for each spelling; mkdocs.yml
appends it to every page, and Markdown then marks the spelling wherever prose has it, never in code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from warpshelf.catalogue.terms import GROUPS, Glossary, Term
from warpshelf.core.pages import Page
from warpshelf.core.places import OnPage, out
from warpshelf.readings.model import Shelf

PAGE = "glossary.md"
EMPTY = '<p class="ws-empty">No term is defined yet.</p>\n'


def fragments(glossary: Glossary, shelf: Shelf, pages: Mapping[str, Page]) -> dict[str, str]:
    """Both fragments; without terms there is nothing to hover over."""
    return {
        "glossary/terms.md": _list(glossary.terms, shelf, pages) if glossary.terms else EMPTY,
        "glossary/abbreviations.md": abbreviations(glossary.terms),
    }


def abbreviations(terms: Iterable[Term]) -> str:
    """A line for each spelling, and for the same with a capital, as a sentence begins with it."""
    texts: dict[str, str] = {}
    for term in terms:
        for form in term.forms:
            texts.setdefault(form, _hover(term, form))
    for form, text in list(texts.items()):
        texts.setdefault(form[0].upper() + form[1:], text)
    # A block each: Markdown tries every rule on a block, and on one of all lines as often as it has
    # lines.
    return "\n".join(f"*[{form}]: {text}\n" for form, text in sorted(texts.items()))


def _hover(term: Term, form: str) -> str:
    """The sentence, after the long name where `form` is a shorter one."""
    name = max(term.term, term.long, key=len) if term.long else ""
    return f"{name}: {term.says}" if len(form) < len(name) else term.says


def _list(terms: Sequence[Term], shelf: Shelf, pages: Mapping[str, Page]) -> str:
    place = OnPage(PAGE)
    blocks = [f'<p class="ws-total">{len(terms)} terms.</p>', _index(terms, place)]
    for group, title in GROUPS.items():
        own = sorted((term for term in terms if term.group == group), key=lambda one: one.order)
        if own:
            rows = "\n".join(_entry(term, shelf, pages, place) for term in own)
            blocks += [f"## {title}", f'<div class="ws-terms">\n{rows}\n</div>']
    return "\n\n".join(blocks) + "\n"


def _index(terms: Sequence[Term], place: OnPage) -> str:
    """All terms by letter, folded: one line of letters would lead to groups that have no order."""
    letters: dict[str, list[Term]] = {}
    for term in sorted(terms, key=lambda one: one.order):
        first = term.order[0][:1].upper()
        letters.setdefault(first if first.isalpha() else "0-9", []).append(term)
    rows = "".join(
        f"<dt>{letter}</dt> <dd>"
        + " ".join(f'<a href="#{term.anchor}">{place.text(term.term)}</a>' for term in own)
        + "</dd> "
        for letter, own in letters.items()
    )
    return (
        '<details class="ws-fold ws-letters" data-search-exclude>'
        "<summary>All terms from A to Z</summary>"
        f"<dl>{rows}</dl></details>"
    )


def _entry(term: Term, shelf: Shelf, pages: Mapping[str, Page], place: OnPage) -> str:
    page = pages.get(term.at.partition(".md")[0])
    title = str(page.meta.get("title") or "the page") if page else ""
    long = f' <span class="ws-term-long">{place.text(term.long)}</span>' if term.long else ""
    links = [f"In {place.link(title, f'/{term.at}')}"] if title else []
    if (reading := shelf.readings.get(term.reading)) is not None:
        links.append(f"source: {out(place, reading.title_en or reading.title, reading.url)}")
    # The heading has no id of its own, or each term would be a title for the search, and titles
    # win: who looks for NVLink wants the page about links before the sentence.
    return (
        f'<div id="{term.anchor}" class="ws-term"><h3>{place.text(term.term)}{long}</h3>'
        f"<p>{place.text(term.says)}</p>"
        f'<p class="ws-term-links">{", ".join(links)}</p></div>'
    )
