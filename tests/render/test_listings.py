from __future__ import annotations

import re

import markdown
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import CODE, CUDA, steady

from warpshelf.render import listings
from warpshelf.render.listings import Listing

HOSTILE = [
    '--8<-- "/etc/passwd"',
    '  ;--8<-- "x.md"',
    "-8<- 'x'",
    "--8<--",
    ";;---8<---",
    "    --8<-- ",
    'x = 1  # --8<-- "not.md"',
    'print("--8<-- [start:kernel]")',
    "# ;--8<-- [end:a]",
    "a;b ;;--8<-- [START: q ] tail",
    "x -8<- [start:a] --8<-- [end:b]",
    '--8<-- "a\\"b"',
    "```",
    "~~~~",
    "`````",
    '=== "tab"',
    "??? note",
    "</code></pre><script>alert(1)</script>",
    "{: .x onclick=alert(1) }",
    "[^1]: x",
    "",
]


def shown(fenced: str) -> str:
    """The lines of a fence as pymdownx.snippets leaves them."""
    md = markdown.Markdown(
        extensions=["pymdownx.snippets"],
        extension_configs={"pymdownx.snippets": {"check_paths": True}},
    )
    lines = md.preprocessors["snippet"].run(fenced.split("\n"))
    return "\n".join(lines[1:-1])


@pytest.mark.parametrize("line", HOSTILE)
def test_a_line_for_the_snippet_extension_is_shown_as_it_is(line: str) -> None:
    assert shown(listings.fence(f"a\n{line}\nb", "python", "x.py")) == f"a\n{line}\nb"


PIECES = [
    "--8<--",
    "-8<-",
    ";",
    " ",
    "\t",
    '"x"',
    "'y'",
    "[start:a]",
    "[ End : b-1 ]",
    "#",
    "//",
    "-",
    "z",
]


@steady
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), max_size=6))
def test_no_line_vanishes_changes_or_includes(lines: list[str]) -> None:
    kept = [line for line in lines if not listings.MARKER.fullmatch(line)]
    text = shown(listings.fence("\n".join(["first", *lines, "last"]), "python", "x.py"))
    assert text == "\n".join(["first", *kept, "last"])


@steady
@given(st.text("`~a\n", max_size=60))
def test_the_fence_is_longer_than_any_inside(text: str) -> None:
    fenced = listings.fence(text, "python", "x.py")
    ticks = re.match("`+", fenced)
    assert ticks is not None
    inside = re.findall("`+", fenced[ticks.end() : -ticks.end()])
    assert ticks.end() >= 3 and fenced.endswith("\n" + ticks[0])
    assert all(len(run) < ticks.end() for run in inside)


def test_sections_are_found_and_their_marks_left_out() -> None:
    text = "a\n# --8<-- [start:kernel]\nb\n  # --8<-- [start:copy]\nc\n# --8<-- [end:copy]\n\n# --8<-- [end:kernel]\nd"  # noqa: E501
    assert listings.section_names(text) == ["kernel", "copy"]
    assert listings.section(text, "kernel") == "b\nc"
    assert listings.section(text, "copy") == "c"
    assert listings.section(CUDA, "kernel").startswith("__global__")
    assert listings.section(CODE.replace("\n", "\r\n"), "kernel") == listings.section(
        CODE, "kernel"
    )


def test_a_section_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no section 'copy', only kernel; mark it with"):
        listings.section(CODE, "copy")
    assert listings.section_names("# [start:kernel]\n--8<-- [start:kernel] x") == []


def test_one_file_has_no_tab_and_two_have() -> None:
    one = listings.Listing("Triton", "python", "softmax.py", CODE)
    two = listings.Listing("CUDA C++", "cuda", "softmax.cu", CUDA)
    assert "===" not in listings.listings([one], "kernel")
    both = listings.listings([one, two], "kernel")
    assert both.count('=== "') == 2 and "```c++ " in both
    assert listings.listings([], "kernel") == ""


def test_the_section_named_by_the_kind_opens_first_and_the_whole_file_is_folded() -> None:
    text = "# --8<-- [start:a]\nfirst\n# --8<-- [end:a]\n# --8<-- [start:kernel]\nsecond\n"
    opened, fold = listings.listing(Listing("x", "python", "x.py", text), "kernel").split("???")
    assert "second" in opened and "first" not in opened
    assert "first" in fold and "8<" not in fold
    opened, _ = listings.listing(Listing("x", "python", "x.py", text), "model").split("???")
    assert "first" in opened
    assert "???" not in listings.listing(Listing("x", "python", "x.py", "plain = 1"), "kernel")
