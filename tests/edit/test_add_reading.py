"""A reading is added whole or not at all, and what is on the shelf is not added again.

A list takes one entry more and keeps every byte that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading_project import FIELDS, FIRST, URL, add_entry, read_files, read_list

from warpshelf.core.findings import ShelfError
from warpshelf.edit import add_reading
from warpshelf.edit.add_reading import NewReading, append_entry, dump_entry
from warpshelf.readings.crosscheck import check_shelf
from warpshelf.readings.entries import EntryReader
from warpshelf.readings.model import load_shelf
from warpshelf.web.services import Metadata

TODAY = "2026-11-20"
FOUND = Metadata("How a GPU waits", URL)


@pytest.fixture(autouse=True)
def _the_same_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Midnight may pass while a test runs."""
    monkeypatch.setattr(add_reading, "utc_date", lambda: TODAY)


def catch_refusal(
    root: Path, topic: str = "kernels/softmax", url: str = URL, metadata: Metadata | None = None,
    **fields: object,
) -> str:  # fmt: skip
    before = read_files(root)
    with pytest.raises(ShelfError) as caught:
        add_entry(root, topic, url, fields={**FIELDS, **fields}, metadata=metadata)
    assert read_files(root) == before
    assert len(caught.value.findings) == 1
    return str(caught.value)


def test_an_entry_is_appended_and_the_rest_stays(reading_root: Path) -> None:
    entry = add_entry(reading_root, "kernels/softmax", URL, fields=FIELDS)
    assert read_list(reading_root) == FIRST + (
        "- id: how-a-gpu-waits\n"
        "  title: How a GPU waits\n"
        "  url: https://example.org/a-post\n"
        "  kind: post\n"
        "  why: Says what a warp waits for.\n"
        f'  added: "{TODAY}"\n'
    )
    assert (entry.path, entry.line, entry.notes) == ("docs/kernels/softmax.yml", 7, [])
    assert entry.reading.id == "how-a-gpu-waits" and entry.text in read_list(reading_root)
    shelf = load_shelf(reading_root)
    assert not shelf.findings and not check_shelf(shelf, {"softmax"}) and len(shelf.readings) == 2
    assert {
        path.name for path in (reading_root / "docs/kernels").iterdir() if path.suffix == ".yml"
    } == {"softmax.yml"}


def test_every_field_is_written_in_the_order_of_the_schema(reading_root: Path) -> None:
    fields = {
        "snippet": None, "tags": ["gpu", "paged-attention"], "lang": "zh", "year": 2023,
        "level": "advanced", "authors": ["Ada Lovelace", "李: 明"], "venue": "SOSP '23",
        "why": 'Says "how": a page # of keys, ' + "and why that is a good idea " * 5,
        "title": "分页: 注意力", "title_en": "Paging", "snippets": ["stream"],
        "needs": ["online-softmax"], "id": "paging", "added": "2026-01-02",
        "also": [{"what": "code", "url": "https://github.com/a/b"}], "seed": ["000"], "rating": 4,
    }  # fmt: skip
    fields["why"] = str(fields["why"]).strip()
    fields.pop("snippet")
    entry = add_entry(
        reading_root, "kernels/softmax", "https://arxiv.org/abs/2309.06180", fields=fields
    )
    assert read_list(reading_root).startswith(FIRST + "- id: paging\n")
    assert max(map(len, read_list(reading_root).splitlines())) <= 100
    reading = load_shelf(reading_root).readings["paging"]
    said = reading.model_dump(exclude_defaults=True)
    assert said == {**fields, "kind": "paper", "url": "https://arxiv.org/abs/2309.06180"}
    assert not check_shelf(load_shelf(reading_root), {"stream"}) and entry.reading.id == "paging"


def test_nothing_is_written_when_it_is_dry(reading_root: Path) -> None:
    before = read_files(reading_root)
    entry = add_entry(reading_root, "kernels/gemm", URL, fields=FIELDS, dry=True)
    assert entry.text.startswith("- id: how-a-gpu-waits\n") and entry.reading.title
    assert read_files(reading_root) == before


