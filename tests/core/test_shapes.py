"""A shape takes what it describes, and says of anything else where it departs, on one line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core.files import LARGEST_INTEGER, NUMBER, Shape, shape_problem
from warpshelf.core.findings import printable_line


def check_odd(value: object) -> str | None:
    return None if type(value) is int and value % 2 else "is not odd"


SHAPES: dict[str, tuple[Shape, list[Any], list[tuple[Any, str]]]] = {
    "a type": (int, [0, -3], [
        ("1", "it is '1'"), (1.0, "it is 1.0"), (True, "it is True"), (None, "it is None"),
        (LARGEST_INTEGER, "it is out of range"), ("x" * 99, "it is 'xxxxxxxxx"),
    ]),
    "types": (NUMBER, [1, 0.5], [
        (float("nan"), "it is nan"), (float("inf"), "it is inf"), (False, "it is False"),
    ]),
    "a truth": (bool, [True, False], [(1, "it is 1"), ("true", "it is 'true'")]),
    "anything": (object, [True, None, [], "x"], [(float("-inf"), "it is -inf")]),
    "one of": (("up", "down"), ["up"], [
        ("left", "it is 'left', not one of up, down"), (["up"], "it is ['up'], not one of"),
    ]),
    "a pattern": (re.compile("[a-z]+"), ["abc"], [
        ("ab\n", "it is 'ab\\n'"), ("ab1", "it is 'ab1'"), (1, "it is 1"), ("", "it is ''"),
    ]),
    "a function": (check_odd, [3], [(4, "it is not odd"), ("3", "it is not odd")]),
    "a list": ([int], [[], [1, 2]], [
        ((1,), "it is not a list"), ({}, "it is not a list"), ([1, "2"], "it[1] is '2'"),
    ]),
    "an object": ({"n": int, "of?": [str]}, [{"n": 1}, {"n": 1, "of": ["a"]}], [
        ([], "it is not an object"), ({}, "it lacks 'n'"),
        ({"n": 1, "m": 2}, "it has the unknown key"),
        ({"n": 1, "of": None}, "it.of is not a list"), ({"n": 1, "of": [2]}, "it.of[0] is 2"),
        ({"n": 1, 2: 3}, "it has the unknown key 2"), ({"n": 1, "of?": []}, "unknown key 'of?'"),
    ]),
    "any keys": ({"*": {"n": int}}, [{}, {"a": {"n": 1}, "b": {"n": 2}}], [
        ({"a": {"n": 1}, "b": {}}, "it.b lacks 'n'"), ([], "it is not an object"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape(name: str) -> None:
    shape, good, bad = SHAPES[name]
    assert [shape_problem(value, shape, "it") for value in good] == [None] * len(good)
    for value, said in bad:
        assert said in (shape_problem(value, shape, "it") or ""), value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON, st.sampled_from(sorted(SHAPES)))
def test_of_any_value_one_thing_is_said(value: object, name: str) -> None:
    said = shape_problem(value, SHAPES[name][0], "it")
    assert said is None or (said.startswith("it") and "\n" not in printable_line(said))


@pytest.mark.parametrize(
    ("value", "shape", "said"),
    [
        ([1, -2, 3], [int], None),
        ([], [int], None),
        ([1, True], [int], "it[1] is True"),
        ([1, 2.0], [int], "it[1] is 2.0"),
        ([1, LARGEST_INTEGER], [int], "it[1] is out of range"),
        ([1, -LARGEST_INTEGER], [int], "it[1] is out of range"),
        (["a", ""], [str], None),
        (["a", 1], [str], "it[1] is 1"),
    ],
)
def test_long_lists_of_one_type_are_told_as_others_are(
    value: list[object], shape: object, said: str | None
) -> None:
    assert shape_problem(value, shape, "it") == said
