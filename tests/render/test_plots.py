"""Plots: values in their places, words within the picture, and what each of them says."""

from __future__ import annotations

import math
import re
from html import unescape
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_records import make_case, make_ladder, make_record, make_result, make_sweep

from warpshelf.render import plots, svg
from warpshelf.render.svg import Scale


def test_coordinates_are_short_and_never_minus_zero() -> None:
    assert [svg.coord(v) for v in (1.0, 1.26, -0.01, 120.0, 0.0)] == ["1", "1.3", "0", "120", "0"]


def test_words_are_cut_to_the_room_they_have() -> None:
    assert svg.fit_text("one pass", 400) == "one pass"
    cut = svg.fit_text("three passes over the row", 100)
    assert cut.endswith("…") and len(cut) * svg.TEXT * svg.BROAD <= 100
    assert len(svg.fit_text("数" * 40, 100)) < len(svg.fit_text("a" * 40, 100))
    assert svg.fit_text("abc", 0) == "…"


def test_labels_apart_stay_where_they_are_and_close_ones_share_the_move() -> None:
    assert svg.spread_labels([10, 50, 90], 12, 0, 100) == [10, 50, 90]
    assert svg.spread_labels([50, 50], 12, 0, 100) == [44, 56]
    assert svg.spread_labels([2, 3], 12, 0, 100) == [0, 12]
    assert svg.spread_labels([99, 98], 12, 0, 100) == [100, 88]


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_labels_never_overlap_and_keep_their_order(heights: list[float]) -> None:
    placed = svg.spread_labels(heights, 12, 0, 200)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    ranked = [placed[i] for i in order]
    assert all(b - a >= 12 - 1e-6 for a, b in zip(ranked, ranked[1:], strict=False))
    assert min(placed) >= -1e-6 and max(placed) <= 200 + 1e-6


def test_a_legend_cuts_the_name_and_keeps_the_value() -> None:
    html = svg.render_plot(
        "A plot", [], [("name " * 30, ", 12 TB")], "Note.", lines=[("ws-peak", "peak")], foot=100
    )
    [tree] = svg_trees([html])
    assert read_texts(tree)[1].endswith("…, 12 TB") and read_texts(tree)[2] == "peak"
    assert tree.get("viewBox") == f"0 0 400 {100 + 2 * svg.LINE - 8:.0f}"
    assert "A plot. Note." in unescape(html)


RATES = st.floats(min_value=1e-20, max_value=1e20)


def test_a_scale_has_its_ends_where_they_are_said_to_be() -> None:
    for log in (False, True):
        scale = Scale(2, 32, 100, 20, log)
        assert [scale(2), scale(32)] == pytest.approx([100, 20])
    assert Scale(2, 32, 0, 100)(17) == pytest.approx(50)
    assert Scale(2, 32, 0, 100, log=True)(8) == pytest.approx(50)
    assert Scale(0, 10, 4, 104)(-1) == pytest.approx(-6)  # what lies beyond is drawn beyond


def test_the_area_lies_between_its_margins() -> None:
    x, y = svg.x_scale(0, 1), svg.y_scale(0, 1)
    assert (x(0), x(1)) == (svg.LEFT, svg.WIDTH - svg.RIGHT)
    assert (y(0), y(1)) == (svg.TOP + svg.AREA, svg.TOP)


@given(RATES)
def test_steps_are_round_few_and_reach_the_most(most: float) -> None:
    step, top = svg.nice_step(most)
    lead = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(lead - f) for f in (1, 2, 5, 10)) < 1e-6
    assert most <= top * (1 + 1e-9) and 2 <= round(top / step) <= 7


@given(RATES, st.floats(1.5, 30))
def test_decades_are_on_their_scale_and_few(low: float, wide: float) -> None:
    scale = svg.y_scale(low, low * 10**wide, log=True)
    found = svg.decade_ticks(scale)
    assert 1 <= len(found) <= svg.MOST
    assert all(scale.low / 1.001 <= value <= scale.high * 1.001 for value in found)


def test_labels_are_in_the_units_of_the_axis() -> None:
    assert svg.label_ticks([0, 5e11, 1e12], svg.prefix_factor("TB/s")) == [
        (0, "0"),
        (5e11, "0.5"),
        (1e12, "1"),
    ]
    assert [svg.prefix_factor(unit) for unit in ("B/s", "kB/s", "PFLOP/s")] == [1.0, 1e3, 1e15]


def test_labels_that_would_touch_are_left_out_but_the_name_never() -> None:
    x = svg.x_scale(1, 1000, log=True)
    ticks = [(float(n), str(n)) for n in range(900, 1001, 10)]
    drawn = list(svg.draw_x_axis(x, ticks, "n"))
    assert len(drawn) < len(ticks) / 2 and ">900<" in drawn[0] and ">n<" in drawn[-1]
    assert len(list(svg.draw_x_axis(x, ticks, "n", grid=True))) == 2 * len(ticks) + 1


