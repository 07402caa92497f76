"""What differs between two views of a kernel."""

from __future__ import annotations

import copy

from made_up_views import make_view

from warpshelf.look.builds import FigureChange, changed_figures, compare_views, pair_views


def test_a_view_does_not_differ_from_itself() -> None:
    found = compare_views(make_view(), copy.deepcopy(make_view()))
    assert (found.figures, found.lines, found.counts) == ((), (), True)


def test_figures_loops_and_lines_that_differ_are_named() -> None:
    now = make_view()
    now["registers"] += 8
    now["loops"][0]["kinds"] = {**now["loops"][0]["kinds"], "integer": 5, "shuffle": 1}
    now["loops"][0]["bytes"] *= 4
    store = next(one for one in now["lines"] if "ideal_sectors" in one)
    store["sectors"] += 100
    now["total"]["sectors"] += 100
    found = compare_views(make_view(), now)
    named = {one.figure: (one.before, one.after) for one in found.figures}
    assert named["registers"] == (24, 32)
    assert named["main loop: integer"] == (3, 5)
    assert named["main loop: shuffle"] == (0, 1)  # a kind that was not there
    assert named["main loop: bytes in flight, of a warp"] == (128, 512)
    assert {"sectors", "sectors over ideal"} <= named.keys()
    (line,) = found.lines
    assert line.at == store["at"] and line.text.startswith("out[x * n")
    assert [one.figure for one in line.changes] == ["sectors"]


def test_lines_are_told_apart_by_their_text() -> None:
    now = make_view()
    for piece in now["source"]:
        piece["from"] += 7
    for line in now["lines"]:
        file, _, number = line["at"].rpartition(":")
        line["at"] = f"{file}:{int(number) + 7}"
    assert compare_views(make_view(), now).lines == ()


def test_counts_of_another_case_are_not_compared() -> None:
    now = make_view(case={"m": 128, "n": 64, "dtype": "float32"})
    now["total"]["sectors"] += 100
    now["lines"][-1]["lanes"] += 1
    found = compare_views(make_view(), now)
    assert (found.counts, found.figures, found.lines) == (False, (), ())


def test_without_a_loop_there_is_no_figure_of_one() -> None:
    with_loop = {"main loop: instructions": 7.0, "main loop: integer": 3.0}
    assert changed_figures({}, with_loop) == (
        FigureChange("main loop: instructions", None, 7.0),
        FigureChange("main loop: integer", None, 3.0),
    )


def test_kernels_are_paired_by_name_and_what_is_left_over_by_variant() -> None:
    now, tiled = make_view(kernel="transpose_naive<64>"), make_view("tiled")
    found = pair_views([make_view(kernel="transpose_naive<32>"), tiled], [now, make_view("tiled")])
    assert [(was and was["kernel"], is_ and is_["kernel"]) for was, is_ in found] == [
        ("transpose_naive<32>", "transpose_naive<64>"),
        ("transpose_tiled", "transpose_tiled"),
    ]
    alone = pair_views([tiled], [now])
    assert alone == [(None, now), (tiled, None)]
