"""What executed PTX leaves an SM to do, and the loops of the machine code that does it.

Every count is one that machine code cannot go below. These are the rules:

- An instruction counts by the lanes that took part, 32 of them for one instruction of a warp: where
  a branch parted a warp, the assembler may run both sides at once.
- A multiply and an add that are not told how to round (`.rn` and the like) may become one
  multiply-add, so of both only the larger number counts. Multiply-adds count all. So does a
  multiply or an add that is told. Minima, comparisons, negations and conversions do not count.
- Integers do not count (addresses, loops and predicates are made of them), nor do moves, votes,
  hints, and waiting for anything but a barrier of the block.
- A special function counts once: exponent, logarithm, sine, cosine, tangent, reciprocal, roots. A
  root and a reciprocal may become one, so of both the larger number counts. A division does not
  count: two by the same number share a reciprocal.
- A matrix instruction counts by its multiply-adds, those of zeros in a sparse one left out.
- A load or store of shared memory counts by its wavefronts; of global memory by its requests, by
  its different bytes, 128 for a wavefront, or by its sectors, 16 for the four lines whose tags are
  looked up at once, whichever is most. Neighbours may become one access of 16 bytes a lane, so a
  narrower one counts for its share of 16 bytes; of 32 bytes in global memory from sm_100 on. Where
  machine code is at hand (`assign_widths`), for its share of the access that it may have become.
- An atomic counts by its requests: those of one warp to one address may be added up first.
- An asynchronous copy, in bulk or by lanes, counts by its bytes in shared memory, 128 for a
  wavefront.
- Local memory does not count: it may become registers. Parameters and constants are operands.

What these suppose: that PTX is what an optimising compiler left, with nothing in a loop that need
not be there, nothing loaded twice and nothing unused; an assembler has little of that left to do.

Which loads and stores of PTX the assembler may have made into one is told from machine code. An
access that stands in machine code once for each copy of its block is not merged, and as wide as it
is there. Any other may be part of the widest access of its kind. How many copies there are (the
assembler unrolls loops) is seen at instructions that run as often and become one each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from warpshelf.look.binary import Instruction, MachineCode, decode_control
from warpshelf.look.figures import access_width, base_kind, instruction_kind

LANES = 32
WIDEST = 16  # bytes of a lane in one access
WIDEST_GLOBAL = {"sm_100": 32}
LINE = 128  # bytes: of a wavefront, and of a line of L1
SECTORS = LINE // 32
MERGED = frozenset(("ld", "ldu", "st"))
TAGGED = 4 * SECTORS  # sectors of the lines whose tags one cycle looks up, at most
Tally = Mapping[str, int]
FLOATS = {
    "f32": ("FP32", 1), "f32x2": ("FP32", 2), "f64": ("FP64", 1), "f16": ("FP16", 1),
    "bf16": ("FP16", 1), "f16x2": ("FP16", 2), "bf16x2": ("FP16", 2),
}  # fmt: skip
ROUNDING = frozenset(("rn", "rz", "rm", "rp", "rna", "rs"))
SPECIAL = frozenset(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt"))
SPACES = frozenset(("global", "shared", "local", "param", "const"))
KINDS = {
    "f16": "f16", "bf16": "bf16", "tf32": "tf32", "f64": "f64", "s8": "s8", "u8": "s8", "s4": "s4",
    "u4": "s4", "e4m3": "f8", "e5m2": "f8", "e3m2": "f8", "e2m3": "f8", "e2m1": "f8",
}  # fmt: skip
# tcgen05's kinds; a smaller float than its name's is no slower.
TENSOR_KINDS = {
    "f16": "f16", "tf32": "tf32", "i8": "s8", "f8f6f4": "f8", "mxf8f6f4": "f8", "mxf4": "f4",
    "mxf4nvf4": "f4",
}  # fmt: skip
_TYPE = re.compile(r"[a-z]+(\d+)(?:x(\d+))?")
_VECTOR = re.compile(r"v([248])")


@dataclass(frozen=True)
class ExecutedInstruction:
    """An instruction of PTX and what it did: `tally` has the counts of papergpu's Tally.

    `line` is its line of PTX, from 1. `width` are bytes of a lane of the access in machine code
    that it may be part of; -1 if it may be none, 0 where no machine code is at hand.
    """

    form: str
    tally: Tally
    line: int = 0
    width: int = 0


@dataclass
class Work:
    """What is left to do. Lanes and multiply-adds are whole counts, the rest may be shares."""

    fused: dict[str, int] = field(default_factory=dict)  # results of lanes by pipe: all count
    multiplies: dict[str, int] = field(default_factory=dict)  # and those that may be fused
    adds: dict[str, int] = field(default_factory=dict)
    special: int = 0  # lanes
    roots: int = 0
    reciprocals: int = 0
    products: dict[str, float] = field(default_factory=dict)  # multiply-adds by operands
    shared: float = 0  # wavefronts
    memory: float = 0  # wavefronts of global memory
    shuffles: float = 0  # instructions of a warp
    others: float = 0  # instructions of a warp that take a turn to issue, and no pipe above

    def float_results(self, pipe: str) -> int:
        """Results of lanes that a pipe makes at least."""
        loose = max(self.multiplies.get(pipe, 0), self.adds.get(pipe, 0))
        return self.fused.get(pipe, 0) + loose

    @property
    def functions(self) -> int:
        """Special functions of lanes, at least."""
        return self.special + max(self.roots, self.reciprocals)


def count_work(rows: Iterable[ExecutedInstruction], arch: str) -> Work:
    """What executed instructions leave to do on an architecture."""
    found = Work()
    for row in rows:
        tally = row.tally
        opcode, *modifiers = row.form.split(".")
        if opcode in ("fma", "mad", "mul", "add", "sub"):
            _add_float(found, opcode, modifiers, tally.get("lanes", 0))
        elif opcode in SPECIAL or opcode in ("rcp", "sqrt"):
            _add_special(found, opcode, modifiers, tally.get("lanes", 0))
        elif opcode in ("mma", "wgmma", "wmma", "tcgen05") and tally.get("operations"):
            _add_product(found, opcode, modifiers, tally)
        elif opcode in ("ld", "ldu", "st", "ldmatrix", "stmatrix", "wmma"):
            _add_access(found, opcode, modifiers, row, arch)
        elif opcode in ("atom", "red") and "async" not in modifiers:
            found.shared += tally.get("shared_requests", 0)
            found.memory += tally.get("requests", 0)
            found.others += tally.get("shared_requests", 0) + tally.get("requests", 0)
        elif opcode == "cp" and "reduce" not in modifiers and "prefetch" not in modifiers:
            found.shared += tally.get("bytes", 0) / LINE
            if "bulk" not in modifiers:
                found.others += tally.get("bytes", 0) / (LANES * WIDEST)
        elif opcode == "shfl":
            found.shuffles += tally.get("lanes", 0) / LANES
        elif opcode in ("bar", "barrier") and "warp" not in modifiers:
            found.others += tally.get("lanes", 0) / LANES
    return found


def _add_float(found: Work, opcode: str, modifiers: list[str], lanes: int) -> None:
    types = [one for one in modifiers if one in FLOATS]
    if len(types) != 1:  # integers, and what mixes two types
        return
    pipe, packed = FLOATS[types[0]]
    loose = opcode in ("mul", "add", "sub") and not ROUNDING.intersection(modifiers)
    into = found.fused if not loose else found.multiplies if opcode == "mul" else found.adds
    into[pipe] = into.get(pipe, 0) + lanes * packed


def _add_special(found: Work, opcode: str, modifiers: list[str], lanes: int) -> None:
    if opcode == "rcp":
        found.reciprocals += lanes
    elif opcode == "sqrt":
        found.roots += lanes
    else:
        found.special += lanes


def _add_product(found: Work, opcode: str, modifiers: list[str], tally: Tally) -> None:
    kind = _operand_kind(opcode, modifiers)
    found.products[kind] = found.products.get(kind, 0) + tally["operations"] / 2
    found.others += tally.get("lanes", 0) / LANES


def _operand_kind(opcode: str, modifiers: list[str]) -> str:
    """The kind of a matrix instruction's operands, as pipes.matrix names it; else its own word."""
    if opcode == "tcgen05":
        word = next((one for one in modifiers if one.startswith("kind::")), "kind::unknown")
        return TENSOR_KINDS.get(word.removeprefix("kind::"), word)
    if any(one.startswith(("kind::mxf4", "block_scale")) for one in modifiers):
        return "f4" if any(one.startswith("kind::mxf4") for one in modifiers) else "f8"
    types = [one for one in modifiers if one in KINDS or one in ("f32", "s32", "b1")]
    if opcode == "wmma" and len(types) == 2:  # of D and C: the operands are halves
        return "f16"
    operand = types[1] if len(types) > 1 else types[0] if types else "unknown"
    return KINDS.get(operand, operand)


