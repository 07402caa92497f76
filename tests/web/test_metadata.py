"""Text from the web is clean, on one line and within the limits of an entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from warpshelf.readings import model
from warpshelf.web import metadata

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
    assert metadata.text(value) == wanted


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
    assert metadata.marked(value) == wanted


@given(ANY)
def test_any_text_fits_an_entry(value: str) -> None:
    for said in (metadata.text(value), metadata.marked(value)):
        if said:
            assert TypeAdapter(model.Sentence).validate_python(said) == said
    if name := metadata.name(value):
        assert TypeAdapter(model.Name).validate_python(name) == name


def test_the_limits_are_those_of_an_entry() -> None:
    for kind, limit in (
        (model.Sentence, metadata.TITLE), (model.Name, metadata.NAME), (model.Url, metadata.URL)
    ):  # fmt: skip
        start = "https://x.org/" if limit == metadata.URL else ""
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
    assert metadata.year(value) == wanted


def test_authors() -> None:
    assert metadata.authors([" Ada\nLovelace", "", None, "Ada Lovelace", "ada@x.org", "x" * 121,
                          "https://x.org", "…", "Bob"]) == ("Ada Lovelace", "Bob")  # fmt: skip
    assert metadata.authors(f"A{n}" for n in range(12))[-1] == "A11"
    assert metadata.authors(f"A{n}" for n in range(13))[10:] == ("A10", "A11", "and others")
    assert metadata.forward("Lovelace, Ada") == "Ada Lovelace"
    assert metadata.forward("Ada Lovelace") == "Ada Lovelace"


@pytest.mark.parametrize(
    ("code", "title", "wanted"),
    [("en-US", "T", "en"), ("de_DE", "T", "de"), ("ZH", "T", "zh"), ("english", "T", None),
     (None, "T", None), (7, "T", None), ("en", "流水线", "zh"), (None, "ソフトマックス", "ja"),
     ("zh-CN", "流水线の", "zh"), (None, "어텐션", "ko")],
)  # fmt: skip
def test_language(code: object, title: str, wanted: str | None) -> None:
    assert metadata.language(code, title) == wanted
