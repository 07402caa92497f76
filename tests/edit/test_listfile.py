"""A list takes one entry more and keeps every byte that it had."""

from __future__ import annotations

import pytest
from bookcase import FIRST
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warpshelf.core.findings import ShelfError
from warpshelf.edit.listfile import dump, extended
from warpshelf.readings.entries import Reader

ENTRY = {"id": "b", "title": "B", "url": "https://x.org/b", "kind": "post", "why": "W."}
TEXT = "- id: b\n  title: B\n  url: https://x.org/b\n  kind: post\n  why: W.\n"
OTHER = FIRST.replace("online", "on").replace("1805", "1905")


@pytest.mark.parametrize(
    ("before", "start"),
    [
        (FIRST, FIRST),
        (FIRST.rstrip("\n"), FIRST),
        (FIRST + "\n", FIRST + "\n"),
        (FIRST + "# the end\n", FIRST + "# the end\n"),
        (FIRST + "\n" + OTHER, FIRST + "\n" + OTHER + "\n"),
        ("", ""),
        ("# nothing yet\n", "# nothing yet\n"),
        ("# nothing yet", "# nothing yet\n"),
        ("[]\n", ""),
        ("[]", ""),
        ("# none\n[ ]  \n# end\n", "# none\n# end\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_stood_there_stays_byte_for_byte(before: str, start: str, newline: str) -> None:
    old = before.replace("\n", newline).encode()
    newline = newline if b"\n" in old else "\n"
    data, text = extended("docs/a.yml", old, ENTRY)
    assert data == (start + TEXT).replace("\n", newline).encode()
    assert text == TEXT.replace("\n", newline)


def test_an_indented_list_stays_indented() -> None:
    indented = "".join(f"  {line}\n" for line in FIRST.splitlines())
    data, text = extended("docs/a.yml", indented.encode(), ENTRY)
    assert data.decode() == indented + text and text.startswith("  - id: b\n    title: B\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- id: [\n", "cannot be read here"),
        ("a: b\n", "is not a list"),
        ("[{id: a, title: A, url: https://x.org, kind: post, why: w}]\n", "written as [ … ]"),
        (FIRST + "...\n", ""),
        ("\ufeff" + FIRST, "byte order mark"),
    ],
)
def test_a_list_that_cannot_take_an_entry(text: str, words: str) -> None:
    with pytest.raises(ShelfError) as caught:
        extended("docs/a.yml", text.encode(), ENTRY)
    assert str(caught.value).startswith("docs/a.yml") and words in str(caught.value)


def test_a_date_is_a_text_in_quotes() -> None:
    text = dump({**ENTRY, "added": "2026-11-21"}, 0, "\n")
    assert text.endswith('\n  added: "2026-11-21"\n')
    assert Reader("a", text.encode()).entries[0].fields["added"] == "2026-11-21"


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=120),
    st.text("-:#'\"[]{}&*!|>%@`~?, \\ayno01.\t", min_size=1, max_size=20),
))  # fmt: skip
@example("\xa0")
def test_any_text_is_written_as_it_is_meant(text: str) -> None:
    values = {
        "id": "a",
        "title": text,
        "authors": [text, "x"],
        "also": [{"what": "code", "url": text}],
    }
    for newline in ("\n", "\r\n"):
        data = dump(values, 2, newline).encode()
        reader = Reader("docs/a.yml", data)
        assert not reader.findings and reader.indent == 2 and not reader.untidy
        assert [entry.fields for entry in reader.entries] == [values]
