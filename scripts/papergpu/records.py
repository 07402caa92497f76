"""The records that the engine and Python share, what a launch printed, and its worst requests.

While the engine counts, it keeps of each instruction the request that costs most beyond its ideal
(`Result.samples`): of equals that of the first block of the grid, of its first warp, the first. So
they do not depend on the threads that a launch went over.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from papergpu import program as layouts
from papergpu.build import load_library
from papergpu.program import SHARED, Fields, Program
from papergpu.syntax_tree import Place

UNWRITTEN, READ_ONLY = 1, 2


def _record(fields: Fields) -> np.dtype[np.void]:
    shaped = [(name, kind) if many == 1 else (name, kind, many) for name, kind, many in fields]
    return np.dtype(shaped, align=True)


INSTRUCTION, COUNT, SAMPLE = map(_record, (layouts.INSTRUCTION, layouts.COUNT, layouts.SAMPLE))
ALLOC = np.dtype([("lo", "u8"), ("hi", "u8"), ("flags", "u4"), ("name", "u4"), ("shadow", "u8")])


def _c_type(name: str, kind: str, many: int) -> Any:
    if name in layouts.POINTERS:
        return ctypes.c_void_p
    one: Any = {"u4": ctypes.c_uint32, "u8": ctypes.c_uint64}.get(kind, ctypes.c_char * 1024)
    return one * many if many > 1 else one


def read_instructions(program: Program) -> npt.NDArray[np.void]:
    """Its instructions as records; nothing is copied."""
    return np.frombuffer(program.instructions, INSTRUCTION)


class Launch(ctypes.Structure):
    """The layout of `Launch` in core/core.hpp."""

    _fields_ = [(one[0], _c_type(*one)) for one in layouts.LAUNCH]


@cache
def load_engine() -> ctypes.CDLL:
    """The engine, whose records are laid out as they are here.

    Raises:
        RuntimeError: one of them has another size there.
    """
    found = load_library()
    sizes = {"Inst": INSTRUCTION.itemsize, "Launch": ctypes.sizeof(Launch),
             "Count": COUNT.itemsize, "Alloc": ALLOC.itemsize,
             "Sample": SAMPLE.itemsize}  # fmt: skip
    for number, (name, here) in enumerate(sizes.items()):
        there = found.papergpu_sizes(number)
        if there != here:
            raise RuntimeError(
                f"papergpu/core/core.hpp: {name} has {there} bytes, but {here} in Python: lay it "
                "out the same in records.py or program.py"
            )
    return found


def take_printed(given: Launch) -> str:
    """What a launch printed, block after block."""
    length = ctypes.c_uint64()
    text = load_engine().papergpu_printed(ctypes.byref(given), ctypes.byref(length))
    found = ctypes.string_at(text, length.value).decode(errors="replace") if length.value else ""
    load_engine().papergpu_forget(ctypes.byref(given))
    return found


# ---- the worst request of each instruction: which lanes accessed which bytes, and what that cost

Samples = npt.NDArray[np.void]
Addresses = npt.NDArray[np.uint64]
DOES = ("load", "store", "atomic")  # `Access` in core/core.hpp
LINE = 128  # bytes


@dataclass(frozen=True)
class Access:
    """The worst request of an instruction of PTX in one space: where its lanes were, and its cost.

    `line` is its line of the PTX, from 1, `place` its source and `form` what it is. `space` is
    global or shared, `does` load, store or atomic, and `size` bytes of a lane. `addresses` are 32,
    None of lanes that took no part: of shared memory bytes from the start of the block's (with
    `rank << 24` more, where lanes access another block of the cluster), of global memory bytes
    from the lowest one rounded down to 128. `passes` are sectors of global memory and wavefronts
    of shared memory, `ideal` those that it need cost.
    """

    line: int
    place: Place | None
    form: str
    space: str
    does: str
    size: int
    block: tuple[int, int, int]
    warp: int
    addresses: tuple[int | None, ...]
    passes: int
    ideal: int

    @property
    def cost_summary(self) -> str:
        """In words: who did it, what it cost, and where its lanes were."""
        lanes = [f"+{at}" for at in self.addresses if at is not None]
        where = " ".join(lanes if len(lanes) < 6 else [*lanes[:4], "...", lanes[-1]])
        return (
            f"{self.does} {self.space}, {self.size} bytes a lane: block {self.block}, warp "
            f"{self.warp}, {self.passes} {'sectors' if self.space == 'global' else 'wavefronts'} "
            f"for {self.ideal}: {len(lanes)} lane{'s' * (len(lanes) > 1)} at {where}"
        )


def worst_accesses(program: Program, samples: Samples) -> list[Access]:
    """The worst request of each instruction of PTX, in order; of global and of shared memory each.

    `samples` are those of a launch of the program, `Result.samples`, or `merge_samples` of several.
    """
    first = _first_instructions(read_instructions(program)["owner"])
    worst: dict[tuple[int, bool], np.void] = {}
    for one in samples:
        key = int(first[one["instruction"]]), bool(one["space"] == SHARED)
        if not program.forms[key[0]]:  # what the engine put there
            continue
        if key not in worst or _rank_sample(one) > _rank_sample(worst[key]):
            worst[key] = one
    return [_make_access(program, start, worst[start, space]) for start, space in sorted(worst)]


def merge_samples(*launches: Samples) -> Samples:
    """Of several launches of one program the worst of each instruction; of equals the first's."""
    found: dict[tuple[int, int], np.void] = {}
    for samples in launches:
        for one in samples:
            key = int(one["instruction"]), int(one["space"] == SHARED)
            if key not in found or _excess_passes(one) > _excess_passes(found[key]):
                found[key] = one
    return np.array([found[key] for key in sorted(found)], SAMPLE)


