"""Timelines and grids: all of it is in the picture, in words too, and none of it acts as markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import made_up_records
import pytest
from made_up_records import make_exhibit, make_record, make_timelines, make_verified

from snippets.pipeline_schedules import cases
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.schedule import Costs
from warpshelf.contract.pictures import PASS_KINDS
from warpshelf.render import diagrams, svg
from warpshelf.render.diagrams import HEIGHT, Timeline, draw_grid, draw_grids
from warpshelf.render.fragments import render_pictures
from warpshelf.render.snippet_page import MachineState

NS = "{http://www.w3.org/2000/svg}"
CSS = (Path(__file__).resolve().parents[2] / "docs" / "assets" / "site.css").read_text("utf-8")
ROWS = {row["name"]: row for row in cases.timelines()}
DRAWN = diagrams.draw_timelines(ROWS.values())
each_name = pytest.mark.parametrize("name", ROWS)


def tree_of(html: str) -> ElementTree.Element:
    assert html.startswith("<figure") and "\n\n" not in html
    return ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + len("</svg>")])


def read_picture(name: str) -> tuple[Timeline, ElementTree.Element]:
    return Timeline(ROWS[name]), tree_of(DRAWN[name])


def read_number(node: ElementTree.Element, key: str) -> float:
    return float(node.get(key, ""))


def find_passes(tree: ElementTree.Element) -> list[ElementTree.Element]:
    """The passes: rectangles that are no bar, less those of the legend."""
    found = [node for node in tree.iter(f"{NS}rect") if read_number(node, "height") > 2]
    foot = max(read_number(node, "y") for node in found)
    return [node for node in found if read_number(node, "y") < foot]


@each_name
def test_every_pass_is_a_box_where_and_as_long_as_it_is(name: str) -> None:
    shown, tree = read_picture(name)
    drawn = sorted(
        (read_number(node, "x"), read_number(node, "width")) for node in find_passes(tree)
    )
    unit = diagrams.UNIT / shown.unit
    due = sorted(
        (diagrams.LEFT + one.start * unit + 0.7, (one.end - one.start) * unit - 1.4)
        for one in shown.passes
    )
    for place, wanted in zip(drawn, due, strict=True):
        assert place == pytest.approx(wanted, abs=0.11)


@each_name
def test_boxes_of_a_picture_never_overlap(name: str) -> None:
    _, tree = read_picture(name)
    placed = [
        tuple(read_number(n, key) for key in ("x", "y", "width", "height"))
        for n in find_passes(tree)
    ]
    for i, (x, y, wide, high) in enumerate(placed):
        for x2, y2, wide2, high2 in placed[i + 1 :]:
            beside = x + wide <= x2 or x2 + wide2 <= x
            assert beside or y + high <= y2 or y2 + high2 <= y


@each_name
def test_a_picture_has_room_for_its_words(name: str) -> None:
    _, tree = read_picture(name)
    left, top, width, height = map(float, tree.get("viewBox", "").split())
    spans = []
    for node in tree.iter(f"{NS}text"):
        words, x, y = node.text or "", read_number(node, "x"), read_number(node, "y")
        wide = len(words) * svg.TEXT * 0.5
        x -= {"end": wide, "middle": wide / 2}.get(node.get("text-anchor", ""), 0)
        assert left <= x and x + wide <= left + width and top < y <= top + height, words
        spans.append((y, x, x + wide, words))
    for i, (y, start, end, words) in enumerate(spans):
        for y2, start2, end2, other in spans[i + 1 :]:
            assert abs(y - y2) > 10 or end <= start2 or end2 <= start, (words, other)


@each_name
def test_idle_time_is_drawn_as_long_as_it_is(name: str) -> None:
    shown, tree = read_picture(name)
    lines = [node for node in tree.iter(f"{NS}line") if "ws-grid" in node.get("class", "")]
    drawn = sum(read_number(node, "x2") - read_number(node, "x1") for node in lines)
    idle = sum(shown.idle_time(rank) for rank in range(shown.ranks))
    assert drawn == pytest.approx(idle * diagrams.UNIT / shown.unit, abs=0.11 * len(lines))


def test_all_pictures_share_one_scale() -> None:
    views = {read_picture(name)[1].get("viewBox", "").split()[2] for name in ROWS}
    assert len(views) == 1


@each_name
def test_pictures_are_accessible_and_follow_the_page(name: str) -> None:
    shown, tree = read_picture(name)
    assert tree.get("role") == "img" and tree.get("width") is None and tree.get("height") is None
    assert shown.title == (tree.findtext(f"{NS}title") or "")
    told = tree.findtext(f"{NS}desc") or ""
    assert told.count("Rank ") == shown.ranks
    assert len(told.split()) == 2 * shown.ranks + len(shown.passes)
    for node in tree.iter():
        assert (node is tree or node.get("style") is None) and node.get("id") is None
        for kind in node.get("class", "").split():
            assert f".{kind}" in CSS, f"{kind} has no rule"


def test_captions_say_what_the_schedule_says() -> None:
    for name, units, idle in (
        ("gpipe", "33", "9 &#40;27"),
        ("interleaved", "28½", "4½ &#40;16"),
        ("zb-h1", "27", "3 &#40;11"),
        ("dualpipe", "26", "2 &#40;8"),
    ):
        caption = DRAWN[name].split("<figcaption>")[1]
        assert f"takes {units} units" in caption and f"idles for {idle}" in caption


@pytest.mark.parametrize(
    ("value", "words"),
    [(Fraction(0), "0"), (Fraction(7, 2), "3½"), (Fraction(1, 2), "½"), (Fraction(7, 3), "2 1/3")],
)
def test_numbers_are_written_as_people_do(value: Fraction, words: str) -> None:
    assert diagrams.format_fraction(value) == words


def test_times_are_told_in_the_unit_of_the_row() -> None:
    made = schedules.gpipe(2, 2, Costs(3, 2, 1))
    row = cases.timeline("gpipe", made)
    assert "takes 6 units" in diagrams.draw_timeline(Timeline(row), Fraction(10))


def test_idle_time_is_that_of_the_schedule() -> None:
    for build in (schedules.one_f_one_b, schedules.zero_bubble_h1, schedules.dualpipe):
        made = build(4, 8)
        shown = Timeline(cases.timeline("x", made))
        assert [shown.idle_time(rank) for rank in range(4)] == [
            made.idle(rank) for rank in range(4)
        ]


def test_every_kind_that_the_contract_knows_is_drawn() -> None:
    assert tuple(diagrams.KINDS) == PASS_KINDS


def test_hostile_words_stay_words() -> None:
    words = '<script>alert(1)</script> "q" \'p\' `c`\n\n--8<-- "x.md"\n&lt; \x1b[31m'
    row = make_timelines()[1] | {"title": words, "note": words, "other": words}
    [html] = diagrams.draw_timelines([row]).values()
    assert "<script" not in html and "--8<--" not in html and "`" not in html
    assert tree_of(html).findtext(f"{NS}title")


def test_only_the_present_code_is_drawn() -> None:
    found = make_record(0, timelines=make_timelines())
    drawn = render_pictures(
        make_exhibit(make_verified(found)), ["timelines/pair", "timelines/zb-h3"]
    )
    assert set(drawn) == {f"timelines/{name}" for name in ("one-by-one", "pair", "zb-h3")}
    assert drawn["timelines/pair"].startswith("<figure")
    gone = [drawn["timelines/zb-h3"]]
    for state in ("stale", "failed"):
        withheld = render_pictures(
            make_exhibit(MachineState(found, state, "cpu")), ["timelines/pair"]
        )
        assert set(withheld) == {"timelines/pair"}
        gone.append(withheld["timelines/pair"].replace("pair", "zb-h3"))
    absent = make_exhibit(MachineState(None, "not measured", "cpu"))
    gone.append(render_pictures(absent, ["timelines/zb-h3"])["timelines/zb-h3"])
    for text in gone:
        assert "The picture zb-h3 is withheld" in unescape(text) and "shelf run softmax" in text
        assert "<svg" not in text


SVG = "{http://www.w3.org/2000/svg}"


def draw_row(row: dict) -> ET.Element:
    return ET.fromstring(re.search(r"<svg.*</svg>", draw_grid(row), re.S)[0])


def cells_of(row: dict) -> list[tuple[float, ...]]:
    return [
        tuple(float(one.get(key)) for key in ("x", "y", "width", "height"))
        for one in draw_row(row).iter(f"{SVG}rect")
    ]


def test_each_grid_has_its_picture() -> None:
    assert list(draw_grids(made_up_records.make_grids())) == ["padded", "single"]


def test_every_cell_is_drawn_and_told() -> None:
    row = made_up_records.make_grids()[0]
    cells, legend = cells_of(row)[:4], cells_of(row)[4:]
    assert len(legend) == len(row["legend"])
    assert len({(x, y) for x, y, _, _ in cells}) == 4
    assert {y for _, y, _, _ in cells} == {0.7, round(HEIGHT + 0.7, 1)}
    (left, _, width, _), (right, _, _, _) = cells[:2]
    assert left + width <= right
    words = [one.text for one in draw_row(row).iter(f"{SVG}text")]
    assert {"row ↓ · bank →", "0", "1", "3", "first half"} <= set(words)
    assert "row 0: 0 1. row 1: - 3." in draw_row(row).find(f"{SVG}desc").text


def test_nothing_leaves_the_picture() -> None:
    long = made_up_records.make_grids()[0] | {
        "across": "a bank of shared memory, each of them four bytes wide"
    }
    for row in (*made_up_records.make_grids(), long):
        _, top, width, height = map(float, draw_row(row).get("viewBox").split())
        for x, y, wide, high in cells_of(row):
            assert x >= 0 and x + wide <= width
            assert y >= top and y + high <= top + height
        for one in draw_row(row).iter(f"{SVG}text"):
            assert 0 <= float(one.get("x")) <= width
            assert top < float(one.get("y")) < top + height


def test_what_a_model_says_is_data() -> None:
    hostile = "</svg><script>alert(1)</script>"
    row = made_up_records.make_grids()[0] | {
        "caption": hostile,
        "across": hostile,
        "legend": [[1, hostile]],
    }
    assert "<script" not in draw_grid(row)
