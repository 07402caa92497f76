"""Products and sums that a compiler for GPUs may make one: `mul` and `add` or `sub` without `.rn`.

Where neither says how it is rounded, PTX lets a product that is used once be fused with the sum
that uses it, and ptxas does so. Which pairs those are is found here; a launch decides what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from papergpu.program import PLAIN
from papergpu.steps import Register, Step

ROUNDINGS = {"rn", "rz", "rm", "rp"}
KINDS = {"f32", "ftz.f32", "f64", "f32x2", "f16", "f16x2", "bf16", "bf16x2"}


@dataclass(frozen=True)
class Pair:
    """A product and its sum, by their numbers, and the instruction that does both."""

    product: int
    sum: int
    name: str
    operands: tuple[Register, Register, Register]


@lru_cache(1 << 12)
def opcode(handler: str, form: str) -> str:
    """`mul`, `add` or `sub` of floats that do not say how they are rounded, else nothing."""
    name, _, kind = handler.partition(".")
    words = form.split(".")
    plain = kind in KINDS and words[0] == name
    return name if plain and name in ("mul", "add", "sub") and not ROUNDINGS & set(words) else ""


def pairs(steps: Sequence[Step], starts: set[int]) -> list[Pair]:
    """The pairs of a program whose blocks begin at `starts`.

    What the product reads is noted as read by the sum too, so that it keeps its place until then.
    """
    opcodes = [opcode(step.name, step.form) if step.kind == PLAIN else "" for step in steps]
    reads: dict[Register, int] = {}
    writes: dict[Register, int] = {}
    for step, what in zip(steps, opcodes, strict=True):
        if what == "mul" and step.d is not None:
            reads[step.d] = writes[step.d] = 0
    if not reads:
        return []
    for step in steps:
        for one in step.reads:
            if one in reads:
                reads[one] += 1
        for one in step.writes:
            if one in writes:
                writes[one] += 1
    found: list[Pair] = []
    products: dict[Register, int] = {}  # of this block, their operands still as they were
    using: dict[Register, list[Register]] = {}  # the products that a register is an operand of
    for at, step in enumerate(steps):
        if at in starts:
            products.clear()
            using.clear()
        if products and opcodes[at] in ("add", "sub"):
            pair = _pair(steps, products, at, opcodes[at])
            if pair is not None:
                found.append(pair)
                step.reads += pair.operands[:2]
        for one in step.writes if products else ():
            products.pop(one, None)
            for made in using.pop(one, ()):
                products.pop(made, None)
        d = step.d
        # Under a guard what it held is read, too.
        once = d is not None and writes.get(d) == 1 and reads[d] == 1 + (step.guard is not None)
        if opcodes[at] == "mul" and once and d is not None:
            products[d] = at
            for one in step.reads:
                using.setdefault(one, []).append(d)
    return found


def _pair(steps: Sequence[Step], products: dict[Register, int], at: int, what: str) -> Pair | None:
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
    return Pair(number, at, f"{name}.{kind}", (x, y, b if first else a))
