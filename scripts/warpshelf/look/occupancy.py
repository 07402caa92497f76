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
class SmLimits:
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
    "sm_75": SmLimits(1024, 16, 64 * KIB, reserved=0, unit=256),
    "sm_80": SmLimits(2048, 32, 164 * KIB),
    "sm_86": SmLimits(1536, 16, 100 * KIB),
    "sm_87": SmLimits(1536, 16, 164 * KIB),
    "sm_89": SmLimits(1536, 24, 100 * KIB),
    "sm_90": SmLimits(2048, 32, 228 * KIB, barriers=64),
    "sm_100": SmLimits(2048, 32, 228 * KIB, barriers=64),
    "sm_103": SmLimits(2048, 32, 228 * KIB, barriers=64),
    "sm_120": SmLimits(1536, 24, 100 * KIB, barriers=24),
}


@dataclass(frozen=True)
class BlockUsage:
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
class Residency:
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
class OccupancyChange:
    """Another use, in words, and what the SM would then hold."""

    change: str
    resident: Residency

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as OCCUPANCY of look/view.py has it."""
        return {"change": self.change, **self.resident.as_dict()}


def sm_limits(arch: str) -> SmLimits:
    """What an SM of an architecture has; `sm_90a` and `sm_100f` are `sm_90` and `sm_100`.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    name = arch.rstrip("af")
    if name not in SMS:
        raise ValueError(f"nothing is known of {arch}'s SM; known are {', '.join(SMS)}")
    return SMS[name]


def compute_residency(arch: str, use: BlockUsage) -> Residency:
    """What an SM holds of blocks with this use.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    has = sm_limits(arch)
    limits = {
        "registers": _blocks_by_registers(use),
        "shared memory": _blocks_by_shared(has, use),
        "threads": has.threads // WARP // use.warps if use.threads <= MOST_THREADS else 0,
        "blocks": has.blocks,
        "barriers": has.barriers // use.barriers if has.barriers and use.barriers else None,
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    blocks = min(known.values())
    limiters = tuple(name for name, limit in known.items() if limit == blocks)
    return Residency(blocks, blocks * use.warps, has.threads // WARP, limiters)


def _blocks_by_registers(use: BlockUsage) -> int | None:
    """Blocks for which there are registers; None if they use none."""
    warp = -(-use.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    # The hardware's check assumes that each partition holds as many of the block's warps.
    assumed = warp * (-(-use.warps // PARTITIONS) * PARTITIONS)
    if assumed > REGISTERS or use.registers > MOST_REGISTERS:
        return 0
    if not warp:
        return None
    return REGISTERS // PARTITIONS // warp * PARTITIONS // use.warps


def _blocks_by_shared(has: SmLimits, use: BlockUsage) -> int | None:
    """Blocks for which there is shared memory; None if they use none."""
    taken = -(-(use.static + use.dynamic + has.reserved) // has.unit) * has.unit
    return has.shared // taken if taken else None


def occupancy_changes(arch: str, use: BlockUsage) -> tuple[OccupancyChange, ...]:
    """What an SM would hold with other uses.

    They are the next counts of registers and of bytes at which its blocks change, down and up, and
    blocks of half and of twice the threads.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    now = compute_residency(arch, use).blocks

    def first_change(uses: Iterable[BlockUsage]) -> BlockUsage | None:
        return next((one for one in uses if compute_residency(arch, one).blocks != now), None)

    shared = use.static + use.dynamic
    unit = sm_limits(arch).unit

    def with_shared(count: int) -> BlockUsage:
        return replace(use, static=0, dynamic=count)

    # Bytes are given by the unit, so only the last byte of one and the first of the next matter.
    edge = shared + (-(shared + sm_limits(arch).reserved) % unit)
    fewer = (with_shared(count) for count in range(edge - unit, -1, -unit))
    more = (with_shared(count + 1) for count in range(edge, sm_limits(arch).shared + 1, unit))
    registers = range(use.registers + 1, MOST_REGISTERS)
    found = [
        _make_change(arch, "registers", lambda one: one.registers, first_change(
            replace(use, registers=count) for count in range(use.registers - 1, 0, -1)
        )),
        _make_change(arch, "registers", lambda one: one.registers, first_change(
            replace(use, registers=count) for count in registers
        )),
        _make_change(arch, "bytes of shared memory", lambda one: one.dynamic, first_change(fewer)),
        _make_change(arch, "bytes of shared memory", lambda one: one.dynamic, first_change(more)),
    ]  # fmt: skip
    for threads in (use.threads // 2, use.threads * 2):
        if WARP <= threads <= MOST_THREADS:
            other = replace(use, threads=threads)
            found.append(_make_change(arch, "threads", lambda one: one.threads, other))
    return tuple(one for one in found if one is not None)


def _make_change(
    arch: str, unit: str, of: Callable[[BlockUsage], int], use: BlockUsage | None
) -> OccupancyChange | None:
    return (
        OccupancyChange(f"{of(use):,} {unit}", compute_residency(arch, use))
        if use is not None
        else None
    )


def describe_occupancy(arch: str, use: BlockUsage) -> dict[str, Any]:
    """What an SM holds, and what would change it, as OCCUPANCY of look/view.py has it.

    Raises:
        ValueError: the architecture is none of SMS.
    """
    others = [one.as_dict() for one in occupancy_changes(arch, use)]
    return {**compute_residency(arch, use).as_dict(), "changes": others}
