"""Products and sums that a compiler for GPUs may make one: `mul` and `add` or `sub` without `.rn`.

Where neither says how it is rounded, PTX lets a product that is used once be fused with the sum
that uses it, and ptxas does so. Which pairs those are is found here; a launch decides what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def opcode(step: Step) -> str:
    """`mul`, `add` or `sub` of floats that do not say how they are rounded, else nothing."""
    name, _, kind = step.name.partition(".")
    words = step.form.split(".")
    plain = step.kind == PLAIN and kind in KINDS and words[0] == name
    return name if plain and name in ("mul", "add", "sub") and not ROUNDINGS & set(words) else ""


def pairs(steps: Sequence[Step], starts: set[int]) -> list[Pair]:
    """The pairs of a program whose blocks begin at `starts`.

    What the product reads is noted as read by the sum too, so that it keeps its place until then.
    """
    reads: dict[Register, int] = {}
    writes: dict[Register, int] = {}
    for step in steps:
        for one in step.reads:
            reads[one] = reads.get(one, 0) + 1
        for one in step.writes:
            writes[one] = writes.get(one, 0) + 1
    found: list[Pair] = []
    products: dict[Register, int] = {}  # of this block, their operands still as they were
    for at, step in enumerate(steps):
        if at in starts:
            products.clear()
        pair = _pair(steps, products, at) if opcode(step) in ("add", "sub") else None
        if pair is not None:
            found.append(pair)
            step.reads += pair.operands[:2]
        for one in step.writes:
            stale = [
                made for made, number in products.items()
                if made is one or one in steps[number].reads
            ]  # fmt: skip
            for made in stale:
                del products[made]
        d = step.fields.get("d")
        # Under a guard what it held is read, too.
        once = isinstance(d, Register) and reads.get(d) == 1 + (step.guard is not None)
        if once and opcode(step) == "mul" and isinstance(d, Register) and writes[d] == 1:
            products[d] = at
    return found


def _pair(steps: Sequence[Step], products: dict[Register, int], at: int) -> Pair | None:
    step = steps[at]
    a, b = step.fields["a"], step.fields["b"]
    assert isinstance(a, Register) and isinstance(b, Register)
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
    x, y = product.fields["a"], product.fields["b"]
    assert isinstance(x, Register) and isinstance(y, Register)
    name = "fma" if opcode(step) == "add" else "fms" if first else "fnma"
    return Pair(number, at, f"{name}.{kind}", (x, y, b if first else a))
