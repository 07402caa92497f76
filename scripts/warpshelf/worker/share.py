"""How much of a kernel one verification takes on: all of its cases and views, or a share of them.

A record needs all. Tests that repeat it for every architecture take a share, since most of their
time goes into compiling, anew for each architecture, case and view.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from warpshelf.contract.values import Obligations


@dataclass(frozen=True)
class Share:
    """Everything, unless it says otherwise.

    Of the cases those whose numbers are in `cases`; without `counted`, none that kills nothing and
    is there only to be counted. Of these so many as are `telling`: those that together reject the
    most mutants, small ones first. Views of one case in `views` (0: of none); of these a `single`
    one.
    """

    cases: Collection[int] | None = None
    counted: bool = True
    telling: int | None = None
    views: int = 1
    single: bool = False

    def chosen_cases(self, proof: Obligations) -> list[int]:
        """The numbers of the cases to verify."""
        every = range(len(proof.cases))
        wanted = [index for index in every if self.cases is None or index in self.cases]
        if not self.counted:
            wanted = [index for index in wanted if index not in proof.counted or proof.kills[index]]
        return wanted if self.telling is None else sorted(rank_cases(proof, wanted)[: self.telling])

    def draws_views(self, index: int) -> bool:
        """Whether views are drawn of case number `index`."""
        return self.views > 0 and index % self.views == 0

    @property
    def whole(self) -> bool:
        """Whether it leaves nothing out, so that a record may rest on it."""
        return self == Share()


def rank_cases(proof: Obligations, among: Collection[int]) -> list[int]:
    """Numbers of cases by what each tells that those before it do not; of equals the smaller.

    Each rejects as many mutants as it can that no case before it does.
    """
    left, known, order = set(among), set[str](), []

    def rank_key(index: int) -> tuple[int, int, int]:
        sides = (side for side in proof.cases[index].values() if isinstance(side, int) and side)
        kills = proof.kills[index]
        return -len({*kills} - known), -len(kills), math.prod(sides)

    while left:
        best = min(sorted(left), key=rank_key)
        left.remove(best)
        known.update(proof.kills[best])
        order.append(best)
    return order