def test_a_list_is_begun_where_the_page_stands(reading_root: Path) -> None:
    entry = add_entry(reading_root, "kernels/gemm", URL, fields=FIELDS)
    assert read_list(reading_root, "gemm").startswith("- id: how-a-gpu-waits\n") and entry.line == 1
    assert not entry.notes


def test_an_empty_list_is_filled(reading_root: Path) -> None:
    (reading_root / "docs/kernels/gemm.yml").write_text("[]\n")
    add_entry(reading_root, "kernels/gemm", URL, fields=FIELDS)
    assert read_list(reading_root, "gemm").startswith("- id: how-a-gpu-waits\n")


def test_a_page_that_does_not_show_its_list_is_noted(reading_root: Path) -> None:
    entry = add_entry(reading_root, "kernels/plain", URL, fields=FIELDS)
    assert [str(note) for note in entry.notes] == [
        "docs/kernels/plain.md: does not show its reading list; "
        'add --8<-- "readings/kernels/plain.md"'
    ]


@pytest.mark.parametrize("topic", ["docs/kernels/gemm.yml", "kernels/gemm.md", "/kernels/gemm/"])
def test_a_topic_may_be_written_as_its_file(reading_root: Path, topic: str) -> None:
    assert add_entry(reading_root, topic, URL, fields=FIELDS).path == "docs/kernels/gemm.yml"


def test_an_unknown_topic_is_refused_with_the_topics(reading_root: Path) -> None:
    said = catch_refusal(reading_root, topic="kernels/softmaxx")
    assert "there is no page docs/kernels/softmaxx.md" in said
    assert "write --topic kernels/softmax; topics: kernels/gemm, kernels/softmax" in said
    assert "topics: kernels/gemm" in catch_refusal(reading_root, topic="../../etc/passwd")
    (reading_root / "secret.md").write_text("# x\n")
    assert "there is no page" in catch_refusal(reading_root, topic="../secret")
    assert "there is no page" in catch_refusal(reading_root, topic="")


@pytest.mark.parametrize(
    "url",
    ["https://arxiv.org/abs/1805.02867", "https://arxiv.org/pdf/1805.02867v2.pdf",
     "https://www.alphaxiv.org/abs/1805.02867", "https://doi.org/10.48550/arXiv.1805.02867"],
)  # fmt: skip
def test_a_work_on_the_shelf_is_refused_with_its_place(reading_root: Path, url: str) -> None:
    said = catch_refusal(reading_root, topic="kernels/gemm", url=url)
    assert "arxiv:1805.02867 is on the shelf already" in said
    assert "'Online normalizer calculation for softmax' (online-softmax)" in said
    assert said.endswith("see docs/kernels/softmax.yml:2")


