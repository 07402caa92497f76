"""Gives registers places in a warp's memory: those that never live together share one.

What lives where is found by data flow over the program's blocks, so that a value that a loop
carries around keeps its place however its instructions are laid out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from papergpu.ir import Label, Register, Step
from papergpu.program import BIT, BRANCH, EXIT, PLAIN, TABLE

# ---- products and sums that may be one: `mul` and `add` or `sub` without `.rn`. Where neither says
# how it is rounded, PTX lets a product that is used once be fused with the sum that uses it, and
# ptxas does so. Which pairs those are is found here; a launch decides what is done

ROUNDINGS = {"rn", "rz", "rm", "rp"}
KINDS = {"f32", "ftz.f32", "f64", "f32x2", "f16", "f16x2", "bf16", "bf16x2"}


@dataclass(frozen=True)
class FusedPair:
    """A product and its sum, by their numbers, and the instruction that does both."""

    product: int
    sum: int
    name: str
    operands: tuple[Register, Register, Register]


@lru_cache(1 << 12)
def unrounded_opcode(handler: str, form: str) -> str:
    """`mul`, `add` or `sub` of floats that do not say how they are rounded, else nothing."""
    name, _, kind = handler.partition(".")
    words = form.split(".")
    plain = kind in KINDS and words[0] == name
    return name if plain and name in ("mul", "add", "sub") and not ROUNDINGS & set(words) else ""


def find_fused_pairs(steps: Sequence[Step], starts: set[int]) -> list[FusedPair]:
    """The pairs of a program whose blocks begin at `starts`.

    What the product reads is noted as read by the sum too, so that it keeps its place until then.
    """
    opcodes = [
        unrounded_opcode(step.name, step.form) if step.kind == PLAIN else "" for step in steps
    ]
    if "mul" not in opcodes:
        return []
    reads = Counter(one for step in steps for one in step.reads)
    writes = Counter(one for step in steps for one in step.writes)
    found: list[FusedPair] = []
    products: dict[Register, int] = {}  # of this block, their operands still as they were
    using: dict[Register, list[Register]] = {}  # the products that a register is an operand of
    for at, step in enumerate(steps):
        if at in starts:
            products.clear()
            using.clear()
        if products and opcodes[at] in ("add", "sub"):
            pair = _match_pair(steps, products, at, opcodes[at])
            if pair is not None:
                found.append(pair)
                step.reads += pair.operands[:2]
        for one in step.writes if products else ():
            products.pop(one, None)
            for made in using.pop(one, ()):
                products.pop(made, None)
        d = step.d
        # Under a guard what it held is read, too.
        once = d is not None and writes[d] == 1 and reads[d] == 1 + (step.guard is not None)
        if opcodes[at] == "mul" and once and d is not None:
            products[d] = at
            for one in step.reads:
                using.setdefault(one, []).append(d)
    return found


def _match_pair(
    steps: Sequence[Step], products: dict[Register, int], at: int, what: str
) -> FusedPair | None:
    step = steps[at]
    a, b = step.a, step.b
    assert a is not None and b is not None
    if a is b:
        return None
    first = a in products
    if not first and b not in products:
        return None
    number = products[a if first else b]
    product = steps[number]
    kind = step.name.partition(".")[2]
    same = (product.guard, product.negate) == (step.guard, step.negate)
    if product.name.partition(".")[2] != kind or not same:
        return None
    x, y = product.a, product.b
    assert x is not None and y is not None
    name = "fma" if what == "add" else "fms" if first else "fnma"
    return FusedPair(number, at, f"{name}.{kind}", (x, y, b if first else a))


def find_successors(steps: Sequence[Step], at: int) -> list[int]:
    """The instructions that may come after one."""
    step = steps[at]
    if step.kind == BRANCH:
        target = step.imm
        assert isinstance(target, Label)
        return [target.at, at + 1] if step.guard is not None else [target.at]
    if step.kind == TABLE:
        found = [one.at for one in step.items if isinstance(one, Label)]
        return [*found, at + 1] if step.guard is not None else found
    if step.kind == EXIT:
        return [at + 1] if step.guard is not None else []
    return [at + 1]


def find_block_starts(steps: Sequence[Step]) -> set[int]:
    """Where blocks begin that are only entered at their first instruction."""
    found = {0, len(steps)}
    for at, step in enumerate(steps):
        if step.kind in (BRANCH, TABLE, EXIT):
            found.add(at + 1)
            found.update(next_ for next_ in find_successors(steps, at) if next_ < len(steps))
    return found


def find_live_ranges(steps: Sequence[Step]) -> list[Register]:
    """The registers that need a place, by their first steps, with what `first` and `last` are.

    Where a register is written first and stands in one block alone, that is all there is to know.
    Of the others the blocks tell which they leave to those that follow: sets of them are integers,
    a register by its `bit`.
    """
    count = len(steps)
    order = sorted(find_block_starts(steps))
    blocks = list(zip(order[:-1], order[1:], strict=True))
    found, carried = _scan_registers(steps, blocks)
    if not carried:
        return found
    block_of = {first: number for number, (first, _) in enumerate(blocks)}
    used, defined = [], []
    for first, last in blocks:
        use = define = 0
        for at in range(first, last):
            step = steps[at]
            for one in step.reads:
                if one.bit >= 0 and not define >> one.bit & 1:
                    use |= 1 << one.bit
            for one in step.writes:
                if one.bit >= 0:
                    define |= 1 << one.bit
        used.append(use)
        defined.append(define)
    follow = [
        [block_of[after] for after in find_successors(steps, last - 1) if after < count]
        for _, last in blocks
    ]
    entering = list(used)
    leaving = [0] * len(blocks)
    before: list[list[int]] = [[] for _ in blocks]
    for number, nexts in enumerate(follow):
        for after in nexts:
            before[after].append(number)
    waiting = set(range(len(blocks)))
    while waiting:
        number = max(waiting)
        waiting.discard(number)
        out = 0
        for after in follow[number]:
            out |= entering[after]
        leaving[number] = out
        fresh = used[number] | (out & ~defined[number])
        if fresh != entering[number]:
            entering[number] = fresh
            waiting.update(before[number])
    for number, (first, last) in enumerate(blocks):
        for live, at in ((entering[number], first), (leaving[number], last - 1)):
            while live:
                bit = live & -live
                one = carried[bit.bit_length() - 1]
                one.first, one.last = min(one.first, at), max(one.last, at)
                live ^= bit
    return sorted(found, key=lambda one: one.first)


def _scan_registers(
    steps: Sequence[Step], blocks: Sequence[tuple[int, int]]
) -> tuple[list[Register], list[Register]]:
    """The registers as they are met, and those among them that a block may have from another."""
    found: list[Register] = []
    carried: list[Register] = []
    for start, end in blocks:
        for at in range(start, end):
            step = steps[at]
            for number, one in enumerate((*step.reads, *step.writes)):
                fresh = one.first < 0
                if fresh:
                    if one.constant is not None or one.special is not None:
                        continue
                    one.first = at
                    found.append(one)
                if one.bit < 0 and (number < len(step.reads) if fresh else one.first < start):
                    one.bit = len(carried)
                    carried.append(one)
                one.last = at
    return found, carried


def allocate_registers(steps: Sequence[Step], start: int) -> int:
    """Give every register that is no constant its place, from byte `start`; returns the end."""
    top = start
    free: dict[int, list[int]] = {}
    active: list[tuple[int, int, int]] = []
    # Predicates are packed, 32 to the room of a register.
    for one in find_live_ranges(steps):
        while active and active[0][0] < one.first:
            _, at, width = heapq.heappop(active)
            free.setdefault(width, []).append(at)
        pool = free.setdefault(one.width, [])
        if not pool or one.keep:
            if one.width == BIT:
                pool.extend(range(top + 124, top - 4, -4))
                top += 128
            else:
                pool.append(top)
                top += one.width
            if one.keep and one.width != BIT:
                one.at = pool.pop()
                continue
        one.at = pool.pop()
        if not one.keep:
            heapq.heappush(active, (one.last, one.at, one.width))
    return top
