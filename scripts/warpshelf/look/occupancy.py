"""Occupancy: how many blocks of a kernel an SM holds at once, and what keeps it from more.

The arithmetic is that of NVIDIA's `cuda_occupancy.h` (12.1, in CUDA's toolkit and Triton's wheel),
with the largest shared memory that the architecture can carve out of its L1, and a kernel that has
asked for as much dynamic shared memory as it is launched with. A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

WARP = 32  # threads
PARTITIONS = 4  # of an SM, each with its own registers
REGISTERS = 65_536  # of an SM, 32 bits each; also the most of one block
REGISTER_UNIT = 256  # registers that a warp is given at a time
MOST_REGISTERS = 256  # of a thread, as the header has it; 255 can be named
MOST_THREADS = 1024  # of a block
KIB = 1024


@dataclass(frozen=True)
class Sm:
    """What an SM has room for; bytes of shared memory.

    Blocks, barriers and units are those of cuda_occupancy.h, threads and bytes those of the table
    of technical specifications by compute capability in the CUDA C++ Programming Guide
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications).
    `reserved` bytes of each block are the driver's. `barriers` is 0 where they limit nothing.
    """

    threads: int
    blocks: int
    shared: int
    reserved: int = KIB
    unit: int = 128
    barriers: int = 0


SMS = {
    "sm_75": Sm(1024, 16, 64 * KIB, reserved=0, unit=256),
    "sm_80": Sm(2048, 32, 164 * KIB),
    "sm_86": Sm(1536, 16, 100 * KIB),
    "sm_87": Sm(1536, 16, 164 * KIB),
    "sm_89": Sm(1536, 24, 100 * KIB),
    "sm_90": Sm(2048, 32, 228 * KIB, barriers=64),
    "sm_100": Sm(2048, 32, 228 * KIB, barriers=64),
    "sm_103": Sm(2048, 32, 228 * KIB, barriers=64),
    "sm_120": Sm(1536, 24, 100 * KIB, barriers=24),
}


@dataclass(frozen=True)
class Use:
    """What a block takes: registers of a thread, threads, bytes of shared memory, barriers.

    Raises:
        ValueError: there is no such block, at any size of an SM.
    """

    registers: int
    threads: int
    static: int = 0
    dynamic: int = 0
    barriers: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"a block of {self.threads} threads; it has at least 1")
        for name in ("registers", "static", "dynamic", "barriers"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)} is less than 0")

    @property
    def warps(self) -> int:
        """Of a block; the last one may be in part."""
        return -(-self.threads // WARP)


@dataclass(frozen=True)
class Resident:
    """Blocks and warps that an SM holds at once, the most warps that it could, and all limiters.

    With no blocks at all the limiters are what one block exceeds.
    """

    blocks: int
    warps: int
    most: int
    limiters: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as RESIDENT of look/view.py has it."""
        return {**asdict(self), "limiters": list(self.limiters)}


@dataclass(frozen=True)
class Change:
    """Another use, in words, and what the SM would then hold."""

    change: str
    resident: Resident

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as OCCUPANCY of look/view.py has it."""
        return {"change": self.change, **self.resident.as_dict()}


def sm(arch: str) -> Sm:
    """What an SM of an architecture has; `sm_90a` and `sm_100f` are `sm_90` and `sm_100`.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    name = arch.rstrip("af")
    if name not in SMS:
        raise ValueError(f"nothing is known of {arch}'s SM; known are {', '.join(SMS)}")
    return SMS[name]


def resident(arch: str, use: Use) -> Resident:
    """What an SM holds of blocks with this use.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    has = sm(arch)
    limits = {
        "registers": _by_registers(use),
        "shared memory": _by_shared(has, use),
        "threads": has.threads // WARP // use.warps if use.threads <= MOST_THREADS else 0,
        "blocks": has.blocks,
        "barriers": has.barriers // use.barriers if has.barriers and use.barriers else None,
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    blocks = min(known.values())
    limiters = tuple(name for name, limit in known.items() if limit == blocks)
    return Resident(blocks, blocks * use.warps, has.threads // WARP, limiters)


def _by_registers(use: Use) -> int | None:
    """Blocks for which there are registers; None if they use none."""
    warp = -(-use.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    # The hardware's check assumes that each partition holds as many of the block's warps.
    assumed = warp * (-(-use.warps // PARTITIONS) * PARTITIONS)
    if assumed > REGISTERS or use.registers > MOST_REGISTERS:
        return 0
    if not warp:
        return None
    return REGISTERS // PARTITIONS // warp * PARTITIONS // use.warps


def _by_shared(has: Sm, use: Use) -> int | None:
    """Blocks for which there is shared memory; None if they use none."""
    taken = -(-(use.static + use.dynamic + has.reserved) // has.unit) * has.unit
    return has.shared // taken if taken else None


def changes(arch: str, use: Use) -> tuple[Change, ...]:
    """What an SM would hold with other uses.

    They are the next counts of registers and of bytes at which its blocks change, down and up, and
    blocks of half and of twice the threads.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    now = resident(arch, use).blocks

    def first(uses: Iterable[Use]) -> Use | None:
        return next((one for one in uses if resident(arch, one).blocks != now), None)

    shared = use.static + use.dynamic
    unit = sm(arch).unit

    def bytes_of(count: int) -> Use:
        return replace(use, static=0, dynamic=count)

    # Bytes are given by the unit, so only the last byte of one and the first of the next matter.
    edge = shared + (-(shared + sm(arch).reserved) % unit)
    fewer = (bytes_of(count) for count in range(edge - unit, -1, -unit))
    more = (bytes_of(count + 1) for count in range(edge, sm(arch).shared + 1, unit))
    registers = range(use.registers + 1, MOST_REGISTERS)
    found = [
        _change(arch, "registers", lambda one: one.registers, first(
            replace(use, registers=count) for count in range(use.registers - 1, 0, -1)
        )),
        _change(arch, "registers", lambda one: one.registers, first(
            replace(use, registers=count) for count in registers
        )),
        _change(arch, "bytes of shared memory", lambda one: one.dynamic, first(fewer)),
        _change(arch, "bytes of shared memory", lambda one: one.dynamic, first(more)),
    ]  # fmt: skip
    for threads in (use.threads // 2, use.threads * 2):
        if WARP <= threads <= MOST_THREADS:
            other = replace(use, threads=threads)
            found.append(_change(arch, "threads", lambda one: one.threads, other))
    return tuple(one for one in found if one is not None)


def _change(arch: str, unit: str, of: Callable[[Use], int], use: Use | None) -> Change | None:
    return Change(f"{of(use):,} {unit}", resident(arch, use)) if use is not None else None


def occupancy(arch: str, use: Use) -> dict[str, Any]:
    """What an SM holds, and what would change it, as OCCUPANCY of look/view.py has it.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    others = [one.as_dict() for one in changes(arch, use)]
    return {**resident(arch, use).as_dict(), "changes": others}
