"""Text from the web is clean, on one line and within the limits of an entry.

The services' answers: their traps, and that no answer can do more than fail to be read.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from web_server import ANSWERS

from warpshelf.readings import model
from warpshelf.web import services
from warpshelf.web.services import Unreadable

ANY = st.one_of(st.text(), st.text("a \n\t\u200b\u202e\x00\ufeff…<>&;", max_size=400))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("  Efficient Memory\n      Management ", "Efficient Memory Management"),
        ("a\x1b[31mb\x07\u202e\u200b\u00ad\ufeff\x00c", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("流水线\u3000并行", "流水线 并行"),
        ("x" * 400, "x" * 299 + "…"),
        ("word " * 100, ("word " * 60).strip() + "…"),
        (7, ""), (None, ""), (["a"], ""), ("\n", ""),
    ],
)  # fmt: skip
def test_text(value: object, wanted: str) -> None:
    assert services.clean_text(value) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("Al<sub>x</sub>Ga &amp; <i>N</i>", "AlxGa & N"),
        ("Is a < b and b > c?", "Is a < b and b > c?"),
        ("&lt;script&gt;", "<script>"),
        ("&#27;[31mred&#8238;", "[31mred"),
    ],
)
def test_marked(value: str, wanted: str) -> None:
    assert services.clean_markup(value) == wanted


@given(ANY)
def test_any_text_fits_an_entry(value: str) -> None:
    for said in (services.clean_text(value), services.clean_markup(value)):
        if said:
            assert TypeAdapter(model.Sentence).validate_python(said) == said
    if name := services.clean_name(value):
        assert TypeAdapter(model.Name).validate_python(name) == name


def test_the_limits_are_those_of_an_entry() -> None:
    for kind, limit in (
        (model.Sentence, services.TITLE), (model.Name, services.NAME), (model.Url, services.URL)
    ):  # fmt: skip
        start = "https://x.org/" if limit == services.URL else ""
        text = start + "x" * (limit - len(start))
        assert TypeAdapter(kind).validate_python(text) == text
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(text + "x")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("2023-09-12T12:50:04Z", 2023), ("20230912", 2023), ("12 Sep 2023", 2023), ("2023/07", 2023),
     (2019, 2019), ("2023", 2023), ("1899", None), ("2199", None), ("12345678", None), ("", None),
     (None, None), (True, None), (3.5, None), ("120230912", None), ("20239", None), (10**80, None)],
)  # fmt: skip
def test_year(value: object, wanted: int | None) -> None:
    assert services.parse_year(value) == wanted


def test_authors() -> None:
    assert services.clean_authors([" Ada\nLovelace", "", None, "Ada Lovelace", "ada@x.org",
                          "x" * 121, "https://x.org", "…", "Bob"]
                         ) == ("Ada Lovelace", "Bob")  # fmt: skip
    assert services.clean_authors(f"A{n}" for n in range(12))[-1] == "A11"
    assert services.clean_authors(f"A{n}" for n in range(13))[10:] == ("A10", "A11", "and others")
    assert services.given_name_first("Lovelace, Ada") == "Ada Lovelace"
    assert services.given_name_first("Ada Lovelace") == "Ada Lovelace"


@pytest.mark.parametrize(
    ("code", "title", "wanted"),
    [("en-US", "T", "en"), ("de_DE", "T", "de"), ("ZH", "T", "zh"), ("english", "T", None),
     (None, "T", None), (7, "T", None), ("en", "流水线", "zh"), (None, "ソフトマックス", "ja"),
     ("zh-CN", "流水线の", "zh"), (None, "어텐션", "ko")],
)  # fmt: skip
def test_language(code: object, title: str, wanted: str | None) -> None:
    assert services.detect_language(code, title) == wanted


WORK = "arxiv:2309.06180"
FEED = ANSWERS["arxiv.xml"]
PAPER = json.loads(ANSWERS["crossref.json"])["message"]
DOI = "doi:10.1145/3341301.3359646"


def parse_crossref(**fields: Any) -> services.Metadata:
    said = {key: value for key, value in {**PAPER, **fields}.items() if value is not None}
    found = services.parse_crossref(json.dumps({"message": said}).encode(), DOI)
    assert found
    return found


def test_an_entity_is_refused_not_expanded() -> None:
    bomb = FEED.replace(
        "<feed ", '<!DOCTYPE feed [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;">]>\n<feed ', 1
    ).replace("Efficient", "&b;")
    with pytest.raises(Unreadable, match="a document type"):
        services.parse_arxiv(bomb.encode(), WORK)


def test_a_document_type_is_refused() -> None:
    """It could name a file or an address to read on."""
    other = FEED.replace("<feed ", '<!DOCTYPE feed SYSTEM "file:///etc/passwd">\n<feed ', 1)
    with pytest.raises(Unreadable, match="a document type"):
        services.parse_arxiv(other.encode(), WORK)


def test_a_deep_feed_is_refused() -> None:
    deep = FEED.replace("<summary>", "<a>" * 30 + "</a>" * 30 + "<summary>")
    with pytest.raises(Unreadable, match="nested over 20 deep"):
        services.parse_arxiv(deep.encode(), WORK)


def test_only_the_entry_s_own_elements_are_read() -> None:
    """Neither the feed's title, nor one in another namespace or inside another element."""
    odd = '<title xmlns="urn:x">Not this</title><x><title>Nor this</title></x>'
    other = FEED.replace("<title>Efficient", f"{odd}<title>Efficient")
    found = services.parse_arxiv(other.encode(), WORK)
    assert found == services.parse_arxiv(FEED.encode(), WORK)
    assert (
        services.parse_arxiv(
            FEED.replace("<entry>", "<x>").replace("</entry>", "</x>").encode(), WORK
        )
        is None
    )


