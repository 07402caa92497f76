"""The figures of a view that one would compare, occupancy among them, and LIMITS to them.

Kinds of machine instructions (KINDS) say what of the machine each of them asks for; loads and
stores carry the bytes of a lane: `load global 16`. Names are those of NVIDIA's "CUDA Binary
Utilities", section "Instruction Set Reference".
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warpshelf.look.view import (
    Code,
    Loop,
    Occupancy,
    OccupancyChange,
    Residency,
    View,
    executed_count,
    live_registers,
)

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
KINDS = {*SPACES.values(), *NAMES.values(), "integer", "other"}
PRODUCTS = ("multiply-add", "matrix")


def instruction_kind(opcode: str) -> str:
    """The kind of an instruction by its name with all modifiers, `LDG.E.128` for instance."""
    base, *modifiers = opcode.split(".")
    if base in SPACES:
        return f"{SPACES[base]} {access_width(base, modifiers)}"
    if base in NAMES or FLOATS.fullmatch(base):
        return NAMES.get(base, "multiply-add")
    return "integer" if INTEGER.fullmatch(base) else "other"


def access_width(base: str, modifiers: Sequence[str]) -> int:
    """Bytes of a lane that a load or store moves; of LDSM and STSM, of a whole row of a matrix."""
    if base in ("LDSM", "STSM"):
        return 4 * int(next((one for one in modifiers if one in ("2", "4")), "1"))
    return next((WIDTHS[one] for one in modifiers if one in WIDTHS), 4)


def base_kind(name: str) -> str:
    """A kind without the bytes of a lane."""
    return name.rstrip("0123456789 ")


def opcode_name(text: str) -> str:
    """The name of a machine instruction with all modifiers, behind its guard: `LDG.E.128`."""
    first, *rest = text.split(None, 2)
    return rest[0] if first.startswith("@") else first


def count_kinds(texts: Iterable[str]) -> Counter[str]:
    """How many machine instructions of each kind there are, by their texts."""
    return Counter(instruction_kind(opcode_name(text)) for text in texts)


def count_products(counted: Mapping[str, int]) -> int:
    """Multiply-adds and matrix instructions among instructions by kind."""
    return sum(counted.get(kind, 0) for kind in PRODUCTS)


def main_loop(loops: Sequence[Loop]) -> Loop | None:
    """The loop with the most multiply-adds and matrix instructions, else that with the most loads.

    Of equals the innermost, and of these the first.
    """
    return max(
        loops,
        key=lambda one: (count_products(one["kinds"]), one["loads"], one["depth"], -one["first"]),
        default=None,
    )


def code_figures(one: Code) -> dict[str, float]:
    """Figures of the machine code alone: they hold whatever it is launched on."""
    texts = one["sass"]["text"]
    found: dict[str, float] = {
        "registers": one["registers"],
        "live registers": live_registers(one),
        "spilled bytes": one["spilled_bytes"],
        "shared bytes": one["shared_bytes"],
        "machine instructions": len(texts),
    }
    for name, number in sorted(count_kinds(texts).items()):
        found[f"machine instructions: {name}"] = number
    if loop := main_loop(one["loops"]):
        own = sum(loop["kinds"].values())
        found["main loop: instructions"] = own
        if made := count_products(loop["kinds"]):
            found["main loop: instructions a multiply-add"] = own / made
        found["main loop: loads in flight"] = loop["loads"]
        found["main loop: bytes in flight, of a warp"] = loop["bytes"]
    return found


def executed_figures(view: View) -> dict[str, float]:
    """Figures of what was executed."""
    total = view["total"]
    executed = executed_count(total)
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


def over_ideal(tally: Mapping[str, Any], name: str) -> float:
    """Sectors or wavefronts over the fewest that there could be; 1 where nothing is moved."""
    ideal = tally.get(f"ideal_{name}", 0)
    return tally.get(name, 0) / ideal if ideal else 1.0


WIDE = 16  # bytes of a lane: the widest access that all architectures have


def wide_accesses(view: View) -> float:
    """The share of the bytes of global accesses that lanes move by WIDE or more; 1 of none.

    Lanes count whether they took part or not. Copies in bulk are no accesses of lanes.
    """
    moved = [
        (one["size"], one["size"] * view["ptx"]["run"][one["ptx"]])
        for one in view["accesses"]
        if one["space"] == "global" and one["does"] != "atomic"
    ]
    every = sum(amount for _, amount in moved)
    return sum(amount for size, amount in moved if size >= WIDE) / every if every else 1.0


# What LIMITS of cases.py asks of views, beside what it asks of each binary: how a figure is read,
# whether its limit is a least, and what mends it.
LIMITS: dict[str, tuple[Callable[[View], float | None], bool, str]] = {
    "warps": (
        lambda view: float(view["occupancy"]["warps"]),
        True,
        "use fewer registers or less shared memory, or another block",
    ),
    "sectors_over_ideal": (
        lambda view: over_ideal(view["total"], "sectors"),
        False,
        "let neighbouring lanes access neighbouring addresses",
    ),
    "wavefronts_over_ideal": (
        lambda view: over_ideal(view["total"], "wavefronts"),
        False,
        "pad or swizzle what lies in shared memory",
    ),
    "wide_accesses": (
        wide_accesses,
        True,
        "let the compiler see that addresses are multiples of 16",
    ),
    "instructions_per_fma": (
        lambda view: code_figures(view).get("main loop: instructions a multiply-add"),
        False,
        "look at its main loop by `shelf look`, and unroll or hoist",
    ),
}


def limit_violations(views: Iterable[View], limits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each figure of a view that is not within its limit in LIMITS.

    A key is a kernel's name, with or without template arguments, or "*" for all. Where a view has
    no such figure (no loop with multiply-adds), a limit on it is broken too.
    """
    lines = []
    for view, (key, bounds) in itertools.product(views, limits.items()):
        if key not in ("*", view["kernel"], view["kernel"].split("<")[0]):
            continue
        of = f"{view['kernel']} ({view['variant']}) on {view['arch']}"
        for name in filter(LIMITS.__contains__, bounds):
            (read, least, mend), limit = LIMITS[name], bounds[name]
            value = read(view)
            if value is None:
                said = "is missing, but the limit is"
            elif value < limit if least else value > limit:
                said = f"= {value:.4g} {'is below' if least else 'exceeds'} the limit"
            else:
                continue
            lines.append(f"{of}: {name} {said} {limit:g}; {mend}, or change LIMITS")
    return lines