def test_another_version_on_the_shelf_is_refused_with_its_place(reading_root: Path) -> None:
    also = (("preprint", "https://arxiv.org/abs/1805.02867"),)
    said = catch_refusal(
        reading_root, url="https://doi.org/10.1145/1.2", metadata=replace(FOUND, also=also)
    )
    assert "arxiv:1805.02867 is on the shelf already" in said
    mend = "name https://doi.org/10.1145/1.2 under its also, at docs/kernels/softmax.yml:2"
    assert said.endswith(mend)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("javascript:alert(1)", "does not start with https://"),
        ("example.org/a", "does not start with https://"),
        ("https://x.org/a b", "holds a space"),
        ("http://x.org/a", "is http; write https:"),
        ("https://bit.ly/x", "bit.ly hides where the url leads"),
        ("https://www.google.com/search?q=x", "is a search on google.com"),
        ("https://localhost/x", "is not public"),
    ],
)
def test_a_wrong_address_is_refused(reading_root: Path, url: str, words: str) -> None:
    assert words in catch_refusal(reading_root, url=url)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "papers"}, "kind is 'papers'; write paper"),
        ({"why": "x" * 301}, "over the limit of 300"),
        ({"year": 1800}, "year is 1800"),
        ({"rating": 5}, "rating is '5', outside 1 to 4"),
        ({"lang": "jp"}, "write ja"),
        ({"tags": ["GPU"]}, "tags 1 is 'GPU'"),
        ({"snippets": ["streem"]}, "which is not a folder under snippets/; write stream"),
        ({"needs": ["online-softmaxx"]}, "write online-softmax"),
        ({"id": "online-softmax"}, "id 'online-softmax' is used twice"),
        ({"title": "online normalizer calculation for Softmax"}, "also stands at"),
        ({"title": "a\x1b[31m"}, "unseen character U+001B"),
        ({"also": [{"what": "copy", "url": "https://x.org"}]}, "also 1 what is 'copy'"),
        ({"colour": "red"}, "the key 'colour' is unknown"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(
    reading_root: Path, fields: dict[str, object], words: str
) -> None:
    assert words in catch_refusal(reading_root, **fields)


def test_a_circle_through_the_entry_is_refused_wherever_it_shows(reading_root: Path) -> None:
    (reading_root / "docs/kernels/softmax.yml").write_text(FIRST + "  needs: [waits]\n")
    assert "goes in a circle" in catch_refusal(reading_root, topic="kernels/gemm", id="waits",
                                         needs=["online-softmax"])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [("- id: [\n", "cannot be read here"), (FIRST + "  colour: red\n", "'colour' is unknown"),
     ("- id: a\n  colour: red\n", "")],
)  # fmt: skip
def test_a_broken_list_is_left_alone(reading_root: Path, text: str, words: str) -> None:
    (reading_root / "docs/kernels/softmax.yml").write_text(text)
    before = read_files(reading_root)
    with pytest.raises(ShelfError) as caught:
        add_entry(reading_root, "kernels/softmax", URL, fields=FIELDS)
    assert words in str(caught.value) and read_files(reading_root) == before


def test_what_is_wrong_elsewhere_does_not_stand_in_the_way(reading_root: Path) -> None:
    (reading_root / "docs/kernels/gemm.yml").write_text("- id: [\n")
    (reading_root / "docs/kernels/softmax.yml").write_text(FIRST + "  needs: [gone]\n")
    add_entry(reading_root, "kernels/softmax", URL, fields=FIELDS)
    assert "how-a-gpu-waits" in load_shelf(reading_root).readings