def test_a_journal_s_reference_and_arxiv_s_own_doi() -> None:
    more = FEED.replace(
        "<arxiv:doi>10.1145/3600006.3613165", "<arxiv:doi>10.48550/arXiv.2309.06180"
    )
    more = more.replace(
        "<summary>", "<arxiv:journal_ref>J. Systems 12\n (2025)</arxiv:journal_ref><summary>"
    )
    found = services.parse_arxiv(more.encode(), WORK)
    assert found and found.venue == "J. Systems 12 (2025)" and found.also == ()


def test_many_authors() -> None:
    names = "".join(f"<author><name>Ada {n}</name></author>" for n in range(40))
    more = FEED.replace("<arxiv:comment>", f"{names}<arxiv:comment>")
    found = services.parse_arxiv(more.encode(), WORK)
    assert found and found.authors[-2:] == ("Ada 11", "and others") and len(found.authors) == 13


@pytest.mark.parametrize(
    ("fields", "venue"),
    [
        ({"event": {"acronym": "PPoPP08"}}, "PPoPP08"),
        ({"event": {"acronym": "SC '98"}}, "SC 1998"),
        ({"event": {"acronym": "ICS’23"}}, "ICS 2023"),
        ({"event": {"acronym": ["x"]}}, PAPER["container-title"][0]),
        ({"event": None, "container-title": ["x" * 200], "short-container-title": ["FG"]}, "FG"),
        ({"event": None, "container-title": ["Computing &amp; Systems"]}, "Computing & Systems"),
        ({"event": None, "container-title": [], "institution": [{"name": "bioRxiv"}]}, "bioRxiv"),
        ({"event": None, "container-title": []}, None),
    ],
)  # fmt: skip
def test_venue(fields: dict[str, Any], venue: str | None) -> None:
    assert parse_crossref(**fields).venue == venue


def test_the_year_in_print_comes_first() -> None:
    online = {"date-parts": [[2018, 9]]}
    assert parse_crossref(issued=online).year == 2019
    assert parse_crossref(**{"published-print": None, "issued": online}).year == 2018
    assert (
        parse_crossref(**{"published-print": {"date-parts": [[None]]}, "issued": None}).year == 2019
    )


def test_title() -> None:
    assert parse_crossref(title=["On <i>x</i>:"], subtitle=["a &amp; b"]).title == "On x: a & b"
    assert parse_crossref(title=["On x: a"], subtitle=["a"]).title == "On x: a"
    for nothing in ([], None, "text", [""], [{}]):
        said = json.dumps({"message": {**PAPER, "title": nothing}}).encode()
        assert services.parse_crossref(said, DOI) is None


def test_relations() -> None:
    relation = {"is-preprint-of": [{"id-type": "doi", "id": "10.1234/ABC"}],
                "has-preprint": [{"id-type": "doi", "id": "https://doi.org/10.48550/arXiv.1806.03377"},
                                 {"id-type": "doi", "id": "10.1145/3341301.3359646"},
                                 {"id-type": "uri", "id": "x"}, "x", {"id": 7}]}  # fmt: skip
    assert parse_crossref(relation=relation).also == (
        ("preprint", "https://arxiv.org/abs/1806.03377"),
        ("published", "https://doi.org/10.1234/abc"),
    )


def test_kind() -> None:
    assert parse_crossref(type="monograph").kind == "book"
    assert parse_crossref(type="dataset").kind is None


def test_a_repository_elsewhere_is_not_believed() -> None:
    said = json.loads(ANSWERS["github.json"])
    for url in (
        "https://evil.example/a/b",
        "javascript:alert(1)",
        7,
        None,
        "https://github.com.x.org/a",
    ):
        assert services.parse_github(json.dumps({**said, "html_url": url}).encode()) is None


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("10.1145/3600006.3613165", "https://doi.org/10.1145/3600006.3613165"),
        ("doi:10.1145/X", "https://doi.org/10.1145/x"),
        ("http://dx.doi.org/10.1/x", None),
        ("10.48550/arXiv.1805.02867v2", "https://arxiv.org/abs/1805.02867"),
        ("10.1234/" + "x" * 600, None),
        ("none", None), (7, None), ("", None),
    ],
)  # fmt: skip
def test_doi(value: object, wanted: str | None) -> None:
    assert services.doi_url(value) == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
KEYS = ["title", "subtitle", "DOI", "author", "event", "container-title", "institution", "relation",
        "issued", "type", "language", "name", "html_url", "owner", "created_at", "author_name",
        "published-print", "description"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_no_json_breaks_a_reader(said: dict[str, Any]) -> None:
    titled = {"title": ["T"], "name": "T", "html_url": "https://github.com/a/b", **said}
    for fields in (said, titled):
        services.parse_crossref(json.dumps({"message": fields}).encode(), DOI)
        services.parse_github(json.dumps(fields).encode())
        services.parse_youtube(json.dumps(fields).encode(), "https://www.youtube.com/watch?v=x")


@given(
    st.binary(max_size=200)
    | st.integers(0, FEED.index("</feed>")).map(lambda cut: FEED[:cut].encode())
)
def test_no_bytes_break_a_reader(data: bytes) -> None:
    for read in (
        lambda: services.parse_arxiv(data, WORK), lambda: services.parse_crossref(data, DOI),
        lambda: services.parse_github(data), lambda: services.parse_youtube(data, "https://x.org"),
    ):  # fmt: skip
        try:
            assert read() is None
        except Unreadable as error:
            assert str(error)
