"""The views of a kernel and the counts of its record say the same, build by build."""

from __future__ import annotations

from looking import view

from warpshelf.look.view import View
from warpshelf.site.viewed import contradiction


def row(one: View, times: int, launches: int) -> dict:
    """What a record counts that has each line of a view so many times."""
    lines = [
        {key: value * times if isinstance(value, int) else
         {name: number * times for name, number in value.items()}
         for key, value in line.items() if key not in ("at", "live")}
        for line in one["lines"]
    ]  # fmt: skip
    return {"case": one["case"], "launches": launches, "lines": lines}


def test_all_launches_say_the_same() -> None:
    one = view("tiled")
    assert contradiction(one, row(one, 1, one["launches"])) is None
    assert "in its lines" in (contradiction(one, row(one, 2, one["launches"])) or "")


def test_a_view_of_one_of_several_builds_has_no_more_than_all_of_them() -> None:
    one = view("tiled")
    assert contradiction(one, row(one, 2, one["launches"] + 1)) is None
    assert "in its lines" in (contradiction(one, row(one, 0, one["launches"] + 1)) or "")


def test_another_case_is_told() -> None:
    one = view("tiled")
    other = row(one, 1, one["launches"]) | {"case": {"m": 1}}
    assert "is of the case" in (contradiction(one, other) or "")
