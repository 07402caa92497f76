"""The figures of a view that one would compare, occupancy among them, and LIMITS to them.

Kinds of machine instructions say what of the machine each of them asks for. They are those of
`KINDS`; loads and stores carry the bytes of a lane: `load global 16`. Names are those of NVIDIA's
"CUDA Binary Utilities", section "Instruction Set Reference".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from warpshelf.look.view import View

WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32, "ENL2": 32}
SPACES = {
    "LDG": "load global", "STG": "store global", "LDS": "load shared", "STS": "store shared",
    "LDL": "load local", "STL": "store local", "LD": "load generic", "ST": "store generic",
    "LDSM": "load shared", "STSM": "store shared", "LDGSTS": "copy async",
}  # fmt: skip
NAMES: dict[str, str] = {
    name: kind
    for kind, names in {
        "multiply-add": "FFMA FFMA2 FADD FADD2 FMUL FMUL2 FFMA32I FADD32I FMUL32I HFMA2 HADD2 "
        "HMUL2 HADD2_32I HFMA2_32I HMUL2_32I DFMA DADD DMUL",
        "matrix": "HMMA IMMA DMMA QMMA BMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA "
        "UTCOMMA MOVM",
        "tensor memory": "LDT LDTM STT STTM UTCCP UTCSHIFT UTCATOMSWS UTCBAR",
        "copy async": "UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH "
        "LDGDEPBAR DEPBAR ARRIVES LDGSTSBAR",
        "atomic": "ATOM ATOMG ATOMS RED REDG REDAS UATOMS",
        "shuffle": "SHFL REDUX CREDUX UREDUX VOTE VOTEU MATCH ELECT",
        "special": "MUFU",
        "conversion": "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND UF2F UF2FP UF2I UI2F UI2FP UFRND",
        "compare": "FSETP FSET FMNMX FMNMX3 FSEL FCHK HSETP2 HSET2 HMNMX2 VHMNMX DSETP DMNMX "
        "UFSETP UFSEL UFMNMX",
        "constant": "LDC ULDC LDCU S2R S2UR CS2R CS2UR LEPC",
        "barrier": "BAR UCGABAR_ARV UCGABAR_WAIT CGAERRBAR SYNCS MEMBAR FENCE ERRBAR WARPGROUP "
        "WARPSYNC ACQBULK B2R R2B",
        "control": "BRA BRX BRXU JMP JMX JMXU UBRA CALL RET EXIT BSSY BSYNC BREAK KILL NANOSLEEP "
        "YIELD BMOV BPT NOP RPCMOV PREEXIT PMTRIG COLLECTIVE ENDCOLLECTIVE CCTL CCTLL "
        "CCTLT USETMAXREG RTT",
    }.items()
    for name in names.split()
}  # fmt: skip
INTEGER = re.compile(
    r"U?(?:I(?:ABS|ADD|MAD|MUL|NEG|DP|SCADD|SETP|MNMX)|LEA|LOP|SHF|SHL|SHR|SEL|PRMT|BMSK|BREV|"
    r"FLO|POPC|SGXT|MOV|VABSDIFF|VIADD|VIMNMX|PSETP|PLOP|P2R|R2P|R2UR|P2UR|UR2UP)\w*"
)
FLOATS = re.compile(r"U(?:FADD|FMUL|FFMA)\w*")
KINDS = (
    "multiply-add", "matrix", "tensor memory", "load global", "store global", "load shared",
    "store shared", "load local", "store local", "load generic", "store generic", "copy async",
    "atomic", "shuffle", "special", "conversion", "compare", "integer", "constant", "barrier",
    "control", "other",
)  # fmt: skip


def instruction_kind(opcode: str) -> str:
    """The kind of an instruction by its name with all modifiers, `LDG.E.128` for instance.

    What is of no kind that is known is `other`.
    """
    base, *modifiers = opcode.split(".")
    if base in SPACES:
        return f"{SPACES[base]} {access_width(base, modifiers)}"
    if found := NAMES.get(base):
        return found
    if FLOATS.fullmatch(base):
        return "multiply-add"
    return "integer" if INTEGER.fullmatch(base) else "other"


def access_width(base: str, modifiers: list[str]) -> int:
    """Bytes of a lane that a load or store moves; of LDSM and STSM, of a whole row of a matrix."""
    if base in ("LDSM", "STSM"):
        return 4 * int(next((one for one in modifiers if one in ("2", "4")), "1"))
    return next((WIDTHS[one] for one in modifiers if one in WIDTHS), 4)


def base_kind(name: str) -> str:
    """A kind without the bytes of a lane."""
    return name.rstrip("0123456789 ")


PRODUCTS = ("multiply-add", "matrix")
WIDE = 16  # bytes of a lane: the widest access that all architectures have


def count_kinds(texts: Iterable[str]) -> Counter[str]:
    """How many machine instructions of each kind there are, by their texts."""
    found: Counter[str] = Counter()
    for text in texts:
        words = text.split(None, 2)
        found[instruction_kind(words[1] if words[0].startswith("@") else words[0])] += 1
    return found


def count_products(counted: dict[str, int]) -> int:
    """Multiply-adds and matrix instructions among instructions by kind."""
    return sum(number for name, number in counted.items() if base_kind(name) in PRODUCTS)


def main_loop(loops: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The loop with the most multiply-adds and matrix instructions, else that with the most loads.

    Of equals the innermost, and of these the first.
    """
    if not loops:
        return None
    return max(
        loops,
        key=lambda one: (count_products(one["kinds"]), one["loads"], one["depth"], -one["first"]),
    )