def _add_access(
    found: Work, opcode: str, modifiers: list[str], row: ExecutedInstruction, arch: str
) -> None:
    if memory_space(modifiers) in ("local", "param", "const") or "async" in modifiers:
        return
    tally = row.tally
    share = portion = 1.0
    if opcode in MERGED and row.width < 0:
        return
    if opcode in MERGED and "volatile" not in modifiers:
        width = lane_width(modifiers)
        share = min(1.0, width / (row.width or WIDEST))
        portion = min(1.0, width / (row.width or WIDEST_GLOBAL.get(arch, WIDEST)))
    if opcode == "wmma":  # how lanes address a fragment is not fixed: only its bytes are
        found.shared += tally.get("ideal_wavefronts", 0)
        found.memory += tally.get("ideal_sectors", 0) / SECTORS
        return
    found.shared += share * tally.get("wavefronts", 0)
    found.memory += portion * max(
        tally.get("requests", 0),
        tally.get("ideal_sectors", 0) / SECTORS,
        tally.get("sectors", 0) / TAGGED,
    )
    found.others += share * tally.get("shared_requests", 0) + portion * tally.get("requests", 0)


def memory_space(modifiers: Iterable[str]) -> str:
    """The space that a form names, nothing for a generic address."""
    return next((one for one in (m.partition("::")[0] for m in modifiers) if one in SPACES), "")


