"""The terms of the field, each in one sentence, as docs/glossary.yml has them.

    - term: SM
      long: streaming multiprocessor
      group: device
      forms: [SM, SMs]
      says: The unit that an NVIDIA GPU repeats, with its own schedulers, registers and memory.
      at: kernels/gpu-architecture.md#the-parts
      reading: cuda-programming-guide

`forms` are the spellings that show the sentence wherever prose has them, `long` what the letters
stand for, `at` where a page of ours explains it, `reading` the id of a work that defines it.

They become two fragments. `glossary/terms.md` is the list of its page. It is HTML alone, so that no
term is marked inside its own entry. `glossary/abbreviations.yml` has the sentence of each spelling;
mkdocs.yml inherits it, and Markdown then marks the spelling wherever prose has it, never in code.
Written below every page as `*[form]: sentence` they would be read anew a page, a tenth of a build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warpshelf.core import files
from warpshelf.core.files import dump_json
from warpshelf.core.findings import Finding
from warpshelf.core.pages import Page, heading_slug, page_anchors
from warpshelf.core.places import OnPage, external_link
from warpshelf.core.project import Project
from warpshelf.readings.entries import Entry, EntryReader, closest_match
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
SHAPE: dict[str, files.Shape] = {
    "term": str, "long": str, "group": tuple(GROUPS), "forms": [str], "says": str, "at": str,
    "reading": str,
}  # fmt: skip
NEEDED = ("term", "group", "says", "at")
AT = re.compile(r"(?P<page>[a-z0-9-]+(?:/[a-z0-9-]+)*\.md)(?:#(?P<anchor>[^\s#]+))?")
FORM = re.compile(r"\w(?:.*\w)?", re.S)  # what the word boundaries of an abbreviation can find


@dataclass(frozen=True)
class Term:
    """One term. `line` is where it stands in the file."""

    term: str
    group: str
    says: str
    at: str
    long: str = ""
    forms: tuple[str, ...] = ()
    reading: str = ""
    line: int = 1

    @property
    def anchor(self) -> str:
        """Its anchor on the page of the glossary."""
        return f"term-{heading_slug(self.term)}"

    @property
    def order(self) -> tuple[str, str]:
        """Its place in the alphabet, which knows neither case nor signs."""
        return re.sub(r"[\W_]+", " ", self.term).strip().casefold(), self.term


@dataclass
class Glossary:
    """All terms, in the order of the file, and what is wrong with the file."""

    terms: list[Term] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def load_glossary(project: Project) -> Glossary:
    """The glossary of a checkout, empty where there is none."""
    try:
        data = (project.root / GLOSSARY).read_bytes()
    except FileNotFoundError:
        return Glossary()
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        return Glossary([], [Finding(GLOSSARY, None, what, "make it a readable file")])
    return parse_glossary(data)


def parse_glossary(data: bytes) -> Glossary:
    """The glossary that `data` holds. What is wrong is a finding, and that term is left out."""
    reader = EntryReader(GLOSSARY, data)
    found = Glossary([], list(reader.findings))
    for entry in reader.entries:
        if entry.refused:
            continue
        faults = list(_check_entry(entry))
        found.findings += faults
        if not faults:
            fields = {**entry.fields, "forms": tuple(entry.fields.get("forms", ()))}
            found.terms.append(Term(**fields, line=entry.line))
    found.findings += _find_duplicates(found.terms)
    return found


def check_glossary(
    glossary: Glossary, pages: Mapping[str, Page], shelf: Shelf, extra: Mapping[str, set[str]]
) -> Iterator[Finding]:
    """What the terms name that is not there. `extra` has anchors that pages include, by page."""
    known: dict[str, set[str]] = {}
    for term in glossary.terms:
        page, _, anchor = term.at.partition("#")
        where = page.removesuffix(".md")
        named = f"{term.term!r} is explained at {term.at}"
        if where not in pages:
            near = closest_match(where, pages, alike=70)
            mend = f"write {near}.md" if near else "name a page below docs/"
            yield Finding(GLOSSARY, term.line, f"{named}, which is no page", mend)
            continue
        if where not in known:
            known[where] = page_anchors(pages[where].text) | extra.get(where, set())
        if anchor and anchor not in known[where]:
            near = closest_match(anchor, known[where], alike=50)
            mend = f"write #{near}" if near else "name a heading of that page"
            yield Finding(GLOSSARY, term.line, f"{named}, but the page has no such anchor", mend)
        if term.reading and term.reading not in {*shelf.readings, *shelf.refused}:
            near = closest_match(term.reading, shelf.readings, alike=70)
            mend = f"write {near}" if near else "name the id of a reading, or leave the key out"
            what = f"{term.term!r} names {term.reading!r}, which no reading has as its id"
            yield Finding(GLOSSARY, term.line, what, mend)


def _check_entry(entry: Entry) -> Iterator[Finding]:
    """What is wrong with one entry by itself."""
    fields = entry.fields
    name = str(fields.get("term", "the entry"))
    for key in fields:
        if key not in SHAPE:
            near = closest_match(str(key), SHAPE)
            mend = f"write {near}" if near else f"use {', '.join(SHAPE)}"
            yield _entry_finding(entry, key, f"the key {key!r} is unknown", mend)
            return
    for key in NEEDED:
        if key not in fields:
            yield _entry_finding(entry, key, f"{name!r} has no {key}", f"add `{key}: …`")
            return
    for key, value in fields.items():
        if flaw := files.shape_problem(value, SHAPE[key], key):
            yield _entry_finding(entry, key, flaw, "write it as its neighbours are written")
            return
    yield from _check_texts(entry, fields)
    if not AT.fullmatch(fields["at"]):
        mend = "write it as kernels/softmax.md#the-online-recurrence"
        yield _entry_finding(entry, "at", f"at is {fields['at']!r:.80}, no page of ours", mend)
    if not heading_slug(fields["term"]):
        yield _entry_finding(
            entry, "term", f"{name!r} has no letter for an anchor", "name it in letters"
        )


def _check_texts(entry: Entry, fields: dict[str, Any]) -> Iterator[Finding]:
    says = fields["says"]
    mend = "write it in plain words, without Markdown and HTML"
    forms = fields.get("forms", [])
    texts = [(key, fields[key]) for key in ("term", "long", "says") if key in fields]
    for key, text in [*texts, *(("forms", form) for form in forms)]:
        if unfit := UNFIT.search(text):
            yield _entry_finding(entry, key, f"{key} holds {unfit[0]!r}: {text!r:.60}", mend)
        elif text != " ".join(text.split()) or not text:
            what = f"{key} is empty or has spaces too many: {text!r:.60}"
            yield _entry_finding(entry, key, what, "write words with one space between them")
    if len(says) > LONGEST:
        what = f"says has {len(says)} characters, over the limit of {LONGEST}"
        yield _entry_finding(
            entry, "says", what, "keep what sets the term apart from its neighbours"
        )
    elif len(says) < SHORTEST:
        what = f"says has {len(says)} characters, too few to define anything"
        yield _entry_finding(entry, "says", what, "write one whole sentence")
    elif not says.endswith(".") or re.search(r"[.!?] +[A-Z]", says):
        yield _entry_finding(
            entry, "says", f"says is no single sentence: {says!r:.60}", "write just one"
        )
    for form in forms:
        if len(form) < 2 or not FORM.fullmatch(form):
            what = f"the form {form!r} does not begin and end with a letter or digit"
            yield _entry_finding(
                entry, "forms", what, "leave it out: it would not be found in a text"
            )


def _find_duplicates(terms: list[Term]) -> Iterator[Finding]:
    """Terms that are there twice, and forms that two terms claim."""
    named: dict[str, Term] = {}
    claimed: dict[str, Term] = {}
    for term in terms:
        first = named.setdefault(term.anchor, term)
        if first is not term:
            what = f"{term.term!r} is defined twice (first on line {first.line})"
            yield Finding(GLOSSARY, term.line, what, "remove one")
            continue
        for form in dict.fromkeys(term.forms):
            other = claimed.setdefault(form, term)
            if other is not term:
                what = f"the form {form!r} is that of {other.term!r} too (line {other.line})"
                yield Finding(GLOSSARY, term.line, what, "leave it to one of them")
            elif term.forms.count(form) > 1:
                yield Finding(
                    GLOSSARY, term.line, f"the form {form!r} is there twice", "remove one"
                )


def _entry_finding(entry: Entry, key: str, what: str, mend: str) -> Finding:
    return Finding(GLOSSARY, entry.lines.get((key,), entry.line), what, mend)


PAGE = "glossary.md"
EMPTY = '<p class="ws-empty">No term is defined yet.</p>\n'


def render_glossary(glossary: Glossary, shelf: Shelf, pages: Mapping[str, Page]) -> dict[str, str]:
    """Both fragments; without terms there is nothing to hover over."""
    return {
        "glossary/terms.md": _term_list(glossary.terms, shelf, pages) if glossary.terms else EMPTY,
        "glossary/abbreviations.yml": dump_json(abbreviation_settings(glossary.terms)),
    }


def abbreviation_settings(terms: Iterable[Term]) -> dict[str, Any]:
    """Settings that mark each spelling, and the same with a capital, as sentences begin with it."""
    texts: dict[str, str] = {}
    for term in terms:
        for form in term.forms:
            texts.setdefault(form, _tooltip_text(term, form))
    for form, text in list(texts.items()):
        texts.setdefault(form[0].upper() + form[1:], text)
    return {"markdown_extensions": {"abbr": {"glossary": texts}}}


def _tooltip_text(term: Term, form: str) -> str:
    """The sentence, after the long name where `form` is a shorter one."""
    name = max(term.term, term.long, key=len) if term.long else ""
    return f"{name}: {term.says}" if len(form) < len(name) else term.says


def _term_list(terms: Sequence[Term], shelf: Shelf, pages: Mapping[str, Page]) -> str:
    place = OnPage(PAGE)
    blocks = [f'<p class="ws-total">{len(terms)} terms.</p>', _letter_index(terms, place)]
    for group, title in GROUPS.items():
        own = sorted((term for term in terms if term.group == group), key=lambda one: one.order)
        if own:
            rows = "\n".join(_term_entry(term, shelf, pages, place) for term in own)
            blocks += [f"## {title}", f'<div class="ws-terms">\n{rows}\n</div>']
    return "\n\n".join(blocks) + "\n"


def _letter_index(terms: Sequence[Term], place: OnPage) -> str:
    """All terms by letter, folded: one line of letters would lead to groups that have no order."""
    letters: dict[str, list[Term]] = {}
    for term in sorted(terms, key=lambda one: one.order):
        first = term.order[0][:1].upper()
        letters.setdefault(first if first.isalpha() else "0-9", []).append(term)
    rows = "".join(
        f"<dt>{letter}</dt> <dd>"
        + " ".join(f'<a href="#{term.anchor}">{place.escape_text(term.term)}</a>' for term in own)
        + "</dd> "
        for letter, own in letters.items()
    )
    return (
        '<details class="ws-fold ws-letters" data-search-exclude>'
        "<summary>All terms from A to Z</summary>"
        f"<dl>{rows}</dl></details>"
    )


def _term_entry(term: Term, shelf: Shelf, pages: Mapping[str, Page], place: OnPage) -> str:
    page = pages.get(term.at.partition(".md")[0])
    title = str(page.meta.get("title") or "the page") if page else ""
    long = f' <span class="ws-term-long">{place.escape_text(term.long)}</span>' if term.long else ""
    links = [f"In {place.link(title, f'/{term.at}')}"] if title else []
    if (reading := shelf.readings.get(term.reading)) is not None:
        links.append(
            f"source: {external_link(place, reading.title_en or reading.title, reading.url)}"
        )
    # The heading has no id of its own, or each term would be a title for the search, and titles
    # win: who looks for NVLink wants the page about links before the sentence.
    return (
        f'<div id="{term.anchor}" class="ws-term"><h3>{place.escape_text(term.term)}{long}</h3>'
        f"<p>{place.escape_text(term.says)}</p>"
        f'<p class="ws-term-links">{", ".join(links)}</p></div>'
    )