NS = "{http://www.w3.org/2000/svg}"


def draw_plots(found: dict) -> list[ElementTree.Element]:
    return svg_trees(plots.draw_plots(found))


def svg_trees(figures: list[str]) -> list[ElementTree.Element]:
    """The SVG of each figure, parsed as XML."""
    trees = []
    for html in figures:
        assert "\n\n" not in html and html.startswith("<figure")
        trees.append(ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6]))
    return trees


def read_texts(tree: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in tree.iter(f"{NS}text")]


def find_class(tree: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [node for node in tree.iter() if kind in node.get("class", "").split()]


def test_a_ladder_is_bars_and_a_roofline() -> None:
    bars, roofline = draw_plots(make_record())
    # three variants and torch; the failed peer has none
    assert len(find_class(bars, "ws-bar")) == 4
    assert len(list(roofline.iter(f"{NS}polyline"))) == 2
    assert [len(find_class(roofline, kind)) for kind in ("ws-ceiling", "ws-peak")] == [2, 2]


def test_bars_are_as_long_as_their_rates_and_the_limits_stand_where_they_belong() -> None:
    results = [make_result("slow", 100e-6), make_result("fast", 50e-6)]
    bars, _ = draw_plots(make_record(cases=[make_case(4096, 4096, results, timed=True)]))
    slow, fast = (float(bar.get("width", "")) for bar in find_class(bars, "ws-bar"))
    assert fast == pytest.approx(2 * slow, abs=0.1)
    rate = 8 * 4096 * 4096 / 50e-6
    peak = float(find_class(bars, "ws-peak")[0].get("x1", "")) - 4
    assert fast / peak == pytest.approx(rate / 3.35e12, rel=1e-3)
    assert "2.68 TB/s, 80.1 % of peak" in read_texts(bars)


def test_four_sizes_make_lines_and_three_do_not() -> None:
    lines = draw_plots(make_record(cases=make_sweep(sizes=4)))[0]
    assert len(find_class(lines, "ws-curve")) == 3 * 5  # a curve and four spreads for each of three
    assert {"1024", "2048", "4096", "8192", "n"} <= set(read_texts(lines))
    assert find_class(draw_plots(make_record(cases=make_sweep(sizes=3)))[0], "ws-bar")


def test_square_sizes_count_as_one_number() -> None:
    cases = []
    for n in (512, 1024, 2048, 4096):
        sides = {"m": n, "n": n, "k": n, "dtype": "bfloat16"}
        cost = {"bytes": 6 * n * n, "flops": 2 * n**3, "unit": "bf16"}
        results = [make_result("tiles", 2 * n**3 / 5e14)]
        cases.append({"case": sides, "timed": True, "results": results} | cost)
    lines = draw_plots(make_record(cases=cases))[0]
    assert "m = n = k" in read_texts(lines)
    assert [w for w in read_texts(lines) if "up to 500 TFLOP/s" in w]


def test_two_dtypes_are_not_joined_to_one_line() -> None:
    cases = make_sweep(sizes=4)
    for item in cases[2:]:
        item["case"]["dtype"] = "bfloat16"
    assert find_class(draw_plots(make_record(cases=cases))[0], "ws-bar")


def test_a_failed_peer_is_named_with_its_reason_and_has_no_mark() -> None:
    bad = make_result("fancy", 1e-6, "peer", verdict="failed", reason="error 3e-2")
    for cases in (
        [make_case(4096, 4096, [make_result("one pass", 5e-5), bad], timed=True)],
        [item | {"results": [*item["results"], bad]} for item in make_sweep()],
    ):
        found = make_record(cases=cases)
        first, roofline = draw_plots(found)
        for html in plots.draw_plots(found):
            assert "Not drawn: fancy (failed: error 3e-2)." in unescape(html)
        assert not [w for w in read_texts(roofline) if "fancy" in w]
        shown = [w for w in read_texts(first) if "fancy" in w or "no time" in w]
        assert shown in ([], ["fancy (peer)", "failed, no time"])


def test_points_of_the_roofline_stand_under_the_roofs_at_their_intensity() -> None:
    _, roofline = draw_plots(make_record())
    marks = [node for node in roofline.iter(f"{NS}circle")]
    roofs = {
        node.get("class"): [tuple(map(float, p.split(","))) for p in node.get("points", "").split()]
        for node in roofline.iter(f"{NS}polyline")
    }
    (x0, y0), (x1, y1), _ = roofs["ws-ceiling"]
    x, y = (float(marks[0].get(k, "")) for k in ("cx", "cy"))
    assert x0 < x < x1
    assert y > y0 + (y1 - y0) * (x - x0) / (x1 - x0)  # below the roof: y grows downwards
    assert roofs["ws-peak"][2][1] < roofs["ws-ceiling"][2][1]


def test_there_is_no_roofline_without_flops_or_without_their_limit() -> None:
    for more in ({"flops": 0}, {"unit": "fp64"}):
        cases = [make_case(64, 64, [make_result("copy", 1e-5)], timed=True, **more)]
        assert len(draw_plots(make_record(cases=cases))) == 1
    assert len(draw_plots(make_record(ceilings={}))) == 1


def test_nothing_timed_draws_nothing() -> None:
    assert plots.draw_plots(make_record(0)) == []
    assert plots.draw_plots(make_record(cases=[])) == []
    assert (
        plots.draw_plots(make_record(cases=[make_case(1, 1, [make_result("x")], timed=True)])) == []
    )


def test_pictures_are_accessible_and_follow_the_page() -> None:
    for tree in [*draw_plots(make_record()), *draw_plots(make_record(cases=make_sweep()))]:
        assert tree.get("role") == "img" and tree.get("viewBox", "").startswith("0 0 400 ")
        assert tree.get("width") is None and tree.get("height") is None
        assert (tree.findtext(f"{NS}title") or "") and (tree.findtext(f"{NS}desc") or "")
        for node in tree.iter():
            assert node.get("fill", "none") in ("none", "currentColor")
            assert node.get("stroke", "none") in ("none", "currentColor")
            assert (node is tree or node.get("style") is None) and node.get("id") is None


def measure_texts(tree: ElementTree.Element) -> list[tuple[float, float, float, float, str]]:
    found = []
    for node in tree.iter(f"{NS}text"):
        x, y, text = float(node.get("x", "")), float(node.get("y", "")), node.text or ""
        wide = len(text) * svg.TEXT * 0.5
        x -= {"end": wide, "middle": wide / 2}.get(node.get("text-anchor", ""), 0)
        found.append((x, y - svg.TEXT * 0.75, x + wide, y, text))
    return found


@pytest.mark.parametrize(
    "cases", [make_ladder(), make_sweep(), make_sweep(tuple(f"idea {i}" for i in range(9)))]
)
def test_no_text_overlaps_another_or_leaves_the_picture(cases: list[dict]) -> None:
    for tree in draw_plots(make_record(cases=cases)):
        height = float(tree.get("viewBox", "").split()[3])
        found = measure_texts(tree)
        for i, (left, top, right, bottom, text) in enumerate(found):
            assert left >= 0 and right <= svg.WIDTH and top >= 0 and bottom <= height, text
            for left2, top2, right2, bottom2, other in found[i + 1 :]:
                apart = right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
                assert apart, (text, other)


def test_names_cannot_act() -> None:
    bad = '<script>alert(1)</script>]]>&"\x00\x1b[31m\ufffe |`'
    cases = make_ladder() + make_sweep()
    for item in cases:
        item["case"]["dtype"] = bad
        for entry in item["results"]:
            entry["name"] += bad
    for found in (make_record(cases=cases), make_record(cases=make_ladder(), device=bad)):
        for html in plots.draw_plots(found):
            assert "<script" not in html and "`" not in html
        assert draw_plots(found)


TIMES = st.floats(min_value=1e-12, max_value=1e6)


@settings(max_examples=60)
@given(
    st.lists(TIMES, min_size=1, max_size=10),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.dictionaries(
        st.sampled_from(["copy_bytes_per_second", "peak_bytes_per_second"]), st.floats(0, 1e20)
    ),
    st.dictionaries(st.sampled_from(["fp32", "bf16"]), st.floats(0, 1e20)),
    st.booleans(),
)
def test_any_record_gives_well_formed_pictures(
    times: list[float], size: int, flops: int, ceilings: dict, rates: dict, lines: bool
) -> None:
    results = [make_result(f"idea {i}", time) for i, time in enumerate(times)]
    limits = ceilings | {"matrix_flops_per_second": rates, "peak_flops_per_second": rates}
    sizes = (1, 7, 64, 999, 4096) if lines else (64,)
    cases = [make_case(64, n, results, timed=True, bytes=size, flops=flops) for n in sizes]
    for tree in draw_plots(make_record(cases=cases, ceilings=limits)):
        text = ElementTree.tostring(tree, encoding="unicode")
        assert not re.search(r"\b(nan|inf)\b|unknown", text)


def test_rows_of_every_length_make_lines_over_the_length() -> None:
    cases = make_sweep(sizes=5)
    for index, item in enumerate(cases):
        n = 1024 << index
        item["case"] |= {"m": 2**22 // n, "n": n}
        if index > 2:
            item["case"]["variants"] = ["online"]
    lines = draw_plots(make_record(cases=cases))[0]
    assert len(find_class(lines, "ws-curve")) == 3 * 6  # a curve and five spreads for each of three
    assert {"1024", "4096", "n, m \u00d7 n the same"} <= set(read_texts(lines))