def code_figures(view: View) -> dict[str, float]:
    """Figures of the machine code alone: they hold whatever it is launched on."""
    found: dict[str, float] = {
        "registers": view["registers"],
        "live registers": max(view["sass"]["live"], default=0),
        "spilled bytes": view["spilled_bytes"],
        "shared bytes": view["shared_bytes"],
        "machine instructions": len(view["sass"]["text"]),
    }
    for name, number in sorted(count_kinds(view["sass"]["text"]).items()):
        found[f"machine instructions: {name}"] = number
    return found | loop_figures(main_loop(view["loops"]))


def loop_figures(loop: dict[str, Any] | None) -> dict[str, float]:
    """Figures of the main loop; none where there is no loop."""
    if loop is None:
        return {}
    own = sum(loop["kinds"].values())
    found: dict[str, float] = {"main loop: instructions": own}
    if made := count_products(loop["kinds"]):
        found["main loop: instructions a multiply-add"] = own / made
    return found | {
        "main loop: loads in flight": loop["loads"],
        "main loop: bytes in flight, of a warp": loop["bytes"],
    }


def executed(view: View) -> dict[str, float]:
    """Figures of what was executed."""
    total = view["total"]
    executed = sum(total["classes"].values())
    found: dict[str, float] = {
        "warp instructions": executed,
        "lanes of 32": total.get("lanes", 0) / executed if executed else 0,
    }
    for name in ("sectors", "wavefronts"):
        if total.get(f"ideal_{name}"):
            found[name] = total[name]
            found[f"{name} over ideal"] = over_ideal(total, name)
    found["warps resident"] = view["occupancy"]["warps"]
    found["bound, SM cycles"] = view["bound"]["cycles"]
    return found


def over_ideal(tally: dict[str, Any], name: str) -> float:
    """Sectors or wavefronts over the fewest that there could be; 1 where nothing is moved."""
    ideal = tally.get(f"ideal_{name}", 0)
    return tally.get(name, 0) / ideal if ideal else 1.0


def wide_accesses(view: View) -> float:
    """The share of the bytes of global accesses that lanes move by 16 or more at a time; 1 of none.

    Bytes are those of all lanes of an access, whether they took part or not. Copies in bulk are no
    accesses of lanes.
    """
    wide = every = 0
    for one in view["accesses"]:
        if one["space"] == "global" and one["does"] != "atomic":
            moved = one["size"] * view["ptx"]["run"][one["ptx"]]
            every += moved
            wide += moved if one["size"] >= WIDE else 0
    return wide / every if every else 1.0


# What LIMITS of cases.py asks of views, beside what it asks of each binary.


class Limit(NamedTuple):
    """How a figure is read from a view, whether it is a least or a most, and what mends it."""

    read: Callable[[View], float | None]
    least: bool
    mend: str


def _instructions_per_fma(view: View) -> float | None:
    return loop_figures(main_loop(view["loops"])).get("main loop: instructions a multiply-add")


LIMITS: dict[str, Limit] = {
    "warps": Limit(
        lambda view: float(view["occupancy"]["warps"]),
        True,
        "use fewer registers or less shared memory, or another block",
    ),
    "sectors_over_ideal": Limit(
        lambda view: over_ideal(view["total"], "sectors"),
        False,
        "let neighbouring lanes access neighbouring addresses",
    ),
    "wavefronts_over_ideal": Limit(
        lambda view: over_ideal(view["total"], "wavefronts"),
        False,
        "pad or swizzle what lies in shared memory",
    ),
    "wide_accesses": Limit(
        wide_accesses, True, "let the compiler see that addresses are multiples of 16"
    ),
    "instructions_per_fma": Limit(
        _instructions_per_fma, False, "look at its main loop by `shelf look`, and unroll or hoist"
    ),
}


def limit_violations(views: Iterable[View], limits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each figure of a view that is not within its limit in LIMITS.

    A key is a kernel's name, with or without template arguments, or "*" for all. Where a view has
    no such figure (no loop with multiply-adds), a limit on it is broken too.
    """
    lines = []
    for view in views:
        for key, bounds in limits.items():
            if key not in ("*", view["kernel"], view["kernel"].split("<")[0]):
                continue
            for name, limit in bounds.items():
                if name in LIMITS and (said := _limit_violation(view, name, limit)):
                    lines.append(said)
    return lines


def _limit_violation(view: View, name: str, limit: float) -> str | None:
    read, least, mend = LIMITS[name]
    value = read(view)
    if value is not None and (value >= limit if least else value <= limit):
        return None
    verb = "is below" if least else "exceeds"
    said = "it has none, where the limit is" if value is None else f"= {value:.4g} {verb} the limit"
    return (
        f"{view['kernel']} ({view['variant']}) on {view['arch']}: {name} {said} {limit:g}; "
        f"{mend}, or change LIMITS"
    )


# Occupancy: how many blocks of a kernel an SM holds at once, and what keeps it from more.
#
# The arithmetic is that of NVIDIA's `cuda_occupancy.h` (12.1, in CUDA's toolkit and Triton's
# wheel), with the largest shared memory that the architecture can carve out of its L1, and a
# kernel that has asked for as much dynamic shared memory as it is launched with. A test holds the
# two together.

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
