"""What a model's grids() may return, and that nothing it returns stops the check."""

from __future__ import annotations

import pytest
from anything import ANY
from hypothesis import given
from synthetic import grids

from warpshelf.contract.grids import GRID_KEYS, LONGEST, MOST, grids_problem


def drawn(**changed: object) -> list[dict]:
    """One grid, with some of its keys replaced."""
    return [grids()[0] | changed]


def cell(value: object) -> list[dict]:
    """The same, with another first cell."""
    (_, *first), *rest = grids()[0]["cells"]
    return drawn(cells=[[value, *first], *rest])


def test_sound_grids_have_no_problem() -> None:
    assert grids_problem(grids()) is None
    assert grids_problem(tuple(grids())) is None


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "grids() returned [], no list of rows"),
        (["padded"], "grids() holds 'padded', not a dict of across, caption, cells, columns"),
        ([grids()[0] | {"colour": 1}], "not a dict of"),
        (grids() * 2, "grid 'padded' stands twice"),
        (drawn(name="A/b"), "grid 'A/b': its name is no name of small letters"),
        (drawn(caption=" "), "its caption is ' ', no words"),
        (drawn(down=3), "its down is 3, no words"),
        (drawn(columns=[]), f"its columns are [], no list of 1 to {MOST} names"),
        (drawn(rows=["0"] * (MOST + 1)), f"no list of 1 to {MOST} names"),
        (drawn(columns=["0", 1]), "not all of them texts"),
        (drawn(cells=[]), "its cells are no list of 2 rows"),
        (drawn(cells=[[["0", 1]]] * 2), "row 0 of its cells is no list of 2"),
        (cell("0"), "the cell '0' is no text of at most"),
        (cell([0, 1]), "the cell [0, 1] is no text of at most"),
        (cell(["x" * (LONGEST + 1), 1]), f"is no text of at most {LONGEST} and a colour"),
        (cell(["0", 8]), "has none of the colours -1 to 7"),
        (cell(["0", True]), "has none of the colours"),
        (drawn(legend=3), "its legend is 3, no list of pairs"),
        (drawn(legend=[[-1, "plain"]]), "its legend has [-1, 'plain'], which is no pair"),
    ],
)
def test_a_malformed_grid_is_named(rows: object, says: str) -> None:
    assert says in str(grids_problem(rows))


@given(ANY)
def test_whatever_comes_back_is_judged(value: object) -> None:
    for rows in (value, [value], drawn(cells=value), cell(value), drawn(legend=value)):
        assert grids_problem(rows) is None or "\n" not in str(grids_problem(rows))


def test_the_keys_are_those_of_a_row() -> None:
    assert grids()[0].keys() >= GRID_KEYS
