"""Beside what was measured: what others state and a model predicts, and public kernels."""

from __future__ import annotations

import html
import re
from html import unescape

import pytest
from made_up_records import (
    make_case,
    make_exhibit,
    make_goals,
    make_measured,
    make_predictions,
    make_record,
    make_result,
    make_verified,
    show_evidence,
)
from made_up_records import plain_words as words
from made_up_views import make_view

from warpshelf.look import builds
from warpshelf.look.builds import CompiledRival
from warpshelf.look.view import View
from warpshelf.look.view_store import summarize_view
from warpshelf.readings.published import PublishedFigure, Rival, read_rivals
from warpshelf.render import claims
from warpshelf.render.claims import matches_case, our_builds, render_claims
from warpshelf.render.fragments import PLACE, build_fragments
from warpshelf.render.listings import Listing
from warpshelf.render.snippet_page import Claim, MachineState, RivalComparison, SourceLink

# What others state, and what a model predicts.

LINK = "/kernels/softmax.md#reading-a"


def make_claim(title: str = "A paper", **more: object) -> Claim:
    given: dict = {
        "figure": 2.0,
        "unit": "TB/s",
        "what": "Their softmax",
        "device": "Imaginary G9",
        "setting": "float32, 4096 columns",
        "reading": "a-paper",
        "place": "Table 2",
        "case": {"m": 4096, "dtype": "float32"},
    }
    return Claim(
        PublishedFigure(**given | more), SourceLink(title, LINK), "https://example.org/a?b=1&c=2"
    )


def show_claims(*states: MachineState, claims: tuple[Claim, ...] = ()) -> str:
    return render_claims(make_exhibit(*states, reported=claims or (make_claim(),)), PLACE)


def test_a_figure_stands_with_its_device_setting_and_place() -> None:
    html = show_claims(make_verified())
    said = "Reported elsewhere: one figure from one source, none of them measured here"
    assert f"<summary>{said}</summary>" in unescape(html)
    cells = [words(cell).strip() for cell in re.findall(r"<t[hd][^>]*>.*?</t[hd]>", html)]
    assert cells[:5] == ["What", "Figure", "Device", "Setting", "Place"]
    assert cells[5:] == [
        "A paper", "Their softmax", "2 TB/s", "Imaginary G9", "float32, 4096 columns", "Table 2"
    ]  # fmt: skip
    assert 'href="https://example.org/a?b=1&c=2"' in unescape(html)
    assert 'Reported in: <a href="../kernels/softmax/#reading-a">A paper</a>' in html
    assert "Measured here" not in html


@pytest.mark.parametrize(
    ("figure", "unit", "said"),
    [(19721.0, "GFLOP/s", "19721 GFLOP/s"), (2788000, "GPU hours", "2 788 000 GPU hours"),
     (1.5, "×", "1.5×"), (41.5, "%", "41.5 %")],
)  # fmt: skip
def test_a_figure_is_written_as_it_is_stated(figure: float, unit: str, said: str) -> None:
    html = show_claims(claims=(make_claim(figure=figure, unit=unit, case=None),))
    assert said in words(html).replace("\u202f", " ")


def test_without_figures_nothing_is_shown() -> None:
    assert render_claims(make_exhibit(make_verified()), PLACE) == ""


def test_it_stands_on_the_page_apart_from_what_was_measured() -> None:
    whole = show_evidence(make_exhibit(make_verified(), reported=(make_claim(),)))
    ours, apart = whole.split('<details class="ws-fold ws-claims"')
    assert "Their softmax" in apart and "Their softmax" not in ours
    assert "errors" in ours


def make_fast_machine(median: float = 134_217_728 / 1e12) -> MachineState:
    """A machine on which the large case takes so long that its rate is 1 TB/s."""
    peer = make_result("torch", median * 0.8, "peer")
    rows = [make_result("one pass", median), make_result("online", median * 2), peer]
    return make_measured(make_record(cases=[make_case(4096, 4096, rows, timed=True)]))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "1.00 TB/s, 0.500× of it, on Imaginary G9 80GB"),
        ({"variant": "online"}, "500 GB/s, 0.250× of it"),
        ({"figure": 500, "unit": "GB/s"}, "1.00 TB/s, 2.00× of it"),
        ({"figure": 1.25, "unit": "TFLOP/s"}, "625 GFLOP/s, 0.500× of it"),
        ({"figure": 268.435456, "unit": "µs"}, "134 µs, 2.00× of it"),
        ({"figure": 160, "unit": "%", "share_of": "torch"}, "80.0 %, 0.500× of it"),
    ],
)
def test_a_current_record_of_such_a_device_stands_beside_it(more: dict, said: str) -> None:
    html = show_claims(make_fast_machine(), claims=(make_claim(**more),))
    assert said in words(html)
    assert "one figure from one source, 1 of them measured here as well" in words(html)


@pytest.mark.parametrize(
    "more",
    [
        {"device": "Imaginary G7"},
        {"device": "8 × Imaginary G9"},
        {"device": "Imaginary G9 40GB"},
        {"case": None},
        {"case": {"m": 4095}},
        {"case": {"m": 4096, "dtype": "float16"}},
        {"variant": "fancy"},
        {"unit": "%", "share_of": "fancy"},
    ],
)
def test_nothing_else_is_set_against_it(more: dict) -> None:
    html = show_claims(make_fast_machine(), claims=(make_claim(**more),))
    assert "none of them measured here" in words(html) and "× of it" not in words(html)


