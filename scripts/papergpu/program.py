"""A decoded kernel: what the engine runs, with nothing left to look up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from papergpu.syntax_tree import Place

# The layout of `Inst` in core/core.hpp.
INSTRUCTION = np.dtype(
    [("run", "u8"), ("d", "u4"), ("a", "u4"), ("b", "u4"), ("c", "u4"), ("e", "u4"),
     ("guard", "i4"), ("imm", "i8"), ("list", "u4"), ("count", "u4"), ("flags", "u4"),
     ("negate", "u1"), ("kind", "u1"), ("space", "u1"), ("base", "u1"), ("place", "u4"),
     ("owner", "u4")]
)  # fmt: skip
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

    `names[k]` is the handler of instruction k, `parameters` are (name, byte, bytes), `constants`
    the bytes that stand before a warp's other registers, `specials` pairs of a number of `SPECIALS`
    and a register, `shared_constants` the registers of constants that are addresses of shared
    memory, plus 1 where they are of 64 bits. Sizes are in bytes.
    """

    name: str
    target: str
    instructions: npt.NDArray[np.void]
    names: list[str]
    lists: npt.NDArray[np.uint32]
    constants: bytes
    registers: int
    specials: npt.NDArray[np.uint32]
    shared_constants: npt.NDArray[np.uint32]
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

    def locate_instruction(self, pc: int) -> str:
        """Instruction `pc` for a reader: `file.py:12`, or its line of PTX where that is unknown."""
        place, line = self.places[int(self.instructions[pc]["place"])]
        if place is None or not place.line:
            return f"PTX line {line}"
        outer, depth = place, 0
        while outer.caller is not None and depth < 64:
            outer, depth = outer.caller, depth + 1
        said = f"{_file_name(place.file)}:{place.line}"
        if outer.file != place.file:
            said += f" (from {_file_name(outer.file)}:{outer.line})"
        return said


def _file_name(file: str) -> str:
    return file.rpartition("/")[2]
