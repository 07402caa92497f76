"""A lower bound of a kernel in cycles of an SM, by pipe, from counts of its executed PTX.

What must be done (look/work.py has the rules) over what an SM does in a cycle at most
(look/pipes.py has the sources). The cycles are those of one SM that does all of the counted
launch; over the SMs of a device, they are the least that the launch takes there. It is no estimate:
waiting, bank conflicts of registers, misses and all of memory beyond L1 come on top, and pipes do
not always work at the same time. Held against published timings in tests/look/published_sgemm.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from warpshelf.look import pipes
from warpshelf.look.work import LANES, Row, Work, work

DIFFERENT = 1.3  # bounds apart by less say nothing about which is faster
PAIRED = frozenset(("sm_100",))  # where two multiply-adds of FP32 are one instruction
NOTHING = "nothing counted"


@dataclass(frozen=True)
class Pipe:
    """The cycles of one pipe, and what was counted for it in words."""

    pipe: str
    cycles: float
    of: str


@dataclass(frozen=True)
class Bound:
    """The least cycles of an SM, the pipe that takes them, and all pipes that do anything."""

    limiter: str
    cycles: float
    pipes: tuple[Pipe, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as BOUND of look/view.py has it; cycles are rounded down."""
        shown = [{**asdict(one), "cycles": _down(one.cycles)} for one in self.pipes]
        return {"limiter": self.limiter, "cycles": _down(self.cycles), "pipes": shown}


@dataclass(frozen=True)
class Done:
    """What a variant did on a case: the cycles of its bound, and the sectors that it touched."""

    cycles: float
    sectors: int = 0

    def __add__(self, other: Done) -> Done:
        return Done(self.cycles + other.cycles, self.sectors + other.sectors)


def bound(rows: Iterable[Row], arch: str) -> Bound:
    """The least cycles of an SM for executed instructions.

    Raises:
        ValueError: there are no rates for the architecture.
    """
    name = pipes.known(arch)
    done = work(rows, name)
    found = [
        *_floats(done, name),
        *_matrices(done, name),
        *_functions(done, name),
        *_accesses(done),
        *_issued(done, name),
    ]
    most = max(found, key=lambda one: one.cycles, default=None)
    if most is None:
        return Bound(NOTHING, 0, ())
    return Bound(most.pipe, most.cycles, tuple(found))


def faster(one: Done, other: Done) -> bool:
    """Whether bounds say that one variant is faster than another, in the same precision.

    They do where they differ by more than a factor of DIFFERENT, and the faster one touches no more
    sectors of global memory: what L2 and memory take for a sector is in no bound.
    """
    return one.cycles * DIFFERENT < other.cycles and one.sectors <= other.sectors


def places(done: Mapping[str, Done]) -> dict[str, tuple[int, int]]:
    """The first and the last place that each variant may have, from 1; the likeliest first."""
    found = {
        name: (
            1 + sum(faster(other, own) for other in done.values()),
            len(done) - sum(faster(own, other) for other in done.values()),
        )
        for name, own in done.items()
    }
    return dict(sorted(found.items(), key=lambda one: (sum(one[1]), done[one[0]].cycles, one[0])))


def _floats(done: Work, arch: str) -> list[Pipe]:
    found = []
    for pipe in ("FP32", "FP64", "FP16"):
        if count := done.floats(pipe):
            rate = pipes.lanes(arch, pipe).amount
            what = f"{_some(count / LANES)} multiply-adds of a warp at {_rate(rate)}"
            found.append(Pipe(pipe, count / rate, what))
    return found


def _matrices(done: Work, arch: str) -> list[Pipe]:
    """One pipe for all kinds of operands, which take turns; what has no rate is left out."""
    cycles = 0.0
    words = []
    for kind, count in sorted(done.products.items()):
        if rate := pipes.matrix(arch, kind):
            cycles += count / rate.amount
            words.append(f"{_some(count)} multiply-adds of {kind} at {rate.amount:,} a cycle")
    return [Pipe("matrix", cycles, ", ".join(words))] if words else []


def _functions(done: Work, arch: str) -> list[Pipe]:
    if not done.functions:
        return []
    rate = pipes.lanes(arch, "special function").amount
    what = f"{_some(done.functions / LANES)} special functions of a warp at {_rate(rate)}"
    return [Pipe("special function", done.functions / rate, what)]


def _accesses(done: Work) -> list[Pipe]:
    """Shared memory, L1 and shuffles pass one stage, a wavefront in a cycle."""
    parts = (
        (done.shared, "wavefronts of shared memory"),
        (done.memory, "of global memory"),
        (done.shuffles, "shuffles of a warp"),
    )
    cycles = sum(count for count, _ in parts) / pipes.WAVEFRONTS.amount
    words = ", ".join(f"{_some(count)} {what}" for count, what in parts if count)
    return [Pipe("load and store", cycles, f"{words} at 1 a cycle")] if words else []


def _issued(done: Work, arch: str) -> list[Pipe]:
    count = done.floats("FP32") / LANES / (2 if arch in PAIRED else 1)
    count += done.floats("FP64") / LANES + done.floats("FP16") / LANES / 2
    count += done.functions / LANES + done.shuffles + done.others
    if not count:
        return []
    rate = pipes.ISSUE.amount
    what = f"{_some(count)} instructions of a warp that must remain at {rate} a cycle"
    return [Pipe("issue", count / rate, what)]


def _some(count: float) -> str:
    return f"{math.floor(count):,}" if count >= 1 else f"{count:.2g}"


def _rate(lanes: int) -> str:
    """`4 a cycle` of 128 lanes, `1 in 16 cycles` of 2."""
    of = Fraction(lanes, LANES)
    return f"{of.numerator} a cycle" if of.denominator == 1 else f"1 in {1 / of} cycles"


def _down(cycles: float) -> float:
    """A tenth of a cycle, rounded down so that it stays a bound; whole where it is."""
    tenths = math.floor(cycles * 10)
    return tenths // 10 if tenths % 10 == 0 else tenths / 10
