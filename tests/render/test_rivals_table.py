"""Public kernels beside ours: figures of both by architecture, and a line that says what it is."""

from __future__ import annotations

import html
import re

import pytest
from looking import view
from synthetic import exhibit

from warpshelf.look import builds
from warpshelf.look.kept import Kept, files_of, name_of
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
    one = view("naive")
    return {**builds.of_view(one, one["sass"]["text"]), **changed}  # type: ignore[dict-item]


def kept(variant: str, arch: str) -> Kept:
    one = view(variant, arch)
    return Kept(name_of(one), one, files_of(one))


def text(*theirs: builds.Build) -> str:
    views = [kept("naive", "sm_80"), kept("naive", "sm_90"), kept("tiled", "sm_90")]
    pairs = [
        Pair(rival(), Answer("Triton 3.7.1", {"sm_90": one, "sm_100": one}), ours(views, rival()))
        for one in theirs
    ]
    shown = fragments(exhibit(rivals=pairs))["beside"]
    shown = re.sub(r"</tr>|</summary>|</caption>", "\n", re.sub(r"</t[hd]>", "|", shown))
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


def test_ours_and_theirs_stand_side_by_side_where_both_are_compiled() -> None:
    loop = {"multiply-add": 4, "load global 16": 2, "integer": 6}
    said = text(build(registers=99, spilled_bytes=64, loop=loop, bytes=32))
    rows = [line for line in said.splitlines() if "sm_" in line]
    assert [row.split("|")[0].strip() for row in rows] == ["sm_90, ours", "sm_90, A <b>library</b>"]
    cells = [cell.strip() for cell in rows[1].split("|")]
    assert cells[1:3] == ["99", "64 B"]
    assert cells[5:8] == ["12", "2.67 bytes", "6 integer, 4 multiply-add, 2 load global 16"]
    assert "transpose_naive (naive) beside A <b>library</b>: their_transpose; float32, 64" in said


def test_the_line_above_counts_the_builds_that_are_no_worse() -> None:
    mine = build()
    assert mine["bytes"] == 8  # a load and a store of 4 bytes
    less, more = mine["loop"] | {"other": 1}, {"load global 4": 1, "store global 4": 1}
    same, better, worse = mine, build(loop=more), build(loop=less)
    assert "each, in 1 of one build" in text(same)
    assert "each, in 0 of one build" in text(better)
    assert "each, in 1 of one build" in text(worse)
    assert "each, in 2 of 3 builds" in text(same, better, worse)
    assert "each, in 0 of one build" in text(build(spilled_bytes=-4))


def test_what_cannot_be_compared_is_not_counted() -> None:
    matrix = {"matrix": 1, "integer": 3}
    alone = text(build(loop=matrix, products=0))  # of Blackwell: its shape is not told
    assert "not told" in alone and "of one build" not in alone
    assert "of one build" not in text(build(loop=matrix, products=2048))  # products beside bytes


@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("HMMA.16816.F32 R4, R8, R12, R4", 16 * 8 * 16),
        ("@P0 HMMA.1688.F32.TF32 R4, R8, R12, R4", 16 * 8 * 8),
        ("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], R24", 64 * 256 * 16 // 4),
        ("QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24", 64 * 128 * 32 // 4),
        ("UTCHMMA gdesc[UR14], gdesc[UR16], tmem[UR18]", 0),
        ("IADD3 R1, R1, 0x1688, RZ", 0),
    ],
)
def test_products_are_told_by_names(name: str, products: int) -> None:
    assert builds._products([name, "EXIT"]) == (products, int(products > 0))


def test_the_main_loop_is_the_inner_one_where_the_outer_begins_and_ends_a_tile() -> None:
    def loop(first: int, last: int, depth: int, kinds: dict[str, int]) -> dict:
        return {"first": first, "last": last, "depth": depth, "kinds": kinds, "loads": 0}

    outer = loop(0, 99, 1, {"matrix": 8, "integer": 60})
    inner = loop(20, 40, 2, {"matrix": 4, "integer": 17})
    epilogue = loop(60, 70, 2, {"integer": 11})
    other = loop(100, 110, 1, {"multiply-add": 5})
    assert builds._main([outer, inner, epilogue, other]) is inner
    assert builds._main([outer | {"kinds": {"matrix": 40}}, inner]) == outer | {
        "kinds": {"matrix": 40}
    }
    assert builds._main([other, epilogue]) is other
    assert builds._main([]) is None


def test_products_between_the_ends_of_a_loop_that_are_not_its_own_are_left_out() -> None:
    name = "HMMA.16816.F32 R4, R8, R12, R4"
    kinds = {"matrix": 2, "integer": 1}
    main = {"first": 0, "last": 4, "depth": 1, "kinds": kinds, "loads": 0}
    found = builds._did([name, name, name, "IADD3 R1, R1, 1, RZ", "BRA `(.L)"], [main])
    assert found["products"] == 2 * 16 * 8 * 16 and found["loop"] == kinds


def test_scalar_multiply_adds_are_told_where_they_are_most_of_a_loop() -> None:
    most = text(build(loop={"multiply-add": 8, "integer": 4}))
    assert "0.667 multiply-adds" in most and "of one build" not in most  # ours tells bytes
    assert "bytes" in text(build(loop={"multiply-add": 7, "integer": 4}, bytes=11))


def test_without_any_it_says_so() -> None:
    assert "No public kernel is compiled beside it." in fragments(exhibit())["beside"]
    assert "ompiled beside" not in fragments(exhibit())["whole"]