@pytest.mark.parametrize("state", ["stale", "failed"])
def test_a_record_of_other_code_is_not_set_against_it(state: str) -> None:
    found = make_fast_machine().record
    html = show_claims(MachineState(found, state, "imaginary-g9-80gb"))
    assert "none of them measured here" in words(html)


def test_a_variant_that_failed_is_not_set_against_it() -> None:
    row = make_result("one pass", 1e-4) | {"verdict": "failed", "reason": "wrong"}
    found = make_record(cases=[make_case(4096, 4096, [row], timed=True)])
    assert "none of them measured here" in words(show_claims(make_measured(found)))


def test_figures_without_a_measurement_say_so_beside_those_with_one() -> None:
    html = show_claims(
        make_fast_machine(), claims=(make_claim(), make_claim(device="Imaginary G7", what="Old"))
    )
    assert "Measured here" in html and "not measured here on such a device" in words(html)
    assert "2 figures from one source, 1 of them measured here as well" in words(html)


def test_many_figures_are_folded_and_grouped_by_their_source() -> None:
    claims = tuple(make_claim(f"Paper {i % 2}", what=f"Kernel {i}") for i in range(5))
    html = show_claims(claims=claims)
    assert html.count("rowgroup") == 2 and html.count("<tbody>") == 2
    assert "<details" in html and " open>" not in html
    assert " open>" in show_claims(claims=claims[:4])


def test_a_case_is_named_by_some_of_its_values() -> None:
    ours = {"m": 1, "causal": True, "out": ["a", "b"], "d": 128}
    assert matches_case({"m": 1, "causal": True}, ours) and matches_case({"out": ["a", "b"]}, ours)
    assert not matches_case({"m": True}, ours) and not matches_case({"causal": 1}, ours)
    assert not matches_case({"k": 1}, ours) and not matches_case({"out": ["a"]}, ours)


def test_hostile_words_do_nothing() -> None:
    bad = '<script>alert(1)</script> | [x](y) --8<-- "z" **b** &lt;'
    html = show_claims(
        make_fast_machine(),
        claims=(make_claim(bad, what=bad, device="G9 " + bad[:90], setting=bad),),
    )
    assert "<script" not in html and "--8<--" not in html
    assert bad in words(html)


def make_predicted_state(**more: object) -> MachineState:
    found = make_record(
        0, kind="model", **{"predictions": make_predictions(), "goals": make_goals()} | more
    )
    return MachineState(found, "verified", "cpu")


def test_errors_stand_by_set_with_what_they_are_held_to() -> None:
    page = words(build_fragments(make_exhibit(make_predicted_state(), kind="model"))["predictions"])
    assert "Rows Mean error Median Worst Within 5 % Within 10 %" in page
    assert "Paper, table 1 and 1 fitted 2 5.0 % 5.0 % 6.0 % 1 of 2 2 of 2" in page
    assert "Blog 1 50.0 % 50.0 % 50.0 % 0 of 1 0 of 1" in page
    assert "table 1 2 of 2 rows within 10 %; a run fails below 100 % of rows" in page
    assert "median error 6.00 %; a run fails over 6 %" in page


def test_every_row_stands_beside_what_was_published() -> None:
    page = words(show_evidence(make_exhibit(make_predicted_state(), kind="model")))
    assert "small fitted on it 101 TFLOP/s 100 TFLOP/s +1.0 % Online normalizer" in page
    assert "middle 96 TFLOP/s 100 TFLOP/s −4.0 %" in page
    assert "a <b> node 0.75 TFLOP/s 0.5 TFLOP/s +50.0 %" in page


def test_the_plot_has_a_mark_for_each_row_and_says_the_sets() -> None:
    text = build_fragments(make_exhibit(make_predicted_state(), kind="model"))["predictions"]
    plot = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert plot
    drawn = plot.group()
    assert drawn.count('class="ws-s0" fill="currentColor"') == 2 + 1  # and one in the legend
    assert drawn.count('class="ws-s0" fill="none"') == 1  # fitted
    assert drawn.count('class="ws-s1" fill="currentColor"') == 1 + 1
    told = html.unescape(drawn)
    assert "<desc>Paper, table 1: median 5.0 %; Blog: median 50.0 %</desc>" in told
    heights = [float(one) for one in re.findall(r'<circle cx="[^"]+" cy="([^"]+)"', drawn)]
    assert heights[0] < heights[1]  # 1 % too large lies above 4 % too small
    assert "Hollow rows were used to fit a constant." in html.unescape(text)


def test_without_fitted_rows_none_is_called_hollow() -> None:
    rows = [one | {"fitted": False} for one in make_predictions()]
    assert (
        "Hollow"
        not in build_fragments(make_exhibit(make_predicted_state(predictions=rows)))["predictions"]
    )


def test_a_set_of_fitted_rows_alone_has_no_errors() -> None:
    rows = [one | {"fitted": one["set"] == "Blog"} for one in make_predictions()]
    page = words(
        build_fragments(
            make_exhibit(make_predicted_state(predictions=rows, goals=make_goals()[:1]))
        )["predictions"]
    )
    assert "Blog and 1 fitted 0 none none none none none" in page


def test_a_stale_record_shows_no_prediction() -> None:
    stale = MachineState(make_predicted_state().record, "stale", "cpu")
    page = words(build_fragments(make_exhibit(stale, kind="model"))["predictions"])
    assert "5.0 %" not in page
    assert "Source changed since" in page


# Public kernels beside ours, and one job in several languages: what the tables say of them.

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