# Occupancy: how many blocks of a kernel an SM holds at once, and what keeps it from more.
#
# The arithmetic is that of NVIDIA's `cuda_occupancy.h` (12.1, in CUDA's toolkit and Triton's
# wheel), with the largest shared memory that the architecture can carve out of its L1, and a
# kernel that has asked for as much dynamic shared memory as it is launched with. A test holds the
# two together.

WARP = 32  # threads
PARTITIONS = 4  # of an SM, each with its own registers
LIMITERS = ("registers", "shared memory", "threads", "blocks", "barriers")
REGISTERS = 65_536  # of an SM, 32 bits each; also the most of one block
REGISTER_UNIT = 256  # registers that a warp is given at a time
MOST_REGISTERS = 256  # of a thread, as the header has it; 255 can be named
MOST_THREADS = 1024  # of a block
KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """What an SM has room for."""

    threads: int
    blocks: int
    shared: int  # bytes
    reserved: int = KIB  # bytes of each block that are the driver's
    unit: int = 128  # bytes that are given at a time
    barriers: int = 0  # 0 where they limit nothing


# Blocks, barriers and units are those of cuda_occupancy.h, threads and bytes those of the table of
# technical specifications by compute capability in the CUDA C++ Programming Guide.
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
    """What a block takes, bytes of shared memory; ValueError if there is no such block anywhere."""

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


def sm_limits(arch: str) -> SmLimits:
    """What an SM of an architecture, `sm_90a` or `sm_90`, has; ValueError for none of SMS."""
    name = arch.rstrip("af")
    if name not in SMS:
        raise ValueError(f"the SM of {arch} is unknown; known are {', '.join(SMS)}")
    return SMS[name]


def compute_residency(arch: str, use: BlockUsage) -> Residency:
    """What an SM holds of blocks with this use; an unknown architecture raises ValueError."""
    has = sm_limits(arch)
    warps = -(-use.threads // WARP)
    limits = {"threads": has.threads // WARP // warps if use.threads <= MOST_THREADS else 0}
    warp = -(-use.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    # The hardware's check assumes that each partition holds as many of the block's warps.
    assumed = warp * -(-warps // PARTITIONS) * PARTITIONS
    if assumed > REGISTERS or use.registers > MOST_REGISTERS:
        limits["registers"] = 0
    elif warp:
        limits["registers"] = REGISTERS // PARTITIONS // warp * PARTITIONS // warps
    if taken := -(-(use.static + use.dynamic + has.reserved) // has.unit) * has.unit:
        limits["shared memory"] = has.shared // taken
    limits["blocks"] = has.blocks
    if has.barriers and use.barriers:
        limits["barriers"] = has.barriers // use.barriers
    blocks = min(limits.values())
    return {
        "blocks": blocks,
        "warps": blocks * warps,
        "most": has.threads // WARP,
        "limiters": [name for name in LIMITERS if limits.get(name) == blocks],
    }


def occupancy_changes(arch: str, use: BlockUsage) -> Iterator[OccupancyChange]:
    """What an SM would hold with other uses.

    They are the next counts of registers and of bytes at which its blocks change, down and up, and
    blocks of half and of twice the threads.
    """
    has = sm_limits(arch)
    now = compute_residency(arch, use)["blocks"]
    shared = use.static + use.dynamic
    # Bytes are given by the unit, so only the last byte of one and the first of the next matter.
    edge = shared + (-(shared + has.reserved) % has.unit)
    for unit, key, counts in (
        ("registers", "registers", range(use.registers - 1, 0, -1)),
        ("registers", "registers", range(use.registers + 1, MOST_REGISTERS)),
        ("bytes of shared memory", "dynamic", range(edge - has.unit, -1, -has.unit)),
        ("bytes of shared memory", "dynamic", range(edge + 1, has.shared + 2, has.unit)),
        ("threads", "threads", (use.threads // 2,)),
        ("threads", "threads", (use.threads * 2,)),
    ):
        for count in counts:
            if key == "threads" and not WARP <= count <= MOST_THREADS:
                continue
            more = {"static": 0, key: count} if key == "dynamic" else {key: count}
            then = compute_residency(arch, replace(use, **more))
            if key == "threads" or then["blocks"] != now:
                yield {"change": f"{count:,} {unit}", **then}
                break


def describe_occupancy(arch: str, use: BlockUsage) -> Occupancy:
    """What an SM holds, and what would change it."""
    return {**compute_residency(arch, use), "changes": list(occupancy_changes(arch, use))}
