"""The glossary's file: what is sound is read, and each fault is one clear line.

The glossary's fragments: a list to read, and what Markdown marks in every text.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from conftest import ROOT, Trial
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warpshelf.catalogue import glossary
from warpshelf.catalogue.glossary import FORM, GROUPS, LONGEST, SHORTEST, UNFIT, Glossary, Term
from warpshelf.core import pages
from warpshelf.core.pages import Page
from warpshelf.core.project import Project
from warpshelf.readings import model
from warpshelf.readings.model import Reading, Shelf

SAYS = "A group of 32 threads that run together."
GOOD: dict[str, Any] = {
    "term": "warp", "long": "a warp", "group": "execution", "forms": ["warp", "warps"],
    "says": SAYS, "at": "kernels/a.md#the-parts", "reading": "guide",
}  # fmt: skip


def make_entry(**change: Any) -> dict[str, Any]:
    """The good entry with some keys changed; None takes a key away."""
    return {key: value for key, value in {**GOOD, **change}.items() if value is not None}


def parse_entries(*entries: dict[str, Any]) -> Glossary:
    return glossary.parse_glossary(yaml.safe_dump(list(entries), allow_unicode=True).encode())


def test_a_sound_entry() -> None:
    found = parse_entries(
        make_entry(), make_entry(term="lane", forms=None, long=None, reading=None)
    )
    assert found.findings == []
    warp, lane = found.terms
    assert warp.model_dump() == GOOD and warp.line == 1
    assert (lane.forms, lane.long, lane.anchor) == ([], "", "term-lane")


FAULTS = {
    "has no says": {"says": None},
    "has no at": {"at": None},
    "has no group": {"group": None},
    "the key 'form' is unknown": {"form": ["x"]},
    "not one of device, memory": {"group": "warps"},
    "forms is the text 'warp', not a list": {"forms": "warp"},
    "too few to define": {"says": "A group."},
    f"over the limit of {LONGEST}": {"says": "A " + "long " * 50 + "sentence."},
    "is not a single sentence; write just one": {"says": SAYS + " Always."},
    "says is not a single sentence": {"says": SAYS.removesuffix(".")},
    "says holds '<'": {"says": "A group of <b>32</b> threads that run together."},
    "says holds '`'": {"says": "A group of `32` threads that run together."},
    "term holds '|'": {"term": "a|b"},
    "forms 1 holds ']'": {"forms": ["war]p"]},
    "does not begin and end with a letter": {"forms": ["C++"]},
    "forms 1 is 'w', which does not": {"forms": ["w"]},
    "spaces too many": {"term": "a  warp"},
    "at is 'https://example.org/a.md', not a page": {"at": "https://example.org/a.md"},
    "no letter for an anchor": {"term": "..."},
    "the form 'warp' is given twice": {"forms": ["warp", "warp"]},
}


@pytest.mark.parametrize(("said", "change"), FAULTS.items(), ids=list(FAULTS))
def test_each_fault_is_one_line(said: str, change: dict[str, Any]) -> None:
    found = parse_entries(make_entry(term="lane", forms=["lane"]), make_entry(**change))
    [finding] = found.findings
    assert said in str(finding)
    assert str(finding).startswith("docs/glossary.yml:") and "; " in str(finding)
    assert finding.line is not None and finding.line > 1
    assert [one.term for one in found.terms][0] == "lane"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": "https://a; b.md"}, "at is 'https://a; b.md', not a page; write it like"),
        ({"group": "a; b"}, "group is 'a; b', not one of device, memory"),
        ({"forms": ["a; +"]}, "forms 1 is 'a; +', which does not begin and end"),
        ({"term": "; ;"}, "term '; ;' has no letter for an anchor; name it in letters"),
    ],
)
def test_a_value_that_holds_a_semicolon_is_not_cut_at_it(change: dict[str, Any], said: str) -> None:
    [finding] = parse_entries(make_entry(**change)).findings
    assert said in str(finding)
    assert finding.mend.startswith(("write ", "leave it out", "name it in letters"))


@pytest.mark.parametrize(("key", "value"), [("term", "no"), ("forms", "[yes, on]")])
def test_a_term_is_left_out_where_yaml_reads_something_else(key: str, value: str) -> None:
    lines = [
        f"{name}: {value if name == key else one}" for name, one in make_entry(forms=["w2"]).items()
    ]
    text = "- " + "\n  ".join(line.replace("['w2']", "[w2]") for line in lines)
    found = glossary.parse_glossary(text.encode())
    assert found.terms == [] and found.findings
    assert all("YAML reads" in str(one) for one in found.findings)


def test_terms_and_forms_that_are_there_twice() -> None:
    [finding] = parse_entries(make_entry(), make_entry(term="Warp", forms=["WARP"])).findings
    assert "'Warp' is defined twice (first on line 1)" in str(finding)
    [finding] = parse_entries(
        make_entry(), make_entry(term="lane", forms=["lane", "warp"])
    ).findings
    assert "the form 'warp' also belongs to 'warp'" in str(finding)


def test_dead_links(trial: Trial) -> None:
    trial.add_page("kernels/a.md", "# A\n\n## The parts\n")
    trial.add_page(
        "kernels/a.yml", "- {id: guide, title: G, url: 'https://a.org', kind: post, why: W}"
    )
    written, _ = pages.load_pages(Project(trial.root))
    shelf = model.load_shelf(trial.root)

    def check_lines(**change: Any) -> list[str]:
        found = parse_entries(make_entry(**change))
        assert found.findings == []
        return [
            str(one)
            for one in glossary.check_glossary(found, written, shelf, {"kernels/a": {"snippet"}})
        ]

    assert (
        check_lines()
        == check_lines(at="kernels/a.md")
        == check_lines(at="kernels/a.md#snippet")
        == []
    )
    [line] = check_lines(at="kernels/b.md")
    assert "which is not a page; write kernels/a.md" in line
    [line] = check_lines(at="kernels/a.md#the-part")
    assert "has no such anchor; write #the-parts" in line
    [line] = check_lines(reading="guid")
    assert "which is not the id of a reading; write guide" in line


def test_the_check_reads_the_glossary_and_the_shelf_does_not(trial: Trial) -> None:
    trial.add_page("glossary.yml", yaml.safe_dump([make_entry()]))
    done = trial.run_shelf("check")
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "glossary.yml" in line]
    assert len(lines) == 1 and "kernels/a.md#the-parts, which is not a page" in lines[0]


def test_without_a_file_there_is_no_term(trial: Trial) -> None:
    assert glossary.load_glossary(Project(trial.root)) == Glossary()
    (trial.root / "docs" / "glossary.yml").mkdir()
    [finding] = glossary.load_glossary(Project(trial.root)).findings
    assert "cannot be read" in str(finding)


PIECES = st.sampled_from(
    [
        *("- term: a", "  term: b", f"  says: {SAYS}", "  group: device", "  at: a.md", "- [x]"),
        *("  forms: [ab, cd]", "  forms: {a: b}", "  says: 7", "- {}", "  at: yes", "  long: ''"),
        *("\t", "---", "- &a x", "  : "),
    ]
)


@given(st.lists(PIECES, max_size=9).map("\n".join) | st.text(max_size=60) | st.binary(max_size=40))
def test_anything_is_read_or_refused_in_clear_lines(given: str | bytes) -> None:
    data = given if isinstance(given, bytes) else given.encode("utf-8", "surrogatepass")
    found = glossary.parse_glossary(data)
    for finding in found.findings:
        assert finding.path == "docs/glossary.yml" and finding.what and finding.mend
        assert "\n" not in str(finding)
    for term in found.terms:
        assert SHORTEST <= len(term.says) <= LONGEST and term.group in GROUPS and term.anchor


# Our own.


def load_our_terms() -> list[Term]:
    found = glossary.load_glossary(Project(ROOT))
    assert found.findings == []
    return found.terms


def test_our_glossary_is_large_and_each_layer_has_its_terms() -> None:
    found = load_our_terms()
    assert len(found) >= 120
    for group in GROUPS:
        assert sum(term.group == group for term in found) >= 5, group


def test_the_page_that_explains_a_term_speaks_of_it() -> None:
    """By the beginning of one of its longer words at least: a page may put it otherwise."""
    for term in load_our_terms():
        page = term.at.partition("#")[0]
        file = ROOT / "docs" / page  # of an overview, what its pages say counts as well
        pages = file.parent.glob("*.md") if file.name == "index.md" else [file]
        text = " ".join(one.read_text(encoding="utf-8") for one in pages).lower()
        words = re.findall(r"[a-z0-9]{3,}", " ".join((term.term, term.long, *term.forms)).lower())
        stems = {word[:5] for word in words or [term.term.lower()]}
        assert any(stem in text for stem in stems), f"{term.term} is not on {page}"


def make_term(name: str, group: str, says: str, at: str, **more: Any) -> Term:
    """A term as it is, whether or not the file might hold it."""
    return Term.model_construct(term=name, group=group, says=says, at=at, **more)


WARP = make_term(
    "warp", "execution", SAYS, "kernels/a.md#parts", forms=["warp", "warps"], reading="guide"
)
LONG = "streaming multiprocessor"
SM = make_term(
    "SM", "device", "A part & more.", "kernels/a.md", long=LONG, forms=["SM", f"{LONG}s"]
)
WRITTEN = {"kernels/a": Page("kernels/a", "docs/kernels/a.md", {"title": "Parts <of> a GPU"})}


def make_guide_shelf() -> Shelf:
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


def render_fragments(*found: Term) -> dict[str, str]:
    return glossary.render_glossary(Glossary(list(found)), make_guide_shelf(), WRITTEN)


def mark_terms(text: str, *found: Term) -> str:
    """A page's text as it is built with these terms."""
    inherited = yaml.safe_load(render_fragments(*found)["glossary/abbreviations.yml"])
    extensions = ["tables", "attr_list", "md_in_html", "toc", "footnotes", "def_list",
                  "pymdownx.superfences", "pymdownx.arithmatex"]  # fmt: skip
    chosen = {"pymdownx.arithmatex": {"generic": True}, **inherited["markdown_extensions"]}
    return markdown.markdown(text, extensions=["abbr", *extensions], extension_configs=chosen)


