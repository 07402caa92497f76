"""Counts in a record: how the targets' become one, and the claims that no run would have made."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from synthetic import record

from warpshelf.core.files import dump
from warpshelf.records import counts
from warpshelf.records.schema import contradiction, problem

LINE = {
    "at": "softmax.py:34",
    "classes": {"integer": 3, "load global": 2},
    "lanes": 160,
    "requests": 2,
    "sectors": 9,
    "ideal_sectors": 8,
    "shared_requests": 1,
    "wavefronts": 4,
    "ideal_wavefronts": 4,
    "bytes": 16,
    "operations": 4096,
}
CASE = {"m": 37, "n": 781, "scale": 1.0, "dtype": "float32"}


def row(**more: object) -> dict[str, Any]:
    found: dict[str, Any] = {
        "variant": "one pass",
        "kernel": "softmax_one_pass",
        "case": CASE,
        "targets": ["sm_80", "sm_90"],
        "launches": 1,
        "lines": [LINE, {"at": "PTX", "classes": {"move": 1}}],
    }
    return copy.deepcopy(found | more)


def with_counts(*rows: dict[str, Any], gpus: int = 0) -> dict[str, Any]:
    return record(gpus=gpus, counts=list(rows))


def test_counts_are_part_of_a_sound_record() -> None:
    found = with_counts(row(), row(targets=["sm_100"]), row(variant="online", targets=["sm_100"]))
    assert problem(found) is None
    assert contradiction(found) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sectors": 7}, "7 sectors, below the 8"),
        ({"wavefronts": 3}, "3 wavefronts, below the 4"),
        ({"lanes": 161}, "161 lanes took part in 5 instructions of 32"),
        ({"requests": 0}, "a count of 0 or below"),
        ({"bytes": -1}, "a count of 0 or below"),
        ({"classes": {}}, "a count of 0 or below"),
        ({"classes": {"integer": 9, "move": 0}}, "a count of 0 or below"),
    ],
)
def test_a_line_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    found = with_counts(row(lines=[{**LINE, **change}]))
    assert problem(found) is None
    assert says in (contradiction(found) or "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"launches": 0}, "are of nothing"),
        ({"lines": []}, "are of nothing"),
        ({"targets": []}, "are of nothing"),
        ({"targets": ["sm_120"]}, "name sm_120, which was not executed"),
        ({"targets": ["sm_90", "sm_90"]}, "name sm_90"),
        ({"lines": [LINE, LINE]}, "a line twice"),
        ({"case": {**CASE, "m": 38}}, "a case that it has no result of"),
        ({"variant": "torch"}, "a case that it has no result of"),  # a peer
    ],
)
def test_a_row_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    found = with_counts(row(**change))
    assert problem(found) is None
    assert says in (contradiction(found) or "")


def test_two_rows_of_one_target_are_refused() -> None:
    assert "or twice" in (contradiction(with_counts(row(), row(launches=2))) or "")


def test_a_gpu_counts_nothing() -> None:
    assert "a GPU does not make" in (contradiction(with_counts(row(), gpus=1)) or "")


@pytest.mark.parametrize(
    "change",
    [
        {"lines": [{**LINE, "sectors": 1.5}]},
        {"lines": [{**LINE, "unheard": 1}]},
        {"lines": [{**LINE, "at": "softmax.py"}]},
        {"lines": [{**LINE, "at": "softmax.py:0"}]},
        {"lines": [{**LINE, "classes": {"move": True}}]},
        {"lines": [{"at": "PTX"}]},
        {"targets": ["gfx942"]},
        {"launches": None},
    ],
)
def test_a_malformed_count_is_named(change: dict[str, Any]) -> None:
    assert "record.counts[0]" in (problem(with_counts(row(**change))) or "")


def test_targets_that_agree_share_a_row() -> None:
    def of(launches: int, **more: object) -> dict[str, Any]:
        made = row(launches=launches, **more)
        del made["targets"]
        return made

    by_target = {
        "sm_90": [of(1), of(2, kernel="a"), of(1, variant="late")],
        "sm_100": [of(3), of(2, kernel="a")],
        "sm_80": [of(1), of(2, kernel="a")],
    }
    found = counts.merged(by_target)
    assert [(one["variant"], one["kernel"], one["targets"]) for one in found] == [
        ("late", "softmax_one_pass", ["sm_90"]),
        ("one pass", "a", ["sm_80", "sm_90", "sm_100"]),
        ("one pass", "softmax_one_pass", ["sm_80", "sm_90"]),
        ("one pass", "softmax_one_pass", ["sm_100"]),
    ]
    for order in itertools.permutations(by_target):  # children end in any order
        assert dump(counts.merged({key: by_target[key] for key in order})) == dump(found)
    assert counts.merged({}) == []
