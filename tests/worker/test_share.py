"""What a verification takes on: everything, or the share that a job asks for."""

from __future__ import annotations

import pytest

from warpshelf.contract.values import Obligations
from warpshelf.worker.checks import Share, choose_cases, rank_cases

# Four cases that kill, and three that are counted, of which one kills as well.
PROOF = Obligations(
    cases=tuple({"n": 9 - n, "dtype": "float32"} for n in range(7)),
    counted=range(4, 7),
    kills=(("a",), ("b",), ("a", "b"), ("c",), (), ("b",), ()),
)


@pytest.mark.parametrize(
    ("share", "cases"),
    [(Share.ALL, [0, 1, 2, 3, 4, 5, 6]), (Share.SOME, [0, 1, 2, 3, 5]), (Share.TELLING, [2])],
)
def test_a_share_chooses_cases(share: Share, cases: list[int]) -> None:
    assert choose_cases(PROOF, share) == cases


def test_cases_go_by_what_those_before_them_do_not_reject() -> None:
    assert rank_cases(PROOF, range(7)) == [2, 3, 5, 1, 0, 6, 4]
    assert rank_cases(PROOF, [0, 1]) == [1, 0]
    assert rank_cases(PROOF, []) == []
