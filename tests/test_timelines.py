from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import Trial

from warpshelf import schedules, svg, timelines
from warpshelf.passes import Costs, Kind, Schedule

NS = "{http://www.w3.org/2000/svg}"
CSS = (Path(__file__).resolve().parents[1] / "docs" / "assets" / "site.css").read_text("utf-8")
each_name = pytest.mark.parametrize("name", timelines.DRAWN)


def picture(name: str) -> tuple[Schedule, ElementTree.Element]:
    html = timelines.fragments()[f"diagrams/{name}.md"]
    assert html.startswith("<figure") and "\n\n" not in html
    drawing = html[html.index("<svg") : html.index("</svg>") + len("</svg>")]
    return timelines.DRAWN[name], ElementTree.fromstring(drawing)


def number(node: ElementTree.Element, key: str) -> float:
    return float(node.get(key, ""))


def boxes(tree: ElementTree.Element) -> list[ElementTree.Element]:
    """The passes: rectangles that are no bar, less those of the legend."""
    found = [node for node in tree.iter(f"{NS}rect") if number(node, "height") > 2]
    foot = max(number(node, "y") for node in found)
    return [node for node in found if number(node, "y") < foot]


@each_name
def test_every_pass_is_a_box_where_and_as_long_as_it_is(name: str) -> None:
    schedule, tree = picture(name)
    drawn = sorted((number(node, "x"), number(node, "width")) for node in boxes(tree))
    unit = timelines.UNIT / schedule.chunks
    due = sorted(
        (timelines.LEFT + one.start * unit + 0.7, one.length * unit - 1.4)
        for one in schedule.passes
    )
    for place, wanted in zip(drawn, due, strict=True):
        assert place == pytest.approx(wanted, abs=0.11)


@each_name
def test_boxes_of_a_picture_never_overlap(name: str) -> None:
    _, tree = picture(name)
    placed = [tuple(number(n, key) for key in ("x", "y", "width", "height")) for n in boxes(tree)]
    for i, (x, y, wide, high) in enumerate(placed):
        for x2, y2, wide2, high2 in placed[i + 1 :]:
            beside = x + wide <= x2 or x2 + wide2 <= x
            assert beside or y + high <= y2 or y2 + high2 <= y


@each_name
def test_a_picture_has_room_for_its_words(name: str) -> None:
    _, tree = picture(name)
    left, top, width, height = map(float, tree.get("viewBox", "").split())
    spans = []
    for node in tree.iter(f"{NS}text"):
        words, x, y = node.text or "", number(node, "x"), number(node, "y")
        wide = len(words) * svg.TEXT * 0.5
        x -= {"end": wide, "middle": wide / 2}.get(node.get("text-anchor", ""), 0)
        assert left <= x and x + wide <= left + width and top < y <= top + height, words
        spans.append((y, x, x + wide, words))
    for i, (y, start, end, words) in enumerate(spans):
        for y2, start2, end2, other in spans[i + 1 :]:
            assert abs(y - y2) > 10 or end <= start2 or end2 <= start, (words, other)


@each_name
def test_idle_time_is_drawn_as_long_as_it_is(name: str) -> None:
    schedule, tree = picture(name)
    lines = [node for node in tree.iter(f"{NS}line") if "ws-grid" in node.get("class", "")]
    drawn = sum(number(node, "x2") - number(node, "x1") for node in lines)
    unit = timelines.UNIT / schedule.chunks
    idle = sum(schedule.idle(rank) for rank in range(schedule.ranks))
    assert drawn == pytest.approx(idle * unit, abs=0.11 * len(lines))


def test_all_pictures_share_one_scale() -> None:
    views = {picture(name)[1].get("viewBox", "").split()[2] for name in timelines.DRAWN}
    assert len(views) == 1


@each_name
def test_pictures_are_accessible_and_follow_the_page(name: str) -> None:
    schedule, tree = picture(name)
    assert tree.get("role") == "img" and tree.get("width") is None and tree.get("height") is None
    assert schedule.name in (tree.findtext(f"{NS}title") or "")
    told = tree.findtext(f"{NS}desc") or ""
    assert told.count("Rank ") == schedule.ranks
    assert len(told.split()) == 2 * schedule.ranks + len(schedule.passes)
    for node in tree.iter():
        assert node.get("style") is None and node.get("id") is None
        for kind in node.get("class", "").split():
            assert f".{kind}" in CSS, f"{kind} has no rule"


def test_captions_say_what_the_schedule_says() -> None:
    texts = timelines.fragments()
    for name, units, idle in (
        ("pipeline-gpipe", "33", "9 &#40;27"),
        ("pipeline-interleaved", "28½", "4½ &#40;16"),
        ("pipeline-zb-h1", "27", "3 &#40;11"),
        ("pipeline-dualpipe", "26", "2 &#40;8"),
    ):
        caption = texts[f"diagrams/{name}.md"].split("<figcaption>")[1]
        assert f"takes {units} units" in caption and f"idles for {idle}" in caption


@pytest.mark.parametrize(
    ("value", "words"),
    [(Fraction(0), "0"), (Fraction(7, 2), "3½"), (Fraction(1, 2), "½"), (Fraction(7, 3), "2 1/3")],
)
def test_numbers_are_written_as_people_do(value: Fraction, words: str) -> None:
    assert timelines._mixed(value) == words


def test_costs_of_any_size_are_drawn_to_scale() -> None:
    made = schedules.gpipe(2, 2, Costs(3, 2, 1))
    html = timelines.figure("pipeline-gpipe", made, Fraction(10))
    assert timelines.steps(made, made.makespan) == 6 and "takes 6 units" in html
    assert all(kind in Kind for kind in timelines.KINDS)


def test_pages_may_embed_the_pictures_there_are_and_no_others(trial: Trial) -> None:
    trial.page("a.md", '# A\n\n--8<-- "diagrams/pipeline-gpipe.md"\n')
    assert trial.shelf("check").returncode == 0
    trial.page("b.md", '# B\n\n--8<-- "diagrams/pipeline-eager.md"\n')
    done = trial.shelf("check")
    assert done.returncode == 1
    assert "docs/b.md:3" in done.stdout + done.stderr
    assert "pipeline-eager" in done.stdout + done.stderr
