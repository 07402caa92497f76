"""What executed PTX leaves an SM to do, and the loops of the machine code that does it.

Every count is one that machine code cannot go below. These are the rules:

- An instruction counts by the lanes that took part, 32 of them for one instruction of a warp: where
  a branch parted a warp, the assembler may run both sides at once.
- A multiply and an add that are not told how to round (`.rn` and the like) may become one
  multiply-add, so of both only the larger number counts; multiply-adds and those told count all.
- Minima, comparisons, negations, conversions, integers (addresses, loops and predicates are made of
  them), moves, votes, hints, and waiting for anything but a barrier of the block do not count.
- A special function counts once. A root and a reciprocal may become one, so of both the larger
  number counts. A division does not: two by the same number share a reciprocal.
- A matrix instruction counts by its multiply-adds, those of zeros in a sparse one left out. A dense
  wgmma also reads 32 bytes of each column of B from shared memory, and of each row of A where that
  lies there.
- A load or store of shared memory counts by its wavefronts; of global memory by its requests, its
  different bytes, 128 for a wavefront, or its sectors, 16 for the four lines whose tags are looked
  up at once, whichever is most. Neighbours may become one access of 16 bytes a lane, so a narrower
  one counts for its share of that; of 32 bytes in global memory from sm_100 on. Where machine code
  is at hand (`assign_widths`), for its share of the access that it may have become.
- An atomic counts by its requests: those of one warp to one address may be added up first. An
  asynchronous copy counts by its bytes in shared memory, 128 for a wavefront.
- Local memory does not count: it may become registers. Parameters and constants are operands.

What these suppose: that PTX is what an optimising compiler left, with nothing in a loop that need
not be there, nothing loaded twice and nothing unused; an assembler has little of that left to do.

Which loads and stores of PTX the assembler may have made into one is told from machine code. An
access that stands there once for each copy of its block is not merged, and as wide as it is there.
Any other may be part of the widest access of its kind. How many copies there are (the assembler
unrolls loops) is seen at instructions that run as often and become one each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warpshelf.look.binary import Instruction, MachineCode, ResourceUsage, decode_control
from warpshelf.look.figures import PRODUCTS, access_width, instruction_kind
from warpshelf.look.view import LANES, Code, Loop

WIDEST = 16  # bytes of a lane in one access
WIDEST_GLOBAL = {"sm_100": 32}
# Bytes of a wavefront, and of a line of L1: "Shared Memory and Memory Banks" of the Best Practices
# Guide of CUDA C++.
LINE = 128
SECTORS = LINE // 32
MERGED = frozenset(("ld", "ldu", "st"))
# Sectors of the lines whose tags one cycle looks up, at most: "Advanced Learning", Nsight Graphics.
TAGGED = 4 * SECTORS
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
SHAPE = re.compile(r"\.m64n(\d+)k(\d+)\.")
GROUP, WARPS = 64, 4  # rows of A, and warps, of a wgmma
DEPTH = 32  # bytes of a row of A and of a column of B, whatever their type
TYPE = re.compile(r"[a-z]+(\d+)(?:x(\d+))?")
VECTOR = re.compile(r"v([248])")


@dataclass(frozen=True)
class ExecutedInstruction:
    """An instruction of PTX and what it did."""

    form: str
    tally: Tally  # the counts of papergpu's
    line: int = 0  # of PTX, from 1
    # Bytes of a lane of the access in machine code that it may be part of; -1 if it may be none, 0
    # where no machine code is at hand.
    width: int = 0
    both: bool = False  # of wgmma, whether A, too, lies in shared memory


@dataclass
class Work:
    """What is left to do. Lanes and multiply-adds are whole counts, the rest may be shares."""

    fused: Counter[str] = field(default_factory=Counter)  # results of lanes by pipe: all count
    multiplies: Counter[str] = field(default_factory=Counter)  # and those that may be fused
    adds: Counter[str] = field(default_factory=Counter)
    special: int = 0  # lanes
    roots: int = 0
    reciprocals: int = 0
    products: dict[str, float] = field(default_factory=dict)  # multiply-adds by operands
    shared: float = 0  # wavefronts
    operands: float = 0  # wavefronts of shared memory by which wgmma reads A and B
    memory: float = 0  # wavefronts of global memory
    shuffles: float = 0  # instructions of a warp
    others: float = 0  # instructions of a warp that take a turn to issue, and no pipe above
    barriers: int = 0  # mbarriers that were initialised
    fills: int = 0  # how often one was told of bytes to come
    filled: int = 0  # bytes that bulk copies brought

    def float_results(self, pipe: str) -> int:
        """Results of lanes that a pipe makes at least."""
        return self.fused[pipe] + max(self.multiplies[pipe], self.adds[pipe])

    @property
    def functions(self) -> int:
        """Special functions of lanes, at least."""
        return self.special + max(self.roots, self.reciprocals)


def count_work(rows: Iterable[ExecutedInstruction], arch: str) -> Work:
    """What executed instructions leave to do on an architecture."""
    found = Work()
    for row in rows:
        count = Counter(row.tally)  # 0 of what is not there
        opcode, *modifiers = row.form.split(".")
        if opcode in ("fma", "mad", "mul", "add", "sub"):
            types = [one for one in modifiers if one in FLOATS]
            if len(types) == 1:  # neither integers nor what mixes two types
                pipe, packed = FLOATS[types[0]]
                told = opcode in ("fma", "mad") or ROUNDING.intersection(modifiers)
                into = found.fused if told else found.adds if opcode != "mul" else found.multiplies
                into[pipe] += count["lanes"] * packed
        elif opcode == "rcp":
            found.reciprocals += count["lanes"]
        elif opcode == "sqrt":
            found.roots += count["lanes"]
        elif opcode in SPECIAL:
            found.special += count["lanes"]
        elif opcode in ("mma", "wgmma", "wmma", "tcgen05") and count["operations"]:
            kind = _operand_kind(opcode, modifiers)
            found.products[kind] = found.products.get(kind, 0) + count["operations"] / 2
            found.others += count["lanes"] / LANES
            if opcode == "wgmma" and (shape := SHAPE.search(row.form)) and "sp" not in modifiers:
                n, k = map(int, shape.groups())
                sides = n + GROUP * row.both
                found.operands += count["operations"] / (2 * GROUP * n * k) * sides * DEPTH / LINE
        elif opcode in ("ld", "ldu", "st", "ldmatrix", "stmatrix", "wmma"):
            _add_access(found, opcode, modifiers, row, arch)
        elif opcode in ("atom", "red") and "async" not in modifiers:
            found.shared += count["shared_requests"]
            found.memory += count["requests"]
            found.others += count["shared_requests"] + count["requests"]
        elif opcode == "cp" and "reduce" not in modifiers and "prefetch" not in modifiers:
            found.shared += count["bytes"] / LINE
            if "bulk" not in modifiers:
                found.others += count["bytes"] / (LANES * WIDEST)
            elif "global" in modifiers and any(one.startswith("mbarrier") for one in modifiers):
                found.filled += count["bytes"]
        elif opcode == "mbarrier":
            found.barriers += count["lanes"] * ("init" in modifiers)
            found.fills += count["lanes"] * ("expect_tx" in modifiers)
        elif opcode == "shfl":
            found.shuffles += count["lanes"] / LANES
        elif opcode in ("bar", "barrier") and "warp" not in modifiers:
            found.others += count["lanes"] / LANES
    return found


def count_tail(rows: Iterable[ExecutedInstruction], arch: str) -> tuple[float, float]:
    """Of loads and stores behind the last wgmma of the PTX, the wavefronts of a warpgroup that
    comes to them once, and how often one came, at least."""
    known = list(rows)
    last = max((row.line for row in known if row.form.startswith("wgmma.mma")), default=0)
    behind = [row for row in known if row.line > last and row.form.startswith(("ld", "st"))]
    runs = sorted(row.tally.get("executed", 0) / WARPS for row in behind)
    if not runs:
        return 0.0, 0.0
    done = count_work(behind, arch)
    return (done.shared + done.memory) / runs[-1], runs[0]


def _operand_kind(opcode: str, modifiers: list[str]) -> str:
    """What `bound.MATRIX` calls a matrix instruction's operands; else their own word."""
    kind = next((one for one in modifiers if one.startswith("kind::")), "kind::unknown")
    if opcode == "tcgen05":
        return TENSOR_KINDS.get(kind.removeprefix("kind::"), kind)
    if kind.startswith("kind::mxf4"):
        return "f4"
    if any(one.startswith("block_scale") for one in modifiers):
        return "f8"
    types = [one for one in modifiers if one in KINDS or one in ("f32", "s32", "b1")]
    if opcode == "wmma" and len(types) == 2:  # of D and C: the operands are halves
        return "f16"
    operand = types[1] if len(types) > 1 else types[0] if types else "unknown"
    return KINDS.get(operand, operand)


