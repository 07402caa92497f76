"""Who is missing: ranks write down how far they are, and read it where one waits.

It needs no collective that works, only a store: a file, or a server of torch's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist


class MissingRank(RuntimeError):
    """A collective did not end in time; `ranks` have not come as far as this one."""

    def __init__(self, ranks: list[int], message: str) -> None:
        super().__init__(message)
        self.ranks = ranks


# --8<-- [start:watch]
class Watch:
    """A rank's place in the store, and a limit on how long it waits for others."""

    def __init__(self, store: dist.Store, rank: int, size: int, seconds: float) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.seconds = seconds
        self.step = 0
        store.set(str(rank), "0")

    def reach(self, step: int) -> None:
        """Say that this rank is about to begin a step."""
        self.step = step
        self.store.set(str(self.rank), str(step))

    def guard(self, call: Callable[[], Any]) -> Any:
        """What `call` returns, which meets the other ranks.

        Raises MissingRank, with the ranks that are behind, where it does not end in
        time, or breaks since another has gone.
        """
        found: list[Any] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(call())
            except Exception as error:  # a connection that is gone: whose?
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.seconds)
        if found:
            return found[0]
        behind = self.behind()
        if failed and not behind:
            raise failed[0]
        names = ", ".join(f"rank {at} (at step {step})" for at, step in behind)
        raise MissingRank(
            [at for at, _ in behind],
            f"rank {self.rank} is at step {self.step} and waits for {names or 'nobody'}"
            f"; {'a connection broke' if failed else f'{self.seconds:g} s are over'}",
        )

    def behind(self) -> list[tuple[int, int]]:
        """Ranks that have not begun the step of this one, and where they are."""
        steps = [(at, int(self.store.get(str(at)))) for at in range(self.size)]
        return [(at, step) for at, step in steps if step < self.step]
# --8<-- [end:watch]
