"""Under which schedule each call of a kernel runs, where its PTX is executed on a CPU.

The first call of a variant on a case runs its warps by turns, the next each as far as it goes, the
one after that at random, and so on; the seed, which orders blocks and warps, is another for every
call. On each further target the rotation begins one schedule later. A variant is called on a case
until it has met all three schedules; views of the case come after these.

One call of some cases is counted: by turns, with blocks and warps in order, on one thread, so that
every machine counts the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import papergpu

SCHEDULES = ("robin", "far", "random")


@dataclass(frozen=True)
class CallSettings:
    """How the warps of one call run: `papergpu.settings` takes both."""

    schedule: str
    seed: int
    specialize: bool = True

    def __str__(self) -> str:
        more = "" if self.specialize else ", specialize=False"
        return f'papergpu.settings(schedule="{self.schedule}", seed={self.seed}{more})'


def settings_for_call(index: int, call: int, rank: int, counted: bool = False) -> CallSettings:
    """That of a call of a variant on case number `index`.

    `rank` is the number of the target among those that the variant is for. A case that is
    `counted` begins by turns whatever the target, and goes on with the other two.
    """
    if counted:
        schedule = SCHEDULES[0] if call == 0 else SCHEDULES[1 + (rank + call - 1) % 2]
    else:
        schedule = SCHEDULES[(rank + call) % len(SCHEDULES)]
    first = call == 0 and (counted or rank == 0)
    return CallSettings(schedule, 0 if first else 100 * index + len(SCHEDULES) * call + rank)


class CallWatch:
    """Stands around the calls of a variant on a case; one of no target lets them be.

    `tell` hears before each call under what it runs.
    """

    def __init__(self, target: str | None = None, tell: Callable[[str], None] = lambda text: None):
        self.target = target
        self.launched: list[papergpu.Launched] = []  # by the call that is counted
        self._tell = tell
        self._begun = 0, 0, False
        self._calls = 0
        self._met: set[str] = set()
        self._turn: CallSettings | None = None

    @property
    def executes(self) -> bool:
        """Whether PTX is executed here."""
        return self.target is not None

    def begin_case(
        self, index: int, rank: int = 0, counted: bool = False, further: bool = False
    ) -> None:
        """A variant comes to case number `index`; for `further` calls.

        `rank` is the number of the target among those that the variant is for.
        """
        self._begun = index, rank, counted
        self._calls, self._turn = len(SCHEDULES) if further else 0, None
        self._met.clear()
        self.launched.clear()

    @contextlib.contextmanager
    def watch_call(self, specialize: bool = True) -> Iterator[None]:
        """Around one call, for whose integers and alignments Triton may `specialize` a kernel."""
        if not self.executes:
            yield
            return
        import papergpu

        index, rank, counted = self._begun
        counts = counted and self._calls == 0
        now = replace(settings_for_call(index, self._calls, rank, counted), specialize=specialize)
        self._turn = now
        self._calls += 1
        self._tell(self.under)
        chosen = papergpu.settings(**asdict(now), profile=counts, threads=int(counts))

        def note_launch(launched: papergpu.Launched) -> None:
            self._met.add(now.schedule)
            if counts:
                self.launched.append(launched)

        with chosen, papergpu.on_launch(note_launch):
            yield

    @property
    def under(self) -> str:
        """Under what the latest call ran, in the words that repeat it; nothing before the first."""
        return f" on {self.target} under {self._turn}" if self._turn else ""

    def schedules_left(self) -> bool:
        """Whether a schedule is left to meet; a variant that launches nothing has none."""
        return bool(self._met) and self._calls < len(SCHEDULES)