def _add_access(
    found: Work, opcode: str, modifiers: list[str], row: ExecutedInstruction, arch: str
) -> None:
    count, share, portion = Counter(row.tally), 1.0, 1.0
    if memory_space(modifiers) in ("local", "param", "const") or "async" in modifiers:
        return
    if opcode == "wmma":  # how lanes address a fragment is not fixed: only its bytes are
        found.shared += count["ideal_wavefronts"]
        found.memory += count["ideal_sectors"] / SECTORS
        return
    if opcode in MERGED:
        if row.width < 0:
            return
        if "volatile" not in modifiers:
            width = lane_width(modifiers)
            share = min(1.0, width / (row.width or WIDEST))
            portion = min(1.0, width / (row.width or WIDEST_GLOBAL.get(arch, WIDEST)))
    found.shared += share * count["wavefronts"]
    found.memory += portion * max(
        count["requests"], count["ideal_sectors"] / SECTORS, count["sectors"] / TAGGED
    )
    found.others += share * count["shared_requests"] + portion * count["requests"]


def memory_space(modifiers: Iterable[str]) -> str:
    """The space that a form names, nothing for a generic address."""
    return next((one for one in (m.partition("::")[0] for m in modifiers) if one in SPACES), "")


def lane_width(modifiers: list[str]) -> int:
    """Bytes of a lane in one access; those of one element where the form does not say."""
    vector = next((int(m[1]) for one in modifiers if (m := VECTOR.fullmatch(one))), 1)
    kind = TYPE.fullmatch(modifiers[-1]) if modifiers else None
    return vector * (int(kind[1]) * int(kind[2] or 1) if kind else 8) // 8


