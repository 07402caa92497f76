"""What a verification takes on: everything, or the share that a job asks for."""

from __future__ import annotations

import pytest

from warpshelf.contract.values import Obligations
from warpshelf.worker.checks import Share, rank_cases

# Four cases that kill, and three that are counted, of which one kills as well.
PROOF = Obligations(
    cases=tuple({"n": 9 - n, "dtype": "float32"} for n in range(7)),
    counted=range(4, 7),
    kills=(("a",), ("b",), ("a", "b"), ("c",), (), ("b",), ()),
)


@pytest.mark.parametrize(
    ("share", "cases", "viewed"),
    [
        (Share(), [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]),
        (Share(counted=False, views=3, single=True), [0, 1, 2, 3, 5], [0, 3, 6]),
        (Share(cases=[0, 4, 5, 90], views=0), [0, 4, 5], []),
        (Share(cases=range(1, 1000, 2), counted=False), [1, 3, 5], [0, 1, 2, 3, 4, 5, 6]),
        (Share(counted=False, views=0, telling=2), [2, 3], []),
    ],
)
def test_a_share_chooses_cases_and_those_that_are_viewed(
    share: Share, cases: list[int], viewed: list[int]
) -> None:
    assert share.chosen_cases(PROOF) == cases
    assert [index for index in range(7) if share.draws_views(index)] == viewed


def test_cases_go_by_what_those_before_them_do_not_reject() -> None:
    assert rank_cases(PROOF, range(7)) == [2, 3, 5, 1, 0, 6, 4]
    assert rank_cases(PROOF, [0, 1]) == [1, 0]
    assert rank_cases(PROOF, []) == []
