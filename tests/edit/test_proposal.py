"""What GitHub is told holds the words of others only where they are nothing but words."""

from __future__ import annotations

from pathlib import Path

import pytest
from bookcase import FIELDS, URL, add, make
from hypothesis import example, given
from hypothesis import strategies as st
from issueform import parts

from warpshelf.core.findings import Finding
from warpshelf.edit.addition import Added
from warpshelf.edit.proposal import MOST, accepted, fenced, refused

HOSTILE = (
    "@all fixes #1 [x](https://evil.example) <img src=x> ```` ~~~ ::add-mask::a\n```\n# b\x1b[31m"
)


@pytest.fixture
def entry(tmp_path: Path) -> Added:
    fields = {**FIELDS, "title": "@all fixes #1: on `x`"}
    return add(make(tmp_path), "kernels/softmax", URL, fields=fields)


def test_a_pull_request_holds_no_word_of_others(entry: Added) -> None:
    assert accepted(entry, 12) == {
        "ok": True,
        "path": "docs/kernels/softmax.yml",
        "title": "Add the reading all-fixes-1 to kernels/softmax",
        "body": "Adds the reading `all-fixes-1` to `docs/kernels/softmax.yml`, as the form asks "
        "for.\n\nCloses #12\n",
    }
    assert "#" not in accepted(entry, None)["body"]


def test_what_to_look_at_stands_in_a_fence(entry: Added) -> None:
    said = accepted(entry, 12, [f"the title is {HOSTILE}"])
    [block], around = parts(said["body"])
    assert "@all" in block and block.count("\n") == 1 and "\x1b" not in block
    assert "@" not in around and around.count("#") == 1


def test_the_findings_stand_in_a_fence() -> None:
    findings = [
        Finding("docs/a/b.yml", 9, f"why is {HOSTILE}", "shorten it"),
        Finding("year", None, "is 'x'", "write it"),
        Finding("docs/other.yml", 3, "circle", "remove it"),
    ]
    said = refused(findings, "docs/a/b.yml")
    assert said["ok"] is False
    [block], around = parts(said["comment"])
    lines = block.splitlines()
    assert lines[0].startswith("why is @all") and lines[0].endswith("; shorten it")
    assert lines[1:] == ["year: is 'x'; write it", "docs/other.yml:3: circle; remove it"]
    assert "@" not in around and "`accepted`" in around


def test_many_findings_are_cut() -> None:
    for letter in ("w", "\U000e0041"):  # the second is spelled out in ten
        said = refused([Finding("x", n, letter * 5000, "m") for n in range(500)])["comment"]
        assert f"and {500 - MOST} more\n" in said and len(said) < 65_536


@example(["```"])
@example(["  ````", "x", "```"])
@given(st.lists(st.text() | st.text("`~ \n>#-\t", max_size=12), max_size=5))
def test_no_line_closes_the_fence(lines: list[str]) -> None:
    blocks, around = parts(f"Before\n\n{fenced(lines)}\n\nAfter\n")
    assert len(blocks) == 1 and around == "Before\nAfter"
    assert blocks[0].count("\n") == len(lines)