# Machine instructions for the spaces of PTX; a generic address may have been found to be in either.
LOADS = {"shared": ("LDS", "LD"), "global": ("LDG", "LD"), "": ("LD", "LDS", "LDG")}
STORES = {"shared": ("STS", "ST"), "global": ("STG", "ST"), "": ("ST", "STS", "STG")}
ACCESSES = frozenset(("LD", "LDS", "LDG", "ST", "STS", "STG"))
# What one instruction of PTX becomes one of, in each copy.
SINGLE = ACCESSES | {"FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "SHFL", "HMMA"}


def assign_widths(
    rows: Iterable[ExecutedInstruction], code: Iterable[tuple[int, str]]
) -> list[ExecutedInstruction]:
    """Rows, with lines and `executed` in their tallies, with their `width` as well.

    `code` are machine instructions made from the same PTX: the line of it and the opcode.
    """
    copies: dict[int, int] = defaultdict(int)
    own: dict[int, int] = defaultdict(int)  # the widest access made from a line
    widest: dict[str, int] = defaultdict(int)  # of any line, by its name
    for line, opcode in code:
        name, *modifiers = opcode.split(".")
        copies[line] += name in SINGLE
        if name in ACCESSES:
            width = access_width(name, modifiers)
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


# The loops of machine code, what they are made of, and what they have in flight.

LEAVES = {"EXIT", "RET", "KILL", "BRX", "BRXU", "JMX", "JMXU"}


def describe_code(
    code: MachineCode, used: ResourceUsage, places: Mapping[int, int] | None = None
) -> Code:
    """Machine code as a view has it; `places` are those of its lines of PTX in the view."""
    made = code.instructions
    return {
        "registers": used.registers,
        "spilled_bytes": used.spilled_bytes,
        "shared_bytes": used.shared_bytes,
        "sass": {
            "text": [one.text for one in made],
            "ptx": [(places or {}).get(one.ptx, -1) for one in made],
            "live": [one.live for one in made],
            "control": [one.control for one in made],
            "labels": code.labels,
        },
        "loops": find_loops(code),
    }


def find_loops(code: MachineCode) -> list[Loop]:
    """The loops of a kernel: natural ones, those with one head taken together."""
    bodies = _loop_bodies(find_successors(code))
    found: list[Loop] = []
    for head, body in sorted(bodies.items()):
        inner = set[int]().union(*(one for at, one in bodies.items() if at != head and at in body))
        own = [code.instructions[at] for at in sorted(body - inner)]
        counted = Counter(instruction_kind(one.opcode) for one in own)
        loads, size, operations = _loads_in_flight(own)
        found.append(
            {
                "first": min(body),
                "last": max(body),
                "depth": sum(head in one for one in bodies.values()),
                "kinds": dict(sorted(counted.items())),
                "loads": loads,
                "bytes": size,
                "operations": operations,
            }
        )
    return sorted(found, key=lambda one: (one["first"], -one["last"]))


def find_successors(code: MachineCode) -> list[list[int]]:
    """The instructions that may come after each."""
    found: list[list[int]] = []
    for at, one in enumerate(code.instructions):
        name = one.opcode.split(".")[0]
        goes_on = True
        if name in ("BRA", "JMP", "UBRA"):
            # Without a guard it may have a condition as an operand: `BRA P0, ...`, `BRA.DIV`.
            operand = one.text.split("`")[0].split(None, 1)[1:] or [""]
            conditional = "P" in operand[0] or ".DIV" in one.opcode or ".CONV" in one.opcode
            goes_on = one.is_guarded or conditional
        elif name in LEAVES:
            goes_on = one.is_guarded
        after = [at + 1] if goes_on and at + 1 < len(code.instructions) else []
        # A call returns, and what it calls is reached.
        goes = code.labels.get(one.target or "")
        if goes is not None and name in ("BRA", "JMP", "UBRA", "CALL"):
            after.append(goes)
        found.append(after)
    return found


def _loop_bodies(after: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """The instructions of each loop, by its head."""
    before: list[list[int]] = [[] for _ in after]
    for at, targets in enumerate(after):
        for one in targets:
            before[one].append(at)
    above = _find_dominators(before)
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


def _find_dominators(before: Sequence[Sequence[int]]) -> list[int]:
    """Which instructions every way to an instruction leads through, as the bits of a number."""
    everything = (1 << len(before)) - 1
    found = [1, *[everything] * (len(before) - 1)]
    changed = True
    while changed:
        changed = False
        for at in range(1, len(before)):
            new = everything
            for one in before[at]:
                new &= found[one]
            if (new := new | 1 << at) != found[at]:
                found[at], changed = new, True
    return found


def _loads_in_flight(body: Sequence[Instruction]) -> tuple[int, int, int]:
    """Loads, bytes and operations of a loop that has gone round often enough."""
    asked: list[tuple[int | None, int, int]] = []  # scoreboard or None, bytes, operations since
    groups = 0  # how many of the copies that are asked for were closed into groups
    closed: list[int] = []
    most = (0, 0)
    between = 0
    rounds = 2 + max(map(_pending_groups, body), default=0)
    for one in list(body) * rounds:
        code = decode_control(one.control)
        base, *modifiers = one.opcode.split(".")
        if code.waits:
            between = max((between, *(since for board, _, since in asked if board in code.waits)))
            asked = [each for each in asked if each[0] is None or each[0] not in code.waits]
        if base == "LDGDEPBAR":
            opened = sum(board is None for board, _, _ in asked) - groups
            closed.append(opened)
            groups += opened
        elif base == "DEPBAR":
            while len(closed) > _pending_groups(one):
                for _ in range(done := closed.pop(0)):
                    first = next(at for at, each in enumerate(asked) if each[0] is None)
                    between = max(between, asked.pop(first)[2])
                groups -= done
        if instruction_kind(one.opcode) in PRODUCTS:
            asked = [(board, size, since + 1) for board, size, since in asked]
        if base == "LDGSTS" or (base == "LDG" and code.writes is not None):
            board = code.writes if base == "LDG" else None
            asked.append((board, LANES * access_width(base, modifiers), 0))
        most = max(most, (len(asked), sum(size for _, size, _ in asked)))
    return *most, between


def _pending_groups(one: Instruction) -> int:
    """How many groups of copies may be on their way behind a DEPBAR; 0 of anything else."""
    found = re.fullmatch(r"(?:@\S+ )?DEPBAR\.LE SB\d+, (0x[0-9a-f]+).*", one.text)
    return int(found[1], 16) if found else 0
