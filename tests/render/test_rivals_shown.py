"""Public kernels beside ours, and one job in several languages: what the tables say of them."""

from __future__ import annotations

import html
import re

import pytest
from made_up_records import (
    make_case,
    make_exhibit,
    make_measured,
    make_record,
    make_result,
    make_verified,
)
from made_up_views import make_view

from warpshelf.look import builds
from warpshelf.look.builds import CompiledRival
from warpshelf.look.view import View
from warpshelf.look.view_store import summarize_view
from warpshelf.readings.published import Rival, read_rivals
from warpshelf.render import claims
from warpshelf.render.claims import our_builds
from warpshelf.render.listings import Listing
from warpshelf.render.snippet_page import MachineState, RivalComparison

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


def read_rival() -> Rival:
    (one,), findings = read_rivals(ENTRY.encode(), "r.yml")
    assert findings == []
    return one


def make_build(**changed: object) -> builds.Build:
    one = make_view("naive")
    return {**builds.build_from_view(one), **changed}  # type: ignore[dict-item]


def keep_view(variant: str, arch: str) -> View:
    one = make_view(variant, arch)
    return summarize_view(one, True)


def render_rivals(*theirs: builds.Build) -> str:
    views = [keep_view("naive", "sm_80"), keep_view("naive", "sm_90"), keep_view("tiled", "sm_90")]
    pairs = [
        RivalComparison(
            read_rival(),
            CompiledRival("Triton 3.7.1", {"sm_90": one, "sm_100": one}),
            our_builds(views, read_rival()),
        )
        for one in theirs
    ]
    shown = claims.rivals_table(make_exhibit(rivals=pairs))
    shown = re.sub(r"</tr>|</summary>|</caption>", "\n", re.sub(r"</t[hd]>", "|", shown))
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


def test_ours_and_theirs_stand_side_by_side_where_both_are_compiled() -> None:
    loop = {"multiply-add": 4, "load global 16": 2, "integer": 6}
    said = render_rivals(make_build(registers=99, spilled_bytes=64, loop=loop, bytes=32))
    rows = [line for line in said.splitlines() if re.match(r"\s*sm_\d+, ", line)]
    assert [row.split("|")[0].strip() for row in rows] == ["sm_90, ours", "sm_90, A <b>library</b>"]
    cells = [cell.strip() for cell in rows[1].split("|")]
    assert cells[1:3] == ["99", "64 B"]
    assert cells[5:8] == ["12", "2.67 bytes", "6 integer, 4 multiply-add, 2 load global 16"]
    assert "transpose_naive (naive) beside A <b>library</b>: their_transpose; float32, 64" in said


def test_the_line_above_counts_who_needs_fewer_and_who_more() -> None:
    mine = make_build()
    assert mine["bytes"] == 8  # a load and a store of 4 bytes
    less, more = mine["loop"] | {"other": 1}, {"load global 4": 1, "store global 4": 1}
    same, better, worse = mine, make_build(loop=more), make_build(loop=less)
    assert "fewer instructions for the same work in 0 of one build, more in 0;" in render_rivals(
        same
    )
    assert "the same work in 0 of one build, more in 1;" in render_rivals(better)
    assert "the same work in 1 of one build, more in 0;" in render_rivals(worse)
    assert "the same work in 1 of 3 builds, more in 1;" in render_rivals(same, better, worse)
    assert "spilled bytes in 0 of one build, more in 0" in render_rivals(same)
    assert "spilled bytes in 1 of one build" in render_rivals(make_build(spilled_bytes=4))
    assert "ours needs as many on sm_90" in render_rivals(same)
    assert re.search(r"ours needs \d+ % more instructions on sm_90", render_rivals(better))


def test_what_cannot_be_compared_is_not_counted() -> None:
    matrix = {"matrix": 1, "integer": 3}
    # of Blackwell: its shape is not told
    alone = render_rivals(make_build(loop=matrix, products=0))
    assert "unknown" in alone and "the same work in 0 of 0 builds" in alone
    # products beside bytes
    assert "the same work in 0 of 0 builds" in render_rivals(make_build(loop=matrix, products=2048))


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
    assert builds._matrix_products(name) == products


def test_the_main_loop_is_the_inner_one_where_the_outer_begins_and_ends_a_tile() -> None:
    def make_loop(first: int, last: int, depth: int, kinds: dict[str, int]) -> dict:
        return {"first": first, "last": last, "depth": depth, "kinds": kinds, "loads": 0}

    outer = make_loop(0, 99, 1, {"matrix": 8, "integer": 60})
    inner = make_loop(20, 40, 2, {"matrix": 4, "integer": 17})
    epilogue = make_loop(60, 70, 2, {"integer": 11})
    other = make_loop(100, 110, 1, {"multiply-add": 5})
    assert builds._hot_loop([outer, inner, epilogue, other]) is inner
    assert builds._hot_loop([outer | {"kinds": {"matrix": 40}}, inner]) == outer | {
        "kinds": {"matrix": 40}
    }
    assert builds._hot_loop([other, epilogue]) is other
    assert builds._hot_loop([]) is None