def read_sentences(texts: dict[str, str]) -> dict[str, str]:
    """What each spelling shows."""
    inherited = yaml.safe_load(texts["glossary/abbreviations.yml"])
    shown: dict[str, str] = inherited["markdown_extensions"]["abbr"]["glossary"]
    return shown


def test_the_list() -> None:
    text = render_fragments(WARP, SM)["glossary/terms.md"]
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
    assert render_fragments()["glossary/terms.md"] == glossary.EMPTY
    assert read_sentences(render_fragments()) == {}
    assert mark_terms("A warp.") == "<p>A warp.</p>"


def test_each_spelling_has_its_sentence() -> None:
    assert read_sentences(render_fragments(WARP, SM)) == {
        "SM": "streaming multiprocessor: A part & more.",
        "Streaming multiprocessors": "A part & more.",
        "Warp": SAYS,
        "Warps": SAYS,
        "streaming multiprocessors": "A part & more.",
        "warp": SAYS,
        "warps": SAYS,
    }


def test_what_is_marked() -> None:
    text = mark_terms("# A warp\n\nWarps and *warps* in a warpgroup of SMs, [SM](a.md).", WARP, SM)
    assert re.findall(r'<abbr title="[^"]*">(\w+)</abbr>', text) == ["warp", "Warps", "warps", "SM"]
    assert 'id="a-warp"' in text


