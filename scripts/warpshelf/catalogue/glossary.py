"""The terms of the field, each in one sentence, as docs/glossary.yml has them.

    - term: SM
      long: streaming multiprocessor
      group: device
      forms: [SM, SMs]
      says: The unit that an NVIDIA GPU repeats, with its own schedulers, registers and memory.
      at: kernels/gpu-architecture.md#the-parts
      reading: cuda-programming-guide

They become two fragments. `glossary/terms.md` is the list of its page. It is HTML alone, so that no
term is marked inside its own entry. `glossary/abbreviations.yml` has the sentence of each spelling;
mkdocs.yml inherits it, and Markdown then marks the spelling wherever prose has it, never in code.
As `*[form]: sentence` below every page they would be read again for each: a tenth of a build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from warpshelf.core.files import dump_json
from warpshelf.core.findings import Finding
from warpshelf.core.pages import Page, heading_slug, page_anchors
from warpshelf.core.places import OnPage, external_link
from warpshelf.core.project import Project
from warpshelf.readings.entries import EntryModel, EntryReader, read_optional, suggest_match
from warpshelf.readings.model import GLOSSARY, Shelf

GROUPS = {
    "device": "The device",
    "memory": "Memory",
    "execution": "Execution",
    "matrix": "Matrix units",
    "numbers": "Numbers",
    "kernels": "Kernels",
    "attention": "Attention",
    "training": "Training on many GPUs",
    "serving": "Serving",
    "other": "Other machines",
    "tools": "Tools and measures",
}
SHORTEST, LONGEST = 30, 240  # characters of a sentence; it must fit a tooltip
# A sentence and a form stand in Markdown, in YAML and in an attribute.
UNFIT = re.compile(r"[<>`\\$|*\[\]{}]|[^ -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
AT = re.compile(r"[a-z0-9-]+(?:/[a-z0-9-]+)*\.md(?:#[^\s#]+)?")
FORM = re.compile(r"\w(?:.*\w)", re.S)  # what the word boundaries of an abbreviation can find


def _check_text(text: str) -> str:
    if unfit := UNFIT.search(text):
        raise ValueError(f"holds {unfit[0]!r}; write plain words, without Markdown and HTML")
    if not text or text != " ".join(text.split()):
        raise ValueError("is empty or has spaces too many; write words with one space between them")
    return text


def _check_term(term: str) -> str:
    if not heading_slug(_check_text(term)):
        raise ValueError(f"{term!r:.80} has no letter for an anchor; name it in letters")
    return term


def _check_group(group: str) -> str:
    if group not in GROUPS:
        what = f"is {group!r:.80}, not one of {', '.join(GROUPS)}"
        raise ValueError(f"{what}; {suggest_match(group, GROUPS, 'write one of them')}")
    return group


def _check_sentence(text: str) -> str:
    _check_text(text)
    if len(text) > LONGEST:
        mend = "keep what sets the term apart from its neighbours"
        raise ValueError(f"has {len(text)} characters, over the limit of {LONGEST}; {mend}")
    if len(text) < SHORTEST:
        mend = "write one whole sentence"
        raise ValueError(f"has {len(text)} characters, too few to define anything; {mend}")
    if not text.endswith(".") or re.search(r"[.!?] +[A-Z]", text):
        raise ValueError("is not a single sentence; write just one")
    return text


def _check_form(form: str) -> str:
    if not FORM.fullmatch(_check_text(form)):
        what = f"is {form!r:.80}, which does not begin and end with a letter or digit"
        raise ValueError(f"{what}; leave it out: it would not be found in a text")
    return form


def _check_place(at: str) -> str:
    if not AT.fullmatch(at):
        raise ValueError(f"is {at!r:.80}, not a page; write it like kernels/softmax.md#anchor")
    return at


class Term(EntryModel):
    """One term."""

    term: Annotated[str, AfterValidator(_check_term)]
    group: Annotated[str, AfterValidator(_check_group)]
    says: Annotated[str, AfterValidator(_check_sentence)]
    """What it is, in one sentence."""
    at: Annotated[str, AfterValidator(_check_place)]
    """Where a page of ours explains it."""
    long: Annotated[str, AfterValidator(_check_text)] = ""
    """What the letters stand for."""
    forms: list[Annotated[str, AfterValidator(_check_form)]] = []
    """The spellings that show the sentence wherever prose has them."""
    reading: str = ""
    """The id of a work that defines it."""

    @property
    def anchor(self) -> str:
        """Its anchor on the page of the glossary."""
        return f"term-{heading_slug(self.term)}"

    @property
    def order(self) -> tuple[str, str]:
        """Its place in the alphabet, without case and signs."""
        return re.sub(r"[\W_]+", " ", self.term).strip().casefold(), self.term


class Glossary(NamedTuple):
    """All terms, in the order of the file, and what is wrong with the file."""

    terms: Sequence[Term] = ()
    findings: Sequence[Finding] = ()


def load_glossary(project: Project) -> Glossary:
    """The glossary of a checkout, empty where there is none."""
    data, findings = read_optional(project.root / GLOSSARY, GLOSSARY)
    return Glossary(findings=tuple(findings)) if data is None else parse_glossary(data)


def parse_glossary(data: bytes) -> Glossary:
    """The glossary that `data` holds. What is wrong is a finding, and that term is left out."""
    reader = EntryReader(GLOSSARY, data)
    terms = [one for one in reader.parse_as(Term) if not one.is_refused]
    return Glossary(terms, [*reader.findings, *_find_duplicates(terms)])


def _find_duplicates(terms: list[Term]) -> Iterator[Finding]:
    """Terms that are defined twice, and forms that two terms claim."""
    named: dict[str, Term] = {}
    claimed: dict[str, Term] = {}
    for term in terms:
        if (first := named.setdefault(term.anchor, term)) is not term:
            what = f"{term.term!r} is defined twice (first on line {first.line})"
            yield term.make_finding(what, "remove one")
            continue
        for form in dict.fromkeys(term.forms):
            if (other := claimed.setdefault(form, term)) is not term:
                what = f"the form {form!r} also belongs to {other.term!r} (line {other.line})"
                yield term.make_finding(what, "keep it with one of them")
            elif term.forms.count(form) > 1:
                yield term.make_finding(f"the form {form!r} is given twice", "remove one")


def check_glossary(
    glossary: Glossary, pages: Mapping[str, Page], shelf: Shelf, extra: Mapping[str, set[str]]
) -> Iterator[Finding]:
    """What the terms name that does not exist. `extra` has anchors that pages include, by page."""
    known: dict[str, set[str]] = {}
    for term in glossary.terms:
        page, _, anchor = term.at.partition("#")
        where = page.removesuffix(".md")
        named = f"{term.term!r} is explained at {term.at}"
        if where not in pages:
            mend = suggest_match(where, pages, "name a page below docs/", form="write {}.md")
            yield term.make_finding(f"{named}, which is not a page", mend)
            continue
        if where not in known:
            known[where] = page_anchors(pages[where].text) | extra.get(where, set())
        if anchor and anchor not in known[where]:
            mend = suggest_match(
                anchor, known[where], "name a heading of that page", 50, "write #{}"
            )
            yield term.make_finding(f"{named}, but the page has no such anchor", mend)
        if term.reading and term.reading not in {*shelf.readings, *shelf.refused}:
            otherwise = "name the id of a reading, or leave the key out"
            what = f"{term.term!r} names {term.reading!r}, which is not the id of a reading"
            mend = suggest_match(term.reading, shelf.readings, otherwise)
            yield term.make_finding(what, mend)


PLACE = OnPage("glossary.md")
EMPTY = '<p class="ws-empty">No term is defined yet.</p>\n'


def render_glossary(glossary: Glossary, shelf: Shelf, pages: Mapping[str, Page]) -> dict[str, str]:
    """Both fragments; without terms there is nothing to hover over."""
    return {
        "glossary/terms.md": _term_list(glossary.terms, shelf, pages) if glossary.terms else EMPTY,
        "glossary/abbreviations.yml": dump_json(_abbreviation_settings(glossary.terms)),
    }


def _abbreviation_settings(terms: Iterable[Term]) -> dict[str, Any]:
    """Settings that mark each spelling, and the same with a capital, as sentences begin with it."""
    texts: dict[str, str] = {}
    for term in terms:
        name = max(term.term, term.long, key=len) if term.long else ""
        for form in term.forms:
            long = f"{name}: {term.says}" if len(form) < len(name) else term.says
            texts.setdefault(form, long)
    for form, text in list(texts.items()):
        texts.setdefault(form[0].upper() + form[1:], text)
    return {"markdown_extensions": {"abbr": {"glossary": texts}}}


def _term_list(terms: Sequence[Term], shelf: Shelf, pages: Mapping[str, Page]) -> str:
    ordered = sorted(terms, key=lambda one: one.order)
    letters: dict[str, list[str]] = {}
    for term in ordered:
        first = term.order[0][:1].upper()
        link = f'<a href="#{term.anchor}">{PLACE.escape_text(term.term)}</a>'
        letters.setdefault(first if first.isalpha() else "0-9", []).append(link)
    # All terms by letter, folded: one line of letters would lead to groups that have no order.
    rows = "".join(f"<dt>{one}</dt> <dd>{' '.join(links)}</dd> " for one, links in letters.items())
    blocks = [
        f'<p class="ws-total">{len(terms)} terms.</p>',
        '<details class="ws-fold ws-letters" data-search-exclude>'
        f"<summary>All terms from A to Z</summary><dl>{rows}</dl></details>",
    ]
    for group, title in GROUPS.items():
        if own := [term for term in ordered if term.group == group]:
            entries = "\n".join(_term_entry(term, shelf, pages) for term in own)
            blocks += [f"## {title}", f'<div class="ws-terms">\n{entries}\n</div>']
    return "\n\n".join(blocks) + "\n"


def _term_entry(term: Term, shelf: Shelf, pages: Mapping[str, Page]) -> str:
    page = pages.get(term.at.partition(".md")[0])
    title = str(page.meta.get("title") or "the page") if page else ""
    long = f' <span class="ws-term-long">{PLACE.escape_text(term.long)}</span>' if term.long else ""
    links = [f"In {PLACE.link(title, f'/{term.at}')}"] if title else []
    if (reading := shelf.readings.get(term.reading)) is not None:
        name = reading.title_en or reading.title
        links.append(f"source: {external_link(PLACE, name, reading.url)}")
    # The heading has no id of its own, or each term would be a title for the search, and titles
    # win: who looks for NVLink wants the page about links before the sentence.
    return (
        f'<div id="{term.anchor}" class="ws-term"><h3>{PLACE.escape_text(term.term)}{long}</h3>'
        f"<p>{PLACE.escape_text(term.says)}</p>"
        f'<p class="ws-term-links">{", ".join(links)}</p></div>'
    )