def test_missing_fields_are_named_at_once(reading_root: Path) -> None:
    said = catch_refusal(reading_root, title=None, kind="", why=None)
    assert said.endswith("an entry needs title, kind, why; add --title, --kind, --why")
    said = catch_refusal(reading_root, url="https://youtu.be/Cp7g1Ll4v0M", kind=None, why=None)
    assert said.endswith("an entry needs why; add --why")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://arxiv.org/abs/2309.06180", "paper"),
        ("https://doi.org/10.1145/1345206.1345220", "paper"),
        ("https://ieeexplore.ieee.org/document/9622813", "paper"),
        ("https://openreview.net/pdf?id=E1EHO0imOb", "paper"),
        ("https://youtu.be/Cp7g1Ll4v0M", "talk"),
        ("https://github.com/a/b", "code"),
    ],
)
def test_the_kind_is_read_from_the_address(reading_root: Path, url: str, kind: str) -> None:
    fields = {"title": "T", "why": "W"}
    assert add_entry(reading_root, "kernels/gemm", url, fields=fields).reading.kind == kind


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        (" https://youtu.be/Cp7g1Ll4v0M?si=abc&t=5 ",
         "https://www.youtube.com/watch?v=Cp7g1Ll4v0M&t=5"),
        ("https://arxiv.org/pdf/2309.06180v2.pdf", "https://arxiv.org/abs/2309.06180"),
        ("http://dx.doi.org/10.1145/1345206.1345220", "https://doi.org/10.1145/1345206.1345220"),
        ("https://github.com/a/b.git", "https://github.com/a/b"),
        ("https://x.org/a?utm_source=feed&p=1", "https://x.org/a?p=1"),
    ],
)  # fmt: skip
def test_the_address_is_written_in_its_usual_form(
    reading_root: Path, url: str, wanted: str
) -> None:
    assert add_entry(reading_root, "kernels/gemm", url, fields=FIELDS).reading.url == wanted


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("FlashAttention-2: Faster Attention", "flashattention-2"),
        ("Ça, c'est l'été!", "ca-cest-lete"),
        ("Online softmax", "online-softmax-2"),
        ("流水线", "pipelines"),
        ("流水线: GPU", "gpu"),
        ("x" * 200, "x" * 76),
        ("!!", "reading"),
        ("How to optimize a CUDA matmul kernel for cuBLAS-like performance",
         "how-to-optimize-a-cuda-matmul-kernel-for"),
    ],
)  # fmt: skip
def test_ids_are_made_of_titles(reading_root: Path, title: str, wanted: str) -> None:
    more = {"lang": "zh", "title_en": "Pipelines"} if "流" in title else {}
    fields = {**FIELDS, "title": title, **more}
    assert add_entry(reading_root, "kernels/gemm", URL, fields=fields).reading.id == wanted


