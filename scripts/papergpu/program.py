"""A decoded kernel: what the engine runs, with nothing left to look up; and how that is laid out.

Plain bytes and numbers, so that Python in a browser decodes as well, which has no numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from papergpu.syntax_tree import Place

Three = tuple[int, int, int]
# Records of core/core.hpp: of each field its name, its type as numpy writes it, and how many.
Fields = Sequence[tuple[str, str, int]]
INSTRUCTION: Fields = [
    ("run", "u8", 1), *((name, "u4", 1) for name in "dabce"), ("guard", "i4", 1), ("imm", "i8", 1),
    *((name, "u4", 1) for name in ("list", "count", "flags")),
    *((name, "u1", 1) for name in ("negate", "kind", "space", "base")),
    ("place", "u4", 1), ("owner", "u4", 1),
]  # fmt: skip
COUNT: Fields = [
    (name, "u8", 1) for name in ("run", "lanes", "requests", "sectors", "ideal_sectors",
                                 "wavefronts", "ideal_wavefronts", "bytes", "operations",
                                 "shared_requests")
]  # fmt: skip
SAMPLE: Fields = [
    ("addresses", "u8", 32), *((name, "u4", 1) for name in ("mask", "size", "passes", "ideal")),
    ("block", "u4", 3), ("warp", "u4", 1), ("instruction", "u4", 1), ("space", "u1", 1),
    ("does", "u1", 1), ("unused", "u1", 2),
]  # fmt: skip
POINTERS = ("code", "lists", "constants", "allocs", "counts", "params", "globals", "consts",
            "specials", "shared_constants", "shadow", "samples")  # fmt: skip
NUMBERS = ("ncode", "nconstants", "nregs", "shared", "local", "nallocs", "nspecials",
           "nshared_constants", "nparams", "nconsts")  # fmt: skip
SETTINGS = ("static_shared", "dynamic_shared", "sm", "tensor", "checks", "profile",
            "cooperative", "schedule", "threads", "granule", "global_granule",
            "perturb", "order", "reserved", "nsamples", "fatal")  # fmt: skip
LAUNCH: Fields = [
    *((name, "u8", 1) for name in POINTERS),
    *((name, "u4", 1) for name in NUMBERS),
    *((name, "u4", 3) for name in ("grid", "block", "cluster")),
    *((name, "u4", 1) for name in SETTINGS),
    *((name, "u8", 1) for name in ("seed", "limit", "steps")),
    *((name, "u4", 1) for name in ("fault_place", "fault_pc")),
    *((name, "u4", 3) for name in ("fault_block", "fault_thread")),
    ("error", "S1024", 1),
]


def lay_out(fields: Fields) -> dict[str, int]:
    """The byte of each field of a record, and under "" the size of all."""
    found, at, widest = {}, 0, 1
    for name, kind, many in fields:
        size = int(kind[1:])
        by = 1 if kind[0] == "S" else size
        found[name] = at = -(-at // by) * by
        at, widest = at + size * many, max(widest, by)
    return {**found, "": -(-at // widest) * widest}


PLACE, STRIDE = (lay_out(INSTRUCTION)[name] for name in ("place", ""))
PLAIN, BRANCH, TABLE, EXIT, BARRIER, SYNC, RETRY, CLUSTER, MEET = range(9)
GENERIC, SHARED, LOCAL, PARAM, CONST, GLOBAL = range(6)
NONE, NARROW, WIDE = range(3)
# Bytes of a register in a warp: a predicate, up to 32 bits, 64, 128.
BIT, WORD, LONG, QUAD = 4, 128, 256, 512
# The registers that a thread only reads and that are set when its block begins, in the order of
# `Special` in core/turn.cpp.
SPECIALS = (
    "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y",
    "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%nwarpid",
    "%lanemask_lt", "%lanemask_le", "%lanemask_eq", "%lanemask_gt", "%lanemask_ge",
    "%dynamic_smem_size", "%total_smem_size", "%smid", "%nsmid", "%cluster_ctarank",
    "%cluster_nctarank", "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z",
    "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%clusterid.x",
    "%clusterid.y", "%clusterid.z", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z",
    "%is_explicit_cluster",
)  # fmt: skip


@dataclass
class Program:
    """A kernel as the engine takes it, save for the addresses of its handlers.

    `instructions` are laid out as INSTRUCTION, `lists` and the like are numbers of 32 bits.
    `names[k]` is the handler of instruction k, `parameters` are (name, byte, bytes), `constants`
    the bytes that stand before a warp's other registers, `specials` pairs of a number of `SPECIALS`
    and a register, `shared_constants` the registers of constants that are addresses of shared
    memory, plus 1 where they are of 64 bits. Sizes are in bytes.
    """

    name: str
    target: str
    instructions: bytes
    names: list[str]
    lists: array[int]
    constants: bytes
    registers: int
    specials: array[int]
    shared_constants: array[int]
    parameters: list[tuple[str, int, int]]
    shared: int
    local: int
    places: list[tuple[Place | None, int]]
    granule: int = 4
    global_granule: int = 4
    tensor: bool = False
    reserved: int = 0  # 1 + the byte of shared memory where groups of several warps meet
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    forms: list[str] = field(default_factory=list)
    # Products and sums that may be one: both numbers, the handler for both, and its registers.
    fused: list[tuple[int, int, str, int, int, int]] = field(default_factory=list)
    # What PTX calls registers: name, type, byte, and the instructions between which it is there.
    named: list[tuple[str, str, int, int, int]] = field(default_factory=list)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return max((at + size for _, at, size in self.parameters), default=0)

    def find_place(self, pc: int) -> tuple[Place | None, int]:
        """The place of an instruction in its source, where that is known, and its line of PTX."""
        at = pc * STRIDE + PLACE
        return self.places[int.from_bytes(self.instructions[at : at + 4], "little")]

    def locate_instruction(self, pc: int) -> str:
        """Instruction `pc` for a reader: `file.py:12`, or its line of PTX where that is unknown."""
        place, line = self.find_place(pc)
        if place is None or not place.line:
            return f"PTX line {line}"
        outer, depth = place, 0
        while outer.caller is not None and depth < 64:
            outer, depth = outer.caller, depth + 1
        said = f"{_file_name(place.file)}:{place.line}"
        if outer.file != place.file:
            said += f" (from {_file_name(outer.file)}:{outer.line})"
        return said

    def number_launch(
        self, grid: Three, block: Three, cluster: Three, dynamic: int, own: int
    ) -> dict[str, int | Three]:
        """What a launch says to the engine beside its settings, its memory and its pointers.

        `own` are the bytes of its module's variables, `dynamic` those of dynamic shared memory.
        """
        return {
            "ncode": len(self.names), "nconstants": len(self.constants), "nregs": self.registers,
            "local": self.local, "shared": max(16, self.shared + dynamic),
            "nspecials": len(self.specials) // 2, "nshared_constants": len(self.shared_constants),
            "nparams": self.parameter_bytes, "nconsts": own, "grid": grid, "block": block,
            "cluster": cluster, "static_shared": self.shared, "dynamic_shared": dynamic,
            "sm": int("".join(filter(str.isdigit, self.target))),
            "tensor": 128 * 512 * 4 if self.tensor else 0, "granule": self.granule,
            "global_granule": self.global_granule, "reserved": self.reserved,
        }  # fmt: skip

    def lay_parameters(self, parameters: Sequence[bytes]) -> bytes:
        """The bytes of all parameters, each at its place."""
        held = bytearray(max(64, self.parameter_bytes))
        for (_, at, size), value in zip(self.parameters, parameters, strict=True):
            held[at : at + size] = value.ljust(size, b"\0")[:size]
        return bytes(held)


def _file_name(file: str) -> str:
    return file.rpartition("/")[2]


def check_launch(
    program: Program, grid: Three, block: Three, parameters: Sequence[bytes], cluster: Three
) -> None:
    """Refuse a launch that no GPU would begin."""
    threads, name, count = block[0] * block[1] * block[2], program.name, len(program.parameters)
    limit, wanted = (program.directives.get(one) for one in ("maxntid", "reqntid"))
    for refused, why in (
        (min(*grid, *block) < 1, f": grid {grid} and block {block} must be at least 1"),
        (threads > 1024 or block[2] > 64,
         f": a block of {block} has more than 1024 threads, or 64 in z"),
        (grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535,
         f": a grid of {grid} exceeds 2**31-1, 65535 and 65535"),
        (any(g % c for g, c in zip(grid, cluster, strict=True)),
         f": a grid of {grid} is not a multiple of its cluster {cluster}"),
        (len(parameters) != count, f" takes {count} parameters but got {len(parameters)}"),
        (limit and threads > prod(limit),
         f": {threads} threads exceed its .maxntid {limit}"),
        (wanted and tuple((*wanted, 1, 1)[:3]) != tuple(block),
         f": a block of {block} is not its .reqntid {wanted}"),
    ):  # fmt: skip
        if refused:
            raise ValueError(f"{name}{why}")
