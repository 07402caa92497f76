"""Public kernels beside ours: figures of both by architecture, and a line that says what it is."""

from __future__ import annotations

import html
import re

from looking import view
from synthetic import exhibit

from warpshelf.look import builds
from warpshelf.look.rivalry import Answer
from warpshelf.readings.rivals import Rival, read
from warpshelf.render.fragments import fragments
from warpshelf.render.rivals import Pair, ours

ENTRY = """\
- name: A <b>library</b>
  repository: owner/name
  commit: 0123456789012345678901234567890123456789
  file: ops/transpose.py
  kernel: their_transpose
  beside: {variant: naive, kernel: transpose_naive}
  what: float32, 64 rows & columns
  signature: {x: "*fp32"}
"""


def rival() -> Rival:
    (one,), findings = read(ENTRY.encode(), "r.yml")
    assert findings == []
    return one


def build(**changed: object) -> builds.Build:
    return {**builds.of_view(view("naive")), **changed}  # type: ignore[dict-item]


def text(*theirs: builds.Build) -> str:
    views = [view("naive", "sm_80"), view("naive", "sm_90"), view("tiled", "sm_90")]
    pairs = [
        Pair(rival(), Answer("Triton 3.7.1", {"sm_90": one, "sm_100": one}), ours(views, rival()))
        for one in theirs
    ]
    shown = fragments(exhibit(rivals=pairs))["beside"]
    shown = re.sub(r"</tr>|</summary>|</caption>", "\n", re.sub(r"</t[hd]>", "|", shown))
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


def test_ours_and_theirs_stand_side_by_side_where_both_are_compiled() -> None:
    loop = {"multiply-add": 4, "load global 16": 2, "integer": 6}
    said = text(build(registers=99, spilled_bytes=64, loop=loop))
    rows = [line for line in said.splitlines() if "sm_" in line]
    assert [row.split("|")[0].strip() for row in rows] == ["sm_90, ours", "sm_90, A <b>library</b>"]
    cells = [cell.strip() for cell in rows[1].split("|")]
    assert cells[1:3] == ["99", "64 B"]
    assert cells[5:8] == ["12", "3.00", "6 integer, 4 multiply-add, 2 load global 16"]
    assert "transpose_naive (naive) beside A <b>library</b>: their_transpose; float32, 64" in said


def test_the_line_above_counts_the_builds_that_are_no_worse() -> None:
    same, worse = build(), build(loop={"multiply-add": 2, "integer": 2})
    mine = {"multiply-add": 1, "integer": 9}
    assert "in 1 of one build" in text(same)
    assert "in 1 of one build" in text(build(spilled_bytes=4))
    assert builds.of_view(view("naive"))["loop"] and "multiply-add" in worse["loop"]
    # Ours has no product in its loop: whole loops are compared.
    assert "in 0 of one build" in text(worse)
    assert "in 1 of one build" in text(build(loop={**mine, "integer": 90}))
    assert "in 1 of 2 builds" in text(same, worse)


def test_without_any_it_says_so() -> None:
    assert "No public kernel is compiled beside it." in fragments(exhibit())["beside"]
    assert "compiled beside" not in fragments(exhibit())["whole"]