@pytest.mark.parametrize(
    "text",
    ["`SM`", "```\nSM\n```", "$SM$", "$$\nSM\n$$", "<p>SM</p>", "![SM](a.png)", "[x](SM.md 'SM')"],
)
def test_what_is_left_alone(text: str) -> None:
    assert "<abbr" not in mark_terms(f"{text}\n", SM)


@settings(max_examples=60)
@given(says=st.text(max_size=60), form=st.text(max_size=12))
@example(says="a & b \" ' # - 1. x", form="1F1B")
@example(says="~ ^ _x_ [^1]: y".replace("[", "("), form="Little's law")
def test_any_sound_sentence_is_shown_as_it_is(says: str, form: str) -> None:
    says, form = " ".join(says.split()), " ".join(form.split())
    sound = len(form) > 1 and FORM.fullmatch(form) and not UNFIT.search(says + form)
    if not sound or not says or says in ("''", '""'):
        return
    text = mark_terms(
        f"| a |\n| - |\n| {form} |\n", make_term("x", "device", says, "a.md", forms=[form])
    )
    titles = [html.unescape(one) for one in re.findall(r'<abbr title="([^"]*)"', text)]
    assert set(titles) <= {says}


def test_ours_make_one_entry_each_and_every_link_is_whole() -> None:
    project = Project(ROOT)
    found = glossary.load_glossary(project)
    written, _ = pages.load_pages(project)
    texts = glossary.render_glossary(found, model.load_shelf(ROOT, pages=written), written)
    text = texts["glossary/terms.md"]
    ids = re.findall(r'<div id="([^"]+)" class="ws-term"><h3>', text)
    assert len(ids) == len(set(ids)) == len(found.terms)
    assert text.count(">In <a href=") == len(ids)
    assert set(re.findall(r'href="#([^"]+)"', text)) == set(ids)
    assert len(shown := read_sentences(texts)) > 300
    assert max(map(len, shown.values())) < 300


def test_the_site_inherits_them() -> None:
    site = Path(ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "\nINHERIT: build/fragments/glossary/abbreviations.yml " in site
    assert "- content.tooltips\n" in site