def lane_width(modifiers: list[str]) -> int:
    """Bytes of a lane in one access; those of one element where the form does not say."""
    vector = next((int(m[1]) for one in modifiers if (m := _VECTOR.fullmatch(one))), 1)
    kind = _TYPE.fullmatch(modifiers[-1]) if modifiers else None
    bits = int(kind[1]) * int(kind[2] or 1) if kind else 8
    return vector * bits // 8


# Machine instructions for the spaces of PTX; a generic address may have been found to be in either.
LOADS = {"shared": ("LDS", "LD"), "global": ("LDG", "LD"), "": ("LD", "LDS", "LDG")}
STORES = {"shared": ("STS", "ST"), "global": ("STG", "ST"), "": ("ST", "STS", "STG")}
ACCESSES = frozenset(("LD", "LDS", "LDG", "ST", "STS", "STG"))
# What one instruction of PTX becomes one of, in each copy.
SINGLE = ACCESSES | {"FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "SHFL", "HMMA"}
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


def assign_widths(
    rows: Iterable[ExecutedInstruction], code: Iterable[tuple[int, str]]
) -> list[ExecutedInstruction]:
    """Rows with their `width`, by machine code made from the same PTX.

    `rows` have their lines of PTX, and `executed` in their tallies. `code` are machine
    instructions, each the line of PTX that the assembler says it made it from, and its opcode with
    modifiers (`LDS.128`).
    """
    copies: dict[int, int] = defaultdict(int)
    own: dict[int, int] = defaultdict(int)  # the widest access made from a line
    widest: dict[str, int] = defaultdict(int)  # of any line, by its name
    for line, opcode in code:
        name = opcode.partition(".")[0]
        copies[line] += name in SINGLE
        if name in ACCESSES:
            width = machine_width(opcode)
            own[line] = max(own[line], width)
            widest[name] = max(widest[name], width)
    known = list(rows)
    most: dict[int, int] = defaultdict(int)
    for row in known:
        run = row.tally.get("executed", 0)
        most[run] = max(most[run], copies[row.line])
    found = []
    for row in known:
        opcode, *modifiers = row.form.split(".")
        if opcode in MERGED:
            width = own[row.line]
            if not width or copies[row.line] < most[row.tally.get("executed", 0)]:
                names = (STORES if opcode == "st" else LOADS).get(memory_space(modifiers), ())
                width = max((widest[name] for name in names), default=0)
                # With none wider to be part of, what lacks a copy was not merged but taken out.
                width = width if width > lane_width(modifiers) else -1
            row = replace(row, width=width)
        found.append(row)
    return found


def machine_width(opcode: str) -> int:
    """Bytes of a lane that a load or store of machine code moves: 16 of `LDG.E.128`."""
    return next((WIDTHS[one] for one in opcode.split(".") if one in WIDTHS), 4)


# The loops of machine code, what they are made of, and what they have in flight.

LEAVES = {"EXIT", "RET", "KILL", "BRX", "BRXU", "JMX", "JMXU"}


@dataclass(frozen=True)
class Loop:
    """A loop from instruction `first` to `last`, both in it; `depth` is 1 for one in no other.

    `kinds` are its instructions by kind, those of loops inside left out. `loads` and `bytes`: as
    many loads of global memory, and bytes of a whole warp, are asked for before the first of them
    is waited for. `operations`: the most multiply-adds and matrix instructions between such a
    request and its wait. Copies in bulk do not say their bytes, and are not in `loads`.
    """

    first: int
    last: int
    depth: int
    kinds: dict[str, int] = field(default_factory=dict)
    loads: int = 0
    bytes: int = 0
    operations: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def find_loops(code: MachineCode) -> list[Loop]:
    """The loops of a kernel: natural ones, those with one head taken together."""
    bodies = _loop_bodies(code)
    found = []
    for head, body in sorted(bodies.items()):
        inner = set[int]().union(*(one for at, one in bodies.items() if at != head and at in body))
        own = [at for at in sorted(body) if at not in inner]
        depth = sum(head in one for one in bodies.values())
        counted = Counter(instruction_kind(code.instructions[at].opcode) for at in own)
        flight = _loads_in_flight([code.instructions[at] for at in own])
        found.append(Loop(min(body), max(body), depth, dict(sorted(counted.items())), *flight))
    return sorted(found, key=lambda one: (one.first, -one.last))


def find_successors(code: MachineCode) -> list[list[int]]:
    """The instructions that may come after each."""
    found: list[list[int]] = []
    for at, one in enumerate(code.instructions):
        after = [at + 1] if at + 1 < len(code.instructions) else []
        name = one.opcode.split(".")[0]
        goes = code.labels.get(one.target or "")
        if name in ("BRA", "JMP", "UBRA"):
            always = not one.is_guarded and not _is_conditional(one)
            found.append(([] if always else after) + ([goes] if goes is not None else []))
        elif name in LEAVES:
            found.append(after if one.is_guarded else [])
        elif name == "CALL":  # which returns, and what it calls is reached
            found.append(after + ([goes] if goes is not None else []))
        else:
            found.append(after)
    return found


def _is_conditional(branch: Instruction) -> bool:
    """Whether a branch without a guard has a condition as an operand: `BRA P0, ...`, `BRA.DIV`."""
    operand = branch.text.split("`")[0].split(None, 1)[1:] or [""]
    return "P" in operand[0] or ".DIV" in branch.opcode or ".CONV" in branch.opcode


def _loop_bodies(code: MachineCode) -> dict[int, set[int]]:
    after = find_successors(code)
    before: list[list[int]] = [[] for _ in after]
    for at, targets in enumerate(after):
        for one in targets:
            before[one].append(at)
    above = _find_dominators(after, before)
    bodies: dict[int, set[int]] = {}
    for tail, targets in enumerate(after):
        for head in targets:
            if not above[tail] >> head & 1:
                continue
            body, waiting = bodies.setdefault(head, {head}), [tail]
            while waiting:
                one = waiting.pop()
                if one not in body:
                    body.add(one)
                    waiting += before[one]
    return bodies


def _find_dominators(after: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> list[int]:
    """Which instructions every way to an instruction leads through, as the bits of a number."""
    if not after:
        return []
    everything = (1 << len(after)) - 1
    found = [everything] * len(after)
    found[0] = 1
    changed = True
    while changed:
        changed = False
        for at in range(1, len(after)):
            if len(before[at]) == 1 and before[at][0] == at - 1:
                new = found[at - 1] | 1 << at
            else:
                new = everything
                for one in before[at]:
                    new &= found[one]
                new = new | 1 << at
            if new != found[at]:
                found[at], changed = new, True
    return found


def _loads_in_flight(body: Sequence[Instruction]) -> tuple[int, int, int]:
    """Loads, bytes and operations of a loop that has gone round often enough."""
    asked: list[tuple[int | None, int, int]] = []  # scoreboard or None, bytes, operations since
    groups = 0  # how many of the copies that are asked for were closed into groups
    closed: list[int] = []
    most = (0, 0)
    between = 0
    rounds = 2 + max((_pending_groups(one) for one in body), default=0)
    for one in (one for _ in range(rounds) for one in body):
        code = decode_control(one.control)
        base, *modifiers = one.opcode.split(".")
        if code.waits:
            between = max((between, *(since for board, _, since in asked if board in code.waits)))
            asked = [each for each in asked if each[0] is None or each[0] not in code.waits]
        if base == "LDGDEPBAR":
            open_ = sum(board is None for board, _, _ in asked) - groups
            closed.append(open_)
            groups += open_
        elif base == "DEPBAR":
            while len(closed) > _pending_groups(one):
                for _ in range(done := closed.pop(0)):
                    first = next(at for at, each in enumerate(asked) if each[0] is None)
                    between = max(between, asked[first][2])
                    del asked[first]
                groups -= done
        if base_kind(instruction_kind(one.opcode)) in ("multiply-add", "matrix"):
            asked = [(board, size, since + 1) for board, size, since in asked]
        if base == "LDG" and code.writes is not None:
            asked.append((code.writes, LANES * access_width(base, modifiers), 0))
        elif base == "LDGSTS":
            asked.append((None, LANES * access_width(base, modifiers), 0))
        most = max(most, (len(asked), sum(size for _, size, _ in asked)))
    return most[0], most[1], between


def _pending_groups(one: Instruction) -> int:
    """How many groups of copies may be on their way behind a DEPBAR; 0 of anything else."""
    found = re.fullmatch(r"(?:@\S+ )?DEPBAR\.LE SB\d+, (0x[0-9a-f]+).*", one.text)
    return int(found[1], 16) if found else 0
