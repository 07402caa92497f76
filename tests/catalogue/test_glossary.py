"""The glossary's fragments: a list to read, and what Markdown marks in every text."""

from __future__ import annotations

import html
import re
from pathlib import Path

import markdown
import pytest
from conftest import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warpshelf.catalogue import glossary, terms
from warpshelf.catalogue.terms import FORM, UNFIT, Glossary, Term
from warpshelf.core import pages
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.readings import model
from warpshelf.readings.model import Reading, Shelf

SAYS = "A group of 32 threads that run together."
WARP = Term("warp", "execution", SAYS, "kernels/a.md#parts", "", ("warp", "warps"), "guide")
LONG = "streaming multiprocessor"
SM = Term("SM", "device", "A part & more.", "kernels/a.md", LONG, ("SM", f"{LONG}s"))
WRITTEN = {"kernels/a": Page("kernels/a", "docs/kernels/a.md", {"title": "Parts <of> a GPU"})}


def shelf() -> Shelf:
    found = Shelf()
    fields = {
        "id": "guide",
        "title": "A & B",
        "url": "https://a.org/?x&y",
        "kind": "docs",
        "why": "W.",
    }
    found.readings["guide"] = Reading.model_validate(fields)
    return found


def fragments(*found: Term) -> dict[str, str]:
    return glossary.fragments(Glossary(list(found)), shelf(), WRITTEN)


def marked(text: str, *found: Term) -> str:
    """A page's text as it is built with the abbreviations below it."""
    extensions = ["abbr", "tables", "attr_list", "md_in_html", "toc", "footnotes", "def_list",
                  "pymdownx.superfences", "pymdownx.arithmatex"]  # fmt: skip
    chosen = {"pymdownx.arithmatex": {"generic": True}}
    whole = f"{text}\n\n{glossary.abbreviations(found)}"
    return markdown.markdown(whole, extensions=extensions, extension_configs=chosen)


def test_the_list() -> None:
    text = fragments(WARP, SM)["glossary/terms.md"]
    assert text.startswith('<p class="ws-total">2 terms.</p>\n')
    assert text.index("## The device") < text.index("## Execution")
    assert "## Memory" not in text
    assert '<div id="term-warp" class="ws-term"><h3>warp</h3><p>' + SAYS in text
    assert '<a href="../kernels/a/#parts">Parts &lt;of&gt; a GPU</a>' in text
    assert 'source: <a href="https://a.org/?x&amp;y">A &amp; B</a>' in text
    assert '>SM <span class="ws-term-long">streaming multiprocessor</span></h3>' in text
    index = re.findall(r"<dt>(.*?)</dt> <dd>(.*?)</dd>", text)
    assert [(letter, re.findall(r'href="#(.*?)"', row)) for letter, row in index] == [
        ("S", ["term-sm"]),
        ("W", ["term-warp"]),
    ]


def test_without_terms() -> None:
    assert fragments() == {
        "glossary/terms.md": glossary.EMPTY,
        "glossary/abbreviations.md": "",
    }


def test_each_spelling_has_a_line_of_its_own_block() -> None:
    blocks = fragments(WARP, SM)["glossary/abbreviations.md"].strip().split("\n\n")
    assert blocks == [
        "*[SM]: streaming multiprocessor: A part & more.",
        "*[Streaming multiprocessors]: A part & more.",
        f"*[Warp]: {SAYS}",
        f"*[Warps]: {SAYS}",
        "*[streaming multiprocessors]: A part & more.",
        f"*[warp]: {SAYS}",
        f"*[warps]: {SAYS}",
    ]


def test_what_is_marked() -> None:
    text = marked("# A warp\n\nWarps and *warps* in a warpgroup of SMs, [SM](a.md).", WARP, SM)
    assert re.findall(r'<abbr title="[^"]*">(\w+)</abbr>', text) == ["warp", "Warps", "warps", "SM"]
    assert 'id="a-warp"' in text


@pytest.mark.parametrize(
    "text",
    ["`SM`", "```\nSM\n```", "$SM$", "$$\nSM\n$$", "<p>SM</p>", "![SM](a.png)", "[x](SM.md 'SM')"],
)
def test_what_is_left_alone(text: str) -> None:
    assert "<abbr" not in marked(f"{text}\n", SM)


@settings(deadline=None, max_examples=60)
@given(says=st.text(max_size=60), form=st.text(max_size=12))
@example(says="a & b \" ' # - 1. x", form="1F1B")
@example(says="~ ^ _x_ [^1]: y".replace("[", "("), form="Little's law")
def test_any_sound_sentence_is_shown_as_it_is(says: str, form: str) -> None:
    says, form = " ".join(says.split()), " ".join(form.split())
    sound = len(form) > 1 and FORM.fullmatch(form) and not UNFIT.search(says + form)
    if not sound or not says or says in ("''", '""'):
        return
    text = marked("Nothing.\n", Term("x", "device", says, "a.md", "", (form,)))
    assert text == "<p>Nothing.</p>"  # no line of the definition is left as text
    text = marked(f"| a |\n| - |\n| {form} |\n", Term("x", "device", says, "a.md", "", (form,)))
    titles = [html.unescape(one) for one in re.findall(r'<abbr title="([^"]*)"', text)]
    assert set(titles) <= {says}


def test_ours_make_one_entry_each_and_every_link_is_whole() -> None:
    project = Project(ROOT)
    found = terms.load(project)
    written, _ = pages.load(project)
    texts = glossary.fragments(found, model.load(ROOT, pages=written), written)
    text = texts["glossary/terms.md"]
    ids = re.findall(r'<div id="([^"]+)" class="ws-term"><h3>', text)
    assert len(ids) == len(set(ids)) == len(found.terms)
    assert text.count(">In <a href=") == len(ids)
    assert set(re.findall(r'href="#([^"]+)"', text)) == set(ids)
    lines = texts["glossary/abbreviations.md"].strip().split("\n\n")
    assert len(lines) == len({line.partition("]")[0] for line in lines}) > 300
    assert max(map(len, lines)) < 330


def test_the_site_appends_them() -> None:
    site = Path(ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "auto_append: [glossary/abbreviations.md]" in site
    assert "- content.tooltips\n" in site and "  - abbr\n" in site
