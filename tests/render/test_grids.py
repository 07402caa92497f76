"""Pictures of cells: every cell is in it, in words as well, and nothing in it acts as markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from synthetic import grids

from warpshelf.render.grids import HEIGHT, figure, pictures

SVG = "{http://www.w3.org/2000/svg}"


def drawn(row: dict) -> ET.Element:
    return ET.fromstring(re.search(r"<svg.*</svg>", figure(row), re.S)[0])


def boxes(row: dict) -> list[tuple[float, ...]]:
    return [
        tuple(float(one.get(key)) for key in ("x", "y", "width", "height"))
        for one in drawn(row).iter(f"{SVG}rect")
    ]


def test_each_grid_has_its_picture() -> None:
    assert list(pictures(grids())) == ["padded", "single"]


def test_every_cell_is_drawn_and_told() -> None:
    row = grids()[0]
    cells, legend = boxes(row)[:4], boxes(row)[4:]
    assert len(legend) == len(row["legend"])
    assert len({(x, y) for x, y, _, _ in cells}) == 4
    assert {y for _, y, _, _ in cells} == {0.7, round(HEIGHT + 0.7, 1)}
    (left, _, width, _), (right, _, _, _) = cells[:2]
    assert left + width <= right
    words = [one.text for one in drawn(row).iter(f"{SVG}text")]
    assert {"row ↓ · bank →", "0", "1", "3", "first half"} <= set(words)
    assert "row 0: 0 1. row 1: - 3." in drawn(row).find(f"{SVG}desc").text


def test_nothing_leaves_the_picture() -> None:
    long = grids()[0] | {"across": "a bank of shared memory, each of them four bytes wide"}
    for row in (*grids(), long):
        _, top, width, height = map(float, drawn(row).get("viewBox").split())
        for x, y, wide, high in boxes(row):
            assert x >= 0 and x + wide <= width
            assert y >= top and y + high <= top + height
        for one in drawn(row).iter(f"{SVG}text"):
            assert 0 <= float(one.get("x")) <= width
            assert top < float(one.get("y")) < top + height


def test_what_a_model_says_is_data() -> None:
    hostile = "</svg><script>alert(1)</script>"
    row = grids()[0] | {"caption": hostile, "across": hostile, "legend": [[1, hostile]]}
    assert "<script" not in figure(row)
