"""SPACE of cases.py: what is asked of it, and which configurations it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warpshelf.contract import values
from warpshelf.contract.values import Space


def sound_values(**more: object) -> SimpleNamespace:
    """What cases.py of a kernel must say, and more."""
    cases, kernels = (
        {"CASES": ({"m": 1},), "TIMED": ()},
        {"VARIANTS": {"a": id}, "PEERS": {"b": id}},
    )
    return SimpleNamespace(**cases, **kernels, inputs=id, reference=id, **more)


def declared(**more: object) -> dict[str, Any]:
    return {
        "parameters": {"tile": (16, 32, 64), "order": ("rows", "columns")},
        "allowed": lambda tile, order: tile > 16 or order == "rows",
        "run": lambda x, **configuration: x,
        "case": {"m": 3},
        "counted": lambda **configuration: {"m": 4},
        "scaled": lambda cycles, **configuration: cycles,
        "timed": {"m": 4096},
        **more,
    }


def problems(space: object) -> list[str]:
    """What is wrong with a kernel that is sound but for its SPACE."""
    try:
        values.read_obligations(sound_values(SPACE=space), "kernel", {})
    except values.MalformedCases as malformed:
        return [what for _, what, _ in malformed.problems]
    return []


def test_a_space_has_every_allowed_configuration_in_order() -> None:
    assert problems(declared()) == []
    assert list(Space(**declared()).configurations()) == [
        {"tile": 16, "order": "rows"},
        {"tile": 32, "order": "rows"},
        {"tile": 32, "order": "columns"},
        {"tile": 64, "order": "rows"},
        {"tile": 64, "order": "columns"},
    ]


def broken(**configuration: object) -> bool:
    raise KeyError("bm")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"extra": 1}, "SPACE has the unknown key 'extra'"),
        ({"run": 3}, "SPACE.run is 3, no function"),
        ({"case": [1]}, "SPACE.case is [1], no case"),
        ({"timed": {"m": float("nan")}}, "no case"),
        ({"parameters": {}}, "SPACE.parameters is {}"),
        ({"parameters": {"a b": (1, 2)}}, "no name that a function could take"),
        ({"parameters": {"tile": [1, 2], "order": (1,)}}, "no tuple of values"),
        ({"parameters": {"tile": (), "order": (1,)}}, "no tuple of values"),
        ({"parameters": {"tile": (None,), "order": (1,)}}, "not plain values"),
        ({"parameters": {"tile": ("a b",), "order": (1,)}}, "not plain values"),
        ({"parameters": {"tile": (1, 1), "order": (1,)}}, "with a value twice"),
        ({"allowed": broken}, "SPACE['allowed'] raised KeyError"),
        ({"allowed": lambda tile, order: False}, "allows 0 configurations"),
        ({"parameters": {"tile": (*range(4097),), "order": (1,)},
          "allowed": lambda tile, order: True}, "allows 4097 configurations"),
    ],
)  # fmt: skip
def test_a_malformed_space_is_refused(more: dict[str, Any], says: str) -> None:
    [line] = problems(declared(**more))
    assert says in line


def test_a_space_that_is_no_dict_is_refused() -> None:
    assert problems([1]) == ["SPACE is no object"]