def test_products_between_the_ends_of_a_loop_that_are_not_its_own_are_left_out() -> None:
    name = "HMMA.16816.F32 R4, R8, R12, R4"
    kinds = {"matrix": 2, "integer": 1}
    main = {"first": 0, "last": 4, "depth": 1, "kinds": kinds, "loads": 0}
    texts = [name, name, name, "IADD3 R1, R1, 1, RZ", "BRA `(.L)"]
    found = builds.build_from_view(make_view("naive", sass={"text": texts}, loops=[main]))
    assert found["products"] == 2 * 16 * 8 * 16 and found["loop"] == kinds


def test_scalar_multiply_adds_are_told_where_they_are_most_of_a_loop() -> None:
    most = render_rivals(make_build(loop={"multiply-add": 8, "integer": 4}))
    assert "0.667 multiply-adds" in most and "in 0 of 0 builds" in most  # ours tells bytes
    assert "bytes" in render_rivals(make_build(loop={"multiply-add": 7, "integer": 4}, bytes=11))


def test_without_any_nothing_is_said() -> None:
    assert claims.rivals_table(make_exhibit()) == claims.languages_table(make_exhibit()) == ""


IN_OWN = """\
- name: A <b>language</b>
  package: a-language
  file: in_own.py
  kernel: turn
  beside: {variant: naive, kernel: transpose_naive}
  what: float32
"""
OWN = """\
import own

# --8<-- [start:kernel]
@own.kernel
def turn(out, x):
    # A comment, and a blank line.

    out[:] = x.T
# --8<-- [end:kernel]
"""
CODE = """\
// --8<-- [start:naive]
#include <a>
// A comment.
__global__ void
transpose_naive(float* out,
                const float* in) {
    body();
}
// --8<-- [end:naive]
"""


def language_rival() -> Rival:
    (one,), findings = read_rivals(IN_OWN.encode(), "r.yml")
    assert findings == []
    one._source = OWN
    return one


def tabulate_rivals(*states: MachineState) -> tuple[str, list[list[str]]]:
    views = [keep_view("naive", "sm_80"), keep_view("naive", "sm_90"), keep_view("tiled", "sm_90")]
    build = views[0]["build"]
    answer = CompiledRival("own 1.5", {"sm_90": build | {"registers": 99}, "sm_100": build})
    pair = RivalComparison(language_rival(), answer, our_builds(views, language_rival()))
    code = [Listing("CUDA C++", "cuda", "transpose.cu", CODE)]
    shown = make_exhibit(*states, rivals=[pair], views=views, code=code)
    text = claims.languages_table(shown)
    plain = html.unescape(re.sub(r"<(?!/?t[rhd])[^>]*>", "", text))
    found = [re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", one) for one in plain.split("</tr>")]
    return plain, [one for one in found if one]


def test_each_language_has_a_row_where_it_is_compiled() -> None:
    text, (head, *found) = tabulate_rivals(make_verified(make_record(0)))
    assert head[:3] == ["Language", "Lines", "Registers"]
    assert [one[0] for one in found] == [
        "sm_80", "naive",
        "sm_90", "naive", "tiled", "A <b>language</b>",
        "sm_100", "A <b>language</b>",
    ]  # fmt: skip
    assert "The same in 3 languages" in text and "own 1.5. No times" in text
    assert found[5][1:3] == ["3", "99"]
    assert [one[1] for one in found if one[0] == "naive"] == ["6", "6"]
    assert [one[1] for one in found if one[0] == "tiled"] == ["not marked"]
    assert "Public kernels" not in text


def test_times_stand_where_a_gpu_has_measured_them() -> None:
    timed = make_case(
        4096, 4096, [make_result("naive", 8.1e-5), make_result("torch", 5e-5, "peer")], timed=True
    )
    small = make_case(64, 64, [make_result("naive", 1e-6)], timed=True)
    text, (head, *found) = tabulate_rivals(make_measured(make_record(1, cases=[timed, small])))
    assert head[2].startswith("Time, ")
    times = {(arch, one[0]): one[2] for arch, one in by_arch(found)}
    assert times["sm_90", "naive"] == "81.0 µs"
    assert times["sm_90", "tiled"] == times["sm_90", "A <b>language</b>"] == "not run"
    assert times["sm_80", "naive"] == "other GPU"
    assert "Times of 4096 × 4096 on " in text and "No times" not in text


def by_arch(found: list[list[str]]) -> list[tuple[str, list[str]]]:
    arch, pairs = "", []
    for one in found:
        if len(one) == 1:
            arch = one[0]
        else:
            pairs.append((arch, one))
    return pairs


@pytest.mark.parametrize(
    ("kernel", "lines"),
    [("transpose_naive", 6), ("transpose_naive<4>", 6), ("turn", 3), ("naive", 0), ("other", 0)],
)
def test_the_lines_are_those_of_the_section_that_defines_it(kernel: str, lines: int) -> None:
    assert claims.count_lines([OWN, CODE], kernel) == lines


def test_without_a_language_of_its_own_there_is_no_such_table() -> None:
    assert claims.languages_table(make_exhibit()) == ""