def relocate_samples(samples: Samples, memory: npt.NDArray[np.void]) -> Samples:
    """The same with addresses of global memory that are no machine's; `memory` are ALLOC.

    They count from the lowest of the request, rounded down to 128 bytes of the memory that it lies
    in. Where lanes are in several pieces of memory, these follow each other as lanes name them.
    """
    found = samples.copy()
    rows = np.flatnonzero(samples["space"] != SHARED)
    memory = np.concatenate((np.zeros(1, ALLOC), memory))  # what is in none is behind this
    at, size, taken = (samples[rows][name] for name in ("addresses", "size", "mask"))
    taken = (taken[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.bool_)
    low = np.where(taken, at, ~np.uint64(0)).min(1, initial=~np.uint64(0))
    high = np.where(taken, at, 0).max(1, initial=0) + size
    holder = np.searchsorted(memory["lo"], low, "right") - 1
    at = np.where(taken, at - _line_base(low, memory["lo"][holder])[:, None], 0)
    for row in np.flatnonzero(high > memory["hi"][holder]):
        mine = taken[row]
        at[row, mine] = _relocate_scattered(
            samples[rows[row]]["addresses"][mine], int(size[row]), memory
        )
    found["addresses"][rows] = at
    return found


def _relocate_scattered(at: Addresses, size: int, memory: npt.NDArray[np.void]) -> Addresses:
    """Addresses in several pieces of memory, or in none of them, from the lowest of each."""
    found, start = at.copy(), 0
    holder = np.searchsorted(memory["lo"], at, "right") - 1
    for number in dict.fromkeys(holder.tolist()):
        mine = holder == number
        inside = int(at[mine].max()) + size <= memory["hi"][number]
        within = at[mine] - _line_base(at[mine].min(), memory["lo"][number if inside else 0])
        found[mine] = within + np.uint64(start)
        start += -(-(int(within.max()) + size) // LINE) * LINE
    return found


def _line_base(low: Any, begin: Any) -> Any:
    """Rounded down to a line of the memory that begins there; both are of uint64.

    Sectors are of addresses: in memory that begins within one, lines are as they lie.
    """
    return low - (low - np.where(begin % 32 == 0, begin, 0)) % np.uint64(LINE)


def _make_access(program: Program, start: int, one: np.void) -> Access:
    place, line = program.find_place(start)
    mask = int(one["mask"])
    x, y, z = (int(at) for at in one["block"])
    return Access(
        line, place, program.forms[start],
        "shared" if one["space"] == SHARED else "global", DOES[one["does"]],
        int(one["size"]), (x, y, z), int(one["warp"]),
        tuple(at if mask >> k & 1 else None for k, at in enumerate(one["addresses"].tolist())),
        int(one["passes"]), int(one["ideal"]),
    )  # fmt: skip


def _excess_passes(one: np.void) -> int:
    return max(0, int(one["passes"]) - int(one["ideal"]))


def _rank_sample(one: np.void) -> tuple[int, ...]:
    """The higher, the worse; of equals the earlier in the grid."""
    x, y, z = (int(at) for at in one["block"])
    return _excess_passes(one), -z, -y, -x, -int(one["warp"])


def _first_instructions(owners: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Of each instruction of the engine the first one of its instruction of PTX."""
    begins = np.concatenate(([True], owners[1:] != owners[:-1]))
    own = np.where(begins, np.arange(len(owners)), 0)
    found: npt.NDArray[np.int64] = np.maximum.accumulate(own)
    return found
