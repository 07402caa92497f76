"""BibTeX that a parser reads back, and CSL-JSON of the right shapes."""

from __future__ import annotations

import logging

import bibtexparser
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.catalogue.bibliography import bibtex, csl
from warpshelf.readings.model import Reading, load

TEXT = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=60).filter(str.strip)


def reading(**fields: object) -> Reading:
    base: dict[str, object] = {
        "id": "a-paper",
        "title": "On products",
        "url": "https://arxiv.org/abs/1805.02867",
        "kind": "paper",
        "why": "What a product is.",
    }
    return Reading.model_validate(base | fields)


def parsed(text: str) -> dict[str, str]:
    """The fields of the one entry in `text`, its type and key among them."""
    library = bibtexparser.parse_string(text)
    assert library.failed_blocks == [] and len(library.entries) == 1
    entry = library.entries[0]
    fields = {name: field.value for name, field in entry.fields_dict.items()}
    return {**fields, "ENTRYTYPE": entry.entry_type, "ID": entry.key}


def test_a_paper_at_a_conference() -> None:
    found = parsed(
        bibtex(
            reading(
                authors=["Ada Lovelace", "Ben van Werkhoven", "and others"],
                year=2018,
                venue="SC 2018",
                tags=["gemm", "tiling"],
                also=[{"what": "published", "url": "https://doi.org/10.1109/SC.2010.2"}],
            )
        )
    )
    assert found == {
        "ENTRYTYPE": "inproceedings",
        "ID": "a-paper",
        "title": "{On products}",
        "author": "Ada Lovelace and Ben van Werkhoven and others",
        "year": "2018",
        "booktitle": "SC 2018",
        "doi": "10.1109/sc.2010.2",
        "eprint": "1805.02867",
        "archiveprefix": "arXiv",
        "url": "https://arxiv.org/abs/1805.02867",
        "keywords": "gemm, tiling",
    }


@pytest.mark.parametrize(
    ("kind", "venue", "form", "field", "shown", "csl_type"),
    [
        ("paper", None, "misc", None, None, "article"),
        ("paper", "arXiv", "misc", None, None, "article"),
        ("paper", "The Journal of Supercomputing", "article", "journal", None, "article-journal"),
        ("paper", "Proceedings of the IEEE", "article", "journal", None, "article-journal"),
        ("paper", "MLSys 2023", "inproceedings", "booktitle", None, "paper-conference"),
        ("paper", "PhD thesis, UC Berkeley", "phdthesis", "school", "UC Berkeley", "thesis"),
        ("paper", "NVIDIA Technical Report 2", "techreport", "institution", None, "report"),
        ("book", "Morgan Kaufmann", "book", "publisher", None, "book"),
        ("post", "A blog", "misc", "howpublished", None, "post-weblog"),
        ("code", None, "misc", None, None, "software"),
        ("talk", "GTC 2025", "misc", "howpublished", None, "speech"),
    ],
)
def test_the_type_follows_kind_and_venue(
    kind: str, venue: str | None, form: str, field: str | None, shown: str | None, csl_type: str
) -> None:
    one = reading(kind=kind, venue=venue)
    found = parsed(bibtex(one))
    assert found["ENTRYTYPE"] == form
    if field:
        assert found[field] == shown or found[field] == venue
    assert csl(one)["type"] == csl_type
    assert csl(one).get("container-title") == venue


@pytest.mark.parametrize(
    ("name", "tex", "item"),
    [
        ("Tri Dao", "Tri Dao", {"family": "Dao", "given": "Tri"}),
        (
            "Ben van der Werf",
            "Ben van der Werf",
            {"family": "van der Werf", "given": "Ben"},
        ),
        ("NVIDIA", "{NVIDIA}", {"literal": "NVIDIA"}),
        ("DeepSeek-AI", "{DeepSeek-AI}", {"literal": "DeepSeek-AI"}),
        ("PyTorch Team", "{PyTorch Team}", {"literal": "PyTorch Team"}),
        ("te42kyfo", "{te42kyfo}", {"literal": "te42kyfo"}),
        ("高庆东", "{高庆东}", {"literal": "高庆东"}),
        ("Smith, Adam", "{Smith, Adam}", {"family": "Adam", "given": "Smith,"}),
        ("and others", "others", {"literal": "others"}),
    ],
)
def test_names(name: str, tex: str, item: dict[str, str]) -> None:
    one = reading(authors=["Ada Lovelace", name])
    assert parsed(bibtex(one))["author"] == f"Ada Lovelace and {tex}"
    assert csl(one)["author"][1] == item


def test_special_characters_cannot_break_out() -> None:
    hostile = r"50% of A_B & C# {x}} \input{y} $z$ ~ ^"
    found = parsed(bibtex(reading(title=hostile, url="https://example.org/a%7Db#c?d={e}")))
    assert found["title"] == (
        r"{50\% of A\_B \& C\# \textbraceleft{}x\textbraceright{}\textbraceright{} "
        r"\textbackslash{}input\textbraceleft{}y\textbraceright{} \$z\$"
        r" \textasciitilde{} \textasciicircum{}}"
    )
    assert found["url"] == "https://example.org/a%7Db#c?d=%7Be%7D"


def test_a_title_in_another_language_keeps_its_english() -> None:
    one = reading(title="矩阵乘", title_en="Products", lang="zh")
    assert parsed(bibtex(one))["note"] == "Products"
    assert (csl(one)["title"], csl(one)["language"], csl(one)["note"]) == (
        "矩阵乘",
        "zh",
        "Products",
    )


@given(TEXT, TEXT, st.lists(TEXT, max_size=3, unique=True))
def test_any_text_is_read_back_as_one_entry(title: str, venue: str, authors: list[str]) -> None:
    try:
        one = reading(title=title, title_en=title, lang="zh", venue=venue, authors=authors)
    except ValueError:
        return
    found = parsed(bibtex(one))
    assert found["ID"] == "a-paper"
    assert found["url"] == "https://arxiv.org/abs/1805.02867"
    assert set(csl(one)) >= {"id", "type", "title", "URL"}


def test_the_whole_shelf_is_valid(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    shelf = load(ROOT)
    library = bibtexparser.parse_string("\n".join(map(bibtex, shelf.readings.values())))
    assert library.failed_blocks == []
    assert {entry.key for entry in library.entries} == set(shelf.readings)
    assert caplog.records == []
