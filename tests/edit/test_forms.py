"""A filled-in form is read as it is seen, or refused; whatever it holds, nothing else happens.

What GitHub is told holds the words of others only where they are nothing but words.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading_project import (
    BASIC,
    FIELDS,
    TICKED,
    URL,
    add_entry,
    format_answers,
    make_project,
    read_files,
    split_code,
)

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.edit import forms
from warpshelf.edit.add_reading import AddedReading
from warpshelf.edit.forms import (
    LABELS,
    MOST,
    fence_lines,
    parse_answers,
    parse_form,
    pull_request,
    refusal_comment,
)
from warpshelf.web.services import Metadata

FORM = Path(__file__).parents[2] / ".github" / "ISSUE_TEMPLATE" / "link.yml"


def catch_refusal(text: str | dict[str, str]) -> str:
    with pytest.raises(ShelfError) as caught:
        parse_form(text if isinstance(text, str) else format_answers({**BASIC, **text}))
    return str(caught.value)


def parse_fields(**given: str) -> dict[str, Any]:
    return parse_form(format_answers({**BASIC, **given})).fields


def test_the_labels_are_those_of_the_form() -> None:
    items = [item for item in yaml.safe_load(FORM.read_text())["body"] if "id" in item]
    assert [item["attributes"]["label"] for item in items] == list(LABELS)
    for item in items:
        several = item["type"] == "textarea" or LABELS[item["attributes"]["label"]] == "boxes"
        assert several or LABELS[item["attributes"]["label"]] in ("line", "names", "words")
        assert (item["type"] == "checkboxes") == (LABELS[item["attributes"]["label"]] == "boxes")
    [topic] = [item for item in items if item["id"] == "topic"]
    assert topic["attributes"]["options"][-1] == forms.ANOTHER


def test_a_form() -> None:
    form = parse_form(format_answers({
        **BASIC, "title_en": "T", "authors": "Ada Lovelace, Charles\nBabbage; and others",
        "year": "2024", "venue": "A blog", "level": "beginner", "lang": "zh",
        "tags": "softmax, gpu-memory", "snippets": "`softmax`", "needs": "- online-softmax",
        "also": "slides: https://x.org/s.pdf\n- code = <https://github.com/a/b.git>\n\n"
                "Preprint: https://arxiv.org/pdf/1805.02867",
        "notes": "Thank you!\n### And more\n",
    }))  # fmt: skip
    assert (form.url, form.topic) == (URL, "kernels/softmax")
    assert form.fields == {
        **FIELDS, "title_en": "T", "year": 2024, "venue": "A blog", "level": "beginner",
        "authors": ["Ada Lovelace", "Charles", "Babbage", "and others"], "lang": "zh",
        "tags": ["softmax", "gpu-memory"], "snippets": ["softmax"], "needs": ["online-softmax"],
        "also": [{"what": "slides", "url": "https://x.org/s.pdf"},
                 {"what": "code", "url": "https://github.com/a/b"},
                 {"what": "preprint", "url": "https://arxiv.org/abs/1805.02867"}],
    }  # fmt: skip


def test_what_was_left_out_is_left_out() -> None:
    assert parse_fields() == FIELDS


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends(end: str) -> None:
    text = format_answers({**BASIC, "why": "One.\nTwo."})
    assert parse_form(text.replace("\n", end)).fields["why"] == "One. Two."


def test_headings_that_are_not_the_form_s_belong_to_the_answer() -> None:
    why = "### Background\n## kind\n ### year\n#### tags\n### Year\nIt is so."
    assert (
        parse_fields(why=why)["why"]
        == "### Background ## kind ### year #### tags ### Year It is so."
    )


def test_a_heading_of_the_form_within_an_answer_is_refused() -> None:
    for hidden in ("### authors\n\nEve", "```\n### authors\n```", "<!--\n### authors  \n-->"):
        said = catch_refusal({"why": f"It is so.\n{hidden}"})
        assert said == ("authors: appears twice as a heading; take the line `### authors` out "
                        "of the answer that holds it")  # fmt: skip


def test_what_a_reader_of_the_issue_does_not_see_does_not_count() -> None:
    assert parse_fields(why="Seen.<!-- unseen\n\nstill -->")["why"] == "Seen."
    assert parse_fields(title="A<!-- b --> c<!-->")["title"] == "A c"
    assert "title: has no answer" in catch_refusal({"title": "<!-- hidden -->"})
    said = catch_refusal({"title": "Seen <!-- hidden", "notes": "-->"})
    assert said.startswith("title: holds an HTML comment that does not end; remove the <!--")


def test_a_fence_around_an_answer_is_taken_off() -> None:
    assert parse_fields(why="```text\nIt is so.\n```")["why"] == "It is so."
    assert parse_fields(why="~~~\nIt\nis so.\n~~~~")["why"] == "It is so."
    assert parse_fields(why="a ``` b")["why"] == "a ``` b"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": forms.ANOTHER}, "topic: is 'another one (name it under notes)'; a maintainer "
         "replaces this with a topic from the list"),
        ({"title": ""}, "title: has no answer; write one under its heading"),
        ({"title": "_No response_"}, "title: has no answer"),
        ({"title": "A\nB"}, "title: holds more than one line; write it on one"),
        ({"year": "soon"}, "year: is 'soon', which is not a year; write its four digits"),
        ({"year": "２０２４"}, "year: is '２０２４', which is not a year"),
        ({"year": "-2024"}, "year: is '-2024', which is not a year"),
        ({"also": "https://x.org/s.pdf"}, "also: holds 'https://x.org/s.pdf'; write one a line as"),
        ({"also": "code: javascript:alert(1)"}, "also: holds 'code: javascript:alert(1)'"),
        ({"also": "code: https://u@x.org/"}, "also: the URL 'https://u@x.org/' names a user"),
        ({"your own words": TICKED.replace("x", " ", 1)}, "your own words: is not ticked"),
        ({"your own words": "yes"}, "your own words: is not ticked; tick it, if it is true"),
        ({"your own words": ""}, "your own words: is not ticked"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read(given: dict[str, str], said: str) -> None:
    told = catch_refusal(given)
    assert told.startswith(said.partition(":")[0]) and said in told and "\n" not in told


def test_everything_wrong_is_told_at_once() -> None:
    said = catch_refusal({"year": "x", "title": "", "topic": forms.ANOTHER}).split("\n")
    assert [line.partition(":")[0] for line in said] == ["topic", "year", "title"]


def test_what_is_no_form() -> None:
    for text in ("", "Please add this: https://x.org", "# url\nhttps://x.org"):
        said = catch_refusal(text)
        assert said == "form: holds none of the form's headings; fill in the form for a link"
    assert "has 65537 characters, over 65536" in catch_refusal("x" * 65_537)
    said = catch_refusal("### url\n\nhttps://x.org\n\n### title\n\nT").split("\n")
    assert said[0] == "topic: has no answer; write one under its heading"
    assert [line.partition(":")[0] for line in said] == ["topic", "kind", "why", "your own words"]


# Where the text comes from.


def test_a_text_or_an_event(tmp_path: Path) -> None:
    text, event = tmp_path / "form.md", tmp_path / "event.json"
    text.write_bytes(b"a\r\n\xff")
    assert forms.read_issue(text) == (None, "a\r\n\ufffd")
    event.write_text(json.dumps({"action": "labeled", "issue": {"number": 7, "body": "b"}}))
    assert forms.read_issue(event) == (7, "b")
    event.write_text(json.dumps({"issue": {"number": 7, "body": None}}))
    assert forms.read_issue(event) == (7, "")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"issue": 1}', '{"issue": {"number": "7; ls", "body": "b"}}',
             '{"issue": {"number": true, "body": "b"}}', '{"issue": {"number": 1, "body": []}}',
             "[" * 100_000],
)  # fmt: skip
def test_what_is_no_event(tmp_path: Path, text: str) -> None:
    (tmp_path / "event.json").write_text(text)
    with pytest.raises(ShelfError, match="is not an issue event"):
        forms.read_issue(tmp_path / "event.json")
    with pytest.raises(ShelfError, match="cannot be read"):
        forms.read_issue(tmp_path / "gone.json")


# Onto the shelf.


@pytest.mark.parametrize(
    "topic", ["kernels/gemm", "kernels/plain", "docs/kernels/softmax.yml", "../x", "kernels"]
)
def test_a_form_adds_to_a_list_that_is_there(reading_root: Path, topic: str) -> None:
    with pytest.raises(ShelfError) as caught:
        parse_form(format_answers({**BASIC, "topic": topic})).new_reading(reading_root)
    assert (
        str(caught.value)
        == f"topic: is {topic!r}, which is not a list; write one of kernels/softmax"
    )


def test_an_address_on_the_shelf_is_refused(reading_root: Path) -> None:
    with pytest.raises(ShelfError, match="^url: arxiv:1805.02867 is on the shelf already, as"):
        parse_form(
            format_answers({**BASIC, "url": "<https://arxiv.org/abs/1805.02867v2>"})
        ).new_reading(reading_root)


def test_what_a_person_should_look_at(reading_root: Path) -> None:
    form = parse_form(format_answers(BASIC))
    new = form.new_reading(reading_root)
    assert (
        form.review_notes(new, None) == form.review_notes(new, Metadata(FIELDS["title"], URL)) == []
    )
    assert form.review_notes(new, Metadata("Another work", "https://elsewhere.org/a")) == [
        "the title is given as 'How a GPU waits', found as 'Another work'",
        "the address leads to https://elsewhere.org/a",
    ]


# Any text at all.

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40)
TEXTS = st.lists(
    LINES | st.sampled_from(["### other", "```", "_No response_", "---", "<b>", "- [x] a", ""]),
    max_size=5,
).map("\n".join)


@given(st.fixed_dictionaries({}, optional={label: TEXTS for label in LABELS}))
def test_any_answers_come_back(given_: dict[str, str]) -> None:
    text = format_answers(given_)
    if any(
        forms.HEADING.fullmatch(line) for answer in given_.values() for line in answer.split("\n")
    ):
        with pytest.raises(ShelfError):
            parse_answers(text)
        return
    wanted = {label: given_.get(label, "") or "_No response_" for label in LABELS}
    assert parse_answers(text) == {label: answer.strip() for label, answer in wanted.items()}


PIECES = (
    [f"### {label}\n\n" for label in LABELS]
    + [BASIC["url"], BASIC["topic"], *FIELDS.values(), TICKED, "paper", "kernels/softmax"]
    + ["\n\n", "\r\n", "<!--", "-->", "```", "_No response_", "::set-output name=x::y", "$(id)",
       "'; rm -rf /", "${{ github.token }}", "../../x", "\x00", "\ud7ff\u202e", "@all fixes #1",
       "also: [x](y)", "https://[::1", "code: https://x.org/a", "9" * 30, "\x1b[31m", "!!x"]
)  # fmt: skip


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("shelf"))


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join))
def test_a_hostile_text_is_read_or_refused(shared_root: Path, text: str) -> None:
    """Nothing but ShelfError is raised, and a dry run says what would be written."""
    before = read_files(shared_root)
    try:
        form = parse_form(text)
        entry = form.new_reading(shared_root).add_entry(fields=form.fields, dry=True)
    except ShelfError as error:
        assert error.findings and all(str(finding).isprintable() for finding in error.findings)
    else:
        assert entry.path == "docs/kernels/softmax.yml"
    assert read_files(shared_root) == before


WHOLE = st.fixed_dictionaries(
    {label: TEXTS for label in ("title", "why", "authors", "venue", "also")}
)


@settings(max_examples=200)
@given(WHOLE)
def test_hostile_answers_are_an_entry_or_refused(shared_root: Path, given_: dict[str, str]) -> None:
    try:
        form = parse_form(format_answers({**BASIC, **given_}))
        entry = form.new_reading(shared_root).add_entry(fields=form.fields, dry=True)
    except ShelfError as error:
        assert error.findings
    else:
        assert re.fullmatch(r"[a-z0-9-]+", entry.reading.id)
        assert entry.reading.why == " ".join(form.fields["why"].split())


HOSTILE = (
    "@all fixes #1 [x](https://evil.example) <img src=x> ```` ~~~ ::add-mask::a\n```\n# b\x1b[31m"
)


@pytest.fixture
def added_reading(tmp_path: Path) -> AddedReading:
    fields = {**FIELDS, "title": "@all fixes #1: on `x`"}
    return add_entry(make_project(tmp_path), "kernels/softmax", URL, fields=fields)


def test_a_pull_request_holds_no_word_of_others(added_reading: AddedReading) -> None:
    assert pull_request(added_reading, 12) == {
        "ok": True,
        "path": "docs/kernels/softmax.yml",
        "title": "Add the reading all-fixes-1 to kernels/softmax",
        "body": "Adds the reading `all-fixes-1` to `docs/kernels/softmax.yml`, as the form asks "
        "for.\n\nCloses #12\n",
    }
    assert "#" not in pull_request(added_reading, None)["body"]


def test_what_to_look_at_stands_in_a_fence(added_reading: AddedReading) -> None:
    said = pull_request(added_reading, 12, [f"the title is {HOSTILE}"])
    [block], around = split_code(said["body"])
    assert "@all" in block and block.count("\n") == 1 and "\x1b" not in block
    assert "@" not in around and around.count("#") == 1


def test_the_findings_stand_in_a_fence() -> None:
    findings = [
        Finding("docs/a/b.yml", 9, f"why is {HOSTILE}", "shorten it"),
        Finding("year", None, "is 'x'", "write it"),
        Finding("docs/other.yml", 3, "circle", "remove it"),
    ]
    said = refusal_comment(findings, "docs/a/b.yml")
    assert said["ok"] is False
    [block], around = split_code(said["comment"])
    lines = block.splitlines()
    assert lines[0].startswith("why is @all") and lines[0].endswith("; shorten it")
    assert lines[1:] == ["year: is 'x'; write it", "docs/other.yml:3: circle; remove it"]
    assert "@" not in around and "`accepted`" in around


def test_many_findings_are_cut() -> None:
    for letter in ("w", "\U000e0041"):  # the second is spelled out in ten
        said = refusal_comment([Finding("x", n, letter * 5000, "m") for n in range(500)])["comment"]
        assert f"and {500 - MOST} more\n" in said and len(said) < 65_536


@example(["```"])
@example(["  ````", "x", "```"])
@given(st.lists(st.text() | st.text("`~ \n>#-\t", max_size=12), max_size=5))
def test_no_line_closes_the_fence(lines: list[str]) -> None:
    blocks, around = split_code(f"Before\n\n{fence_lines(lines)}\n\nAfter\n")
    assert len(blocks) == 1 and around == "Before\nAfter"
    assert blocks[0].count("\n") == len(lines)
