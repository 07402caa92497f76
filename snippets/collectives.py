"""Collectives of a group of ranks: by torch, or by messages round a ring, counted.

`Library` is torch.distributed's. `Ring` is the same four out of messages between
neighbours, so that `wire.sent` and `wire.messages` are what has left this rank, and no
formula. Both count `calls` by name. In a group of one, and where no group was started,
each returns what it is given.

Shapes  all_reduce (n, ...) -> the same; all_gather (n, ...) -> (P n, ...), by rank;
        reduce_scatter (P n, ...) -> (n, ...), this rank's; all_to_all: a tensor for
        each rank -> one from each
Bytes   sent by a rank of P, of a whole tensor of S bytes: all_gather and reduce_scatter
        (P - 1) / P S in P - 1 messages, all_reduce both; all_to_all what is for others
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from snippets import ranks

COMBINE = {"sum": torch.add, "max": torch.maximum}
# torch 2.13 calls them by new names, and warns of the old ones.
gather_into = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter_into = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)


class Library:
    """The collectives of torch.distributed, for a group of ranks, or all of them."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        there = dist.is_initialized()
        self.rank = dist.get_rank(group) if there else 0
        self.size = dist.get_world_size(group) if there else 1
        self.calls: Counter[str] = Counter()

    def all_reduce(self, x: torch.Tensor, how: str = "sum") -> torch.Tensor:
        """The sum or the largest over ranks, for all of them."""
        if self.size == 1:
            return x
        self.calls["all_reduce"] += 1
        return self._all_reduce(x.contiguous(), how)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The ranks' rows, one below the other."""
        if self.size == 1:
            return x
        self.calls["all_gather"] += 1
        return self._all_gather(x.contiguous())

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's rows of the sum over ranks.

        Raises ValueError if the rows do not split.
        """
        if len(x) % self.size:
            raise ValueError(
                f"collectives: {len(x)} rows do not split over {self.size} ranks; "
                "pad them"
            )
        if self.size == 1:
            return x
        self.calls["reduce_scatter"] += 1
        return self._reduce_scatter(x.contiguous())

    def all_to_all(
        self, parts: Sequence[torch.Tensor], into: Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        """What each rank has for this one, by rank; `parts` is what this has for each.

        into: tensors to receive, where they are not like `parts`.
        """
        found = [x.new_empty(x.shape) for x in parts] if into is None else list(into)
        if self.size == 1:
            return list(parts)
        self.calls["all_to_all"] += 1
        return self._all_to_all([x.contiguous() for x in parts], found)

    def _all_reduce(self, x: torch.Tensor, how: str) -> torch.Tensor:
        total = x.clone()
        operation = dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.MAX
        dist.all_reduce(total, operation, self.group)
        return total

    def _all_gather(self, x: torch.Tensor) -> torch.Tensor:
        whole = x.new_empty(self.size * len(x), *x.shape[1:])
        gather_into(whole, x, self.group)
        return whole

    def _reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        own = x.new_empty(len(x) // self.size, *x.shape[1:])
        scatter_into(own, x, group=self.group)
        return own

    def _all_to_all(
        self, parts: list[torch.Tensor], found: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        sizes = [[x.numel() for x in some] for some in (found, parts)]
        whole = torch.cat([x.flatten() for x in parts])
        out = whole.new_empty(sum(sizes[0]))
        dist.all_to_all_single(out, whole, *sizes, group=self.group)
        both = zip(out.split(sizes[0]), found, strict=True)
        return [x.view(like.shape) for x, like in both]


# --8<-- [start:ring]
class Ring(Library):
    """The same, each out of messages to the next rank: `wire` has counted them."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(group)
        self.wire = ranks.Wire()
        self.members = [0]
        if self.size > 1:
            self.members = dist.get_process_group_ranks(group or dist.group.WORLD)

    def pass_on(
        self, tensors: Sequence[torch.Tensor], hops: int = 1
    ) -> Callable[[], list[torch.Tensor]]:
        """Start sending `hops` ranks on; a call gets what comes from as far back."""
        to, source = ((self.rank + by) % self.size for by in (hops, -hops))
        return self.wire.exchange(tensors, self.members[to], self.members[source])

    def _all_gather(self, x: torch.Tensor) -> torch.Tensor:
        found = {self.rank: x}
        for step in range(1, self.size):  # what came last goes on
            (x,) = self.pass_on([x])()
            found[(self.rank - step) % self.size] = x
        return torch.cat([found[rank] for rank in range(self.size)])

    def _reduce_scatter(self, x: torch.Tensor, how: str = "sum") -> torch.Tensor:
        own = x.chunk(self.size)
        total = own[self.rank - 1]  # ends, after all others, at the rank before this
        for step in range(2, self.size + 1):
            (before,) = self.pass_on([total])()
            total = COMBINE[how](before, own[self.rank - step])
        return total

    def _all_reduce(self, x: torch.Tensor, how: str) -> torch.Tensor:
        missing = -x.numel() % self.size  # so that it splits
        flat = torch.nn.functional.pad(x.flatten(), (0, missing))
        whole = self._all_gather(self._reduce_scatter(flat, how))
        return whole[: x.numel()].view(x.shape)
        # --8<-- [end:ring]

    def _all_to_all(
        self, parts: list[torch.Tensor], found: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        found[self.rank] = parts[self.rank]
        for hops in range(1, self.size):
            to, source = ((self.rank + by) % self.size for by in (hops, -hops))
            arrive = self.wire.exchange(
                [parts[to]], self.members[to], self.members[source], [found[source]]
            )
            (found[source],) = arrive()
        return found