def test_a_killed_write_leaves_the_old_list(
    reading_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_write(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt_write)
    before = read_files(reading_root)
    with pytest.raises(KeyboardInterrupt):
        add_entry(reading_root, "kernels/softmax", URL, fields=FIELDS)
    assert read_files(reading_root) == before


# What was found.

RICH = Metadata(
    title="How a GPU waits, really",
    url=URL,
    authors=("Ada Lovelace", "and others"),
    year=2024,
    venue="A Blog",
    kind="talk",
    lang="de",
    also=(("published", "https://doi.org/10.1145/1.2"),),
    about="Never written.",
)


def test_what_is_found_fills_what_is_not_given(reading_root: Path) -> None:
    entry = add_entry(
        reading_root, "kernels/gemm", URL, fields={"why": "W.", "year": 2023}, metadata=RICH
    )
    assert entry.reading.model_dump(exclude_defaults=True) == {
        "id": "how-a-gpu-waits-really", "title": "How a GPU waits, really", "url": URL,
        "kind": "talk", "authors": ["Ada Lovelace", "and others"], "year": 2023, "venue": "A Blog",
        "why": "W.", "lang": "de", "added": TODAY,
        "also": [{"what": "published", "url": "https://doi.org/10.1145/1.2"}],
    }  # fmt: skip
    assert "Never written" not in read_list(reading_root, "gemm")


def test_what_is_given_goes_before_what_is_found(reading_root: Path) -> None:
    also = [{"what": "code", "url": "https://github.com/a/b"}]
    given: dict[str, Any] = {**FIELDS, "authors": ["Bob"], "lang": "fr", "venue": "B", "also": also}
    reading = add_entry(reading_root, "kernels/gemm", URL, fields=given, metadata=RICH).reading
    said = reading.model_dump(include={*given})
    assert said == given


def test_what_an_entry_cannot_hold_was_not_found(reading_root: Path) -> None:
    odd = replace(RICH, lang="xx", kind="scroll", year=1900, venue="v" * 200, also=())
    reading = add_entry(reading_root, "kernels/gemm", URL, fields=FIELDS, metadata=odd).reading
    assert (reading.lang, reading.kind, reading.year, reading.venue) == ("en", "post", None, None)


def test_a_work_that_has_moved_is_taken_where_it_is_now(reading_root: Path) -> None:
    new = NewReading(reading_root, "kernels/gemm", "https://github.com/old/name")
    assert not new.follow_move(replace(FOUND, url="https://github.com/Old/name"))
    assert not new.follow_move(replace(FOUND, url="http://x.org"))
    assert not new.follow_move(replace(FOUND, url="nonsense"))
    assert not new.follow_move(replace(FOUND, url="https://localhost/x"))
    assert new.follow_move(replace(FOUND, url="https://github.com/new/name.git"))
    assert (new.url, new.work) == ("https://github.com/new/name", "github:new/name")
    with pytest.raises(ShelfError, match="leads there; see docs/kernels/softmax.yml:2"):
        new.follow_move(replace(FOUND, url="https://arxiv.org/abs/1805.02867"))


def test_another_title_at_the_address_is_told(reading_root: Path) -> None:
    new = NewReading(reading_root, "kernels/gemm", URL)
    assert new.title_mismatch(FOUND, "HOW A GPU WAITS!") is None
    assert new.title_mismatch(FOUND, None) is None
    said = new.title_mismatch(FOUND, "Ring attention")
    assert said == "the title is given as 'Ring attention', found as 'How a GPU waits'"
    assert (
        NewReading(reading_root, "kernels/gemm", "https://github.com/a/b").title_mismatch(
            FOUND, "X"
        )
        is None
    )


def test_one_who_asks_gives_all_that_is_written(reading_root: Path) -> None:
    def answer_questions(
        new: NewReading, known: Mapping[str, Any], offered: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert (new.url, known) == (URL, {"year": 2023}) and offered["venue"] == "A Blog"
        return {**known, **FIELDS, "venue": ""}

    reading = add_entry(reading_root, "kernels/gemm", URL, fields={"year": 2023, "level": None},
                  metadata=RICH, ask=answer_questions).reading  # fmt: skip
    assert set(reading.model_dump(exclude_defaults=True)) == {"id", "url", "added", "year", *FIELDS}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "paper"}, None), ({"kind": "papr"}, "kind is 'papr'; write paper"),
        ({"year": "soon"}, "year is 'soon'; write a whole number"),
        ({"title": "流水线"}, None), ({"title": "流水线", "lang": "en"}, "set lang"),
        ({"title": "流水线", "lang": "zh"}, None), ({"title": "Warten", "lang": "de"}, None),
        ({"title": "流水线", "lang": "zh", "title_en": "P"}, None), ({"title_en": "P"}, None),
        ({"tags": ["A B"]}, "tags 1 is 'A B'"), ({"authors": ["A", "A"]}, "names 'A' twice"),
    ],
)  # fmt: skip
def test_an_answer_is_looked_at_alone(
    reading_root: Path, fields: dict[str, Any], words: str | None
) -> None:
    said = NewReading(reading_root, "kernels/gemm", URL).field_error(**fields)
    assert said is None if words is None else words in (said or "")


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
    data, text = append_entry("docs/a.yml", old, ENTRY)
    assert data == (start + TEXT).replace("\n", newline).encode()
    assert text == TEXT.replace("\n", newline)


def test_an_indented_list_stays_indented() -> None:
    indented = "".join(f"  {line}\n" for line in FIRST.splitlines())
    data, text = append_entry("docs/a.yml", indented.encode(), ENTRY)
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
        append_entry("docs/a.yml", text.encode(), ENTRY)
    assert str(caught.value).startswith("docs/a.yml") and words in str(caught.value)


def test_a_date_is_a_text_in_quotes() -> None:
    text = dump_entry({**ENTRY, "added": "2026-11-21"}, 0, "\n")
    assert text.endswith('\n  added: "2026-11-21"\n')
    assert EntryReader("a", text.encode()).entries[0].fields["added"] == "2026-11-21"


@settings(max_examples=150)
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
        data = dump_entry(values, 2, newline).encode()
        reader = EntryReader("docs/a.yml", data)
        assert not reader.findings and reader.indent == 2 and not reader.untidy
        assert [entry.fields for entry in reader.entries] == [values]
